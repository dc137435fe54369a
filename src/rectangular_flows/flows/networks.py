r"""Conditioner networks, each able to carry a bundle of tangents.

The tangent of a linear layer is the layer without its bias; that of an activation is a product with its derivative:

.. math:: y = \phi(Wx + b), \qquad t_y = \phi'(Wx + b) \odot W t_x .

``linearize`` computes every :math:`\phi'` once with the primal, so that any number of bundles reuses them.
Batch normalisation is not offered: it couples the rows of a batch, so that the Jacobian of the batch is no longer
block-diagonal and per-row volumes are wrong (the paper's appendix on batch normalisation). ActNorm takes its place.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .description import Described
from .injection import TangentMap, fold
from .tangents import tangent_mlp

Activation = Literal["tanh", "silu", "relu"]


class Network(Described, nn.Module, ABC):
    """A differentiable map of a batch, (B, *in) → (B, *out), that is linearised on request."""

    activation_size: int
    """Scalars that one tangent occupies at the widest place inside the network."""

    @abstractmethod
    def linearize(self, x: Tensor) -> tuple[Tensor, TangentMap]:
        """The output and the tangent map t ↦ (∂y/∂x)t for bundles (B, K, *in)."""

    def push(self, x: Tensor, tangents: Tensor) -> tuple[Tensor, Tensor]:
        """(x, t) → (y, (∂y/∂x)t), with t of shape (B, K, *in)."""
        y, tangent_map = self.linearize(x)
        return y, tangent_map(tangents)


class MLP(Network):
    """A multilayer perceptron, linear → activation → … → linear.

    Args:
        inputs: size of the input.
        outputs: size of the output.
        hidden: widths of the hidden layers.
        activation: "tanh", "silu" or "relu".
        zero_init: start with a last layer of zeros, so that the network starts as the zero map.

    Example:
        >>> import torch
        >>> MLP(3, 2, hidden=(16, 16))(torch.zeros(5, 3)).shape
        torch.Size([5, 2])
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        hidden: Sequence[int] = (64, 64),
        activation: Activation = "silu",
        zero_init: bool = False,
    ):
        super().__init__()
        sizes = [inputs, *hidden, outputs]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.activation: Activation = check_activation(activation)
        self.activation_size = max(sizes)
        if zero_init:
            _zero(self.layers[-1])

    def forward(self, x: Tensor) -> Tensor:
        value = _VALUE[self.activation]
        *first, last = self._weights()
        for weight, bias in first:
            x = value(F.linear(x, weight, bias))
        return F.linear(x, *last)

    def _weights(self) -> list[tuple[Tensor, Tensor]]:
        return [(layer.weight, layer.bias) for layer in self.layers]  # type: ignore[misc]

    def linearize(self, x: Tensor) -> tuple[Tensor, TangentMap]:
        slopes = []
        *first, last = self._weights()
        for weight, bias in first:
            x, slope = _WITH_SLOPE[self.activation](F.linear(x, weight, bias))
            slopes.append(slope)
        y = F.linear(x, *last)

        weights = [weight for weight, _ in (*first, last)]
        return y, lambda tangents: tangent_mlp(tangents, slopes, weights)


class ResidualMLP(Network):
    """linear → blocks of (activation, linear, activation, linear, skip) → activation → linear.

    Args:
        inputs: size of the input.
        outputs: size of the output.
        width: size of the hidden layers.
        blocks: number of residual blocks.
        activation: "tanh", "silu" or "relu".
        zero_init: start with a last layer of zeros.

    Example:
        >>> import torch
        >>> ResidualMLP(3, 2, width=16, blocks=2)(torch.zeros(5, 3)).shape
        torch.Size([5, 2])
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        width: int = 64,
        blocks: int = 1,
        activation: Activation = "silu",
        zero_init: bool = False,
    ):
        super().__init__()
        self.first = nn.Linear(inputs, width)
        self.blocks = nn.ModuleList(nn.ModuleList([nn.Linear(width, width) for _ in range(2)]) for _ in range(blocks))
        self.last = nn.Linear(width, outputs)
        self.activation: Activation = check_activation(activation)
        self.activation_size = max(inputs, width, outputs)
        if zero_init:
            _zero(self.last)

    def forward(self, x: Tensor) -> Tensor:
        value = _VALUE[self.activation]
        y: Tensor = self.last(value(_residual(self.first(x), self.blocks, value)))
        return y

    def linearize(self, x: Tensor) -> tuple[Tensor, TangentMap]:
        x, trunk, slope = _linearize_residual(self.first(x), self.blocks, self.activation, _linear_tangent)

        def tangent_map(tangents: Tensor) -> Tensor:
            tangents = trunk(F.linear(tangents, self.first.weight))
            return F.linear(tangents * slope.unsqueeze(1), self.last.weight)

        return self.last(x), tangent_map


class ResidualConvNet(Network):
    """The convolutional coupler of the paper's image experiments.

    convolution 3×3 → ``blocks`` × (relu, convolution 3×3, relu, convolution 3×3, skip) → relu → convolution 1×1 →
    learned per-channel scale × tanh + bias. The first convolution has no bias.

    Args:
        inputs: channels of the input.
        outputs: channels of the output; height and width are kept.
        width: channels of the hidden layers.
        blocks: number of residual blocks.
        activation: "relu" as published, or "tanh", "silu".
        zero_init: start with a zero per-channel scale, so that the network starts as the zero map.

    Example:
        >>> import torch
        >>> ResidualConvNet(1, 2, size=(6, 6), width=8, blocks=1)(torch.zeros(5, 1, 6, 6)).shape
        torch.Size([5, 2, 6, 6])
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        size: tuple[int, int],
        width: int = 64,
        blocks: int = 8,
        activation: Activation = "relu",
        zero_init: bool = False,
    ):
        super().__init__()
        self.first = nn.Conv2d(inputs, width, 3, padding=1, bias=False)
        self.blocks = nn.ModuleList(
            nn.ModuleList([nn.Conv2d(width, width, 3, padding=1) for _ in range(2)]) for _ in range(blocks)
        )
        self.last = nn.Conv2d(width, outputs, 1)
        self.scale = nn.Parameter(torch.zeros(outputs, 1, 1) if zero_init else torch.ones(outputs, 1, 1))
        self.bias = nn.Parameter(torch.zeros(outputs, 1, 1))
        self.activation: Activation = check_activation(activation)
        self.activation_size = max(inputs, width, outputs) * size[0] * size[1]

    def forward(self, x: Tensor) -> Tensor:
        value = _VALUE[self.activation]
        y = self.last(value(_residual(self.first(x), self.blocks, value)))
        return self.scale * torch.tanh(y) + self.bias

    def linearize(self, x: Tensor) -> tuple[Tensor, TangentMap]:
        x, trunk, slope = _linearize_residual(self.first(x), self.blocks, self.activation, _conv_tangent)
        y = torch.tanh(self.last(x))
        last_slope = self.scale * (1 - y * y)

        def tangent_map(tangents: Tensor) -> Tensor:
            tangents = trunk(_conv_tangent(self.first, tangents)) * slope.unsqueeze(1)
            return _conv_tangent(self.last, tangents) * last_slope.unsqueeze(1)

        return self.scale * y + self.bias, tangent_map


class Constant(Network):
    """A learned vector, whatever the input: the conditioner of a coupling that has nothing to condition on."""

    def __init__(self, outputs: int):
        super().__init__()
        self.value = nn.Parameter(torch.zeros(outputs))
        self.activation_size = outputs

    def forward(self, x: Tensor) -> Tensor:
        return self.value.expand(x.shape[0], -1)

    def linearize(self, x: Tensor) -> tuple[Tensor, TangentMap]:
        size = self.activation_size
        return self.forward(x), lambda tangents: tangents.new_zeros((*tangents.shape[:2], size))


def check_activation(name: str) -> Activation:
    """The name itself, or a ValueError that lists the names there are."""
    if name not in _VALUE:
        raise ValueError(f"expected an activation among {', '.join(_VALUE)}; got {name!r}")
    return name  # type: ignore[return-value]


def _tanh_with_slope(x: Tensor) -> tuple[Tensor, Tensor]:
    y = torch.tanh(x)
    return y, torch.addcmul(y.new_ones(()), y, y, value=-1)  # 1 − y² in one pass


def _silu_with_slope(x: Tensor) -> tuple[Tensor, Tensor]:
    s = torch.sigmoid(x)
    y = x * s
    return y, s + y * (1 - s)


def _relu_with_slope(x: Tensor) -> tuple[Tensor, Tensor]:
    return torch.relu(x), (x > 0).to(x.dtype)


_VALUE: dict[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, "silu": F.silu, "relu": torch.relu}
_WITH_SLOPE: dict[str, Callable[[Tensor], tuple[Tensor, Tensor]]] = {
    "tanh": _tanh_with_slope,
    "silu": _silu_with_slope,
    "relu": _relu_with_slope,
}
_LayerTangent = Callable[[nn.Module, Tensor], Tensor]


def _linear_tangent(layer: nn.Module, tangents: Tensor) -> Tensor:
    return F.linear(tangents, layer.weight)  # type: ignore[arg-type]


def _conv_tangent(layer: nn.Module, tangents: Tensor) -> Tensor:
    return fold(lambda t: F.conv2d(t, layer.weight, padding=layer.padding), tangents)  # type: ignore[call-overload]


def _pairs(blocks: nn.ModuleList) -> Iterator[tuple[nn.Module, nn.Module]]:
    yield from blocks  # type: ignore[misc]


def _residual(x: Tensor, blocks: nn.ModuleList, value: Callable[[Tensor], Tensor]) -> Tensor:
    for first, second in _pairs(blocks):
        x = x + second(value(first(value(x))))
    return x


def _linearize_residual(
    x: Tensor, blocks: nn.ModuleList, activation: Activation, layer_tangent: _LayerTangent
) -> tuple[Tensor, TangentMap, Tensor]:
    """Residual blocks and the activation after them: its value, the blocks' tangent map, its slope."""
    with_slope = _WITH_SLOPE[activation]
    slopes = []
    for first, second in _pairs(blocks):
        inner, slope_in = with_slope(x)
        inner, slope_out = with_slope(first(inner))
        x = x + second(inner)
        slopes.append((slope_in, slope_out))
    y, last_slope = with_slope(x)

    def trunk(tangents: Tensor) -> Tensor:
        for (first, second), (slope_in, slope_out) in zip(_pairs(blocks), slopes, strict=True):
            inner = layer_tangent(first, tangents * slope_in.unsqueeze(1)) * slope_out.unsqueeze(1)
            tangents = tangents + layer_tangent(second, inner)
        return tangents

    return y, trunk, last_slope


def _zero(layer: nn.Module) -> None:
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
