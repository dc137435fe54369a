import io

import numpy as np
import pytest
import torch
from PIL import Image

from rectangular_flows import RectangularFlow, flows
from rectangular_flows.plots.images import (
    DPI,
    as_bytes,
    draw_interpolations,
    draw_latent_grid,
    draw_reconstructions,
    draw_samples,
    mosaic,
)
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


def shown(figure):
    """The picture in a figure, one channel."""
    return np.asarray(figure.axes[0].images[0].get_array())[:, :, 0]


@pytest.mark.parametrize("channels", [1, 3])
def test_mosaic_has_every_image_in_its_place(channels):
    wanted = images(7, (channels, 5, 4))
    picture = mosaic(wanted, columns=3, gap=(2, 1))
    assert picture.shape == (3 * 5 + 2 * 2, 3 * 4 + 2, 3)
    for i, image in enumerate(wanted):
        top, left = i // 3 * 7, i % 3 * 5
        for c in range(3):
            np.testing.assert_array_equal(picture[top : top + 5, left : left + 4, c], image[c % channels])
    assert (picture[5:7] == 255).all()
    assert (picture[14:, 5:] == 255).all()  # the places that are left over
    np.testing.assert_array_equal(mosaic(wanted, 3, gap=(2, 1), scale=3)[1::3, 2::3], picture)


def test_floats_are_bytes_and_what_is_outside_is_black_or_white():
    np.testing.assert_array_equal(as_bytes(torch.tensor([[[[-1.0, 0.5, 7.0]]]])), [[[[0, 128, 255]]]])


def test_no_pixel_is_interpolated():
    wanted = images(12, (1, 8, 8))
    saved, picture = dots(draw_samples(wanted, columns=4)), mosaic(wanted, 4, scale=6)[:, :, 0]
    below = saved.shape[0] - 20 - picture.shape[0]
    np.testing.assert_array_equal(saved[below : below + picture.shape[0], 20 : 20 + picture.shape[1]], picture)


def test_pairs_with_distances():
    originals, projections = images(7), images(7, seed=1)
    figure = draw_reconstructions(originals, (projections + 0.5) / 256, np.arange(7) + 0.5, "Pairs", columns=3)
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts[2:] == ["0.500", "1.50", "2.50", "3.50", "4.50", "5.50", "6.50"]
    picture = shown(figure)
    np.testing.assert_array_equal(picture[:6, :4], originals[0, 0])
    np.testing.assert_array_equal(picture[:6, 5:9], projections[0, 0])
    np.testing.assert_array_equal(picture[9:15, 12:16], originals[4, 0])  # 3 pixels between rows and columns of pairs
    dots(figure)


@pytest.mark.parametrize("latent", [flows.Identity(2), flows.RealNVP(2, layers=1)])
def test_the_plane_is_the_right_way_up(latent):
    flow = shaken(image_flow(latent=latent))
    figure = draw_latent_grid(flow, side=3)
    picture = shown(figure)
    samples = flow.latent.sample(20_000, torch.Generator().manual_seed(0))
    low, high = samples.quantile(1 / 6, dim=0), samples.quantile(5 / 6, dim=0)
    if isinstance(latent, flows.Identity):
        assert high.tolist() == pytest.approx([0.967421566] * 2, abs=0.03)  # of the standard normal
    corners = {(0, 0): (low[0], high[1]), (0, 2): (high[0], high[1]), (2, 0): (low[0], low[1])}
    for (row, column), z in corners.items():
        expected = mosaic(flow.decode(torch.stack(z)[None]))[:, :, 0]
        got = picture[6 * row : 6 * row + 6, 4 * column : 4 * column + 4]
        assert np.abs(got.astype(int) - expected).max() <= 1
    dots(figure)
    ticks = zip(figure.axes[0].get_yticks(), figure.axes[0].get_yticklabels(), strict=True)
    assert {label.get_text(): tick for tick, label in ticks}["95 %"] == pytest.approx(0.05 * 18 - 0.5)  # at the top


def test_lines_begin_and_end_at_the_projections():
    flow = shaken(image_flow(3))
    first, second = (torch.from_numpy((images(2, seed=i) + 0.5) / 256) for i in (1, 2))
    figure = draw_interpolations(flow, first, second, "Lines", steps=4)
    picture = shown(figure)
    apart = 3
    assert picture.shape == (2 * 6 + 2, 2 * (4 + apart) + 4 * 4 + 3)
    np.testing.assert_array_equal(picture[:6, :4], as_bytes(first)[0, 0])
    np.testing.assert_array_equal(picture[8:, -4:], as_bytes(second)[1, 0])
    with torch.no_grad():
        wanted = as_bytes(flow.project(first))[0, 0], as_bytes(flow.project(second))[1, 0]
        middle = as_bytes(flow.decode(flow.encode(first) / 3 * 2 + flow.encode(second) / 3))[1, 0]
    assert np.abs(picture[:6, 7:11].astype(int) - wanted[0]).max() <= 1
    assert np.abs(picture[8:, -11:-7].astype(int) - wanted[1]).max() <= 1
    assert np.abs(picture[8:, 12:16].astype(int) - middle).max() <= 1
    dots(figure)
