import warnings
import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from rectangular_flows import RectangularFlow, flows
from rectangular_flows.errors import NotConvergedWarning
from rectangular_flows.volume import Exact, Stochastic, log_volume

from .helpers import gradient, make_flow, reference


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("D", "d"), [(2, 1), (5, 3), (7, 2), (4, 4)])
@pytest.mark.parametrize("bundle_size", [None, 1, 2])
@pytest.mark.parametrize("codimension", ["never", "always"])
def test_exact_gradient(D, d, seed, bundle_size, codimension):
    flow = make_flow(D, d, seed)
    z = torch.randn(5, d, dtype=torch.float64, requires_grad=True)
    expected = gradient(reference(flow, z).sum(), flow, z)
    _, L = Exact(bundle_size, codimension)(flow, z)
    torch.testing.assert_close(gradient(L.sum(), flow, z), expected, rtol=0, atol=1e-9)


class PeakBytes(TorchDispatchMode):
    """Most bytes of tensors alive at a time among those made in its context."""

    def __init__(self):
        super().__init__()
        self.live, self.now, self.peak = {}, 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, torch.Tensor) and (storage := tensor.untyped_storage())._cdata not in self.live:
                self.live[storage._cdata] = storage.nbytes()
                self.now += storage.nbytes()
                self.peak = max(self.peak, self.now)
                weakref.finalize(storage, self.freed, storage._cdata)
        return out

    def freed(self, key):
        self.now -= self.live.pop(key)


def test_bundle_size_bounds_memory():
    flow = RectangularFlow(flows.RealNVP(20, 4, (64, 64), zero_init=False), flows.Identity(10))
    z = torch.randn(50, 10)
    peak = {}
    for size in (None, 5, 1):
        with PeakBytes() as count:
            Exact(size)(flow, z)[1].sum().backward()
        peak[size] = count.peak
        flow.zero_grad(set_to_none=True)
    assert peak[1] < 0.5 * peak[None]
    assert peak[1] < peak[5] < 0.9 * peak[None]


@pytest.mark.parametrize("more", [0, 2])
@pytest.mark.parametrize("solver", ["direct", "cg", "pcg"])
@pytest.mark.parametrize(("D", "d"), [(5, 3), (7, 2), (4, 4), (3, 1)])
def test_orthonormal_probes_are_exact_at_full_count(D, d, solver, more):
    flow = make_flow(D, d)
    z = torch.randn(5, d, dtype=torch.float64, requires_grad=True)
    expected = gradient(reference(flow, z).sum(), flow, z)
    method = Stochastic(probes=d + more, distribution="orthonormal", solver=solver, tol=1e-13, max_iter=4 * d)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)  # 1e-13 is at the edge of double precision
        x_hat, L = method(flow, z)
    torch.testing.assert_close(gradient(L.sum(), flow, z), expected, rtol=0, atol=1e-9)
    torch.testing.assert_close(x_hat, flow.decode(z), rtol=0, atol=1e-12)


def z_scores(flow, z, method, count):
    """Of each gradient entry: (mean over independent probes − exact) / standard error."""
    exact = gradient(Exact()(flow, z)[1].mean(), flow)
    draws = torch.stack([gradient(method(flow, z)[1].mean(), flow) for _ in range(count)])
    error = draws.std(dim=0) / count**0.5
    moving = error > 1e-9 * error.max()
    return ((draws.mean(dim=0) - exact) / error)[moving]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("distribution", ["gaussian", "rademacher", "orthonormal"])
def test_one_probe_is_unbiased(distribution, seed):
    flow = make_flow(8, 6, seed, amount=0.1)
    z = torch.randn(128, 6, dtype=torch.float64)
    method = Stochastic(1, distribution, generator=torch.Generator().manual_seed(seed))
    scores = z_scores(flow, z, method, 400)
    assert len(scores) > 500
    assert 0.5 <= float(scores.square().mean()) <= 1.5


def test_loose_tolerance_biases_the_gradient():
    stretch = flows.Standardise(torch.zeros(6), torch.logspace(0, 1.5, 6))
    flow = RectangularFlow(make_flow(6, 4).ambient, flows.Identity(4), outer=stretch).double()
    z = torch.randn(32, 4, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    tight = Stochastic(1, "gaussian", "cg", tol=1e-10, max_iter=40, generator=generator)
    loose = Stochastic(1, "gaussian", "cg", tol=0.5, generator=generator)
    assert float(z_scores(flow, z, tight, 200).square().mean()) < 1.5
    assert float(z_scores(flow, z, loose, 200).square().mean()) > 3


def test_orthonormal_probes_have_less_variance():
    flow = make_flow(8, 5)
    z = torch.randn(32, 5, dtype=torch.float64)
    error = {
        name: Stochastic(3, name, generator=torch.Generator().manual_seed(1))
        .diagnose(flow, z, repeats=40)
        .standard_error
        for name in ("gaussian", "rademacher", "orthonormal")
    }
    assert error["orthonormal"] < error["gaussian"]
    assert error["orthonormal"] < error["rademacher"]


def test_second_derivatives():
    tangents = torch.randn(2, 2, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(log_volume, (tangents,))
    assert torch.autograd.gradgradcheck(log_volume, (tangents,))


def test_surrogate_value_is_not_a_volume():
    """It is about d at any flow: the mean of εᵀ(JᵀJ)⁻¹JᵀJε."""
    flow = make_flow(6, 3)
    _, L = Stochastic(2)(flow, torch.randn(4, 3, dtype=torch.float64))
    torch.testing.assert_close(L, torch.full_like(L, 3.0))
