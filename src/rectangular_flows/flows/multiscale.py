r"""The pieces of a multi-scale image flow: squeeze, the split that drops half the channels, and the one that keeps them.

Reference: Dinh et al., Density estimation using Real NVP, arXiv:1605.08803, section 3.6.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from .injection import Bijection, Injection, Rearrangement, Shape, TangentMap

T = TypeVar("T")


class Squeeze(Rearrangement):
    """Latent (4C, H/2, W/2) to data (C, H, W): each pixel's four channels become a 2×2 block.

    Args:
        shape: (C, H, W) of the data side, with even H and W.

    Example:
        >>> import torch
        >>> Squeeze((1, 4, 4)).inverse(torch.zeros(7, 1, 4, 4)).shape
        torch.Size([7, 4, 2, 2])
    """

    def __init__(self, shape: Shape):
        channels, height, width = shape
        if height % 2 or width % 2:
            raise ValueError(f"expected even height and width; got {height}×{width}. Pad the images first.")
        super().__init__((4 * channels, height // 2, width // 2), shape)

    def forward(self, z: Tensor) -> Tensor:
        x = z.unflatten(1, (self.out_shape[0], 2, 2))  # (B, C, 2, 2, H/2, W/2)
        return x.permute(0, 1, 4, 2, 5, 3).flatten(2, 3).flatten(3, 4)

    def inverse(self, x: Tensor) -> Tensor:
        z = x.unflatten(3, (-1, 2)).unflatten(2, (-1, 2))  # (B, C, H/2, 2, W/2, 2)
        return z.permute(0, 1, 3, 5, 2, 4).flatten(1, 3)


class Split(Injection):
    """Latent (C/2, H, W) to data (C, H, W): the second half of the channels is zero; the left inverse drops it.

    It makes a multi-scale flow rectangular in itself: the input is padded once more.
    """

    isometric = True

    def __init__(self, shape: Shape):
        if shape[0] % 2:
            raise ValueError(f"expected an even number of channels; got {shape[0]}")
        super().__init__((shape[0] // 2, *shape[1:]), shape)

    def forward(self, z: Tensor) -> Tensor:
        return torch.cat((z, torch.zeros_like(z)), dim=-len(self.out_shape))

    def inverse(self, x: Tensor) -> Tensor:
        return x.narrow(-len(self.out_shape), 0, self.in_shape[0])

    def linearize(self, z: Tensor) -> tuple[Tensor, TangentMap]:
        return self.forward(z), self.forward

    def linearize_inverse(self, x: Tensor) -> tuple[Tensor, TangentMap]:
        return self.inverse(x), self.inverse


class OnFirstHalf(Bijection):
    """Apply a bijection to the first half of the channels and keep the second: the split of a square multi-scale flow."""

    def __init__(self, inner: Bijection):
        if inner.in_shape != inner.out_shape:
            raise ValueError(f"expected a map of one shape; got {inner.in_shape} to {inner.out_shape}")
        super().__init__((2 * inner.in_shape[0], *inner.in_shape[1:]))
        self.inner = inner

    @property
    def activation_size(self) -> int:
        """The inner map's, or the event's where that is larger."""
        return max(super().activation_size, self.inner.activation_size)

    def _halves(self, x: Tensor) -> tuple[Tensor, Tensor]:
        first, second = x.chunk(2, dim=-len(self.in_shape))
        return first, second

    def _join(self, first: Tensor, second: Tensor) -> Tensor:
        return torch.cat((first, second), dim=-len(self.in_shape))

    def _on_first(self, function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        first, second = self._halves(x)
        return self._join(function(first), second)

    def _on_first_with(self, function: Callable[[Tensor], tuple[Tensor, T]], x: Tensor) -> tuple[Tensor, T]:
        first, second = self._halves(x)
        value, more = function(first)
        return self._join(value, second), more

    def forward(self, z: Tensor) -> Tensor:
        return self._on_first(self.inner, z)

    def inverse(self, x: Tensor) -> Tensor:
        return self._on_first(self.inner.inverse, x)

    def linearize(self, z: Tensor) -> tuple[Tensor, TangentMap]:
        value, inner_map = self._on_first_with(self.inner.linearize, z)
        return value, lambda tangents: self._on_first(inner_map, tangents)

    def linearize_inverse(self, x: Tensor) -> tuple[Tensor, TangentMap]:
        value, inner_map = self._on_first_with(self.inner.linearize_inverse, x)
        return value, lambda tangents: self._on_first(inner_map, tangents)

    def forward_with_log_det(self, z: Tensor) -> tuple[Tensor, Tensor]:
        return self._on_first_with(self.inner.forward_with_log_det, z)

    def inverse_with_log_det(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self._on_first_with(self.inner.inverse_with_log_det, x)

    def initialise(self, x: Tensor) -> Tensor:
        return self._on_first(self.inner.initialise, x)
