"""Jacobian–vector and vector–Jacobian products, counted: a layer that does nothing but count what passes through it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor

from ...flows.injection import Rearrangement, TangentMap
from ...manifold import RectangularFlow

_counted: Counter[str] = Counter()


class _Passing(torch.autograd.Function):
    generate_vmap_rule = False

    @staticmethod
    def forward(values: Tensor, vectors: int, name: str) -> Tensor:
        _counted[name] += vectors
        return values.view_as(values)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int, str], output: Tensor) -> None:
        ctx.vectors, ctx.name = inputs[1], inputs[2]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        _counted[f"{ctx.name}, backward"] += ctx.vectors
        return gradient, None, None


class Counting(Rearrangement):
    """The identity, which counts: rows, tangents (jvps), and what comes back of each (vjps)."""

    isometric = False  # or the volume would skip it

    def forward(self, z: Tensor) -> Tensor:
        return _pass(z, len(z), "primal")

    def inverse(self, x: Tensor) -> Tensor:
        return _pass(x, len(x), "encode")

    def linearize(self, z: Tensor) -> tuple[Tensor, TangentMap]:
        return self.forward(z), lambda t: _pass(t, t.shape[0] * t.shape[1], "tangents")

    def linearize_inverse(self, x: Tensor) -> tuple[Tensor, TangentMap]:
        return self.inverse(x), lambda t: _pass(t, t.shape[0] * t.shape[1], "tangents of f†")


def _pass(values: Tensor, vectors: int, name: str) -> Tensor:
    passed: Tensor = _Passing.apply(values, vectors, name)  # type: ignore[no-untyped-call]
    return passed


def counting(flow: RectangularFlow) -> RectangularFlow:
    """The same flow with a counter at the data end."""
    return RectangularFlow(flow.ambient, flow.latent, [*flow.outer, Counting(flow.ambient.out_shape)], pad=flow.pad)


def count(step: Any, rows: int) -> dict[str, float]:
    """What a call takes, for each row."""
    _counted.clear()
    step()
    return {name: value / rows for name, value in sorted(_counted.items())}
