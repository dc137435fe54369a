import io

import numpy as np
import pytest
import torch
from PIL import Image

from rectangular_flows import RectangularFlow, flows
from rectangular_flows.metrics.out_of_distribution import Detection, detect
from rectangular_flows.plots import (
    Histogram,
    draw_detection,
    draw_interpolations,
    draw_latent_grid,
    draw_reconstructions,
    draw_samples,
    mosaic,
)
from rectangular_flows.plots.images import DPI, png
from tests.conftest import shaken

SHAPE = (1, 6, 4)


def image_flow(dim=2, latent=None):
    logit = flows.Logit(SHAPE, margin=0.05)
    embedding = flows.OrthonormalEmbedding(8, SHAPE)
    return RectangularFlow(flows.RealNVP(8, layers=2), latent or flows.Identity(dim), [embedding, logit])


def images(count, shape=SHAPE, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), dtype=np.uint8)


def dots(figure):
    """The picture of a figure as it is saved, in grey."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=DPI)
    return np.asarray(Image.open(file).convert("L"))


@pytest.mark.parametrize("channels", [1, 3])
def test_mosaic_has_every_image_in_its_place(channels):
    shown = images(7, (channels, 5, 4))
    picture = mosaic(shown, columns=3, gap=(2, 1), paper=200)
    assert picture.shape == (3 * 5 + 2 * 2, 3 * 4 + 2, 3)[: 2 if channels == 1 else 3]
    for i, image in enumerate(shown):
        top, left = i // 3 * 7, i % 3 * 5
        np.testing.assert_array_equal(
            picture[top : top + 5, left : left + 4].reshape(5, 4, channels).transpose(2, 0, 1), image
        )
    assert (picture[5:7] == 200).all()
    assert (picture[14:, 5:] == 200).all()  # the places that are left over
    np.testing.assert_array_equal(mosaic(shown, 3, gap=(2, 1), paper=200, scale=3)[::3, ::3], picture)


def test_floats_are_bytes_and_what_is_outside_is_black_or_white():
    np.testing.assert_array_equal(mosaic(torch.tensor([[[[-1.0, 0.5, 7.0]]]])), [[0, 128, 255]])


@pytest.mark.parametrize("channels", [1, 3])
def test_a_png_holds_the_picture_as_it_is(channels):
    picture = mosaic(images(4, (channels, 5, 4)), 2)
    kept = np.asarray(Image.open(io.BytesIO(png(picture))).convert("L" if channels == 1 else "RGB"))
    np.testing.assert_array_equal(kept, picture)


@pytest.mark.parametrize("bad", [np.zeros((3, 4, 4)), np.zeros((2, 2, 4, 4)), np.zeros((0, 1, 4, 4))])
def test_what_is_not_images_is_refused(bad):
    with pytest.raises(ValueError, match=r"expected images of shape \(N, C, H, W\)"):
        mosaic(bad)


def test_no_pixel_is_interpolated():
    shown = images(12, (1, 8, 8))
    saved, picture = dots(draw_samples(shown, columns=4)), mosaic(shown, 4)
    scale = 6
    size = scale * picture.shape[0], scale * picture.shape[1]
    below = saved.shape[0] - 20 - size[0]
    np.testing.assert_array_equal(saved[below : below + size[0], 20 : 20 + size[1]], mosaic(shown, 4, scale=scale))


def test_pairs_with_distances():
    shown = images(7)
    figure = draw_reconstructions(shown, shown / 255, np.arange(7) + 0.5, columns=3)
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts[2:] == ["0.500", "1.50", "2.50", "3.50", "4.50", "5.50", "6.50"]
    dots(figure)
    with pytest.raises(ValueError, match="a projection for each image"):
        draw_reconstructions(shown, shown[:3])
    with pytest.raises(ValueError, match="an error for each of 7"):
        draw_reconstructions(shown, shown, [1.0])


@pytest.mark.parametrize("latent", [flows.Identity(2), flows.RealNVP(2, layers=1)])
def test_the_plane_is_the_right_way_up(latent):
    flow = shaken(image_flow(latent=latent))
    figure = draw_latent_grid(flow, side=3)
    shown = np.asarray(figure.axes[0].images[0].get_array())[:, :, 0]
    samples = flow.latent.sample(20_000, torch.Generator().manual_seed(0))
    low, high = samples.quantile(1 / 6, dim=0), samples.quantile(5 / 6, dim=0)
    if isinstance(latent, flows.Identity):
        high = torch.full((2,), 0.967421566, dtype=torch.float64)
        low = -high
    corners = {(0, 0): (low[0], high[1]), (0, 2): (high[0], high[1]), (2, 0): (low[0], low[1])}
    for (row, column), z in corners.items():
        expected = mosaic(flow.decode(torch.stack(z)[None]))
        got = shown[6 * row : 6 * row + 6, 4 * column : 4 * column + 4]
        assert np.abs(got.astype(int) - expected).max() <= 1
    dots(figure)
    with pytest.raises(ValueError, match="d = 2"):
        draw_latent_grid(image_flow(3))


def test_lines_begin_and_end_at_the_projections():
    flow = shaken(image_flow(3))
    first, second = (torch.from_numpy((images(2, seed=i) + 0.5) / 256) for i in (1, 2))
    figure = draw_interpolations(flow, first, second, steps=4)
    shown = np.asarray(figure.axes[0].images[0].get_array())[:, :, 0]
    apart = 3
    assert shown.shape == (2 * 6 + 2, 2 * (4 + apart) + 4 * 4 + 3)
    np.testing.assert_array_equal(shown[:6, :4], mosaic(first[:1]))
    np.testing.assert_array_equal(shown[8:, -4:], mosaic(second[1:]))
    with torch.no_grad():
        np.testing.assert_array_equal(shown[:6, 7:11], mosaic(flow.project(first[:1])))
        assert np.abs(shown[8:, -11:-7].astype(int) - mosaic(flow.project(second[1:]))).max() <= 1
    dots(figure)
    with pytest.raises(ValueError, match="as many images"):
        draw_interpolations(flow, first, second[:1])


def test_histograms_with_their_figures():
    random = np.random.default_rng(0)
    sets = random.normal(size=(3, 500)) + np.array([[0.0], [0.0], [3.0]])
    found = detect(sets[1], sets[2])
    panels = {
        "plain": Histogram(*sets, found, threshold=1.6),
        "logarithmic": Histogram(*np.exp(3 * sets), Detection(0.75, 0.5, 0.5, 0.625), unit="distance"),
        "compressed": Histogram(sets[0], sets[1], -np.exp(4 * sets[2]), found),
        "infinite": Histogram(sets[0], sets[1], np.where(sets[2] > 3, -np.inf, sets[2]), found),
        "constant": Histogram(*np.zeros((3, 5)), found),
    }
    figure = draw_detection(panels, "own", "other")
    dots(figure)
    assert [axis.get_title(loc="left").strip() for axis in figure.axes[:5]] == [name.capitalize() for name in panels]
    assert figure.axes[1].get_xscale() == "log"
    assert figure.axes[1].texts[0].get_text() == "AUROC 0.750 · stump 62.5%"
    assert figure.axes[0].texts[0].get_text() == f"AUROC {found.auroc:.3f}"
    for axis in figure.axes[:5]:  # each histogram holds all of its points, the infinite ones too
        heights = [sum(patch.get_height() for patch in bars.patches) for bars in axis.containers[:2]]
        np.testing.assert_allclose(heights, 1)
