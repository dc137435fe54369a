r"""Muon: Adam, but for the matrices between hidden layers, whose steps are made orthogonal.

.. math:: M \leftarrow \mu M + (1 - \mu) G, \qquad
          W \leftarrow W - \eta\, s\, \sqrt{\max(n, m)}\ \mathrm{orth}\big(\mu M + (1 - \mu) G\big),

with orth(UΣVᵀ) ≈ UVᵀ by five steps of a Newton–Schulz iteration: every direction of a layer moves alike, where Adam moves
mostly the few that have large gradients. Entries of a step have a root mean square of sη.

Reference: Jordan et al., Muon: an optimizer for hidden layers in neural networks, 2024, kellerjordan.github.io/posts/muon.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .adam import EagerAdam

_MOMENTUM = 0.95
_STEP = 2.0  # s, chosen with the learning rate of Adam on training rows of six tables
_QUINTIC = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5
_TINY = 1e-7


class Muon(EagerAdam):
    """Orthogonal steps for some matrices, Adam for every other parameter.

    Args:
        parameters: to train, all of them.
        lr: the learning rate, of both.
        inner: those among them that are matrices between hidden layers.

    Example:
        >>> weight = torch.nn.Parameter(torch.zeros(2, 2))
        >>> optimiser = Muon([weight], lr=0.1, inner=[weight])
        >>> weight.grad = torch.diag(torch.tensor([5.0, -0.1]))
        >>> for _ in range(3):
        ...     optimiser.step()
        >>> (weight.diagonal() / weight.abs().max()).sign().tolist()  # both directions move, the weak one as well
        [-1.0, 1.0]
    """

    def __init__(self, parameters: Sequence[nn.Parameter], lr: float, inner: Sequence[nn.Parameter]):
        among = {id(parameter) for parameter in inner}
        super().__init__([p for p in parameters if id(p) not in among] or [nn.Parameter(torch.zeros(0))], lr)
        if inner:
            self.add_param_group({"params": list(inner), "orthogonal": True})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        groups = self.param_groups
        self.param_groups = groups[:1]  # Adam's
        try:
            super().step(closure)
        finally:
            self.param_groups = groups
        for group in groups[1:]:
            for alike in _by_shape([p for p in group["params"] if p.grad is not None]):
                self._step_alike(alike, group["lr"])

    def _step_alike(self, matrices: list[nn.Parameter], rate: float) -> None:
        """One step of matrices of one shape, as one batch."""
        gradients = torch.stack([p.grad for p in matrices if p.grad is not None])
        states: list[dict[str, Any]] = [self.state[p] for p in matrices]
        for state, matrix in zip(states, matrices, strict=True):
            if not state:
                state["step"], state["momentum"] = torch.zeros(()), torch.zeros_like(matrix)
        momenta = torch.stack([state["momentum"] for state in states]).lerp_(gradients, 1 - _MOMENTUM)
        steps = orthogonalised(momenta.lerp(gradients, 1 - _MOMENTUM))
        size = rate * _STEP * max(matrices[0].shape) ** 0.5
        for state, matrix, momentum, step in zip(states, matrices, momenta, steps, strict=True):
            state["step"] += 1
            state["momentum"].copy_(momentum)
            matrix.sub_(step, alpha=size)


def orthogonalised(matrices: Tensor) -> Tensor:
    """UVᵀ of matrices UΣVᵀ, (B, n, m), roughly: singular values from 0.6 to 1.3, those near zero less. Zero stays zero.

    Example:
        >>> found = orthogonalised(torch.diag(torch.tensor([4.0, 1.0, -0.5])).unsqueeze(0))[0]
        >>> found.diagonal().abs().round().tolist()
        [1.0, 1.0, 1.0]
    """
    tall = matrices.shape[-2] > matrices.shape[-1]
    X = matrices.mT if tall else matrices
    X = X / (torch.linalg.matrix_norm(X, keepdim=True) + _TINY)
    a, b, c = _QUINTIC
    for _ in range(_ITERATIONS):
        A = X @ X.mT
        X = a * X + (b * A + c * A @ A) @ X
    return X.mT if tall else X


def _by_shape(matrices: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
    found: dict[torch.Size, list[nn.Parameter]] = {}
    for matrix in matrices:
        found.setdefault(matrix.shape, []).append(matrix)
    return list(found.values())
