import numpy as np
import pytest

from rectangular_flows.metrics.dimension import Dimensions, Estimate
from rectangular_flows.plots.dimension import dimension_lines, draw_dimension, variance_panel

from .drawn import saved, shows

SPECTRUM = np.array([0.5, 0.3, 0.15, 0.05])
FOUND = Dimensions(Estimate(2.7, 0.2), Estimate(2.4, 0.1, ((10, 2.5), (11, 2.3))), 4, 3, 1234, SPECTRUM)


def test_the_lines_are_the_estimates():
    panel = dimension_lines(FOUND)
    likelihood, nearest, suggestion = panel.layers
    assert (likelihood.x.tolist(), likelihood.y.tolist()) == ([10, 11], [2.5, 2.3])
    assert (nearest.at, nearest.error, suggestion.at) == (2.7, 0.2, 3)
    assert [layer.label for layer in panel.layers] == ["maximum likelihood", "two nearest neighbours", "suggestion: 3"]
    assert panel.y.limits == pytest.approx((0, 1.15 * 3))
    assert panel.detail == "1,234 rows, standardised columns"


def test_the_spectrum():
    panel = variance_panel(FOUND, SPECTRUM)
    bars, line, share = panel.layers
    np.testing.assert_array_equal(bars.heights[::2], SPECTRUM)
    np.testing.assert_allclose(bars.edges[:4], [0.6, 1.4, 1.6, 2.4])
    np.testing.assert_allclose(line.y, [0.5, 0.8, 0.95, 1.0])
    assert share.at == 0.95
    assert panel.detail.endswith("95 % with 4")


def test_both_are_drawn():
    figure = draw_dimension(FOUND, SPECTRUM)
    saved(figure)
    left, right = figure.axes
    assert shows(left, dimension_lines(FOUND))
    assert shows(right, variance_panel(FOUND, SPECTRUM))
