import numpy as np
import pytest

from rectangular_flows.data.truths import Torus
from rectangular_flows.metrics.coverage import Coverage
from rectangular_flows.plots.coverage import draw_coverage, region_panel, transform_panels

from .drawn import saved, shows

RANDOM = np.random.default_rng(0)
LEVELS, UNIFORMS = np.linspace(0, 1, 400) ** 2, RANDOM.uniform(size=(1000, 2)) ** [1, 2]
FOUND = Coverage(Torus(), LEVELS, LEVELS, UNIFORMS, UNIFORMS, np.zeros(1000))


def test_the_curve_is_the_share_of_rows_at_every_level():
    panel = region_panel(FOUND)
    low, high, curve, dots, *notes = panel.layers
    np.testing.assert_allclose(curve.y, np.sqrt(curve.x), atol=0.003)
    np.testing.assert_allclose(high.y - curve.x, 2 * np.sqrt(curve.x * (1 - curve.x) / 400))
    np.testing.assert_allclose(low.y + high.y, 2 * curve.x)
    assert dots.x.tolist() == [0.5, 0.9, 0.99]
    assert [note.text for note in notes] == [f"{x:.0%}: {y:.1%}" for x, y in zip(dots.x, dots.y, strict=True)]
    assert panel.detail.startswith("400 test rows")


def test_histograms_are_densities_of_the_transforms():
    first, second = transform_panels(FOUND)
    assert (first.title, second.title) == ("Angle along the ring", "Angle around the tube")
    for panel, values in zip((first, second), UNIFORMS.T, strict=True):
        bars, line = panel.layers
        expected = np.histogram(values, 20, (0, 1), density=True)[0]
        np.testing.assert_allclose(bars.heights, expected)
        assert (line.at, line.error) == (1, pytest.approx(2 * np.sqrt(19 / 1000)))
    assert second.y.limits[1] > second.layers[0].heights.max()


def test_all_are_drawn():
    figure = draw_coverage(FOUND)
    saved(figure)
    for axis, panel in zip(figure.axes, [region_panel(FOUND), *transform_panels(FOUND)], strict=True):
        assert shows(axis, panel)
