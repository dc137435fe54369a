import math

import numpy as np
import pytest
import torch
from scipy.stats import vonmises_fisher

from rectangular_flows import RectangularFlow, flows
from rectangular_flows.metrics.sphere import choose_concentration, kernel_log_density, sphere_fit, spread_points


class Stereographic(flows.Injection):
    """The plane on the unit sphere without its north pole, times a radius: a surface whose density is known."""

    def __init__(self, radius=1.0):
        super().__init__((2,), (3,))
        self.radius = radius

    def forward(self, z):
        s = z.square().sum(dim=1, keepdim=True)
        return self.radius * torch.cat([2 * z, s - 1], dim=1) / (s + 1)

    def inverse(self, x):
        u = x / x.norm(dim=1, keepdim=True)
        return u[:, :2] / (1 - u[:, 2:])


def stereographic(radius=1.0):
    flow = RectangularFlow(flows.Identity(2), flows.Identity(2), Stereographic(radius), pad=flows.Pad(2, 2))
    return flow.double()


def test_spread_points_integrate():
    points = spread_points(5000)
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1)
    np.testing.assert_allclose(points.T @ points / 5000, np.eye(3) / 3, atol=1e-3)


@pytest.mark.parametrize("concentration", [1.0, 30.0, 1000.0])
def test_kernels_against_scipy(concentration):
    centres, points = spread_points(7), spread_points(50)
    expected = np.mean([vonmises_fisher(c, concentration).pdf(points) for c in centres], axis=0)
    got = kernel_log_density(centres, points, concentration)
    keep = expected > 1e-250
    np.testing.assert_allclose(got[keep], np.log(expected[keep]), rtol=1e-8, atol=1e-8)


def test_kernels_have_mass_one():
    centres = np.random.default_rng(0).normal(size=(20, 3))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    mass = 4 * math.pi * np.exp(kernel_log_density(centres, spread_points(50_000), 50.0)).mean()
    assert mass == pytest.approx(1, abs=1e-4)


def test_concentration_follows_the_spread_of_the_data():
    found = []
    for concentration in (3.0, 300.0):
        rows = vonmises_fisher([0, 0, 1], concentration).rvs(600, random_state=0)
        found.append(choose_concentration(rows[:400], rows[400:]))
    assert found[1] > 10 * found[0]


def test_a_flow_that_is_the_sphere():
    flow = stereographic()
    rows = flow.sample(900, generator=torch.Generator().manual_seed(0))
    fit = sphere_fit(flow, rows[:600], rows[600:700], rows[700:], rows)
    z = flow.encode(rows[700:])
    # conformal with factor 2/(1 + |z|²): the density is the Gaussian's over its square
    truth = -z.square().sum(1) / 2 - math.log(2 * math.pi) - 2 * torch.log(2 / (1 + z.square().sum(1)))
    assert fit.mass == pytest.approx(1, abs=2e-3)
    assert fit.log_density == pytest.approx(float(truth.mean()), abs=3e-3)
    assert fit.uniform_log_density == pytest.approx(-2.5310242)
    assert fit.uniform_log_density < fit.kernel_log_density < fit.log_density
    assert fit.sample_distance == pytest.approx(0, abs=1e-12)


def test_a_sphere_of_another_size_is_seen_and_made_comparable():
    flow, true = stereographic(1.25), stereographic()
    rows = true.sample(300, generator=torch.Generator().manual_seed(0))
    samples = flow.sample(50)
    fit, right = (sphere_fit(f, rows[:200], rows[200:250], rows[250:], s) for f, s in ((flow, samples), (true, rows)))
    assert fit.sample_distance == pytest.approx(0.25)
    assert fit.mass == pytest.approx(1 / 1.25**2, rel=5e-3)
    assert fit.log_density == pytest.approx(right.log_density, abs=1e-6)
