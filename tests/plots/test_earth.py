import numpy as np
import pytest
import torch

from rectangular_flows import RectangularFlow, flows
from rectangular_flows.data.sphere import to_xyz
from rectangular_flows.plots.earth import density_map, draw_earth
from tests.metrics.test_sphere import stereographic

from .drawn import saved, text_of


def test_density_map_integrates_to_one_and_stands_the_right_way_up():
    field = density_map(stereographic(), resolution=2.0)
    assert field.shape == (90, 180)
    latitude = np.radians(np.linspace(-89, 89, 90))
    area = np.cos(latitude)[:, None] * np.radians(2.0) ** 2
    assert np.isnan(field).sum() == 0
    assert (field * area).sum() == pytest.approx(1, abs=2e-3)
    assert field[0].mean() > 10 * field[-1].mean()  # the mode is the south pole, the first row
    rows = torch.from_numpy(to_xyz(np.array([[31.0, -119.0]])))
    assert field[60, 30] == pytest.approx(float(stereographic().log_prob(rows).exp()))


def test_places_off_the_surface_are_left_out():
    flow = RectangularFlow(flows.Identity(3), flows.Identity(2), pad=flows.Pad(2, 3, order="first"))  # the plane z = 0
    field = density_map(flow, resolution=5.0)
    latitude = np.linspace(-87.5, 87.5, 36)
    off = np.abs(np.sin(np.radians(latitude))) > 0.1
    np.testing.assert_array_equal(np.isnan(field), np.broadcast_to(off[:, None], field.shape))
    figure = draw_earth(flow, torch.eye(3), "places", resolution=5.0)
    saved(figure)
    assert "grey: off the learned surface" in [text.get_text() for text in figure.axes[1].texts]


def test_points_are_where_they_are_on_earth():
    places = np.array([[0.0, 0.0], [45.0, 90.0], [-30.0, -120.0]])  # latitude, longitude
    figure = draw_earth(stereographic(), torch.from_numpy(to_xyz(places)), "places", resolution=10.0)
    np.testing.assert_allclose(np.degrees(figure.axes[0].collections[0].get_offsets()), places[:, ::-1], atol=1e-9)


def test_colours_go_from_a_tenth_of_the_uniform_density():
    figure = draw_earth(stereographic(), torch.eye(3), "places", resolution=2.0)
    uniform, density = 1 / (4 * np.pi), density_map(stereographic(), 2.0)
    expected = (uniform / 10, max(10 * uniform, np.quantile(density, 0.999)))
    assert figure.axes[1].collections[0].get_clim() == pytest.approx(expected)


def test_data_and_density_are_drawn_side_by_side():
    flow = stereographic()
    rows = flow.sample(500)
    figure = draw_earth(flow, rows, title=r"quakes $\frac$", resolution=5.0)
    saved(figure)
    left, right, bar = figure.axes
    assert len(left.collections[0].get_offsets()) == 500
    floor = 1 / (80 * np.pi)  # half of where the colours begin
    np.testing.assert_allclose(right.collections[0].get_array(), np.maximum(density_map(flow, 5.0), floor))
    assert [text_of(axis.get_title(loc="left")) for axis in (left, right)] == [r"quakes $\frac$", "Learned density"]
    assert "500 points" in [text.get_text() for text in left.texts]
    assert "per steradian" in bar.get_xlabel()
