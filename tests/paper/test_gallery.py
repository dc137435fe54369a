import numpy as np
import pytest

from rectangular_flows.paper.gallery import Gallery, draw_gallery
from rectangular_flows.plots.images import DPI, mosaic


def test_the_gallery_shows_every_pixel():
    random = np.random.default_rng(0)
    grey, colour = (random.integers(0, 256, (36, *shape), dtype=np.uint8) for shape in ((1, 28, 28), (3, 32, 32)))
    sets = [
        Gallery("grey", grey, {"exact": grey[::-1], "two-step": grey}, "exact", grey[18:]),
        Gallery("colour", colour, {"exact": colour, "two-step": colour}, "exact", colour[:18]),
    ]
    figure = draw_gallery(sets)
    assert len(figure.axes) == 8
    shown = figure.axes[1].images[0].get_array()
    np.testing.assert_array_equal(shown[:, :, 0], mosaic(grey[::-1], 6)[:, :, 0])
    pairs = figure.axes[3].images[0].get_array()[:, :, 0]
    np.testing.assert_array_equal(pairs[:28, :28], grey[0, 0])
    np.testing.assert_array_equal(pairs[:28, 28:56], grey[18, 0])
    labels = [axis.texts[1].get_text() for axis in figure.axes[:4]]
    assert labels == ["test images", "samples, exact", "samples, two-step", "image | projection, exact"]
    for axis in figure.axes:
        wide, high = axis.get_position().size * figure.get_size_inches() * DPI
        scale = wide / axis.images[0].get_array().shape[1]
        assert scale == pytest.approx(round(scale), abs=1e-6)
        assert high / axis.images[0].get_array().shape[0] == pytest.approx(scale)
    with pytest.raises(ValueError, match="at least one set"):
        draw_gallery([])
