r"""The rectangular flow: a manifold and a density on it.

.. math:: x = f(z), \quad f = f_{\text{outer}} \circ \tilde f \circ \mathtt{pad}, \qquad
          \log p(\hat x) = \log p_h(z) - \tfrac12 \log\det J(z)^\top J(z), \quad z = f^\dagger(x),\ \hat x = f(z).

Reference: Caterini et al., Rectangular Flows for Manifold Learning, arXiv:2106.01413.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from math import prod
from typing import Literal

import torch
from torch import Tensor, nn

from .densities import as_density
from .densities.base import Density, draw_normal
from .densities.scatter import FEW_HELD_OUT, SMOOTH, Coordinates, Scatter
from .errors import NonFiniteError, RoundTripWarning, check_finite, in_transform, warn
from .flows.description import Described
from .flows.injection import (
    Bijection,
    Injection,
    Shape,
    check_shape,
    forward_through,
    inverse_through,
    links_of,
    push_through,
)
from .flows.pad import Pad
from .flows.spaces import Embedding, Space, local_chart
from .volume import Exact
from .volume.bundle import basis
from .volume.exact import two_log_volumes

_REDRAWS = 20  # of samples beyond the data, before what is left is moved to the edge
_MOST_SCATTERED = 256  # dimensions of a mixture of Gaussians
_CHUNK_SCALARS = 2**25  # of one bundle at its widest place, when no graph is kept: 128 MiB in float32


@dataclass(frozen=True, eq=False)
class Scores:
    """The scores of rows, from one pass: see :meth:`RectangularFlow.score`.

    Attributes:
        z: coordinates on the manifold, (B, d); of a sphere those of a unit vector, (B, 3).
        x_hat: projections on the manifold, (B, *data_shape).
        log_prob: log-densities of the projections in the units of the data, (B,).
        squared_distance: ‖x − x̂‖² in the units of the data, (B,), float64.
        model_log_prob: log-densities in the model's units (standardised columns, logits of pixels), (B,).
        model_squared_distance: squared distances in the model's units, (B,), float64.
        ambient_log_prob: log-densities of the rows themselves in R^D, in the units of the data, (B,), float64; NaN for a
            flow without scatter.
        smooth_log_prob: the same without the part that takes the columns one after another.
        model_rows: the rows in the model's units, (B, D).
    """

    z: Tensor
    x_hat: Tensor
    log_prob: Tensor
    squared_distance: Tensor
    model_log_prob: Tensor
    model_squared_distance: Tensor
    ambient_log_prob: Tensor
    smooth_log_prob: Tensor
    model_rows: Tensor

    @classmethod
    def cat(cls, parts: Sequence[Scores]) -> Scores:
        """The scores of several batches as one."""
        return cls(*(torch.cat([getattr(part, f.name) for part in parts]) for f in fields(cls)))


class Manifold(ABC):
    """What follows from the links of f and the latent density alone: shared by a flow and its view in model units."""

    latent: Density

    @abstractmethod
    def layers(self) -> list[Injection]:
        """The links of f in generative order."""

    @abstractmethod
    def parameters(self) -> Iterator[nn.Parameter]:
        """Of all links and of the latent density."""

    # --- what it is made of

    @property
    def latent_dim(self) -> int:
        """d."""
        return self.latent.space.dimension

    @property
    def data_shape(self) -> Shape:
        """Event shape of x; its entries number D."""
        shape: Shape = self.layers()[-1].out_shape
        return shape

    @property
    def ambient_dim(self) -> int:
        """D."""
        return prod(self.data_shape)

    @property
    def kind(self) -> Literal["table", "image"]:
        """What a row is: a row of a table, or an image (C, H, W)."""
        return "image" if len(self.data_shape) == 3 else "table"

    @property
    def dtype(self) -> torch.dtype:
        """Of the parameters; float32 for a flow that has none."""
        return next((p.dtype for p in self.parameters()), torch.float32)

    @property
    def device(self) -> torch.device:
        """Of the parameters; the CPU for a flow that has none."""
        return next((p.device for p in self.parameters()), torch.device("cpu"))

    # --- the manifold

    def encode(self, x: Tensor) -> Tensor:
        """z = f†(x), (B, *data_shape) → (B, d)."""
        links = self.layers()
        self._check_kind(x, links[-1].out_shape)
        return inverse_through(links, x)

    def decode(self, z: Tensor) -> Tensor:
        """x = f(z), (B, d) → (B, *data_shape)."""
        self._check_kind(z, (self.latent.features,))
        return forward_through(self.layers(), z)

    def project(self, x: Tensor) -> Tensor:
        """x̂ = f(f†(x)), a point of the manifold. Not the nearest one in general: the one that shares x's coordinates."""
        return self.decode(self.encode(x))

    def reconstruction_error(self, x: Tensor) -> Tensor:
        """‖x − x̂‖², (B,), in float64: squares of tiny or huge units would underflow or overflow in less.

        Example:
            >>> from rectangular_flows import flows
            >>> units = flows.Standardise(torch.zeros(3), torch.full((3,), 1e-30))
            >>> flow = RectangularFlow(flows.Identity(3), flows.Identity(2), units)
            >>> bool(flow.reconstruction_error(torch.full((1, 3), 1e-30)) > 0)
            True
        """
        return squared_distance(x, self.project(x))

    def jacobian(self, z: Tensor) -> Tensor:
        """J = ∂f/∂z, (B, d) → (B, D, d); events of images are laid flat."""
        self._check_kind(z, (self.latent.features,))
        links, z = local_chart(self.layers(), z)
        _, tangents = push_through(links, z, basis(z))
        return tangents.flatten(2).mT

    def singular_values(self, z: Tensor) -> Tensor:
        """Singular values of J in falling order, (B, d): how much f stretches along each direction."""
        return torch.linalg.svdvals(self.jacobian(z))

    # --- the density on it

    def log_volume(self, z: Tensor) -> Tensor:
        """½ log det JᵀJ, exactly, (B, d) → (B,)."""
        self._check_kind(z, (self.latent.features,))
        return Exact()(self, z)[1]

    def log_prob(self, x: Tensor, *, batch_size: int | None = None, check: bool = True) -> Tensor:
        """Exact log-density of the projection of x with respect to the Riemannian measure, (B,).

        Args:
            x: points, (B, *data_shape).
            batch_size: rows at a time; chosen to bound memory when no graph is kept, all of them otherwise.
            check: raise on non-finite input, and warn where f† does not invert f to working precision.

        Raises:
            NonFiniteError: x or the Jacobian is not finite.
            RankDeficientError: the manifold has collapsed at some point.
        """
        self._check(x, self.data_shape, finite=check)

        def part(rows: Tensor) -> Tensor:
            z = self.encode(rows)
            x_hat, L = Exact()(self, z)
            return self._density(z, x_hat, L, check)

        return self.in_batches(part, x, batch_size)

    @torch.no_grad()
    def sample(self, count: int, *, generator: torch.Generator | None = None, batch_size: int | None = None) -> Tensor:
        """Independent draws from the model, (count, *data_shape); reproducible with a generator."""
        if count < 0:
            raise ValueError(f"expected a number of samples ≥ 0; got {count}")
        return self.in_batches(self.decode, self.latent.sample(count, generator), batch_size)

    # --- care

    def rows_at_once(self) -> int:
        """Rows whose bundle of d tangents takes about 128 MiB in float32 when no graph is kept."""
        widest = max(link.activation_size for link in self.layers())
        return max(1, _CHUNK_SCALARS // (self.latent_dim * widest))

    def in_batches(self, function: Callable[[Tensor], Tensor], rows: Tensor, batch_size: int | None = None) -> Tensor:
        """The function of all rows, (B, …), a batch at a time to bound memory.

        Args:
            function: of rows; its values have them as their first dimension too.
            rows: points or coordinates, (B, …).
            batch_size: rows at a time; :meth:`rows_at_once` when no graph is kept, all of them otherwise.
        """
        return torch.cat([function(part) for part in self._batches(rows, batch_size)])

    def _batches(self, rows: Tensor, batch_size: int | None) -> Sequence[Tensor]:
        if batch_size is not None and batch_size < 1:
            raise ValueError(f"expected batch_size ≥ 1 or None; got {batch_size}")
        if batch_size is None:
            if in_transform(rows) or self._keeps_graph(rows):
                return [rows]
            batch_size = self.rows_at_once()
        return rows.split(batch_size) if len(rows) > batch_size else [rows]

    def _keeps_graph(self, rows: Tensor) -> bool:
        """Whether a function of rows and parameters can be differentiated afterwards."""
        return torch.is_grad_enabled() and (rows.requires_grad or any(p.requires_grad for p in self.parameters()))

    def _density(self, z: Tensor, x_hat: Tensor, L: Tensor, check: bool) -> Tensor:
        """log p_h(z) − L, with its checks."""
        if check:
            self._check_round_trip(z, x_hat)
        value = self.latent.log_prob(z) - L
        if check:
            advice = "The latent density overflowed there: use float64 or bound its log-scale."
            check_finite(value, "log-density", advice)
        return value

    def _check_kind(self, values: Tensor, shape: Shape) -> None:
        """Refuse anything but a tensor of the flow's type and of that event shape."""
        if not isinstance(values, Tensor):
            raise TypeError(f"expected a torch.Tensor; got {type(values).__name__}. Use torch.as_tensor(x, dtype=…)")
        check_shape(values, shape)
        own = next((parameter.dtype for parameter in self.parameters()), values.dtype)
        if values.dtype != own:
            raise ValueError(
                f"expected {own}, as the flow has; got {values.dtype}. Use x.to({own}), or flow.to(x.dtype)"
            )

    def _check(self, x: Tensor, shape: Shape, finite: bool = True) -> None:
        self._check_kind(x, shape)
        if finite:
            check_finite(x, "input", "Drop or repair those rows before scoring them.")

    def _check_round_trip(self, z: Tensor, x_hat: Tensor) -> None:
        if in_transform(z):
            return
        with torch.no_grad():
            try:
                error = self.latent.space.difference(self.encode(x_hat), z).norm(dim=1) / (1 + z.norm(dim=1))
            except NonFiniteError:  # a saturated layer: there is no way back at all
                error = torch.full_like(z[:, 0], torch.inf)
        tolerance = torch.finfo(z.dtype).eps ** 0.5
        bad = ~(error <= tolerance)
        if bool(bad.any()):
            warn(
                RoundTripWarning,
                f"the flow is not numerically invertible at {int(bad.sum())} of {len(z)} points: encoding a "
                f"decoded point misses it by up to {float(error.max()):.1e} (relative), more than {tolerance:.1e} for "
                f"{z.dtype}. Coordinates and densities there are off by as much. Use float64, or bound the log-scale "
                "(scale='tanh') and train again.",
            )


class RectangularFlow(Manifold, Described, nn.Module):
    r"""A d-dimensional manifold in R^D, x = f(z), with a density p_h on its coordinates z.

    Densities are **with respect to the Riemannian measure of the manifold** (length on a curve, area on a surface), in
    the user's units; :attr:`in_model_units` is the same flow in the units that training sees. They integrate to one over
    the manifold, and are not densities in R^D: compare those of models with different manifolds with care. ``log_prob`` is
    that of the projection of x on the manifold; the distance of x from it is :meth:`~Manifold.reconstruction_error`.

    Args:
        ambient: f̃, a square flow on R^D (or any injection, such as the multi-scale image flow).
        latent: h: one of our bijections on R^d, a zuko flow, or a :class:`~rectangular_flows.densities.Density`.
        outer: injections after f̃, in generative order: an orthonormal embedding, logit, standardiser. The trailing ones
            that change units (``Standardise``, ``Logit``) separate the model's units from the user's.
        pad: the padding; a random fixed permutation unless given.
        latent_space: "circle", "torus:2", "sphere", "line*circle" and so on (see :class:`~rectangular_flows.flows.Space`),
            embedded before the padding; that of the latent density unless given. ``latent`` must be a density on it.
        scatter: the density of rows around the manifold; :meth:`fit_scatter` fits it after training.

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
        scatter: Scatter | None = None,
        latent_space: str | None = None,
    ):
        super().__init__()
        for part in (ambient, *([outer] if isinstance(outer, nn.Module) else outer)):
            if not isinstance(part, Injection):
                raise TypeError(
                    f"expected an Injection; got {type(part).__name__}. Subclass flows.Injection: forward, inverse"
                )
        self.latent = as_density(latent)
        space = self.latent.space
        if latent_space is not None and Space.of(latent_space) != space:
            raise ValueError(
                f"expected a latent density on the latent space {Space.of(latent_space)}; got one on {space}. Take one of "
                f"rectangular_flows.densities made for it: ClosedMixture({str(Space.of(latent_space))!r})"
            )
        self.embedding = None if space.flat else Embedding.within(space, prod(ambient.in_shape))
        size = self.latent.features if self.embedding is None else self.embedding.out_shape[0]
        self.pad = Pad(size, ambient.in_shape) if pad is None else pad
        self.ambient = ambient
        self.outer = nn.ModuleList([outer] if isinstance(outer, Injection) else list(outer))
        if self.pad.in_shape != (size,):
            raise ValueError(
                f"the padding is from {self.pad.in_shape[0]} dimensions, but the latent density is on {size}"
            )
        self.layers()  # checks that their shapes go together
        self.scatter: Scatter | None = None
        self.set_scatter(scatter)

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
        return nn.Module.parameters(self, recurse)

    def layers(self) -> list[Injection]:
        first = [] if self.embedding is None else [self.embedding]
        return links_of(*first, self.pad, self.ambient, *self.outer)

    # --- units

    @property
    def in_model_units(self) -> ModelUnits:
        """The same flow in the model's units: without the trailing layers that standardise or take logits."""
        return ModelUnits(self)

    def unit_layers(self) -> list[Injection]:
        """The trailing layers, in generative order, that turn the model's units into the user's."""
        links = self.layers()
        cut = len(links)
        while links[cut - 1].changes_units:
            cut -= 1
        return links[cut:]

    def to_model_units(self, x: Tensor) -> Tensor:
        """x as the model sees it: through the inverse of :meth:`unit_layers`."""
        return inverse_through(self.unit_layers(), x)

    def to_data_units(self, y: Tensor) -> Tensor:
        """The inverse of :meth:`to_model_units`."""
        return forward_through(self.unit_layers(), y)

    @torch.no_grad()
    def initialise(self, x: Tensor, *, latent: bool = True) -> None:
        """Set from x whatever starts from data: ActNorm, the principal directions of an embedding, the latent density.

        Args:
            x: rows, (B, *data_shape).
            latent: whether to start the latent density too.
        """
        self._check(x, self.data_shape)
        for link in reversed(self.layers()):
            x = link.initialise(x)
        if latent:
            self.latent.initialise(x)

    # --- the density in R^D

    def set_scatter(self, scatter: Scatter | None) -> None:
        """Take a density of rows around the manifold, or let it go; it is saved with the flow."""
        self.scatter = scatter
        self._arguments[1]["scatter"] = scatter

    @property
    def can_scatter(self) -> bool:
        """Whether its layers allow a density in R^D, with a mixture of at most 256 dimensions."""
        links = links_of(self.ambient, *self.outer)
        return prod(self.ambient.in_shape) <= _MOST_SCATTERED and all(
            isinstance(link, Bijection) or link.isometric for link in links
        )

    @torch.no_grad()
    def fit_scatter(self, train: Tensor, held_out: Tensor, seed: int = 0, steps: int = 0) -> None:
        """Fit the density of rows around the manifold, which stays as it is; see :class:`~.densities.Scatter`.

        Args:
            train: rows that the flow was trained on, (N, *data_shape).
            held_out: others, (M, *data_shape), M ≥ 1.
            seed: of its mixtures.
            steps: of training for a part that takes the columns one after another, which many rows allow; 0: without it.

        Raises:
            ValueError: f̃ has layers that cannot be inverted.

        Example:
            >>> from rectangular_flows import flows
            >>> _ = torch.manual_seed(0)
            >>> x = torch.randn(300, 3) * torch.tensor([1.0, 1.0, 0.1])
            >>> flow = RectangularFlow(flows.Identity(3), flows.Identity(2), pad=flows.Pad(2, 3, order="first"))
            >>> flow.fit_scatter(x[:200], x[200:])
            >>> flow.ambient_log_prob(x).shape, flow.sample(5, scatter=True).shape
            (torch.Size([300]), torch.Size([5, 3]))
        """
        at, judged = self.coordinates(train), self.coordinates(held_out)
        given = self.pad.in_shape[0]
        found = Scatter.fitted(at, judged, given, seed, steps=steps)
        if len(held_out) < FEW_HELD_OUT and found.columns is None:  # all rows count, once the choices are made
            found = Scatter.fitted(Coordinates.cat([at, judged]), judged, given, seed, like=found)
        self.set_scatter(found.to(self.device, self.dtype))

    def coordinates(self, x: Tensor, *, batch_size: int | None = None) -> Coordinates:
        """The coordinates (z, z′) of rows, and all that a density in R^D needs beside them.

        Raises:
            ValueError: f̃ has a layer that is neither a bijection nor isometric.
        """
        self._check(x, self.data_shape)
        return Coordinates.cat([self._coordinates(self.to_model_units(part)) for part in self._batches(x, batch_size)])

    def _coordinates(self, y: Tensor) -> Coordinates:
        inner, outer = self._inner_and_outer()
        w, outer_log_det, residuals, dropped = _unfold(outer, y)
        u, log_det, more, also = _unfold(inner, w)
        z, beside = self.pad.inverse(u), self.pad.dropped(u)
        whole = torch.cat((z, beside), dim=1)
        if also:  # a flow that pads on its way: its other end has more dimensions, so that u stands for both
            w, log_det, outer_log_det = whole, torch.zeros_like(log_det), outer_log_det + log_det
        if self.embedding is not None:
            offsets, around = self.embedding.offsets(z)
            z, log_det = self.embedding.inverse(z), log_det + around
            whole = torch.cat((self.embedding(z), offsets, beside), dim=1)
        latent = self.latent.log_prob(z)
        stacked = torch.stack(residuals + more, dim=1) if residuals or more else y.new_zeros(len(y), 0)
        return Coordinates(
            y.flatten(1), w.flatten(1), whole, log_det, outer_log_det, stacked, latent, (*dropped, *also)
        )

    def _inner_and_outer(self) -> tuple[list[Injection], list[Injection]]:
        """The links of f̃, and those between it and the model's units."""
        links, units = links_of(self.ambient, *self.outer), len(self.unit_layers())
        inner = len(links_of(self.ambient))
        return links[:inner], links[inner : len(links) - units]

    def ambient_log_prob(self, x: Tensor, *, batch_size: int | None = None, smooth: bool = False) -> Tensor:
        r"""Log-density of x itself in R^D, with respect to Lebesgue measure, in the user's units, (B,), float64.

        .. math:: \log p(x) = \log p(z) + \log p(z'|z) + \log|\det \partial \tilde f^{-1}/\partial x|,

        pooled with mixtures of Gaussians: see :class:`~rectangular_flows.densities.Scatter`. It does not depend on
        which manifold was chosen for its units, so models of different d can be compared by it.

        Args:
            x: rows, (B, *data_shape).
            batch_size: rows at a time.
            smooth: without the part that takes the columns one after another, as the outlier score has it.

        Raises:
            ValueError: the flow has no scatter; see :meth:`fit_scatter`.
        """
        self._check(x, self.data_shape)
        scatter = self._scatter()

        def part(rows: Tensor) -> Tensor:
            return scatter.log_prob(self._coordinates(self.to_model_units(rows)), smooth) + self._unit_log_det(rows)

        return self.in_batches(part, x, batch_size)

    def _unit_log_det(self, x: Tensor) -> Tensor:
        """log|det ∂y/∂x| of the layers between the user's units and the model's, (B,), float64."""
        return _unfold(self.unit_layers(), x)[1].double()

    def _scatter(self) -> Scatter:
        if self.scatter is None:
            raise ValueError(
                "this flow has no density in R^D yet: flow.fit_scatter(train, held_out) fits one, as rnf fit does at its end"
            )
        return self.scatter

    @torch.no_grad()
    def sample(
        self,
        count: int,
        *,
        generator: torch.Generator | None = None,
        batch_size: int | None = None,
        scatter: bool | Scatter = False,
    ) -> Tensor:
        """Independent draws from the model, (count, *data_shape); reproducible with a generator.

        Args:
            count: how many.
            generator: of random numbers.
            batch_size: rows at a time.
            scatter: with the scatter of data around the manifold, from the density in R^D, or from another one;
                otherwise exactly on it.
        """
        if scatter is False:
            return super().sample(count, generator=generator, batch_size=batch_size)
        if count < 0:
            raise ValueError(f"expected a number of samples ≥ 0; got {count}")
        density = self._scatter() if scatter is True else scatter
        y = self._draw(density, count, generator)
        for _ in range(_REDRAWS):
            outside = ~density.inside(y)
            if not bool(outside.any()):
                break
            y[outside] = self._draw(density, int(outside.sum()), generator)
        return self.in_batches(self.to_data_units, density.to_edge(y), batch_size)

    def _draw(self, density: Scatter, count: int, generator: torch.Generator | None) -> Tensor:
        """Rows in the model's units with their scatter, (count, …), wherever they fall."""
        inner, outer = self._inner_and_outer()
        part = density.draw_parts(count, generator)
        z = self.latent.sample(count, generator)
        taken = self.pad.in_shape[0]
        if self.embedding is None:
            u = torch.cat((z, density.joint.sample_given(z, generator)), dim=1)
            u = torch.where((part == 1)[:, None], density.joint.sample(count, generator), u)
        else:
            beside = density.joint.sample_given(self.embedding(z), generator)
            offsets = taken - self.latent_dim
            u = torch.cat((self.embedding.place(z, beside[:, :offsets]), beside[:, offsets:]), dim=1)
        plain = density.plain.sample(count, generator)
        widths = iter(density.log_scales.exp().flip(0))
        square = all(isinstance(link, Bijection) for link in inner)
        if not square:
            u = torch.where((part == 2)[:, None], plain, u)
        w = _fold(inner, self.pad.place(u[:, :taken], u[:, taken:]), widths, generator)
        if square:
            w = torch.where((part == 2).view(-1, *[1] * (w.dim() - 1)), plain.view_as(w), w)
        y = _fold(outer, w, widths, generator)
        if density.columns is None:
            return y
        y[part == 3] = density.columns.sample(int((part == 3).sum()), generator).to(y).view(-1, *y.shape[1:])
        return y

    # --- all scores of a row

    @torch.no_grad()
    def score(self, x: Tensor, *, batch_size: int | None = None, check: bool = True) -> Scores:
        """Coordinates, projection, log-density and distance of every row, in both units, from one pass.

        Each row is encoded once and its d tangents are pushed once: the log-volume in the model's units is taken on the
        way, that in the user's units at the end.

        Args:
            x: rows, (B, *data_shape).
            batch_size: rows at a time; chosen to bound memory unless given.
            check: as in :meth:`~Manifold.log_prob`.

        Example:
            >>> from rectangular_flows import flows
            >>> flow = RectangularFlow(flows.RealNVP(3), flows.RealNVP(2), flows.Standardise(torch.zeros(3), torch.ones(3)))
            >>> x = torch.randn(5, 3)
            >>> torch.allclose(flow.score(x).log_prob, flow.log_prob(x))
            True
        """
        self._check(x, self.data_shape, finite=check)
        return Scores.cat([self._score(part, check) for part in self._batches(x, batch_size)])

    def _score(self, x: Tensor, check: bool) -> Scores:
        view, y = self.in_model_units, self.to_model_units(x)
        ambient = smooth = torch.full((len(x),), torch.nan, dtype=torch.float64, device=x.device)
        if self.scatter is None:
            z = view.encode(y)
        else:
            at = self._coordinates(y)
            z = at.u[:, : self.pad.in_shape[0]]
            z = z if self.embedding is None else self.embedding.inverse(z)
            parts, units = self.scatter.parts(at), self._unit_log_det(x)
            ambient, smooth = self.scatter.pooled(parts) + units, self.scatter.pooled(parts[:, : len(SMOOTH)]) + units
        x_hat, L, y_hat, model_L = two_log_volumes(self, view, z)
        log_prob = self._density(z, x_hat, L, check)
        error, model_error = squared_distance(x, x_hat), squared_distance(y, y_hat)
        return Scores(z, x_hat, log_prob, error, log_prob + L - model_L, model_error, ambient, smooth, y.flatten(1))


class ModelUnits(Manifold):
    """A view of a flow in the model's units: rows, densities and distances before the unit layers.

    Args:
        flow: whose parameters it shares.
    """

    def __init__(self, flow: RectangularFlow):
        self.flow, self.latent = flow, flow.latent
        links = flow.layers()
        self._links = links[: len(links) - len(flow.unit_layers())]

    def layers(self) -> list[Injection]:
        return self._links

    def parameters(self) -> Iterator[nn.Parameter]:
        return self.flow.parameters()


def _unfold(links: Sequence[Injection], x: Tensor) -> tuple[Tensor, Tensor, list[Tensor], list[int]]:
    """Through the inverses of links: the value, its log-determinant; of embeddings, residual² and dimensions dropped."""
    log_det, residuals, dropped = x.new_zeros(len(x)), [], []
    for link in reversed(links):
        before = x
        if isinstance(link, Bijection):
            x, change = link.inverse_with_log_det(x)
            log_det = log_det + change
            continue
        if not link.isometric:
            raise ValueError(
                f"a density in R^D needs layers that are bijections or isometric; got {type(link).__name__}"
            )
        x = link.inverse(x)
        if missing := prod(link.out_shape) - prod(link.in_shape):
            residuals.append((before - link(x)).flatten(1).square().sum(dim=1))
            dropped.append(missing)
    return x, log_det, residuals, dropped


def _fold(links: Sequence[Injection], x: Tensor, widths: Iterator[Tensor], generator: torch.Generator | None) -> Tensor:
    """Through links, with normal noise in the dimensions that each embedding leaves out."""
    for link in links:
        x = link(x)
        if prod(link.in_shape) < prod(link.out_shape):
            moved = x + next(widths) * draw_normal(tuple(x.shape), x, generator)
            x = x + moved - link(link.inverse(moved))
    return x


def squared_distance(x: Tensor, x_hat: Tensor) -> Tensor:
    """‖x − x̂‖² of every row, (B,), float64."""
    return (x.double() - x_hat.double()).flatten(1).square().sum(dim=1)
