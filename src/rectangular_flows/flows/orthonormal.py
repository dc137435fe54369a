r"""The orthonormal embedding x = μ + Uy: principal directions, or trained ones, as the last layer of a flow."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite, prod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .injection import Injection, Shape, TangentMap, as_shape


class OrthonormalEmbedding(Injection):
    r"""x = μ + Uy with UᵀU = I, from D′ to D dimensions; isometric, so that the volume needs only the map before it.

    U starts at random; :meth:`initialise` sets it to the leading principal directions of data. A trained U is the
    orthonormal factor of a free D×D′ matrix, which keeps it orthonormal at every step.

    Args:
        features: D′.
        shape: D, or an event shape with D entries.
        trainable: whether U and μ are trained.
        tail: exponent a of weights |x − μ|^(2a) of the rows that U starts from; above 0, rows far out weigh more.

    Example:
        >>> import torch
        >>> data = torch.randn(100, 2) @ torch.randn(2, 5)
        >>> layer = OrthonormalEmbedding(2, 5)
        >>> y = layer.initialise(data)
        >>> torch.allclose(layer(y), data, atol=1e-4)
        True
    """

    isometric = True
    mean: Tensor
    raw: Tensor

    def __init__(self, features: int, shape: int | Shape, trainable: bool = False, tail: float = 0.0):
        shape = as_shape(shape)
        size = prod(shape)
        if not 1 <= features <= size:
            raise ValueError(f"expected a number of directions D′ from 1 to D; got D′ = {features} and D = {size}")
        if not (tail >= 0 and isfinite(tail)):
            raise ValueError(f"expected tail of at least 0; got {tail}")
        super().__init__((features,), shape)
        self.trainable, self.tail = trainable, tail
        start = torch.linalg.qr(torch.randn(size, features))[0]
        if trainable:
            self.raw = nn.Parameter(start)
            self.mean = nn.Parameter(torch.zeros(size))
        else:
            self.register_buffer("raw", start)
            self.register_buffer("mean", torch.zeros(size))
        self.register_load_state_dict_post_hook(OrthonormalEmbedding._restore_orthonormality)  # type: ignore[no-untyped-call]

    def _restore_orthonormality(self, *_: object) -> None:
        """Weights that come from a lower precision are orthonormal in that one only."""
        if self.trainable or self.raw.device.type == "meta":
            return
        with torch.no_grad():
            eye = torch.eye(self.in_shape[0], dtype=self.raw.dtype, device=self.raw.device)
            if float((self.raw.mT @ self.raw - eye).abs().max()) > 1e3 * torch.finfo(self.raw.dtype).eps:
                self.raw.copy_(_orthonormal(self.raw))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> OrthonormalEmbedding:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._restore_orthonormality()
        return self

    @torch.no_grad()
    def initialise(self, x: Tensor) -> Tensor:
        """Set μ and U to the mean and the leading principal directions of x."""
        flat = x.flatten(1)
        mean = flat.mean(dim=0)
        # the covariance in double precision: squaring in single would lose the small directions
        centred = (flat - mean).double()
        weighted = centred * tail_weights(centred, self.tail).unsqueeze(1) if self.tail else centred
        _, directions = torch.linalg.eigh((centred.mT @ weighted) / len(flat))
        leading = directions.flip(1)[:, : self.in_shape[0]]
        largest = leading.gather(0, leading.abs().argmax(dim=0, keepdim=True))
        self.raw.copy_(leading * largest.sign())
        self.mean.copy_(mean)
        return self.inverse(x)

    def directions(self) -> Tensor:
        """U, (D, D′)."""
        if not self.trainable:
            return self.raw
        return _orthonormal(self.raw)

    def forward(self, z: Tensor) -> Tensor:
        return F.linear(z, self.directions(), self.mean).unflatten(-1, self.out_shape)

    def inverse(self, x: Tensor) -> Tensor:
        return (x.flatten(1) - self.mean) @ self.directions()

    def linearize(self, z: Tensor) -> tuple[Tensor, TangentMap]:
        U = self.directions()
        x = F.linear(z, U, self.mean).unflatten(-1, self.out_shape)
        return x, lambda tangents: F.linear(tangents, U).unflatten(-1, self.out_shape)

    def linearize_inverse(self, x: Tensor) -> tuple[Tensor, TangentMap]:
        U = self.directions()
        return (x.flatten(1) - self.mean) @ U, lambda tangents: tangents.flatten(2) @ U


def tail_weights(offsets: Tensor, exponent: float) -> Tensor:
    """|y|^(2a), (B,), of offsets y from a centre, (B, …): weights by which rows far out weigh more."""
    return offsets.flatten(1).square().sum(dim=1).pow(exponent)


def _orthonormal(raw: Tensor) -> Tensor:
    Q, R = torch.linalg.qr(raw)
    return Q * R.diagonal().sign()
