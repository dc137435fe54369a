import math

import numpy as np
import pytest
import torch

import rectangular_flows as rnf
from rectangular_flows.metrics import circle_fit
from rectangular_flows.paper.circle_figure import circle_panels, draw_circle, draw_circle_grid
from rectangular_flows.plots.circle import TRUE_TOP, CircleResult
from rectangular_flows.plots.style import BLUE, RED
from tests.plots.drawn import saved, shows
from tests.plots.test_circle import result


@pytest.fixture(scope="module")
def methods():
    """Two methods that are easy to tell apart: other radii, other widths; and data from the first."""
    ml, two_step = result("Maximum likelihood", 1.0, 0.8), result("Two-step", 1.2, 0.3)
    z = torch.special.ndtri((torch.arange(4000, dtype=torch.float64) + 0.5) / 4000)
    return ml, two_step, ml.flow.decode(z[:, None])


def test_maximum_likelihood_is_on_the_left_and_two_step_on_the_right(methods):
    panels = circle_panels(*methods)
    for row in panels:
        assert row[0].title.startswith("Maximum likelihood: ")
        assert row[2].title.startswith("Two-step: ")
        for panel, radius in ((row[0], 1.0), (row[2], 1.2)):
            np.testing.assert_allclose(np.linalg.norm(panel.layers[0].points, axis=1), radius)
    assert panels.density[0].detail.startswith(f"KL {methods[0].fit.kl:.3f}")
    assert panels.density[2].detail.startswith(f"KL {methods[1].fit.kl:.3f}")
    assert panels.density[1].title == "von Mises ground truth"


def test_a_closed_curve_comes_last(methods):
    torch.manual_seed(0)
    flow = rnf.RectangularFlow(rnf.flows.Identity(2), rnf.densities.UniformDensity("circle")).double()
    closed = CircleResult("Closed latent space", flow, circle_fit(flow))
    assert (closed.fit.gap, closed.fit.max_distance) == (0, pytest.approx(0, abs=1e-9))
    assert closed.fit.mass == pytest.approx(1)
    panels = circle_panels(*methods, closed)
    for row in panels:
        assert len(row) == 4
        assert row[3].title.startswith("Closed latent space: ")
        ribbon = row[3].layers[0]
        np.testing.assert_allclose(ribbon.points[0], ribbon.points[-1], atol=1e-9)
    np.testing.assert_allclose(panels.density[3].layers[0].values, 1 / (2 * math.pi))


def test_scales_are_common_to_a_row(methods):
    density, speed = circle_panels(*methods)
    assert {panel.layers[0].top for panel in density} == {1.6 * TRUE_TOP}  # the narrow curve has higher densities
    ml = methods[0]
    (low,) = {panel.layers[0].top for panel in circle_panels(ml, ml, methods[2])[0]}
    assert low == pytest.approx(np.quantile(density[0].layers[0].values, 0.99))
    for panel, width in ((speed[0], 0.8), (speed[2], 0.3)):
        (ribbon,) = panel.layers
        assert ribbon.top == 2
        mean = width + 0.2 * math.exp(-0.5)  # of width + 0.2 cos z, under a standard normal z
        assert ribbon.values[2000] == pytest.approx((width + 0.2) / mean, rel=2e-3)


def test_the_latent_density_beside_the_encoded_data(methods):
    panel = circle_panels(*methods).speed[1]
    bars, line, other_bars, other_line = panel.layers
    assert [(each.label, each.colour) for each in (line, other_line)] == [
        ("Maximum likelihood", BLUE),
        ("Two-step", RED),
    ]
    assert [each.colour for each in (bars, other_bars)] == [BLUE, RED]
    middles = (bars.edges[1:] + bars.edges[:-1]) / 2
    normal = np.exp(-(middles**2) / 2) / math.sqrt(2 * math.pi)
    assert np.abs(bars.heights - normal).max() < 0.01  # the data are the first method's own
    assert line.y.max() == pytest.approx(1 / math.sqrt(2 * math.pi), rel=0.03)
    encoded = methods[1].flow.encode(methods[2]).flatten()
    assert float(encoded.std()) > 1.5  # which the second has to stretch
    assert other_line.y.max() == pytest.approx(float(encoded.std()) / math.sqrt(2 * math.pi), rel=1e-3)
    assert panel.y.limits[1] == pytest.approx(1.25 * max(each.y.max() for each in (line, other_line)))


def test_panels_are_drawn_in_their_places(methods):
    figure = draw_circle(*methods)
    saved(figure)
    density, speed = circle_panels(*methods)
    assert all(shows(axis, panel) for axis, panel in zip(figure.axes[:6], (*density, *speed), strict=True))
    assert [axis.get_ylim()[1] for axis in figure.axes[6:]] == pytest.approx([1.6 * TRUE_TOP, 2])


def test_the_grid_has_each_result_in_its_place(methods):
    ml, two_step, _ = methods
    figure = draw_circle_grid({(0, 0): ml, (1, 1): two_step}, ["rate, warm", "cold"], ["β 1", "β 2"], breaks=[1])
    saved(figure)
    first, second, third, fourth, _bar = figure.axes
    for axis, each, radius in ((first, ml, 1.0), (fourth, two_step, 1.2)):
        curve = axis.collections[0].get_segments()[0][0]
        assert np.linalg.norm(curve) == pytest.approx(radius)
        assert f"KL\n{each.fit.kl:.3g}" in [text.get_text() for text in axis.texts]
    assert not second.collections
    assert not third.collections
    assert [axis.get_title() for axis in (first, second)] == ["β 1", "β 2"]
    assert [axis.get_ylabel() for axis in (first, third)] == ["rate\nwarm", "cold"]
