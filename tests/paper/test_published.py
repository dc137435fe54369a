"""The algorithm that the benchmark compares with is right, so that the comparison is fair."""

import torch

from rectangular_flows import RectangularFlow, flows
from rectangular_flows.paper.published import published_exact, published_stochastic
from rectangular_flows.volume import Exact
from tests.conftest import shaken


def make_flow(D=5, d=3):
    return shaken(RectangularFlow(flows.RealNVP(D, 3, (8,), zero_init=False), flows.Identity(d)))


def gradient(L, flow):
    grads = torch.autograd.grad(L.mean(), list(flow.ambient.parameters()), allow_unused=True)
    return torch.cat([g.flatten() for g in grads if g is not None])


def test_published_exact_is_exact():
    flow = make_flow()
    z = torch.randn(6, 3, dtype=torch.float64)
    x_hat, L = published_exact(flow, z)
    expected_x, expected_L = Exact()(flow, z)
    torch.testing.assert_close(x_hat, expected_x)
    torch.testing.assert_close(L, expected_L)
    torch.testing.assert_close(gradient(L, flow), gradient(expected_L, flow))


def test_published_stochastic_is_unbiased():
    flow = make_flow()
    z = torch.randn(64, 3, dtype=torch.float64)
    exact = gradient(Exact()(flow, z)[1], flow)
    draws = torch.stack([gradient(published_stochastic(flow, z, 4, tol=1e-10)[1], flow) for _ in range(100)])
    error = draws.std(dim=0) / 10
    moving = error > 1e-9 * error.max()
    assert 0.5 <= float(((draws.mean(0) - exact) / error)[moving].square().mean()) <= 1.5
