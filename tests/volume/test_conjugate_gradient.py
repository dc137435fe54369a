import pytest
import torch

from rectangular_flows.volume import conjugate_gradient

from .helpers import with_condition


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


def test_convergence_in_single_precision_is_judged_by_the_true_residual():
    A = torch.logspace(0, -7, 20)
    rotation, _ = torch.linalg.qr(torch.randn(20, 20))
    A = (rotation * A) @ rotation.mT
    rhs = torch.randn(50, 20)
    found = conjugate_gradient(lambda u: u @ A, rhs, tol=1e-5, max_iter=200)
    true = (found.solution @ A - rhs).norm(dim=-1) / rhs.norm(dim=-1)
    assert bool((true[found.converged] < 1e-4).all())
    torch.testing.assert_close(found.residual, true, rtol=0.1, atol=1e-5)
