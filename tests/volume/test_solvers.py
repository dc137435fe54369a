import pytest
import torch

from rectangular_flows.volume import Exact, Stochastic, conjugate_gradient, draw_probes

from .helpers import gradient, make_flow, with_condition


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
