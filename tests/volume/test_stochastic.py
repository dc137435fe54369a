"""The stochastic method: its probes, and the gradient that they estimate."""

import pytest
import torch

from rectangular_flows import RectangularFlow, flows
from rectangular_flows.volume import CG, Exact, Stochastic, draw_probes

from .helpers import gradient, make_flow


@pytest.mark.parametrize("distribution", ["gaussian", "rademacher", "orthonormal"])
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_probes_have_identity_covariance(distribution, count):
    z = torch.zeros(20_000, 3, dtype=torch.float64)
    probes = draw_probes(z, count, distribution, torch.Generator().manual_seed(0))
    assert probes.shape == (20_000, count, 3)
    covariance = torch.einsum("bki,bkj->ij", probes, probes) / (20_000 * count)
    torch.testing.assert_close(covariance, torch.eye(3, dtype=torch.float64), rtol=0, atol=0.05)
    if distribution == "orthonormal" and count == 3:
        torch.testing.assert_close(probes @ probes.mT, 3 * torch.eye(3, dtype=torch.float64).expand(20_000, 3, 3))


def test_probes_follow_the_generator():
    z = torch.zeros(4, 3)
    draws = [draw_probes(z, 2, "orthonormal", torch.Generator().manual_seed(s)) for s in (1, 1, 2)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def z_scores(flow, z, method, count):
    """Of each gradient entry: (mean over independent probes − exact) / standard error."""
    exact = gradient(Exact()(flow, z)[1].mean(), flow)
    draws = torch.stack([gradient(method(flow, z)[1].mean(), flow) for _ in range(count)])
    error = draws.std(dim=0) / count**0.5
    moving = error > 1e-9 * error.max()
    return ((draws.mean(dim=0) - exact) / error)[moving]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("distribution", ["gaussian", "rademacher", "orthonormal"])
def test_one_probe_is_unbiased(distribution, seed):
    flow = make_flow(8, 6, seed, amount=0.1)
    z = torch.randn(512, 6, dtype=torch.float64)  # a draw costs as much for fewer
    method = Stochastic(1, distribution, generator=torch.Generator().manual_seed(seed))
    scores = z_scores(flow, z, method, 100)
    assert len(scores) > 500
    assert 0.5 <= float(scores.square().mean()) <= 1.5


def test_surrogate_value_is_not_a_volume():
    """It is about d at any flow: the mean of εᵀ(JᵀJ)⁻¹JᵀJε."""
    flow = make_flow(6, 3)
    _, L = Stochastic(2)(flow, torch.randn(4, 3, dtype=torch.float64))
    torch.testing.assert_close(L, torch.full_like(L, 3.0))


@pytest.mark.slow
def test_loose_tolerance_biases_the_gradient():
    stretch = flows.Standardise(torch.zeros(6), torch.logspace(0, 1.5, 6))
    flow = RectangularFlow(make_flow(6, 4).ambient, flows.Identity(4), outer=stretch).double()
    z = torch.randn(64, 4, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    tight = Stochastic(1, "gaussian", CG(1e-10, max_iter=40), generator=generator)
    loose = Stochastic(1, "gaussian", CG(0.5), generator=generator)
    assert float(z_scores(flow, z, tight, 100).square().mean()) < 1.5
    assert float(z_scores(flow, z, loose, 100).square().mean()) > 3


def test_orthonormal_probes_have_less_variance():
    flow = make_flow(8, 5)
    z = torch.randn(32, 5, dtype=torch.float64)
    variance = {}
    for name in ("gaussian", "rademacher", "orthonormal"):
        method = Stochastic(3, name, generator=torch.Generator().manual_seed(1))
        draws = torch.stack([gradient(method(flow, z)[1].mean(), flow) for _ in range(40)])
        variance[name] = float(draws.var(dim=0).sum())
    assert variance["orthonormal"] < variance["gaussian"]
    assert variance["orthonormal"] < variance["rademacher"]
