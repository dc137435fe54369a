"""What follows from the links of f and the latent density alone."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from ..densities.base import Density
from ..errors import NonFiniteError, RoundTripWarning, check_finite, in_transform, warn
from ..flows.injection import Injection, Shape, forward_through, inverse_through, push_through
from ..flows.local_chart import local_chart
from ..flows.periodic import Periodic
from ..volume import Exact
from ..volume.bundle import basis, split_units
from .batches import Batched, squared_distance
from .nearest import towards_nearest

_CHUNK_SCALARS = 2**25  # of one bundle at its widest place, when no graph is kept: 128 MiB in float32


class Manifold(Batched):
    """What follows from the links of f and the latent density alone: shared by a flow and its view in model units."""

    latent: Density
    nearest: int
    """Gauss–Newton steps that :meth:`encode` takes from f†(x) towards the nearest point of the manifold; 0 in training."""

    @abstractmethod
    def layers(self) -> list[Injection]:
        """The links of f in generative order."""

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

    # --- the manifold

    def encode(self, x: Tensor) -> Tensor:
        """Coordinates of x, (B, *data_shape) → (B, d): z = f†(x), and then ``nearest`` steps to the nearest point.

        Their gradient is that of f†.
        """
        z = self.left_inverse(x)
        if not self.nearest:
            return z
        moved = self.towards_nearest(x, z)
        return z + (moved - z).detach() if z.requires_grad else moved

    def left_inverse(self, x: Tensor) -> Tensor:
        """f†(x): f̃ backwards, d coordinates kept; what training sees. (B, *data_shape) → (B, d)."""
        self._check_rows(x)
        return inverse_through(self.layers(), x)

    def towards_nearest(self, x: Tensor, z: Tensor) -> Tensor:
        """From z ``nearest`` steps towards the nearest point to x, with distances in the units of this view."""
        links, size = self.layers(), z.shape[1]
        both = torch.cat((z.detach(), x.detach().flatten(1)), dim=1)
        with torch.no_grad():
            return self.in_batches(
                lambda part: towards_nearest(
                    links, part[:, size:].unflatten(1, x.shape[1:]), part[:, :size], self.nearest
                ),
                both,
            )

    def decode(self, z: Tensor) -> Tensor:
        """x = f(z), (B, d) → (B, *data_shape)."""
        self._check_kind(z, (self.latent.features,))
        return forward_through(self.layers(), z)

    def project(self, x: Tensor) -> Tensor:
        """x̂ = f(encode(x)), a point of the manifold; the nearest one as far as ``nearest`` steps go."""
        return self.decode(self.encode(x))

    def reconstruction_error(self, x: Tensor) -> Tensor:
        """‖x − x̂‖², (B,), in float64: squares of tiny or huge units would underflow or overflow in less.

        Example:
            >>> from rectangular_flows import RectangularFlow, flows
            >>> units = flows.Standardise(torch.zeros(3), torch.full((3,), 1e-30))
            >>> flow = RectangularFlow(flows.Identity(3), flows.Identity(2), units)
            >>> bool(flow.reconstruction_error(torch.full((1, 3), 1e-30)) > 0)
            True
        """
        return self.squared_distance(x, self.project(x))

    def squared_distance(self, x: Tensor, x_hat: Tensor) -> Tensor:
        """‖x − x̂‖² of every row, (B,), float64; periodic columns the short way round."""
        last = self.layers()[-1]
        if isinstance(last, Periodic):
            return _squared(last.difference(x.double(), x_hat.double()))
        return squared_distance(x, x_hat)

    def jacobian(self, z: Tensor) -> Tensor:
        """J = ∂f/∂z, (B, d) → (B, D, d), in the type of decoded rows; events of images are laid flat."""
        self._check_kind(z, (self.latent.features,))
        links, z = local_chart(self.layers(), z)
        inner, units = split_units(links)
        y, tangents = push_through(inner, z, basis(z))
        if units:
            _, tangents = push_through(units, y.double(), tangents.double())
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
        self._check(x, finite=check)

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

    def _density(self, z: Tensor, x_hat: Tensor, L: Tensor, check: bool) -> Tensor:
        """log p_h(z) − L, with its checks."""
        if check:
            self._check_round_trip(z, x_hat)
        value = self.latent.log_prob(z) - L
        if check:
            advice = "The latent density overflowed there: use float64 or bound its log-scale."
            check_finite(value, "log-density", advice)
        return value

    def _check_round_trip(self, z: Tensor, x_hat: Tensor) -> None:
        if in_transform(z):
            return
        with torch.no_grad():
            try:
                error = self.latent.space.difference(self.left_inverse(x_hat), z).norm(dim=1) / (1 + z.norm(dim=1))
            except NonFiniteError:  # a saturated layer: there is no way back at all
                error = torch.full_like(z[:, 0], torch.inf)
        tolerance = torch.finfo(z.dtype).eps ** 0.5
        bad = ~(error <= tolerance)
        if bool(bad.any()):
            warn(
                RoundTripWarning,
                f"the flow is not numerically invertible at {int(bad.sum())} of {len(z)} points: encoding a "
                f"decoded point misses it by up to {float(error.max()):.1e} (relative), more than {tolerance:.1e} for "
                f"{z.dtype}. Coordinates and densities there are off by as much. Train in float64 (--dtype float64, "
                "dtype='float64').",
            )


def _squared(difference: Tensor) -> Tensor:
    return difference.flatten(1).square().sum(dim=1)
