"""Volume methods: the exact one in its forms, and what all of them have in common."""

import weakref

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from rectangular_flows import RectangularFlow, flows
from rectangular_flows.errors import NonFiniteError
from rectangular_flows.volume import Exact, Stochastic
from tests.conftest import shaken

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


@settings(max_examples=30, deadline=None)
@given(D=st.integers(1, 8), data=st.data(), batch=st.integers(1, 4), seed=st.integers(0, 10**6))
def test_every_form_agrees(D, data, batch, seed):
    d = data.draw(st.integers(1, D))
    flow = make_flow(D, d, seed)
    z = torch.randn(batch, d, dtype=torch.float64)
    expected = reference(flow, z)
    for method in (Exact(), Exact(codimension="never"), Exact(codimension="always"), Exact(bundle_size=1)):
        x_hat, L = method(flow, z)
        torch.testing.assert_close(L, expected, rtol=0, atol=1e-9)
        torch.testing.assert_close(x_hat, flow.decode(z), rtol=0, atol=1e-12)


def test_volumes_of_injections_do_not_add():
    """The paper's appendix A: the volume of g₂∘g₁ is that of the whole, not the sum of the parts'."""
    first = flows.chain(flows.Pad(1, 2), shaken(flows.RealNVP(2, 3, (8,), zero_init=False)))
    second = flows.chain(flows.Pad(2, 4), shaken(flows.RealNVP(4, 3, (8,), zero_init=False), seed=5))
    both = flows.chain(first, second).double()
    z = torch.randn(6, 1, dtype=torch.float64)
    J = torch.func.vmap(torch.func.jacrev(lambda v: both(v.unsqueeze(0)).squeeze(0)))(z)
    expected = torch.linalg.svdvals(J).log().sum(-1)
    _, L = Exact()(both, z)
    torch.testing.assert_close(L, expected, rtol=0, atol=1e-10)
    parts = Exact()(first, z)[1] + Exact()(second, first(z))[1]
    assert ((parts - expected).abs() > 1e-2).any()


def test_isometric_tail_is_skipped_and_right():
    embedding = flows.OrthonormalEmbedding(5, 40).double()
    calls = []
    tangent = embedding.linearize
    embedding.linearize = lambda z: calls.append(1) or tangent(z)
    ambient = shaken(flows.RealNVP(5, 3, (8,), zero_init=False))
    flow = RectangularFlow(ambient, flows.Identity(2), outer=embedding).double()
    z = torch.randn(3, 2, dtype=torch.float64)
    x_hat, L = Exact()(flow, z)
    assert not calls
    assert x_hat.shape == (3, 40)
    torch.testing.assert_close(L, reference(flow, z), rtol=0, atol=1e-10)


def test_all_isometric():
    flow = RectangularFlow(flows.Permutation(3), flows.Identity(2))
    for method in (Exact(), Stochastic()):
        x_hat, L = method(flow, torch.randn(4, 2))
        assert torch.equal(L, torch.zeros(4))
        assert x_hat.shape == (4, 3)


@pytest.mark.parametrize("method", [Exact(), Exact(codimension="always"), Stochastic(2, solver="direct")])
def test_compile(method):
    flow = make_flow(4, 2, layers=2, hidden=(8,))
    z = torch.randn(3, 2, dtype=torch.float64)
    torch.compiler.reset()
    compiled = torch.compile(lambda v: method(flow, v), backend="aot_eager")
    torch.manual_seed(3)
    expected = method(flow, z)
    torch.manual_seed(3)
    torch.testing.assert_close(compiled(z), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(
        gradient(compiled(z)[1].sum(), flow) if isinstance(method, Exact) else torch.zeros(1),
        gradient(method(flow, z)[1].sum(), flow) if isinstance(method, Exact) else torch.zeros(1),
    )


@pytest.mark.parametrize("method", [Exact(), Exact(codimension="always"), Exact(bundle_size=1)])
def test_vmap(method):
    flow = make_flow(4, 2)
    z = torch.randn(5, 3, 2, dtype=torch.float64)
    with torch.no_grad():
        mapped = torch.func.vmap(lambda v: method(flow, v)[1])(z)
    torch.testing.assert_close(mapped.flatten(), method(flow, z.flatten(0, 1))[1], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "method",
    [
        Exact(),
        Exact(codimension="always"),
        Exact(bundle_size=1),
        *[Stochastic(2, solver=s) for s in ("direct", "cg", "pcg")],
    ],
)
def test_device_agnostic(method):
    flow = make_flow(5, 3)
    z = torch.randn(4, 3, dtype=torch.float64)
    with torch.device("meta"):
        x_hat, L = method(flow, z)
        L.sum().backward()
    assert x_hat.device.type == L.device.type == "cpu"
    assert all(p.grad is None or p.grad.device.type == "cpu" for p in flow.parameters())


@pytest.mark.parametrize("method", [Exact(), Exact(bundle_size=2), Stochastic(), Stochastic(2, "gaussian", "cg")])
def test_single_precision_and_batch_of_one(method):
    flow = make_flow(5, 3, dtype=torch.float32)
    x_hat, L = method(flow, torch.randn(1, 3))
    assert x_hat.dtype == L.dtype == torch.float32
    assert L.shape == (1,)
    L.sum().backward()


@pytest.mark.parametrize("method", [Exact(), Stochastic()])
def test_non_finite_jacobian_is_named(method):
    flow = make_flow(4, 2)
    with torch.no_grad():
        next(flow.ambient.parameters()).fill_(float("nan"))
    with pytest.raises(NonFiniteError, match="Jacobian"):
        method(flow, torch.randn(3, 2, dtype=torch.float64))


@pytest.mark.parametrize(
    "method", [Exact(), Exact(bundle_size=1), Exact(codimension="always"), Stochastic(), Stochastic(solver="cg")]
)
def test_points_of_the_wrong_size_are_an_error(method):
    flow = make_flow(5, 2)
    for width in (1, 3):
        with pytest.raises(ValueError, match=rf"Expected input shape \(batch, 2\); got \(4, {width}\)"):
            method(flow, torch.randn(4, width, dtype=torch.float64))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Exact(bundle_size=0), "bundle_size"),
        (lambda: Exact(codimension="sometimes"), "'sometimes'"),
        (lambda: Stochastic(probes=0), "probes"),
        (lambda: Stochastic(distribution="cauchy"), "'cauchy'"),
    ],
)
def test_mistakes_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_forward_mode_and_hessian():
    flow = make_flow(4, 2)
    z = torch.randn(2, dtype=torch.float64)

    def function(v):
        return Exact()(flow, v.unsqueeze(0))[1].squeeze()

    torch.testing.assert_close(torch.func.jacfwd(function)(z), torch.func.jacrev(function)(z), rtol=0, atol=1e-9)
    expected = torch.autograd.functional.hessian(function, z)
    torch.testing.assert_close(torch.func.hessian(function)(z), expected, rtol=0, atol=1e-8)
