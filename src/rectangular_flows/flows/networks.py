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
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import in_transform
from .description import Described
from .injection import TangentMap, fold
from .tangents import Slopes, dtype_inside, slope_of_tanh, tangent_mlp


class Network(Described, nn.Module, ABC):
    """A differentiable map of a batch, (B, *in) → (B, *out), that is linearised on request."""

    activation_size: int
    """Scalars that one tangent occupies at the widest place inside the network."""

    @abstractmethod
    def linearize(self, x: Tensor) -> tuple[Tensor, TangentMap]:
        """The output and the tangent map t ↦ (∂y/∂x)t for bundles (B, K, *in)."""

    def inner(self) -> list[nn.Module]:
        """The layers from one hidden layer to another."""
        return []


def inner_weights(module: nn.Module) -> list[nn.Parameter]:
    """The matrices between hidden layers of all networks in a module, as far as they are trained."""
    layers = [layer for part in module.modules() if isinstance(part, Network) for layer in part.inner()]
    found: list[nn.Parameter] = [layer.weight for layer in layers if isinstance(layer, nn.Linear)]  # type: ignore[misc]
    return [weight for weight in found if weight.requires_grad]


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
        activation: str = "silu",
        zero_init: bool = False,
    ):
        super().__init__()
        sizes = [inputs, *hidden, outputs]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.activation = _checked(activation)
        self.activation_size = max(sizes)
        if zero_init:
            _zero(self.layers[-1])

    def forward(self, x: Tensor) -> Tensor:
        value = ACTIVATIONS[self.activation].value
        *first, last = self._weights()
        for weight, bias in first:
            x = value(F.linear(x, weight, bias))
        return F.linear(x, *last)

    def inner(self) -> list[nn.Module]:
        return list(self.layers)[1:-1]

    def _weights(self) -> list[tuple[Tensor, Tensor]]:
        return [(layer.weight, layer.bias) for layer in self.layers]  # type: ignore[misc]

    def linearize(self, x: Tensor) -> tuple[Tensor, TangentMap]:
        values, of_tanh = [], self.activation == "tanh"
        activation = ACTIVATIONS[self.activation]
        *first, last = self._weights()
        for weight, bias in first:
            before = F.linear(x, weight, bias)
            x, slope = (activation.value(before), None) if of_tanh else activation.with_slope(before)
            values.append(x if slope is None else slope)
        y, slopes = F.linear(x, *last), Slopes(values, of_tanh)

        weights = [weight for weight, _ in (*first, last)]
        return y, lambda tangents: tangent_mlp(tangents, slopes, weights)


class _Residual(Network):
    """first layer → blocks of (activation, layer, activation, layer, skip) → activation → last layer."""

    first: nn.Module
    blocks: nn.ModuleList
    last: nn.Module
    activation: str

    @staticmethod
    @abstractmethod
    def tangent(layer: nn.Module, tangents: Tensor) -> Tensor:
        """A bundle of tangents carried through one layer, which is the layer without its bias."""

    def inner(self) -> list[nn.Module]:
        return [layer for pair in self._pairs() for layer in pair]

    def _pairs(self) -> Iterator[tuple[nn.Module, nn.Module]]:
        yield from self.blocks  # type: ignore[misc]

    def forward(self, x: Tensor) -> Tensor:
        value = ACTIVATIONS[self.activation].value
        x = self.first(x)
        for first, second in self._pairs():
            x = x + second(value(first(value(x))))
        y: Tensor = self.last(value(x))
        return y

    def linearize(self, x: Tensor) -> tuple[Tensor, TangentMap]:
        with_slope, tangent = ACTIVATIONS[self.activation].with_slope, self.tangent
        x = self.first(x)
        slopes = []
        for first, second in self._pairs():
            inner, slope_in = with_slope(x)
            inner, slope_out = with_slope(first(inner))
            x = x + second(inner)
            slopes.append((slope_in, slope_out))
        y, last_slope = with_slope(x)

        def tangent_map(tangents: Tensor) -> Tensor:
            inside = dtype_inside(tangents, self.activation_size)
            t = tangent(self.first, tangents.to(inside))
            for (first, second), (slope_in, slope_out) in zip(self._pairs(), slopes, strict=True):
                inner = tangent(first, t * slope_in.to(inside).unsqueeze(1)) * slope_out.to(inside).unsqueeze(1)
                t = t + tangent(second, inner)
            return tangent(self.last, t * last_slope.to(inside).unsqueeze(1)).to(tangents.dtype)

        return self.last(y), tangent_map


class ResidualMLP(_Residual):
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
        activation: str = "silu",
        zero_init: bool = False,
    ):
        super().__init__()
        self.first = nn.Linear(inputs, width)
        self.blocks = _blocks(blocks, lambda: nn.Linear(width, width))
        self.last = nn.Linear(width, outputs)
        self.activation = _checked(activation)
        self.activation_size = max(inputs, width, outputs)
        if zero_init:
            _zero(self.last)

    @staticmethod
    def tangent(layer: nn.Module, tangents: Tensor) -> Tensor:
        return F.linear(tangents, layer.weight.to(tangents.dtype))  # type: ignore[arg-type]


class ResidualConvNet(_Residual):
    """The convolutional coupler of the paper's image experiments.

    convolution 3×3 → ``blocks`` × (relu, convolution 3×3, relu, convolution 3×3, skip) → relu → convolution 1×1 →
    learned per-channel scale × tanh + bias. The first convolution has no bias.

    Args:
        inputs: channels of the input.
        outputs: channels of the output; height and width are kept.
        size: (height, width).
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
        activation: str = "relu",
        zero_init: bool = False,
    ):
        super().__init__()
        self.first = _Conv2d(inputs, width, 3, padding=1, bias=False)
        self.blocks = _blocks(blocks, lambda: _Conv2d(width, width, 3, padding=1))
        self.last = _Conv2d(width, outputs, 1)
        self.activation = _checked(activation)
        self.scale = nn.Parameter(torch.zeros(outputs, 1, 1) if zero_init else torch.ones(outputs, 1, 1))
        self.bias = nn.Parameter(torch.zeros(outputs, 1, 1))
        self.activation_size = max(inputs, width, outputs) * size[0] * size[1]

    @staticmethod
    def tangent(layer: nn.Module, tangents: Tensor) -> Tensor:
        weight = layer.weight.to(tangents.dtype)

        def convolved(t: Tensor) -> Tensor:
            return _channels_last(F.conv2d(_channels_last(t), weight, padding=layer.padding))  # type: ignore[call-overload]

        return fold(convolved, tangents)

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * torch.tanh(super().forward(x)) + self.bias

    def linearize(self, x: Tensor) -> tuple[Tensor, TangentMap]:
        output, inner_map = super().linearize(x)
        y = torch.tanh(output)
        slope = (self.scale * (1 - y * y)).unsqueeze(1)
        return self.scale * y + self.bias, lambda tangents: inner_map(tangents) * slope


class _Conv2d(nn.Conv2d):
    """A convolution of channels-last values, which keep that order from layer to layer."""

    def forward(self, x: Tensor) -> Tensor:
        return _channels_last(super().forward(_channels_last(x)))  # of one channel, it comes out otherwise


def _channels_last(x: Tensor) -> Tensor:
    """The same values with a pixel's channels side by side in memory: convolutions take two thirds of the time on a CPU."""
    return x if in_transform(x) else x.contiguous(memory_format=torch.channels_last)


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


@dataclass(frozen=True)
class Activation:
    """An activation function, and the same with its derivative."""

    value: Callable[[Tensor], Tensor]
    with_slope: Callable[[Tensor], tuple[Tensor, Tensor]]


def _tanh_with_slope(x: Tensor) -> tuple[Tensor, Tensor]:
    y = torch.tanh(x)
    return y, slope_of_tanh(y)


def _silu_with_slope(x: Tensor) -> tuple[Tensor, Tensor]:
    s = torch.sigmoid(x)
    y = x * s
    return y, s + y * (1 - s)


def _relu_with_slope(x: Tensor) -> tuple[Tensor, Tensor]:
    return torch.relu(x), (x > 0).to(x.dtype)


ACTIVATIONS = {
    "tanh": Activation(torch.tanh, _tanh_with_slope),
    "silu": Activation(F.silu, _silu_with_slope),
    "relu": Activation(torch.relu, _relu_with_slope),
}


def _checked(activation: str) -> str:
    if activation not in ACTIVATIONS:
        raise ValueError(f"expected an activation among {', '.join(ACTIVATIONS)}; got {activation!r}")
    return activation


def _blocks(count: int, layer: Callable[[], nn.Module]) -> nn.ModuleList:
    return nn.ModuleList(nn.ModuleList([layer() for _ in range(2)]) for _ in range(count))


def _zero(layer: nn.Module) -> None:
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
