r"""Conjugate gradients for many small symmetric positive definite problems at once.

Each problem stops on its own relative residual ‖b − Au‖/‖b‖. In exact arithmetic n steps suffice; in floating point the
error falls like ((√κ − 1)/(√κ + 1))^τ, so that a condition number κ = 10⁶ (cond(J) = 10³) may take thousands.

The paper's algorithm, as printed, starts from r₀ = −ε and so returns −A⁻¹ε; here r₀ = b.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..flows.injection import TangentMap


@dataclass(frozen=True)
class Solution:
    """What conjugate gradients found, a problem for each leading index."""

    solution: Tensor
    """u, (…, n)."""
    iterations: Tensor
    """Products taken by each problem, (…)."""
    residual: Tensor
    """Final relative residual ‖b − Au‖/‖b‖, computed anew, (…)."""
    converged: Tensor
    """Whether it met the tolerance, within a factor of 2 for rounding, (…)."""


@torch.no_grad()
def conjugate_gradient(
    product: TangentMap,
    rhs: Tensor,
    *,
    tol: float = 1e-5,
    max_iter: int | None = None,
    preconditioner: TangentMap | None = None,
    weights: Sequence[float] | None = None,
) -> Solution:
    """Solve A u = b for every leading index of ``rhs``.

    A problem that breaks down (qᵀAq not positive or not finite: A is not positive definite in this precision) stops where
    it is and counts as not converged.

    Args:
        product: u ↦ Au for all problems at once, (…, n) → (…, n).
        rhs: b, (…, n).
        tol: relative residual to reach.
        max_iter: most products for any problem; 2n unless given.
        preconditioner: r ↦ Pr with P ≈ A⁻¹ symmetric positive definite.
        weights: of the steps, as many as are taken at most, for a random truncation. The residual is then that of the
            recursion, which the weights leave alone.

    Example:
        >>> import torch
        >>> A = torch.tensor([[2.0, 1.0], [1.0, 3.0]])
        >>> conjugate_gradient(lambda u: u @ A, torch.tensor([[3.0, 4.0]])).solution
        tensor([[1.0000, 1.0000]])
    """
    limit = 2 * rhs.shape[-1] if max_iter is None else max_iter
    factors = [1.0] * limit if weights is None else weights
    precondition = preconditioner or (lambda r: r)
    scale = rhs.norm(dim=-1)
    u = torch.zeros_like(rhs)
    r = rhs
    y = precondition(r)
    q = y
    rho = (r * y).sum(dim=-1)
    residual = torch.ones_like(scale)
    residual = torch.where(scale > 0, residual, torch.zeros_like(scale))
    active = residual > tol
    iterations = torch.zeros_like(scale, dtype=torch.long)
    for factor in factors:
        if not bool(active.any()):
            break
        v = product(q)
        curvature = (q * v).sum(dim=-1)
        active = active & (curvature > 0) & torch.isfinite(curvature)
        alpha = torch.where(active, rho / curvature, torch.zeros_like(rho)).unsqueeze(-1)
        u = torch.where(active.unsqueeze(-1), u + factor * alpha * q, u)
        r = torch.where(active.unsqueeze(-1), r - alpha * v, r)
        residual = torch.where(active, r.norm(dim=-1) / scale, residual)
        iterations = iterations + active
        active = active & (residual > tol)
        y = precondition(r)
        new_rho = (r * y).sum(dim=-1)
        beta = torch.where(active, new_rho / rho, torch.zeros_like(rho)).unsqueeze(-1)
        q = torch.where(active.unsqueeze(-1), y + beta * q, q)
        rho = torch.where(active, new_rho, rho)
    if weights is not None:
        return Solution(u, iterations, residual, residual <= 2 * tol)
    # in low precision the residual of the recursion may be too small: one more product gives the true one
    true = torch.where(scale > 0, (rhs - product(u)).norm(dim=-1) / scale, torch.zeros_like(scale))
    return Solution(u, iterations, true, true <= 2 * tol)
