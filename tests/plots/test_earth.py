import io

import numpy as np
import pytest
import torch

from rectangular_flows import RectangularFlow, flows
from rectangular_flows.data.sphere import to_xyz
from rectangular_flows.plots import draw_earth, draw_earths
from rectangular_flows.plots.earth import density_map
from tests.metrics.test_sphere import stereographic


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
    pictures = draw_earth(flow, torch.eye(3), resolution=5.0)
    pictures.savefig(io.BytesIO(), dpi=40)


def test_draws(tmp_path):
    flow = stereographic()
    rows = flow.sample(500)
    figure = draw_earths({"One": (flow, rows), "Two": (flow, rows[:9])}, resolution=5.0)
    figure.savefig(tmp_path / "earth.png", dpi=50)
    titles = [axis.get_title(loc="left") for axis in figure.axes]
    assert titles[:4] == ["One", "Learned density", "Two", "Learned density"]
    assert "per steradian" in figure.axes[-1].get_xlabel()


def test_only_surfaces():
    with pytest.raises(ValueError, match="surface"):
        draw_earth(RectangularFlow(flows.RealNVP(3), flows.Identity(1)), torch.eye(3))
