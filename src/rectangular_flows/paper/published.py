r"""The log-volume by the algorithm as published, written anew for comparison: correct, and as costly as published.

It differs from ours in this only:

- exact: one tangent at a time, the primal recomputed for each, all graphs kept; then log det of JᵀJ by Cholesky;
- stochastic: K copies of every input; conjugate gradients on A = JᵀJ, where a product is a Jacobian–vector and a
  vector–Jacobian product, each with its own primal pass; at least min(11, d) iterations; and a surrogate
  :math:`\tfrac12\,\mathtt{stop\_gradient}(A^{-1}\varepsilon)^\top J^\top J\varepsilon`, through which the
  vector–Jacobian product is differentiated.

Reference: Caterini et al., Rectangular Flows for Manifold Learning, arXiv:2106.01413, Algorithms 1 and 2.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..flows import Injection
from ..flows.injection import forward_through, push_through
from ..flows.tangents import slopes_kept
from ..manifold import Manifold
from ..volume import draw_probes

_LEAST_ITERATIONS = 11


def published_exact(flow: Manifold, z: Tensor) -> tuple[Tensor, Tensor]:
    """(f(z), ½ log det JᵀJ) for z of shape (B, d): d passes of one tangent each.

    Cholesky of JᵀJ squares the condition number; it raises ``torch.linalg.LinAlgError`` where that is too much.
    """
    links = flow.layers()
    columns = []
    for unit in torch.eye(z.shape[1], dtype=z.dtype, device=z.device):
        x_hat, column = _jvp(links, z, unit.expand_as(z))
        columns.append(column)
    J = torch.stack(columns, dim=-1)
    diagonal = torch.linalg.cholesky(J.mT @ J).diagonal(dim1=-2, dim2=-1)
    return x_hat, diagonal.log().sum(dim=-1)


def published_stochastic(
    flow: Manifold,
    z: Tensor,
    probes: int,
    tol: float = 1e-3,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """(f(z), a surrogate whose expected gradient is that of ½ log det JᵀJ), with Gaussian probes.

    Args:
        flow: the rectangular flow.
        z: points, (B, d).
        probes: K, copies of every point, each with a probe of its own.
        tol: residual, of right-hand sides scaled to unit norm and averaged over them, at which CG may stop.
        generator: source of the probes.
    """
    links = flow.layers()
    epsilon = draw_probes(z, probes, "gaussian", generator).flatten(0, 1)
    copies = (z if z.requires_grad else z.detach().requires_grad_()).repeat_interleave(probes, dim=0)
    solution = _conjugate_gradient(links, copies.detach(), epsilon, tol)
    product = _vjp(links, copies, _jvp(links, copies, epsilon)[1], create_graph=True)
    surrogate = 0.5 * (solution * product).sum(dim=1).view(-1, probes).mean(dim=1)
    return forward_through(links, z), surrogate


def _jvp(links: list[Injection], z: Tensor, tangent: Tensor) -> tuple[Tensor, Tensor]:
    """(f(z), J t), both of shape (B, …), J t laid flat: one tangent, with the primal."""
    with slopes_kept():
        x, pushed = push_through(links, z, tangent.unsqueeze(1))
    return x, pushed.flatten(1)


def _vjp(links: list[Injection], z: Tensor, covector: Tensor, create_graph: bool = False) -> Tensor:
    """Jᵀc, through a primal pass of its own."""
    x = forward_through(links, z).flatten(1)
    (pulled,) = torch.autograd.grad(x, z, covector, create_graph=create_graph)
    return pulled


def _conjugate_gradient(links: list[Injection], z: Tensor, rhs: Tensor, tol: float) -> Tensor:
    """(JᵀJ)⁻¹ b for every row, by at least min(11, d) and at most d iterations."""
    at = z.detach().requires_grad_()

    def product(direction: Tensor) -> Tensor:
        with torch.no_grad():
            pushed = _jvp(links, z, direction)[1]
        with torch.enable_grad():
            return _vjp(links, at, pushed)

    size = rhs.shape[1]
    scale = rhs.norm(dim=1, keepdim=True)
    residual = rhs / scale
    solution = torch.zeros_like(rhs)
    direction = residual
    rho = residual.square().sum(dim=1, keepdim=True)
    for iteration in range(1, size + 1):
        image = product(direction)
        alpha = _quotient(rho, (direction * image).sum(dim=1, keepdim=True))
        solution = solution + alpha * direction
        residual = residual - alpha * image
        if iteration >= min(_LEAST_ITERATIONS, size) and float(residual.norm(dim=1).mean()) <= tol:
            break
        new_rho = residual.square().sum(dim=1, keepdim=True)
        direction = residual + _quotient(new_rho, rho) * direction
        rho = new_rho
    unscaled: Tensor = solution * scale
    return unscaled


def _quotient(numerator: Tensor, denominator: Tensor) -> Tensor:
    """Zero for problems that are solved already, whose denominators vanish."""
    return torch.where(denominator > 0, numerator / denominator, torch.zeros_like(numerator))
