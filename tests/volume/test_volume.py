import copy
import warnings
import weakref

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from rectangular_flows import RectangularFlow, flows
from rectangular_flows.errors import NonFiniteError, NotConvergedWarning, RankDeficientError
from rectangular_flows.volume import Exact, Stochastic, conjugate_gradient, draw_probes, log_volume
from tests.conftest import shaken


def make_flow(D, d, seed=0, amount=0.2, dtype=torch.float64, **options):
    torch.manual_seed(seed)
    ambient = flows.RealNVP(D, 4, (16, 16), zero_init=False, **options)
    return shaken(RectangularFlow(ambient, flows.Identity(d)), seed, amount, dtype)


def reference(flow, z):
    """Plain autograd, nothing of ours: jacfwd of the decoder, slogdet of the Gram matrix."""
    J = torch.func.vmap(torch.func.jacfwd(lambda v: flow.decode(v.unsqueeze(0)).squeeze(0).flatten()))(z)
    return 0.5 * torch.linalg.slogdet(J.mT @ J).logabsdet


def gradient(value, flow, *inputs):
    parameters = [p for p in flow.parameters() if p.requires_grad]
    grads = torch.autograd.grad(value, [*parameters, *inputs], allow_unused=True)
    return torch.cat([torch.zeros(1, dtype=value.dtype) if g is None else g.flatten() for g in grads])


def with_condition(rows, columns, condition, dtype, batch=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    U, _ = torch.linalg.qr(torch.randn(batch, rows, columns, generator=generator, dtype=torch.float64))
    V, _ = torch.linalg.qr(torch.randn(batch, columns, columns, generator=generator, dtype=torch.float64))
    values = torch.logspace(0, -torch.log10(torch.tensor(condition)).item(), columns, dtype=torch.float64)
    return ((U * values) @ V.mT).to(dtype)


# --- the value


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("D", "d"), [(2, 1), (7, 3), (43, 21), (5, 5)])
def test_against_svd_in_double(D, d, seed):
    for condition in (1.0, 1e3, 1e6):
        J = with_condition(D, d, condition, torch.float64, seed=seed)
        expected = torch.linalg.svdvals(J).log().sum(-1)
        torch.testing.assert_close(log_volume(J.mT), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("D", "d"), [(7, 3), (43, 21)])
def test_against_svd_in_single(D, d, seed):
    for condition in (1.0, 1e3, 1e5):
        J = with_condition(D, d, condition, torch.float32, seed=seed)
        expected = torch.linalg.svdvals(J.double()).log().sum(-1)
        torch.testing.assert_close(log_volume(J.mT).double(), expected, rtol=0, atol=1e-3)


def test_cholesky_would_have_failed():
    """Why QR: at cond(J) = 1e5 in float32 the Gram matrix is not positive definite any more."""
    J = with_condition(43, 21, 1e5, torch.float32)
    assert bool((torch.linalg.cholesky_ex(J.mT @ J).info != 0).any())


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


@pytest.mark.parametrize("mixing", [None, "lu", "free"])
def test_codimension_chosen_by_cost(mixing):
    flow = make_flow(6, 5, mixing=mixing)
    z = torch.randn(4, 5, dtype=torch.float64)
    assert Exact()._use_codimension(flow.layers(), 5)
    assert not Exact()._use_codimension(make_flow(6, 3).layers(), 3)
    torch.testing.assert_close(Exact()(flow, z)[1], Exact(codimension="never")(flow, z)[1], rtol=0, atol=1e-9)


def test_codimension_needs_bijections():
    flow = RectangularFlow(flows.MultiscaleRealNVP((1, 4, 4), 2, 1), flows.Identity(7)).double()
    z = torch.randn(2, 7, dtype=torch.float64)
    with pytest.raises(ValueError, match="bijections only"):
        Exact(codimension="always")(flow, z)
    torch.testing.assert_close(Exact()(flow, z)[1], reference(flow, z), rtol=0, atol=1e-9)


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


# --- the gradient


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


@pytest.mark.parametrize("solver", ["direct", "cg", "pcg"])
@pytest.mark.parametrize(("D", "d"), [(5, 3), (7, 2), (4, 4), (3, 1)])
def test_orthonormal_probes_are_exact_at_full_count(D, d, solver):
    flow = make_flow(D, d)
    z = torch.randn(5, d, dtype=torch.float64, requires_grad=True)
    expected = gradient(reference(flow, z).sum(), flow, z)
    method = Stochastic(probes=d, distribution="orthonormal", solver=solver, tol=1e-13, max_iter=4 * d)
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


# --- probes and solvers


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


@pytest.mark.parametrize("n", [1, 3, 12])
def test_conjugate_gradients_in_n_steps(n):
    J = with_condition(2 * n, n, 3.0, torch.float64, batch=10) if n > 1 else torch.ones(10, 2, 1, dtype=torch.float64)
    A = J.mT @ J
    rhs = torch.randn(10, n, dtype=torch.float64)
    found = conjugate_gradient(lambda u: (A @ u.unsqueeze(-1)).squeeze(-1), rhs, tol=1e-7, max_iter=n)
    residual = (A @ found.solution.unsqueeze(-1)).squeeze(-1) - rhs
    assert bool(found.converged.all())
    assert float((residual.norm(dim=-1) / rhs.norm(dim=-1)).max()) <= 1e-6
    torch.testing.assert_close(found.solution, torch.linalg.solve(A, rhs), rtol=1e-5, atol=1e-6)


def test_each_problem_stops_on_its_own():
    scales = torch.tensor([[1.0, 1.0, 1.0], [1.0, 10.0, 100.0]], dtype=torch.float64)
    rhs = torch.tensor([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]], dtype=torch.float64)
    found = conjugate_gradient(lambda u: scales * u, rhs, tol=1e-12)
    assert found.iterations.tolist() == [1, 3]
    torch.testing.assert_close(found.solution, rhs / scales)


def test_zero_right_hand_side_and_indefinite_matrix():
    rhs = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
    found = conjugate_gradient(lambda u: -u, rhs)
    assert found.converged.tolist() == [True, False]
    assert bool(torch.isfinite(found.solution).all())


@pytest.mark.parametrize(("D", "d"), [(6, 5), (9, 8), (8, 3), (5, 5), (10, 7)])
def test_preconditioner_needs_few_iterations(D, d):
    flow = make_flow(D, d, amount=0.15, mixing="free")
    z = torch.randn(20, d, dtype=torch.float64)
    limit = min(d, D - d) + 1
    found = Stochastic(2, solver="pcg", tol=1e-7).diagnose(flow, z, repeats=2)
    assert int(found.iterations.max()) <= limit
    assert float(found.residuals.max()) <= 1e-6


def test_preconditioner_pays_where_conditioning_is_bad():
    flow = make_flow(12, 10, amount=0.22, mixing="free")
    z = torch.randn(10, 10, dtype=torch.float64)
    plain = Stochastic(1, solver="cg", tol=1e-6, max_iter=400).diagnose(flow, z, repeats=2)
    helped = Stochastic(1, solver="pcg", tol=1e-6, max_iter=400).diagnose(flow, z, repeats=2)
    assert float(helped.iterations.double().mean()) < 0.5 * float(plain.iterations.double().mean())


def test_diagnostics_are_right():
    flow = make_flow(6, 3)
    z = torch.randn(5, 3, dtype=torch.float64)
    found = Stochastic(2, solver="direct").diagnose(flow, z)
    singular = torch.linalg.svdvals(flow.jacobian(z))
    torch.testing.assert_close(found.condition_numbers, singular[:, 0] / singular[:, -1])
    assert found.iterations.shape == found.residuals.shape == (5, 2)
    assert float(found.residuals.max()) < 1e-12
    assert found.gradient_norm == pytest.approx(float(gradient(Exact()(flow, z)[1].mean(), flow).norm()))
    assert Stochastic(3).diagnose(flow, z).standard_error < 1e-12 < found.standard_error


# --- trouble


def test_rank_deficiency_is_named():
    collapsed = torch.randn(4, 2, 5)
    collapsed[1, 1] = collapsed[1, 0]
    collapsed[3] = 0
    with pytest.raises(RankDeficientError, match=r"at 2 of 4 points \(first rows: \[1, 3\]\)"):
        log_volume(collapsed)


@pytest.mark.parametrize("method", [Exact(), Stochastic()])
def test_non_finite_jacobian_is_named(method):
    flow = make_flow(4, 2)
    with torch.no_grad():
        next(flow.ambient.parameters()).fill_(float("nan"))
    with pytest.raises(NonFiniteError, match="Jacobian"):
        method(flow, torch.randn(3, 2, dtype=torch.float64))


def test_unconverged_conjugate_gradients_warn_once_until_worse():
    flow = make_flow(8, 6, amount=0.6)
    z = torch.randn(4, 6, dtype=torch.float64)
    method = Stochastic(1, solver="cg", tol=1e-12, max_iter=1)
    with pytest.warns(NotConvergedWarning, match=r"in 4 of 4 problems \(worst .* after 1 iterations\)"):
        method(flow, z)
    method(flow, z)  # warnings are errors here: it must not repeat itself


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Exact(bundle_size=0), "bundle_size"),
        (lambda: Exact(codimension="sometimes"), "'sometimes'"),
        (lambda: Stochastic(probes=0), "probes"),
        (lambda: Stochastic(distribution="cauchy"), "'cauchy'"),
        (lambda: Stochastic(solver="gmres"), "'gmres'"),
        (lambda: Stochastic(tol=-1.0), "tol"),
    ],
)
def test_mistakes_are_told(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    "method", [Exact(), Exact(bundle_size=1), Exact(codimension="always"), Stochastic(), Stochastic(solver="cg")]
)
def test_points_of_the_wrong_size_are_an_error(method):
    flow = make_flow(5, 2)
    for width in (1, 3):
        with pytest.raises(ValueError, match=rf"Expected input shape \(batch, 2\); got \(4, {width}\)"):
            method(flow, torch.randn(4, width, dtype=torch.float64))


@pytest.mark.parametrize("solver", ["direct", "cg", "pcg"])
def test_overflow_is_named_by_every_solver(solver):
    flow = RectangularFlow(flows.RealNVP(3, layers=2, scale="exp"), flows.Identity(2))
    with torch.no_grad():
        flow.ambient.layers[0].network.layers[-1].bias.fill_(800.0)
    with pytest.raises(NonFiniteError, match="Jacobian"):
        Stochastic(solver=solver)(flow, torch.randn(3, 2))


def test_convergence_in_single_precision_is_judged_by_the_true_residual():
    A = torch.logspace(0, -7, 20)
    rotation, _ = torch.linalg.qr(torch.randn(20, 20))
    A = (rotation * A) @ rotation.mT
    rhs = torch.randn(50, 20)
    found = conjugate_gradient(lambda u: u @ A, rhs, tol=1e-5, max_iter=200)
    true = (found.solution @ A - rhs).norm(dim=-1) / rhs.norm(dim=-1)
    assert bool((true[found.converged] < 1e-4).all())
    torch.testing.assert_close(found.residual, true, rtol=0.1, atol=1e-5)


def test_singular_square_flow_is_named():
    flow = RectangularFlow(flows.FreeLinear(3), flows.Identity(3)).double()
    with torch.no_grad():
        flow.ambient.weight[2] = 0
    with pytest.raises(RankDeficientError, match="singular at 2 of 2 points"):
        flow.log_volume(torch.randn(2, 3, dtype=torch.float64))
    with torch.no_grad():
        flow.ambient.weight.fill_(float("nan"))
    with pytest.raises(NonFiniteError):
        flow.log_volume(torch.randn(2, 3, dtype=torch.float64))


def test_codimension_keeps_its_digits_in_single_precision():
    flow = make_flow(6, 5, dtype=torch.float32)
    z = 2 * torch.randn(200, 5)
    exact = Exact(codimension="never")(copy.deepcopy(flow).double(), z.double())[1]
    torch.testing.assert_close(Exact(codimension="always")(flow, z)[1].double(), exact, rtol=0, atol=1e-4)
    saturating = RectangularFlow(flow.ambient, flows.Identity(5), outer=flows.Logit(6))
    assert not Exact()._use_codimension(saturating.layers(), 5)
    L = Exact()(saturating, z / 2)[1]
    expected = Exact(codimension="never")(copy.deepcopy(saturating).double(), z.double() / 2)[1]
    torch.testing.assert_close(L.double(), expected, rtol=0, atol=1e-3)


def test_more_tangents_than_dimensions():
    with pytest.raises(ValueError, match="at most D tangents"):
        log_volume(torch.randn(2, 3, 2))


def test_forward_mode_and_hessian():
    flow = make_flow(4, 2)
    z = torch.randn(2, dtype=torch.float64)

    def function(v):
        return Exact()(flow, v.unsqueeze(0))[1].squeeze()

    torch.testing.assert_close(torch.func.jacfwd(function)(z), torch.func.jacrev(function)(z), rtol=0, atol=1e-9)
    expected = torch.autograd.functional.hessian(function, z)
    torch.testing.assert_close(torch.func.hessian(function)(z), expected, rtol=0, atol=1e-8)


def test_diagnose_without_parameters_or_grad_mode():
    flow = RectangularFlow(flows.Permutation(3), flows.Identity(2)).double()
    found = Stochastic().diagnose(flow, torch.randn(3, 2, dtype=torch.float64))
    assert found.standard_error == found.gradient_norm == 0
    torch.testing.assert_close(found.condition_numbers, torch.ones(3, dtype=torch.float64))
    with torch.no_grad():
        assert Stochastic().diagnose(make_flow(4, 2), torch.randn(3, 2, dtype=torch.float64)).standard_error > 0


# --- transforms and devices


@pytest.mark.parametrize("method", [Exact(), Exact(codimension="always"), Stochastic(2, solver="direct")])
def test_compile(method):
    flow = make_flow(4, 2)
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


class Tangents(torch.nn.Module):
    def __init__(self, flow):
        super().__init__()
        self.flow = flow

    def forward(self, z):
        return self.flow.jacobian(z).mT


def test_per_sample_gradients_by_vmap():
    flow = make_flow(4, 2)
    z = torch.randn(3, 2, dtype=torch.float64)
    tangents = Tangents(flow)

    def volume(parameters, point):
        return log_volume(torch.func.functional_call(tangents, parameters, point.unsqueeze(0))).squeeze()

    per_sample = torch.func.vmap(torch.func.grad(volume), in_dims=(None, 0))(dict(tangents.named_parameters()), z)
    total = torch.cat([value.sum(dim=0).flatten() for value in per_sample.values()])
    expected = gradient(Exact(codimension="never")(flow, z)[1].sum(), flow)
    torch.testing.assert_close(total, expected, rtol=0, atol=1e-9)


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
