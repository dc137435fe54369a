import math

import numpy as np
import pytest
import torch

from rectangular_flows.metrics.geometry import circle_fit, trace_curve
from rectangular_flows.plots.circle import (
    TRUE_TOP,
    CircleResult,
    density_panel,
    draw_circle_run,
    speed_panel,
    truth_panel,
)
from tests.metrics.test_geometry import flow_of

from .drawn import saved, shows


def result(name="Learned", radius=1.1, width=0.8):
    """A curve of known density and speed: the angle is width·z + 0.2 sin z + π/2."""
    flow = flow_of(lambda z: width * z + 0.2 * torch.sin(z) + math.pi / 2, radius)
    return CircleResult(name, flow, circle_fit(flow))


def panels(learned):
    curve = trace_curve(learned.flow, 4001, tail=1e-4)
    return density_panel(learned, curve), truth_panel(), speed_panel(learned, curve)


def test_densities_and_speeds_are_those_of_the_curve():
    learned = result()
    density, truth, speed = panels(learned)
    assert density.title == "Learned: density"
    assert density.detail == f"KL {learned.fit.kl:.3f} · mean distance 0.100"
    (ribbon,) = density.layers
    np.testing.assert_allclose(np.linalg.norm(ribbon.points, axis=1), 1.1)
    middle = len(ribbon.values) // 2  # z = 0, where the speed is the radius times 1
    assert ribbon.values[middle] == pytest.approx(1 / math.sqrt(2 * math.pi) / 1.1, rel=1e-3)
    assert ribbon.top == pytest.approx(1.6 * TRUE_TOP)
    (ribbon,) = speed.layers
    assert speed.title == "Learned: speed ‖f′(z)‖"
    assert ribbon.values[middle] == pytest.approx(1 / (0.8 + 0.2 * math.exp(-0.5)), rel=1e-3)  # E cos z = e^(−1/2)
    assert ribbon.top == 2
    (ribbon,) = truth.layers
    np.testing.assert_allclose(np.linalg.norm(ribbon.points, axis=1), 1)
    assert ribbon.points[ribbon.values.argmax()] == pytest.approx([0, 1], abs=1e-2)
    assert ribbon.values.max() == pytest.approx(math.e / (2 * math.pi * 1.2660658), rel=1e-5)  # κ = 1, I₀(1)


def test_the_panels_are_drawn_in_their_order():
    figure = draw_circle_run(result())
    saved(figure)
    assert all(shows(axis, panel) for axis, panel in zip(figure.axes, panels(result()), strict=False))
    assert [axis.get_ylabel() for axis in figure.axes[3:]] == ["density along the curve", "speed relative to its mean"]
    assert figure.axes[4].get_ylim() == (0, 2)
