r"""The pieces of a multi-scale image flow: squeeze, and the split that drops half the channels.

Reference: Dinh et al., Density estimation using Real NVP, arXiv:1605.08803, section 3.6.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .injection import Injection, Rearrangement, Shape, TangentMap


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
