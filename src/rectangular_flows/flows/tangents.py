r"""The tangent map of a multilayer perceptron as one operation, for training.

.. math:: t \mapsto W_n\,(s_{n-1} \odot W_{n-1} \cdots (s_1 \odot W_1 t)),

with the slopes s_i of the activations at the primal, for a bundle of K tangents at each of B points. Written out as single
products it is bound by memory traffic: every intermediate is B·K rows long, is written, read and kept twice. Here blocks of
points small enough for the cache go through all layers at a time, and only the products W_i t are kept for the backward
pass. The result is the same.

Inside :func:`tangents_in`, networks carry large bundles in a lower precision: half the memory traffic, and on processors
with instructions for it several times the products in the same time. What enters and leaves a network keeps its precision.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import in_transform

_SMALL = 2**16  # scalars of the widest layer
_BLOCK_SCALARS = 2**19  # of the widest layer, in a block: 2 MiB in float32


_lower: ContextVar[torch.dtype | None] = ContextVar("lower", default=None)
_held: ContextVar[bool] = ContextVar("held", default=False)
_kept: ContextVar[bool] = ContextVar("kept", default=False)


@contextmanager
def tangents_in(dtype: torch.dtype | None) -> Iterator[None]:
    """Let networks carry large bundles of tangents in a lower precision; None: in their own, as without it.

    Example:
        >>> from rectangular_flows.flows import MLP
        >>> _, tangent_map = MLP(3, 2, hidden=(256,)).linearize(torch.zeros(128, 3))
        >>> with tangents_in(torch.bfloat16):
        ...     low = tangent_map(torch.ones(128, 3, 3))
        >>> low.dtype, bool((low - tangent_map(torch.ones(128, 3, 3))).abs().max() > 0)
        (torch.float32, True)
    """
    token = _lower.set(dtype)
    try:
        yield
    finally:
        _lower.reset(token)


@contextmanager
def weights_held() -> Iterator[None]:
    """Let networks take their weights, and the points of their primal, for constants.

    What is then differentiated is the tangents alone, as for the transposed map: without this, each of its products would
    bring along those for the gradients of the weights, which nobody asked for.
    """
    token = _held.set(True)
    try:
        yield
    finally:
        _held.reset(token)


@contextmanager
def slopes_kept() -> Iterator[None]:
    """Let graphs keep the slopes of tanh beside its values, as the published algorithm does, which is measured against."""
    token = _kept.set(True)
    try:
        yield
    finally:
        _kept.reset(token)


def dtype_inside(tangents: Tensor, width: int) -> torch.dtype:
    """The precision in which a network of that width carries a bundle: a lower one only where that saves anything."""
    if in_transform(tangents) or tangents.shape[0] * tangents.shape[1] * width < _SMALL:
        return tangents.dtype
    return _lower.get() or tangents.dtype


class Slopes:
    """Slopes of the hidden layers at the primal, (B, n_i) each.

    Those of tanh follow from its values, 1 − y², which the primal keeps anyway: a graph then need not keep both.

    Args:
        values: slopes; or, of tanh, the values y.
        of_tanh: whether they are these.
    """

    def __init__(self, values: Sequence[Tensor], of_tanh: bool = False):
        keep = of_tanh and (in_transform(*values) or _kept.get())  # torch.compile can't trace context variables
        self.values = [slope_of_tanh(y) for y in values] if keep else values
        self.of_tanh = of_tanh and not keep

    def __len__(self) -> int:
        return len(self.values)

    def __call__(self) -> Sequence[Tensor]:
        """As numbers, with their graph."""
        return [slope_of_tanh(y) for y in self.values] if self.of_tanh else self.values

    @cached_property
    def held(self) -> Sequence[Tensor]:
        """The same as constants, computed once."""
        with torch.no_grad():
            return [slope.detach() for slope in self()]


def slope_of_tanh(y: Tensor) -> Tensor:
    """1 − y² in one pass."""
    return torch.addcmul(y.new_ones(()), y, y, value=-1)


def tangent_mlp(tangents: Tensor, slopes: Slopes, weights: Sequence[Tensor]) -> Tensor:
    """The map above: tangents (B, K, n_0), slopes of the hidden layers, weights (n_i, n_{i−1}) → (B, K, n_L)."""
    if not len(slopes) or in_transform(tangents, *slopes.values) or torch.is_autocast_enabled(tangents.device.type):
        return _plain(tangents, slopes(), weights)  # torch.func and torch.compile see plain operations
    if tangents.shape[0] * tangents.shape[1] * max(len(w) for w in weights) < _SMALL:
        return _plain(tangents, slopes(), weights)  # in the cache anyway, and quicker without a function of our own
    inside, graph = dtype_inside(tangents, max(len(w) for w in weights)), torch.is_grad_enabled()
    values, of_tanh = slopes.values, slopes.of_tanh
    if _held.get() or not graph:
        values, of_tanh, weights = slopes.held, False, [weight.detach() for weight in weights]
    elif inside != tangents.dtype:  # where tanh is nearly one, 1 − y² is lost in a lower precision
        values, of_tanh = slopes(), False
    rest = [each.to(inside) for each in (*values, *weights)]
    output: Tensor = _TangentMLP.apply(tangents.to(inside), len(slopes), of_tanh, graph, *rest)  # type: ignore[no-untyped-call]
    return output.to(tangents.dtype)


def _plain(tangents: Tensor, slopes: Sequence[Tensor], weights: Sequence[Tensor]) -> Tensor:
    for slope, weight in zip(slopes, weights, strict=False):
        tangents = F.linear(tangents, weight) * slope.unsqueeze(1)
    return F.linear(tangents, weights[-1])


def _blocks(tangents: Tensor, weights: Sequence[Tensor]) -> list[slice]:
    """Runs of points that go through the layers together: all of them, except on a CPU."""
    points, count = tangents.shape[:2]
    size = points
    if tangents.device.type == "cpu":
        size = max(1, _BLOCK_SCALARS // (max(count, 1) * max(max(w.shape) for w in weights)))
    return [slice(a, a + size) for a in range(0, points, max(size, 1))]


class _Scratch:
    """Places to work in, used again for every block and layer, so that they stay in the cache."""

    def __init__(self, tangents: Tensor):
        self._like, self._count = tangents, tangents.shape[1]
        self._places: dict[tuple[int, int, int], Tensor] = {}

    def take(self, points: int, width: int, number: int) -> Tensor:
        """Place number so-and-so, (points, K, width); what was in it is gone."""
        key = (points, width, number)
        if key not in self._places:
            self._places[key] = self._like.new_empty((points, self._count, width))
        return self._places[key]


class _TangentMLP(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tangents: Tensor, hidden: int, of_tanh: bool, graph: bool, *rest: Tensor) -> Tensor:
        values, weights = rest[:hidden], rest[hidden:]
        leading = tangents.shape[:2]
        keep = graph and any(ctx.needs_input_grad[4:])  # of slopes and weights; that of the tangents needs no products
        output = tangents.new_empty((*leading, weights[-1].shape[0]))
        products = [tangents.new_empty((*leading, w.shape[0])) for w in weights[:-1]] if keep else []
        blocks = _blocks(tangents, weights)
        scratch = _Scratch(tangents)
        for block in blocks:
            t = tangents[block].flatten(0, 1)
            for i, (value, weight) in enumerate(zip(values, weights, strict=False)):
                s = _slope(value[block], of_tanh).unsqueeze(1)
                place = scratch.take(len(s), weight.shape[0], i % 2)
                product = products[i][block] if keep else place
                torch.mm(t, weight.mT, out=product.flatten(0, 1))
                t = torch.mul(product, s, out=place).flatten(0, 1)
            torch.mm(t, weights[-1].mT, out=output[block].flatten(0, 1))
        ctx.hidden, ctx.of_tanh = hidden, of_tanh
        if keep or (graph and ctx.needs_input_grad[0]):
            ctx.save_for_backward(tangents, *rest, *products)
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        hidden, of_tanh = ctx.hidden, ctx.of_tanh
        tangents, *saved = ctx.saved_tensors
        values, weights, products = saved[:hidden], saved[hidden : 2 * hidden + 1], saved[2 * hidden + 1 :]
        if torch.is_grad_enabled():  # asked for a second derivative: plain operations have one
            inputs = [x for x in (tangents, *values, *weights) if x.requires_grad]
            plain = _plain(tangents, Slopes(values, of_tanh)(), weights)
            found = iter(torch.autograd.grad(plain, inputs, grad, create_graph=True))
            first, *others = (next(found) if x.requires_grad else None for x in (tangents, *values, *weights))
            return first, None, None, None, *others
        if not products:
            slopes = Slopes(values, of_tanh)()
            return _pulled(grad, slopes, weights, tangents), *(None for _ in range(3 + len(values) + len(weights)))
        # over the blocks in no less than float32
        weight_grads = [torch.zeros_like(w, dtype=torch.promote_types(w.dtype, torch.float32)) for w in weights]
        value_grads = [torch.empty_like(value) for value in values]
        input_grad = (
            torch.empty(tangents.shape, dtype=grad.dtype, device=grad.device) if ctx.needs_input_grad[0] else None
        )
        blocks = _blocks(tangents, weights)
        scratch = _Scratch(tangents)
        for block in blocks:
            g = grad[block].flatten(0, 1)
            for i in range(hidden, 0, -1):
                product, value = products[i - 1][block], values[i - 1][block]
                slope = _slope(value, of_tanh).unsqueeze(1)
                hidden_tangents = torch.mul(product, slope, out=scratch.take(len(product), product.shape[2], 2))
                _add_product(weight_grads[i], g.mT, hidden_tangents.flatten(0, 1))
                by_product = scratch.take(len(product), product.shape[2], i % 2)
                torch.mm(g, weights[i], out=by_product.flatten(0, 1))
                by_slope = value_grads[i - 1][block]
                torch.linalg.vecdot(by_product, product, dim=1, out=by_slope)
                if of_tanh:
                    by_slope.mul_(value).mul_(-2)
                g = by_product.mul_(slope).flatten(0, 1)
            _add_product(weight_grads[0], g.mT, tangents[block].flatten(0, 1))
            if input_grad is not None:
                torch.mm(g, weights[0], out=input_grad[block].flatten(0, 1))
        return (
            input_grad,
            None,
            None,
            None,
            *value_grads,
            *(g.to(w.dtype) for g, w in zip(weight_grads, weights, strict=True)),
        )


def _slope(value: Tensor, of_tanh: bool) -> Tensor:
    return slope_of_tanh(value) if of_tanh else value


def _pulled(grad: Tensor, slopes: Sequence[Tensor], weights: Sequence[Tensor], tangents: Tensor) -> Tensor:
    """The transposed map alone: covectors (B, K, n_L) → (B, K, n_0)."""
    output, scratch = torch.empty_like(tangents, memory_format=torch.contiguous_format), _Scratch(tangents)
    for block in _blocks(tangents, weights):
        g = grad[block].flatten(0, 1)
        for i in range(len(slopes), 0, -1):
            place = scratch.take(len(slopes[i - 1][block]), weights[i].shape[1], i % 2)
            torch.mm(g, weights[i], out=place.flatten(0, 1))
            g = place.mul_(slopes[i - 1][block].unsqueeze(1)).flatten(0, 1)
        torch.mm(g, weights[0], out=output[block].flatten(0, 1))
    return output


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    if total.dtype == a.dtype:
        total.addmm_(a, b)
    else:
        total += a @ b
