r"""Linear maps x = Az: permutation, LU-parametrised, free square matrix, fixed by data, full whitening."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import RankDeficientError
from .injection import Bijection, Rearrangement, TangentMap, as_shape, fold


class AffineMap(Bijection):
    """x = Az + b: the log-determinant is the same everywhere."""

    @abstractmethod
    def log_abs_det(self) -> Tensor:
        """log|det A|, a scalar."""

    def forward_with_log_det(self, z: Tensor) -> tuple[Tensor, Tensor]:
        return self.forward(z), self.log_abs_det().to(z.dtype).expand(z.shape[0])

    def inverse_with_log_det(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.inverse(x), -self.log_abs_det().to(x.dtype).expand(x.shape[0])


class _Matrix(AffineMap):
    """x = Az + b for a full square A; a subclass gives the matrix, the solve and log|det A|."""

    def __init__(self, features: int):
        super().__init__(as_shape(features))

    @abstractmethod
    def matrix(self) -> Tensor:
        """A, (n, n)."""

    @abstractmethod
    def solve(self, x: Tensor) -> Tensor:
        """A⁻¹x for each row of x, (N, n)."""

    def offset(self) -> Tensor | None:
        """The b above, or None."""
        return None

    def forward(self, z: Tensor) -> Tensor:
        return F.linear(z, self.matrix(), self.offset())

    def inverse(self, x: Tensor) -> Tensor:
        offset = self.offset()
        return self.solve(x if offset is None else x - offset)

    def linearize(self, z: Tensor) -> tuple[Tensor, TangentMap]:
        A = self.matrix()
        return F.linear(z, A, self.offset()), lambda tangents: F.linear(tangents, A)

    def linearize_inverse(self, x: Tensor) -> tuple[Tensor, TangentMap]:
        return self.inverse(x), lambda tangents: fold(self.solve, tangents)


class Permutation(Rearrangement):
    """x_i = z_{p(i)}, for a fixed permutation p: random, or the reversal of the order.

    Example:
        >>> import torch
        >>> Permutation(3, order="reverse")(torch.tensor([[1.0, 2.0, 3.0]]))
        tensor([[3., 2., 1.]])
    """

    order: Tensor

    def __init__(self, features: int, order: Literal["random", "reverse"] = "random"):
        super().__init__(as_shape(features))
        if order not in ("random", "reverse"):
            raise ValueError(f"expected order 'random' or 'reverse'; got {order!r}")
        self.register_buffer("order", torch.randperm(features) if order == "random" else torch.arange(features).flip(0))

    def start_from(self, matrix: Tensor) -> None:
        """Become the permutation with that matrix."""
        self.order.copy_(matrix.argmax(dim=1))

    def forward(self, z: Tensor) -> Tensor:
        return z.index_select(-1, self.order)

    def inverse(self, x: Tensor) -> Tensor:
        return x.index_select(-1, self.order.argsort())


class LULinear(_Matrix):
    r"""A = P L U with a fixed permutation P, unit lower L and upper U with diagonal :math:`\pm e^{s}`.

    log|det A| = Σ s costs nothing, the inverse two triangular solves, and A is invertible whatever the parameters.
    Starts as a random rotation.

    Reference: Kingma and Dhariwal, Glow, arXiv:1807.03039.
    """

    _permutation: Tensor
    _signs: Tensor

    def __init__(self, features: int):
        super().__init__(features)
        self.register_buffer("_permutation", torch.arange(features))
        self.register_buffer("_signs", torch.ones(features))
        self.lower = nn.Parameter(torch.zeros(features, features))
        self.upper = nn.Parameter(torch.zeros(features, features))
        self.log_diagonal = nn.Parameter(torch.zeros(features))
        self.start_from(_random_rotation(features))

    @torch.no_grad()
    def start_from(self, matrix: Tensor) -> None:
        """Become that matrix."""
        P, L, U = torch.linalg.lu(matrix)
        self._permutation.copy_(P.argmax(dim=1))
        self._signs.copy_(U.diagonal().sign())
        self.lower.copy_(L.tril(-1))
        self.upper.copy_(U.triu(1))
        self.log_diagonal.copy_(U.diagonal().abs().log())

    def _factors(self) -> tuple[Tensor, Tensor]:
        eye = torch.eye(self.in_shape[0], dtype=self.lower.dtype, device=self.lower.device)
        return self.lower.tril(-1) + eye, self.upper.triu(1) + torch.diag(self._signs * self.log_diagonal.exp())

    def matrix(self) -> Tensor:
        L, U = self._factors()
        return (L @ U)[self._permutation]

    def solve(self, x: Tensor) -> Tensor:
        L, U = self._factors()
        rows = x.mT.index_select(0, self._permutation.argsort())
        rows = torch.linalg.solve_triangular(L, rows, upper=False, unitriangular=True)
        return torch.linalg.solve_triangular(U, rows, upper=True).mT

    def log_abs_det(self) -> Tensor:
        return self.log_diagonal.sum()


class FreeLinear(_Matrix):
    """A free square matrix: the cheapest mixing layer for f̃, which needs no log-determinant.

    The inverse solves with A (O(n³) a call, not a point), and the log-determinant, where one is asked for (a square flow,
    the codimension identity), is computed by LU. Nothing keeps A from becoming singular except the training objective;
    an exactly singular one raises :class:`~rectangular_flows.errors.RankDeficientError`.

    Args:
        features: n.
        start: "orthogonal" for a random rotation, "identity".
    """

    def __init__(self, features: int, start: Literal["orthogonal", "identity"] = "orthogonal"):
        super().__init__(features)
        if start not in ("orthogonal", "identity"):
            raise ValueError(f"expected start 'orthogonal' or 'identity'; got {start!r}")
        self.weight = nn.Parameter(_random_rotation(features) if start == "orthogonal" else torch.eye(features))

    @torch.no_grad()
    def start_from(self, matrix: Tensor) -> None:
        """Become that matrix."""
        self.weight.copy_(matrix)

    def matrix(self) -> Tensor:
        return self.weight

    def solve(self, x: Tensor) -> Tensor:
        try:
            return torch.linalg.solve(self.weight, x.mT).mT
        except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
            raise RankDeficientError(
                f"the {self.in_shape[0]}×{self.in_shape[0]} matrix of a FreeLinear layer is singular ({error}). "
                "Lower the learning rate, clip gradients, or use LULinear (mixing='lu'), which is always invertible."
            ) from error

    def log_abs_det(self) -> Tensor:
        return torch.linalg.slogdet(self.weight).logabsdet


class FixedMatrix(_Matrix):
    """x = Az + b that is not trained: the identity, until a subclass sets it from data."""

    weight: Tensor
    shift: Tensor

    def __init__(self, features: int):
        super().__init__(features)
        self.register_buffer("weight", torch.eye(features))
        self.register_buffer("shift", torch.zeros(features))

    def matrix(self) -> Tensor:
        return self.weight

    def offset(self) -> Tensor:
        return self.shift

    def solve(self, x: Tensor) -> Tensor:
        return torch.linalg.solve(self.weight, x.mT).mT

    def log_abs_det(self) -> Tensor:
        return torch.linalg.slogdet(self.weight).logabsdet


class Whitening(_Matrix):
    """z = μ + Lu with L lower triangular and positive on the diagonal: gives u zero mean and unit covariance.

    Starts as the identity; :meth:`initialise` sets μ and L from data. Both are then trained like any parameter unless
    ``trainable=False``. Put before a spline flow, whose tails are the identity beyond their box.
    """

    def __init__(self, features: int, trainable: bool = True):
        super().__init__(features)
        self.mean = nn.Parameter(torch.zeros(features), requires_grad=trainable)
        self.lower = nn.Parameter(torch.zeros(features, features), requires_grad=trainable)
        self.log_diagonal = nn.Parameter(torch.zeros(features), requires_grad=trainable)

    def matrix(self) -> Tensor:
        return self.lower.tril(-1) + torch.diag(self.log_diagonal.exp())

    def offset(self) -> Tensor:
        return self.mean

    def solve(self, x: Tensor) -> Tensor:
        return torch.linalg.solve_triangular(self.matrix(), x.mT, upper=False).mT

    def log_abs_det(self) -> Tensor:
        return self.log_diagonal.sum()

    @torch.no_grad()
    def initialise(self, x: Tensor) -> Tensor:
        covariance = torch.cov(x.mT).reshape(x.shape[1], x.shape[1])
        factor, info = torch.linalg.cholesky_ex(covariance)
        if int(info) != 0 or not bool(torch.isfinite(factor).all()):
            raise RankDeficientError(
                f"the covariance of {x.shape[0]} points in {x.shape[1]} dimensions is not positive definite (Cholesky "
                f"failed at coordinate {int(info)}). Give more points, or a smaller latent dimension."
            )
        self.mean.copy_(x.mean(dim=0))
        self.lower.copy_(factor.tril(-1))
        self.log_diagonal.copy_(factor.diagonal().log())
        return self.inverse(x)


@torch.no_grad()
def inverse_product(layers: Sequence[Bijection], features: int) -> Tensor:
    """The inverse of the product of rotations or permutations that follow one another."""
    product = torch.eye(features)
    for layer in layers:
        product = layer(product)
    return product


def _random_rotation(size: int) -> Tensor:
    return torch.linalg.qr(torch.randn(size, size))[0]
