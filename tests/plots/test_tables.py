import numpy as np
import pytest
import torch

from rectangular_flows import Atlas, RectangularFlow, flows
from rectangular_flows.plots.style import BLUE, RED
from rectangular_flows.plots.tables import draw_manifold, draw_pairs, manifold_panels, pair_panels
from tests.conftest import shaken

from .drawn import saved, shows, text_of


@pytest.fixture
def rows():
    generator = torch.Generator().manual_seed(0)
    data = torch.randn(500, 3, generator=generator, dtype=torch.float64)
    return data, torch.randn(400, 3, generator=generator, dtype=torch.float64) + 1


def test_data_are_below_the_diagonal_and_samples_above(rows):
    data, samples = rows
    panels = pair_panels(data, samples, ["a", "b", "c"])
    (below,), (above,) = panels[2][0].layers, panels[0][2].layers
    np.testing.assert_array_equal(np.stack([below.x, below.y], 1), data[:, [0, 2]])
    np.testing.assert_array_equal(np.stack([above.x, above.y], 1), samples[:, [2, 0]])
    assert (below.colour, above.colour) == (BLUE, RED)
    assert (panels[2][0].x.label, panels[2][0].y.label) == ("a", "c")


def test_marginals_are_densities_and_filled_for_data(rows):
    data, samples = rows
    for i, row in enumerate(pair_panels(data, samples, ["a", "b", "c"])):
        real, drawn = row[i].layers
        widths = np.diff(real.edges)
        middles = (real.edges[1:] + real.edges[:-1]) / 2
        assert (real.alpha, drawn.alpha) == (0.35, None)
        assert (real.heights * widths).sum() == pytest.approx(1, abs=0.01)
        assert (real.heights * widths * middles).sum() == pytest.approx(float(data[:, i].mean()), abs=0.05)
        inside = (samples[:, i] > real.edges[0]) & (samples[:, i] < real.edges[-1])
        assert (drawn.heights * widths).sum() == pytest.approx(float(inside.double().mean()))


def test_limits_are_those_of_the_data_without_far_rows(rows):
    data, samples = rows
    data[0] = 1e6
    scale = pair_panels(data, samples, ["a", "b", "c"])[0][1].x
    low, high = np.quantile(data[:, 1], [0.002, 0.998])
    assert scale.limits == pytest.approx((low - 0.08 * (high - low), high + 0.08 * (high - low)))


def test_samples_that_are_nowhere_near_the_data(rows):
    data, _ = rows
    saved(draw_pairs(data, data + 1e9, ["a", "b", "c"]))


def test_of_many_columns_the_widest_are_shown_and_long_names_cut():
    data = torch.randn(50, 9, dtype=torch.float64) * torch.tensor([9.0, 1, 8, 2, 7, 3, 6, 4, 5])
    panels = pair_panels(data, data, [f"{i} with a very long name" for i in range(9)])
    assert [row[0].y.label for row in panels] == [f"{i} with a very lon…" for i in (0, 2, 4, 6, 7, 8)]


@pytest.mark.parametrize("name", [r"$\frac$", "[/red]", "a_b^c", "_x", "100 %"])
def test_names_of_columns_are_drawn_as_they_are(rows, name):
    figure = draw_pairs(*rows, [name, "b", "c"])
    saved(figure)
    assert text_of(figure.axes[6].get_xlabel()) == name
    assert text_of(figure.axes[0].get_ylabel()) == name
    assert not figure.axes[6].xaxis.label._preprocess_math(figure.axes[6].get_xlabel())[1]  # no formula


def test_pairs_are_drawn_in_their_places(rows):
    figure = draw_pairs(*rows, ["a", "b", "c"])
    panels = [panel for row in pair_panels(*rows, ["a", "b", "c"]) for panel in row]
    assert all(shows(axis, panel) for axis, panel in zip(figure.axes, panels, strict=True))
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["data", "samples"]


@pytest.mark.parametrize("d", [1, 2, 3])
def test_the_manifold_in_numbers(d):
    flow = shaken(
        RectangularFlow(flows.RealNVP(4, layers=2), flows.RealNVP(d, layers=1) if d > 1 else flows.Identity(1))
    )
    rows = torch.randn(300, 4, dtype=torch.float64)
    coordinates, distances, stretching = manifold_panels(flow, rows)
    with torch.no_grad():
        z, error = flow.encode(rows), flow.reconstruction_error(rows).sqrt()
    (layer,) = coordinates.layers
    if d == 1:
        assert (layer.heights * np.diff(layer.edges)).sum() == pytest.approx(1)
        assert (layer.edges[0], layer.edges[-1]) == pytest.approx((float(z.min()), float(z.max())))
    else:
        np.testing.assert_allclose(np.stack([layer.x, layer.y], 1), z[:, :2])
        np.testing.assert_allclose(layer.values, flow.log_prob(rows).detach())
        assert layer.limits == pytest.approx(tuple(np.quantile(layer.values, [0.02, 0.98])))
    (bars,) = distances.layers
    assert distances.detail == f"median {np.median(error):.3g}"
    assert bars.heights.sum() >= 298
    np.testing.assert_array_equal(bars.heights, np.histogram(error, bars.edges)[0])
    (boxes,) = stretching.layers
    np.testing.assert_allclose(10**boxes.values, flow.singular_values(z).detach())
    figure = draw_manifold(flow, rows)
    saved(figure)
    assert all(shows(axis, p) for axis, p in zip(figure.axes, (coordinates, distances, stretching), strict=False))
    assert len(figure.axes) == (3 if d == 1 else 4)


def test_near_distances_have_a_linear_axis_and_no_distance_is_no_problem():
    flow = RectangularFlow(flows.Identity(2), flows.Identity(1), pad=flows.Pad(1, 2, order="first")).double()
    rows = torch.stack([torch.randn(50), torch.linspace(1, 2, 50)], dim=1).double()
    panel = manifold_panels(flow, rows)[1]
    assert (panel.x.kind, panel.layers[0].edges[0]) == ("linear", 0)
    rows[:, 1] = torch.logspace(-3, 2, 50)
    assert manifold_panels(flow, rows)[1].x.kind == "log"
    rows[:, 1] = 0
    saved(draw_manifold(flow, rows))


def test_coordinates_of_an_atlas_are_those_on_its_largest_chart():
    """On other charts the same numbers are other places."""
    torch.manual_seed(0)
    charts = [shaken(RectangularFlow(flows.RealNVP(3, 1, (4,)), flows.Identity(1))) for _ in range(2)]
    atlas, rows = Atlas(charts), torch.randn(200, 3, dtype=torch.float64)
    chart, z = atlas.encode(rows)
    most = int(chart.bincount().argmax())
    assert 0 < (chart == most).sum() < 200
    panel = manifold_panels(atlas, rows)[0]
    assert panel.detail == f"of the rows on chart {most}, the largest of 2"
    edges = panel.layers[0].edges
    own = z[chart == most].double().detach().numpy()
    np.testing.assert_allclose([edges[0], edges[-1]], [own.min(), own.max()], rtol=1e-6)
