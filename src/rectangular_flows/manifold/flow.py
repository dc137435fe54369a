r"""The rectangular flow: a manifold and a density on it.

.. math:: x = f(z), \quad f = f_{\text{outer}} \circ \tilde f \circ \mathtt{pad}, \qquad
          \log p(\hat x) = \log p_h(z) - \tfrac12 \log\det J(z)^\top J(z), \quad z = f^\dagger(x),\ \hat x = f(z).

Reference: Caterini et al., Rectangular Flows for Manifold Learning, arXiv:2106.01413.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from math import prod

import torch
from torch import Tensor, nn

from ..densities import as_density
from ..densities.base import Density
from ..densities.scatter import FEW_HELD_OUT, Coordinates, Scatter
from ..flows.description import Described
from ..flows.injection import Bijection, Injection, forward_through, inverse_through, links_of
from ..flows.pad import Pad
from ..flows.periodic import Periodic, check_places, order_on
from ..flows.spaces import Embedding, Space
from .ambient import coordinates_of, scattered, unit_log_det
from .angles import ambient_space, given
from .base import Manifold
from .scores import Scores, scores_of
from .units import ModelUnits

_MOST_SCATTERED = 256  # dimensions of a mixture of Gaussians


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
        nearest: Gauss–Newton steps that the encoder takes from f†(x) to the nearest point of the manifold, in the model's
            units; 0: none, as in the paper. Training does without; see :meth:`set_nearest`.

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
        nearest: int = 0,
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
        self.angles: int = getattr(ambient, "angles", 0)
        inside = space.flat or self.angles > 0  # f̃ takes angles as they are
        self.embedding = None if inside else Embedding.within(space, prod(ambient.in_shape))
        size = self.latent.features if self.embedding is None else self.embedding.out_shape[0]
        if pad is None:
            pad = Pad(size, ambient.in_shape, order_on(space, self.angles, prod(ambient.in_shape)))
        self.pad = pad
        self.ambient = ambient
        self.outer = nn.ModuleList([outer] if isinstance(outer, Injection) else list(outer))
        if self.pad.in_shape != (size,):
            raise ValueError(
                f"the padding is from {self.pad.in_shape[0]} dimensions, but the latent density is on {size}"
            )
        self.layers()  # checks that their shapes go together
        if self.angles:
            check_places(space, self.pad, self.angles)
        self.scatter: Scatter | None = None
        self.set_scatter(scatter)
        self.set_nearest(nearest)

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
        return nn.Module.parameters(self, recurse)

    def layers(self) -> list[Injection]:
        first = [] if self.embedding is None else [self.embedding]
        return links_of(*first, self.pad, self.ambient, *self.outer)

    def set_nearest(self, steps: int) -> None:
        """Let the encoder take so many steps to the nearest point of the manifold; it is saved with the flow."""
        if steps < 0:
            raise ValueError(f"expected a number of steps ≥ 0; got {steps}")
        self.nearest = steps
        if steps or "nearest" in self._arguments[1]:
            self._arguments[1]["nearest"] = steps

    def encode(self, x: Tensor) -> Tensor:
        self._check_rows(x)
        return self.in_model_units.encode(self.to_model_units(x))

    def decode(self, z: Tensor) -> Tensor:
        self._check_kind(z, (self.latent.features,))
        return self.to_data_units(self.in_model_units.decode(z))

    def left_inverse(self, x: Tensor) -> Tensor:
        self._check_rows(x)
        return self.in_model_units.left_inverse(self.to_model_units(x))

    # --- units

    @property
    def periodic(self) -> Periodic | None:
        """The link between (cos, sin) pairs and periodic columns, if the data have such columns."""
        last = self.layers()[-1]
        return last if isinstance(last, Periodic) else None

    @property
    def column_of(self) -> list[int]:
        """The number of the user's column to which each of the model's belongs: two of these to a periodic one."""
        return list(range(self.ambient_dim)) if self.periodic is None else self.periodic.column_of

    @property
    def in_model_units(self) -> ModelUnits:
        """The same flow in the model's units: without the trailing layers that standardise or take logits."""
        return ModelUnits(self)

    def unit_layers(self) -> list[Injection]:
        links = self.layers()
        cut = len(links)
        while links[cut - 1].changes_units:
            cut -= 1
        return links[cut:]

    def to_model_units(self, x: Tensor) -> Tensor:
        """x as the model sees it: through the inverse of :meth:`unit_layers`, and then in the type of the flow."""
        y = inverse_through(self.unit_layers(), x)
        return y.to(self._dtype_beside(x)) if x.dtype == self.row_dtype else y

    def to_data_units(self, y: Tensor) -> Tensor:
        """The inverse of :meth:`to_model_units`, in :attr:`row_dtype` if that is float64."""
        units = self.unit_layers()
        return forward_through(units, y.double() if any(link.takes_float64 for link in units) else y)

    @torch.no_grad()
    def initialise(self, x: Tensor, *, latent: bool = True) -> None:
        """Set from x whatever starts from data: ActNorm, the principal directions of an embedding, the latent density.

        Args:
            x: rows, (B, *data_shape).
            latent: whether to start the latent density too.
        """
        self._check(x)
        for link in reversed(self.unit_layers()):
            x = link.initialise(x)
        x = x.to(self._dtype_beside(x))
        for link in reversed(self.in_model_units.layers()):
            x = link.initialise(x)
        if latent:
            self.latent.initialise(x)

    @torch.no_grad()
    def initialise_latent(self, x: Tensor) -> None:
        """Start the latent density from the coordinates that rows have now."""
        self.latent.initialise(self.in_batches(self.encode, x))

    def latent_parameters(self) -> Iterator[nn.Parameter]:
        """Of the latent density."""
        return self.latent.parameters()

    @property
    def charts(self) -> list[RectangularFlow]:
        """Itself: a flow is one chart. See :class:`~rectangular_flows.Atlas`."""
        return [self]

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
    def fit_scatter(
        self,
        train: Tensor,
        held_out: Tensor,
        seed: int = 0,
        steps: int = 0,
        on_step: Callable[[int, int], None] | None = None,
    ) -> None:
        """Fit the density of rows around the manifold, which stays as it is; see :class:`~.densities.Scatter`.

        Args:
            train: rows that the flow was trained on, (N, *data_shape).
            held_out: others, (M, *data_shape), M ≥ 1.
            seed: of its mixtures.
            steps: of training for a part that takes the columns one after another, which many rows allow; 0: without it.
            on_step: called after every one of these steps with its number and ``steps``.

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
        size = given(self)
        found = Scatter.fitted(at, judged, size, seed, steps=steps, space=ambient_space(self), on_step=on_step)
        if len(held_out) < FEW_HELD_OUT and found.columns is None:  # all rows count, once the choices are made
            found = Scatter.fitted(Coordinates.cat([at, judged]), judged, size, seed, like=found)
        self.set_scatter(found.to(self.device, self.dtype))

    def coordinates(self, x: Tensor, *, batch_size: int | None = None) -> Coordinates:
        """The coordinates (z, z′) of rows, and all that a density in R^D needs beside them.

        Raises:
            ValueError: f̃ has a layer that is neither a bijection nor isometric.
        """
        self._check(x)
        return Coordinates.cat(
            [coordinates_of(self, self.to_model_units(part)) for part in self._batches(x, batch_size)]
        )

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
        self._check(x)
        scatter = self._scatter()

        def part(rows: Tensor) -> Tensor:
            return scatter.log_prob(coordinates_of(self, self.to_model_units(rows)), smooth) + unit_log_det(self, rows)

        return self.in_batches(part, x, batch_size)

    def alone(self, part: str) -> RectangularFlow:
        """The same flow with one part of the density in R^D alone: "manifold", "joint", "plain" or "columns"."""
        found = copy.copy(self)
        found._modules = {**self._modules, "scatter": self._scatter().alone(part)}
        return found

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
        return self.in_batches(self.to_data_units, scattered(self, density, count, generator), batch_size)

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
        self._check(x, finite=check)
        return Scores.cat([scores_of(self, part, check) for part in self._batches(x, batch_size)])
