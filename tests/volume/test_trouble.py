import copy

import pytest
import torch

from rectangular_flows import RectangularFlow, flows
from rectangular_flows.errors import NonFiniteError, NotConvergedWarning, RankDeficientError
from rectangular_flows.volume import Exact, Stochastic, conjugate_gradient, log_volume

from .helpers import make_flow


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
