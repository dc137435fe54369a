r"""The rectangular flow: a manifold and a density on it.

.. math:: x = f(z), \quad f = f_{\text{outer}} \circ \tilde f \circ \mathtt{pad}, \qquad
          \log p(\hat x) = \log p_h(z) - \tfrac12 \log\det J(z)^\top J(z), \quad z = f^\dagger(x),\ \hat x = f(z).

Reference: Caterini et al., Rectangular Flows for Manifold Learning, arXiv:2106.01413.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import prod

import torch
from torch import Tensor, nn

from .errors import NonFiniteError, RoundTripWarning, check_finite, in_transform, warn
from .flows.adapters import Density, as_density
from .flows.description import Described
from .flows.injection import (
    Bijection,
    Chain,
    Injection,
    Shape,
    check_shape,
    forward_through,
    inverse_through,
    push_through,
)
from .flows.pad import Pad
from .volume import Exact
from .volume.bundle import basis

_CHUNK_SCALARS = 2**25  # of one bundle at its widest place, when no graph is kept: 128 MiB in float32


class RectangularFlow(Described, nn.Module):
    r"""A d-dimensional manifold in R^D, x = f(z), with a density p_h on its coordinates z.

    Densities are **with respect to the Riemannian measure of the manifold** (length on a curve, area on a surface), in
    the user's units unless ``model_units=True``. They integrate to one over the manifold, have no meaning as densities in
    R^D, and of two models with different manifolds they compare with care only. ``log_prob`` is that of the projection of
    x on the manifold; how far x is from it is :meth:`reconstruction_error`.

    Args:
        ambient: f̃, a square flow on R^D (or any injection, such as the multi-scale image flow).
        latent: h: one of our bijections on R^d, a zuko flow, or a :class:`~rectangular_flows.flows.Density`.
        outer: injections after f̃, in generative order: an orthonormal embedding, logit, standardiser. The trailing ones
            that change units (``Standardise``, ``Logit``) separate the model's units from the user's.
        pad: the padding; a random fixed permutation unless given.

    Example:
        >>> import torch
        >>> from rectangular_flows import flows
        >>> flow = RectangularFlow(ambient=flows.RealNVP(features=6), latent=flows.RealNVP(features=3))
        >>> x = torch.randn(10, 6)
        >>> flow.encode(x).shape, flow.project(x).shape, flow.jacobian(flow.encode(x)).shape
        (torch.Size([10, 3]), torch.Size([10, 6]), torch.Size([10, 6, 3]))
        >>> flow.log_prob(x).shape, flow.sample(100).shape
        (torch.Size([10]), torch.Size([100, 6]))
    """

    def __init__(
        self,
        ambient: Injection,
        latent: Density | Bijection | nn.Module,
        outer: Injection | Sequence[Injection] = (),
        *,
        pad: Pad | None = None,
    ):
        super().__init__()
        for part in (ambient, *([outer] if isinstance(outer, nn.Module) else outer)):
            if not isinstance(part, Injection):
                raise TypeError(
                    f"expected an Injection; got {type(part).__name__}. Subclass flows.Injection: forward, inverse"
                )
        self.latent = as_density(latent)
        self.pad = Pad(self.latent.features, ambient.in_shape) if pad is None else pad
        self.ambient = ambient
        self.outer = nn.ModuleList([outer] if isinstance(outer, Injection) else list(outer))
        links = self.layers()
        for first, second in pairwise(links):
            if first.out_shape != second.in_shape:
                raise ValueError(
                    f"{type(second).__name__} expects shape {second.in_shape}; got {first.out_shape} from "
                    f"{type(first).__name__} before it"
                )
        if self.pad.in_shape != (self.latent.features,):
            raise ValueError(
                f"the padding is from {self.pad.in_shape[0]} dimensions, but h is on {self.latent.features}"
            )

    # --- what it is made of

    @property
    def latent_dim(self) -> int:
        """d."""
        return self.latent.features

    @property
    def data_shape(self) -> Shape:
        """Event shape of x; its entries number D."""
        shape: Shape = self.layers()[-1].out_shape
        return shape

    @property
    def ambient_dim(self) -> int:
        """D."""
        return prod(self.data_shape)

    def layers(self, *, model_units: bool = False) -> list[Injection]:
        """The links of f in generative order; in model units without the trailing layers that change units."""
        links: list[Injection] = [self.pad]
        for part in (self.ambient, *self.outer):
            links += part.layers if isinstance(part, Chain) else [part]
        if model_units:
            while links[-1].changes_units:
                links.pop()
        return links

    def _unit_layers(self) -> list[Injection]:
        return self.layers()[len(self.layers(model_units=True)) :]

    def to_model_units(self, x: Tensor) -> Tensor:
        """x as the model sees it: through the inverse of the trailing standardising and logit layers."""
        return inverse_through(self._unit_layers(), x)

    def to_data_units(self, y: Tensor) -> Tensor:
        """The inverse of :meth:`to_model_units`."""
        return forward_through(self._unit_layers(), y)

    @torch.no_grad()
    def initialise(self, x: Tensor, *, latent: bool = True) -> None:
        """Let the layers that start from data (ActNorm, PCA embedding) and h (its whitening) take it from x, once.

        Args:
            x: rows, (B, *data_shape).
            latent: whether h does.
        """
        self._check(x, self.layers()[-1].out_shape)
        for link in reversed(self.layers()):
            x = link.initialise(x)
        if latent:
            self.latent.initialise(x)

    # --- the manifold

    def encode(self, x: Tensor, *, model_units: bool = False) -> Tensor:
        """z = f†(x), (B, *data_shape) → (B, d)."""
        links = self.layers(model_units=model_units)
        self._check_kind(x, links[-1].out_shape)
        return inverse_through(links, x)

    def decode(self, z: Tensor, *, model_units: bool = False) -> Tensor:
        """x = f(z), (B, d) → (B, *data_shape)."""
        self._check_kind(z, (self.latent_dim,))
        return forward_through(self.layers(model_units=model_units), z)

    def project(self, x: Tensor, *, model_units: bool = False) -> Tensor:
        """x̂ = f(f†(x)), a point of the manifold. Not the nearest one in general: the one that shares x's coordinates."""
        return self.decode(self.encode(x, model_units=model_units), model_units=model_units)

    def reconstruction_error(self, x: Tensor, *, model_units: bool = False) -> Tensor:
        """‖x − x̂‖², summed over the entries of x, (B,)."""
        return (x - self.project(x, model_units=model_units)).flatten(1).square().sum(dim=1)

    def squared_distance(self, x: Tensor) -> Tensor:
        """The same in the units of the data, added up in float64: their squares may be too small or too large for less.

        Example:
            >>> from rectangular_flows import flows
            >>> units = flows.Standardise(torch.zeros(3), torch.full((3,), 1e-30))
            >>> flow = RectangularFlow(flows.Identity(3), flows.Identity(2), units)
            >>> x = torch.full((1, 3), 1e-30)
            >>> flow.reconstruction_error(x), bool(flow.squared_distance(x) > 0)
            (tensor([0.]), True)
        """
        return (x.double() - self.project(x).double()).flatten(1).square().sum(dim=1)

    def jacobian(self, z: Tensor, *, model_units: bool = False) -> Tensor:
        """J = ∂f/∂z, (B, d) → (B, D, d); events of images are laid flat."""
        self._check_kind(z, (self.latent_dim,))
        _, tangents = push_through(self.layers(model_units=model_units), z, basis(z))
        return tangents.flatten(2).mT

    def singular_values(self, z: Tensor, *, model_units: bool = False) -> Tensor:
        """Singular values of J in falling order, (B, d): how much f stretches along each direction."""
        return torch.linalg.svdvals(self.jacobian(z, model_units=model_units))

    # --- the density on it

    def log_volume(self, z: Tensor, *, model_units: bool = False) -> Tensor:
        """½ log det JᵀJ, exactly, (B, d) → (B,)."""
        self._check_kind(z, (self.latent_dim,))
        return Exact()(self, z, model_units=model_units)[1]

    def log_prob(
        self, x: Tensor, *, model_units: bool = False, batch_size: int | None = None, check: bool = True
    ) -> Tensor:
        """Exact log-density of the projection of x with respect to the Riemannian measure, (B,).

        Args:
            x: points, (B, *data_shape).
            model_units: x and the density in the model's units instead of the user's.
            batch_size: rows at a time; chosen to bound memory when no graph is kept, all of them otherwise.
            check: raise on non-finite input, and warn where f† does not invert f to working precision.

        Raises:
            NonFiniteError: x or the Jacobian is not finite.
            RankDeficientError: the manifold has collapsed at some point.
        """
        self._check(x, self.layers(model_units=model_units)[-1].out_shape, finite=check)

        def part(rows: Tensor) -> Tensor:
            z = self.encode(rows, model_units=model_units)
            x_hat, L = Exact()(self, z, model_units=model_units)
            if check:
                self._check_round_trip(z, x_hat, model_units)
            value = self.latent.log_prob(z) - L
            if check:
                check_finite(
                    value, "log-density", "The latent flow h overflowed there: use float64 or bound its log-scale."
                )
            return value

        return self._in_batches(part, x, batch_size)

    @torch.no_grad()
    def sample(
        self,
        count: int,
        *,
        generator: torch.Generator | None = None,
        model_units: bool = False,
        batch_size: int | None = None,
    ) -> Tensor:
        """Independent draws from the model, (count, *data_shape); reproducible with a generator."""
        if count < 0:
            raise ValueError(f"expected a number of samples ≥ 0; got {count}")
        z = self.latent.sample(count, generator)
        return self._in_batches(lambda rows: self.decode(rows, model_units=model_units), z, batch_size)

    # --- care

    def rows_at_once(self) -> int:
        """Rows whose bundle of d tangents takes about 128 MiB in float32 when no graph is kept."""
        widest = max(link.activation_size for link in self.layers())
        return max(1, _CHUNK_SCALARS // (self.latent_dim * widest))

    def _in_batches(self, function: Callable[[Tensor], Tensor], rows: Tensor, batch_size: int | None) -> Tensor:
        if batch_size is not None and batch_size < 1:
            raise ValueError(f"expected batch_size ≥ 1 or None; got {batch_size}")
        if batch_size is None:
            if torch.is_grad_enabled() or in_transform(rows):
                return function(rows)
            batch_size = self.rows_at_once()
        if len(rows) <= batch_size:
            return function(rows)
        return torch.cat([function(part) for part in rows.split(batch_size)])

    def _check_kind(self, values: Tensor, shape: Shape) -> None:
        """Complain about what is no tensor of the flow's type, or has another shape."""
        if not isinstance(values, Tensor):
            raise TypeError(f"expected a torch.Tensor; got {type(values).__name__}. Say torch.as_tensor(x, dtype=…)")
        check_shape(values, shape)
        own = next((parameter.dtype for parameter in self.parameters()), values.dtype)
        if values.dtype != own:
            raise ValueError(
                f"expected {own}, as the flow has; got {values.dtype}. Say x.to({own}), or flow.to(x.dtype)"
            )

    def _check(self, x: Tensor, shape: Shape, finite: bool = True) -> None:
        self._check_kind(x, shape)
        if finite:
            check_finite(x, "input", "Drop or repair those rows before scoring them.")

    def _check_round_trip(self, z: Tensor, x_hat: Tensor, model_units: bool) -> None:
        if in_transform(z):
            return
        with torch.no_grad():
            try:
                error = (self.encode(x_hat, model_units=model_units) - z).norm(dim=1) / (1 + z.norm(dim=1))
            except NonFiniteError:  # a saturated layer: there is no way back at all
                error = torch.full_like(z[:, 0], torch.inf)
        tolerance = torch.finfo(z.dtype).eps ** 0.5
        bad = ~(error <= tolerance)
        if bool(bad.any()):
            warn(
                RoundTripWarning,
                f"the flow is not numerically invertible at {int(bad.sum())} of {len(z)} points: ‖f†(f(z)) − z‖/(1 + ‖z‖) "
                f"is up to {float(error.max()):.1e}, more than {tolerance:.1e} for {z.dtype}. Coordinates and densities "
                "there are off by as much. Use float64, or bound the log-scale (scale='tanh') and train again.",
            )


__all__ = ["RectangularFlow"]
