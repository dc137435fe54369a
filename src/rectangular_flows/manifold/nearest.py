r"""The nearest point of a manifold, from one nearby: damped Gauss–Newton steps.

.. math:: z \leftarrow z + (J^\top J + \lambda\,\mathrm{diag}\,J^\top J)^{-1} J^\top (x - f(z)),

taken only where it brings f(z) closer to x; λ falls after a step that does and rises after one that does not. Points of the
manifold stay where they are, so that an encoder with such steps is a left inverse of f as well.

Reference: Marquardt, An algorithm for least-squares estimation of nonlinear parameters, J. SIAM 11 (1963).
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..flows.injection import Injection, forward_through, push_through
from ..flows.local_chart import local_chart, unit_spheres
from ..flows.spaces import Embedding
from ..volume.bundle import basis

_DAMPING, _LESS, _MORE = 1e-3, 0.1, 30.0


@torch.no_grad()
def towards_nearest(links: list[Injection], x: Tensor, z: Tensor, steps: int) -> Tensor:
    """Coordinates of points of the manifold that are nearer to x, (B, coordinates); never farther than f(z).

    Args:
        links: of f, in generative order.
        x: rows, (B, *event).
        z: coordinates to start from.
        steps: the most; a push of d tangents each.
    """
    x_hat, damping = forward_through(links, z), z.new_full(z.shape[:1], _DAMPING, dtype=torch.float64)
    error = _squared(x - x_hat)
    for _ in range(steps):
        chart, origin = local_chart(links, z)
        moved = forward_through(chart[: len(chart) - len(links)], origin + _step(chart, x, origin, damping).to(z.dtype))
        if isinstance(links[0], Embedding):
            moved = unit_spheres(links[0], moved)
        there = forward_through(links, moved)
        distance = _squared(x - there)
        closer = distance < error  # never true of NaN
        z, error = torch.where(closer[:, None], moved, z), torch.where(closer, distance, error)
        damping = torch.where(closer, _LESS * damping, _MORE * damping)
    return z


def _step(links: list[Injection], x: Tensor, z: Tensor, damping: Tensor) -> Tensor:
    """The damped step from z, (B, d), float64; NaN where f overflows."""
    x_hat, tangents = push_through(links, z, basis(z))
    rows = tangents.flatten(2).double()
    gram = rows @ rows.mT
    ridge = torch.diag_embed(damping[:, None] * gram.diagonal(dim1=1, dim2=2))
    downhill = rows @ (x - x_hat).flatten(1).double()[..., None]
    step: Tensor = torch.linalg.solve_ex(gram + ridge, downhill)[0]
    return step[..., 0]


def _squared(difference: Tensor) -> Tensor:
    return difference.flatten(1).double().square().sum(dim=1)
