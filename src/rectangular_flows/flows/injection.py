r"""The contract of a layer: an injective map with a left inverse that can carry tangents.

A rectangular flow is a chain of injective maps

.. math:: f = f_L \circ \dots \circ f_1, \qquad f_\ell : \mathbb R^{n_{\ell-1}} \to \mathbb R^{n_\ell},

and the rest of the library relies on this contract of its links alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import prod

import torch
from torch import Tensor, nn

from .description import Described

Shape = tuple[int, ...]
TangentMap = Callable[[Tensor], Tensor]
"""A linear map of a bundle of tangents, (B, K, *in_shape) → (B, K, *out_shape)."""


class Injection(Described, nn.Module, ABC):
    r"""An injective map x = f(z) with a left inverse, f†(f(z)) = z.

    A subclass gives :meth:`forward` and :meth:`inverse`; every other method then works, through :mod:`torch.func`.
    The built-in layers also give :meth:`linearize` (and :meth:`linearize_inverse`), the map and its derivative in one: the
    primal is computed once, after which any number of tangent bundles costs only the linear part.

    Args:
        in_shape: event shape of z, without the batch dimension.
        out_shape: event shape of x; that of z unless given.

    Example:
        >>> import torch
        >>> class Parabola(Injection):
        ...     def forward(self, z):
        ...         return torch.cat([z, z**2], dim=-1)
        ...     def inverse(self, x):
        ...         return x[..., :1]
        >>> x, tangents = Parabola((1,), (2,)).push(torch.tensor([[3.0]]), torch.ones(1, 1, 1))
        >>> tangents
        tensor([[[1., 6.]]])
    """

    isometric: bool = False
    """Whether JᵀJ = I everywhere, so that the map changes no volumes."""
    changes_units: bool = False
    """Whether the layer turns the model's units into the user's (standardising, logit)."""
    takes_float64: bool = False
    """Whether a layer that changes units is best given rows in float64, whatever the type of the flow."""
    saturates: bool = False
    """Whether the map flattens out somewhere, so that its inverse loses digits there."""
    covers: bool = False
    """Whether every row lies in its image, so that none scatters around it although that has fewer dimensions."""

    def __init__(self, in_shape: int | Shape, out_shape: int | Shape | None = None):
        super().__init__()
        self.in_shape = as_shape(in_shape)
        self.out_shape = self.in_shape if out_shape is None else as_shape(out_shape)

    @property
    def activation_size(self) -> int:
        """Scalars that one tangent occupies at the widest place inside the layer; for choosing batch sizes."""
        return max(prod(self.in_shape), prod(self.out_shape))

    @abstractmethod
    def forward(self, z: Tensor) -> Tensor:
        """The map from latent to data, (B, *in_shape) → (B, *out_shape)."""

    @abstractmethod
    def inverse(self, x: Tensor) -> Tensor:
        """A left inverse, (B, *out_shape) → (B, *in_shape)."""

    def linearize(self, z: Tensor) -> tuple[Tensor, TangentMap]:
        """The value f(z) and the tangent map t ↦ J(z)t for bundles (B, K, *in_shape)."""
        if type(self).push is not Injection.push:  # a subclass that wrote its own push
            return self.forward(z), lambda tangents: self.push(z, tangents)[1]
        return self.forward(z), _jvp_bundle(self.forward, z)

    def linearize_inverse(self, x: Tensor) -> tuple[Tensor, TangentMap]:
        """The value f†(x) and the tangent map of the left inverse, for bundles (B, K, *out_shape)."""
        return self.inverse(x), _jvp_bundle(self.inverse, x)

    def push(self, z: Tensor, tangents: Tensor) -> tuple[Tensor, Tensor]:
        """Carry a bundle of tangents along: (z, t) → (f(z), J(z)t), with t of shape (B, K, *in_shape)."""
        x, tangent_map = self.linearize(z)
        return x, tangent_map(tangents)

    def initialise(self, x: Tensor) -> Tensor:
        """Set whatever the layer takes from data (once, explicitly, before training); return f†(x)."""
        with torch.no_grad():
            return self.inverse(x)


class Bijection(Injection):
    """An invertible map between spaces of one dimension, with the log-determinant of its Jacobian.

    The log-determinant has shape (B,) and belongs to the map named: that of ``inverse_with_log_det`` is minus that of
    ``forward_with_log_det`` at the same point.
    """

    @abstractmethod
    def forward_with_log_det(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """(f(z), log|det ∂f/∂z|)."""

    @abstractmethod
    def inverse_with_log_det(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(f⁻¹(x), log|det ∂f⁻¹/∂x|)."""


def links_of(*parts: Injection) -> list[Injection]:
    """The links of layers that follow one another, with chains taken apart and shapes checked."""
    links = [link for part in parts for link in (part.layers if isinstance(part, Chain) else [part])]
    for first, second in pairwise(links):
        if first.out_shape != second.in_shape:
            raise ValueError(
                f"{type(second).__name__} expects shape {second.in_shape}; got {first.out_shape} from "
                f"{type(first).__name__} before it"
            )
    return links


def forward_through(layers: Sequence[Injection], z: Tensor) -> Tensor:
    """f_L(… f_1(z))."""
    for layer in layers:
        z = layer(z)
    return z


def inverse_through(layers: Sequence[Injection], x: Tensor) -> Tensor:
    """f_1†(… f_L†(x))."""
    for layer in reversed(layers):
        x = layer.inverse(x)
    return x


def linearize_through(layers: Sequence[Injection], z: Tensor) -> tuple[Tensor, TangentMap]:
    """The value and tangent map of a chain of layers."""
    maps = []
    for layer in layers:
        z, tangent_map = layer.linearize(z)
        maps.append(tangent_map)
    return z, composed(maps)


def linearize_inverse_through(layers: Sequence[Injection], x: Tensor) -> tuple[Tensor, TangentMap]:
    """The value and tangent map of the left inverse of a chain of layers."""
    maps = []
    for layer in reversed(layers):
        x, tangent_map = layer.linearize_inverse(x)
        maps.append(tangent_map)
    return x, composed(maps)


def push_through(layers: Sequence[Injection], z: Tensor, tangents: Tensor) -> tuple[Tensor, Tensor]:
    """The value and the tangents, layer by layer: without a graph nothing of one layer outlives it."""
    for layer in layers:
        z, tangents = layer.push(z, tangents)
    return z, tangents


class Chain(Injection):
    """Composition in generative order: ``Chain(f1, f2)(z) = f2(f1(z))``. Nested chains are flattened.

    A chain has no log-determinant, because volumes of its links add up only if the links are square (the paper's
    appendix A); :class:`BijectiveChain` has one.
    """

    def __init__(self, *layers: Injection):
        if not layers:
            raise ValueError("a chain needs at least one layer; use Identity(features) for a map that does nothing")
        flat = links_of(*layers)
        super().__init__(flat[0].in_shape, flat[-1].out_shape)
        self._layers = nn.ModuleList(flat)

    @property
    def layers(self) -> list[Injection]:
        """The links, in generative order."""
        return list(self._layers)  # type: ignore[arg-type]

    @property
    def isometric(self) -> bool:  # type: ignore[override]
        """Whether every link is."""
        return all(layer.isometric for layer in self.layers)

    @property
    def activation_size(self) -> int:
        """The widest link's."""
        return max(layer.activation_size for layer in self.layers)

    def forward(self, z: Tensor) -> Tensor:
        check_shape(z, self.in_shape)
        return forward_through(self.layers, z)

    def inverse(self, x: Tensor) -> Tensor:
        check_shape(x, self.out_shape)
        return inverse_through(self.layers, x)

    def linearize(self, z: Tensor) -> tuple[Tensor, TangentMap]:
        check_shape(z, self.in_shape)
        return linearize_through(self.layers, z)

    def linearize_inverse(self, x: Tensor) -> tuple[Tensor, TangentMap]:
        check_shape(x, self.out_shape)
        return linearize_inverse_through(self.layers, x)

    def push(self, z: Tensor, tangents: Tensor) -> tuple[Tensor, Tensor]:
        check_shape(z, self.in_shape)
        return push_through(self.layers, z, tangents)

    def initialise(self, x: Tensor) -> Tensor:
        check_shape(x, self.out_shape)
        for layer in reversed(self.layers):
            x = layer.initialise(x)
        return x


class BijectiveChain(Chain, Bijection):
    """A chain of bijections; log-determinants add."""

    def __init__(self, *layers: Bijection):
        for layer in layers:
            if not isinstance(layer, Bijection):
                raise TypeError(f"expected bijections only; got {type(layer).__name__}, which is an injection")
        super().__init__(*layers)

    @property
    def _bijections(self) -> list[Bijection]:
        return list(self._layers)  # type: ignore[arg-type]

    def forward_with_log_det(self, z: Tensor) -> tuple[Tensor, Tensor]:
        check_shape(z, self.in_shape)
        return _with_log_det(z, [layer.forward_with_log_det for layer in self._bijections])

    def inverse_with_log_det(self, x: Tensor) -> tuple[Tensor, Tensor]:
        check_shape(x, self.out_shape)
        return _with_log_det(x, [layer.inverse_with_log_det for layer in reversed(self._bijections)])


def chain(*layers: Injection) -> Chain:
    """Compose layers in generative order; the result is a bijection if all of them are.

    Example:
        >>> from rectangular_flows.flows import Identity, Pad
        >>> type(chain(Identity(3), Identity(3))).__name__, type(chain(Pad(2, 3), Identity(3))).__name__
        ('BijectiveChain', 'Chain')
    """
    bijections = [layer for layer in layers if isinstance(layer, Bijection)]
    return BijectiveChain(*bijections) if len(bijections) == len(layers) else Chain(*layers)


class Rearrangement(Bijection):
    """A bijection that only moves coordinates about; a subclass gives ``forward`` and ``inverse``."""

    isometric = True

    def linearize(self, z: Tensor) -> tuple[Tensor, TangentMap]:
        return self.forward(z), lambda tangents: fold(self.forward, tangents)

    def linearize_inverse(self, x: Tensor) -> tuple[Tensor, TangentMap]:
        return self.inverse(x), lambda tangents: fold(self.inverse, tangents)

    def forward_with_log_det(self, z: Tensor) -> tuple[Tensor, Tensor]:
        return self.forward(z), z.new_zeros(z.shape[:1])

    def inverse_with_log_det(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.inverse(x), x.new_zeros(x.shape[:1])


class Identity(Rearrangement):
    """The map that does nothing: as h, it leaves the latent density a standard Gaussian."""

    def __init__(self, features: int | Shape):
        super().__init__(as_shape(features))

    def forward(self, z: Tensor) -> Tensor:
        return z

    def inverse(self, x: Tensor) -> Tensor:
        return x


def as_shape(features: int | Shape) -> Shape:
    """An event shape from a number of features or a shape; every size must be positive."""
    shape = (features,) if isinstance(features, int) else tuple(features)
    if not shape or any(size < 1 for size in shape):
        raise ValueError(f"expected positive sizes; got {features!r}")
    return shape


def check_shape(values: Tensor, shape: Shape) -> None:
    """Raise a ValueError unless values is a batch of events of that shape."""
    if tuple(values.shape[1:]) != shape or values.dim() != len(shape) + 1:
        raise ValueError(f"Expected input shape (batch, {', '.join(map(str, shape))}); got {tuple(values.shape)}")


def fold(function: Callable[[Tensor], Tensor], tangents: Tensor) -> Tensor:
    """Apply a linear function of (N, *event) to a bundle (B, K, *event), as one batch of B·K."""
    out = function(tangents.flatten(0, 1))
    return out.unflatten(0, tangents.shape[:2])


def _with_log_det(values: Tensor, maps: Sequence[Callable[[Tensor], tuple[Tensor, Tensor]]]) -> tuple[Tensor, Tensor]:
    total = values.new_zeros(values.shape[:1])
    for each in maps:
        values, log_det = each(values)
        total = total + log_det
    return values, total


def composed(maps: Sequence[TangentMap]) -> TangentMap:
    """One tangent map after another."""

    def apply(tangents: Tensor) -> Tensor:
        for tangent_map in maps:
            tangents = tangent_map(tangents)
        return tangents

    return apply


def _jvp_bundle(function: Callable[[Tensor], Tensor], at: Tensor) -> TangentMap:
    def jvp(tangent: Tensor) -> Tensor:
        out: Tensor = torch.func.jvp(function, (at,), (tangent,))[1]
        return out

    def apply(tangents: Tensor) -> Tensor:
        out: Tensor = torch.func.vmap(jvp, in_dims=1, out_dims=1)(tangents)
        return out

    return apply
