r"""How rows scatter around a manifold: a density of (z, z′), the coordinates on the manifold and those that padding drops.

.. math:: p(w) = |\det \partial u/\partial w|\,\bigl[a_1\, p_h(z)\, q(z'|z) + a_2\, q(u)\bigr] + a_3\, r(w),
          \qquad u = (z, z') = \tilde f^{-1}(w),

with mixtures of Gaussians q and r, and weights a that sum to one. All three parts are exact densities in R^D, so p is one:
comparable across latent dimensions, weights of the reconstruction error, and other libraries' flows. Dimensions that an
embedding drops are Gaussian, all of one width.

Reference for the pool: Smyth & Wolpert, Linearly combining density estimators via stacking, Machine Learning 36 (1999).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..flows.description import Described
from .mixture import MixtureDensity

PARTS = ("manifold", "joint", "plain")
_ROUNDS = 100  # of EM for the weights
_MARGIN = 0.25  # of a column's span, by which samples may lie beyond the data


class Scatter(Described, nn.Module):
    """The density of rows around a manifold, fitted once the manifold is trained.

    Args:
        latent_dim: d.
        features: D′, coordinates of u = (z, z′) and of w = f̃(u).
        components: of q, the mixture of u.
        plain_components: of r, the mixture of w.
        dropped: dimensions dropped by each embedding.
        size: D, entries of a row.
        floors: of the variances of both mixtures, in whitened units.
    """

    weights: Tensor
    log_scales: Tensor
    low: Tensor
    high: Tensor

    def __init__(
        self,
        latent_dim: int,
        features: int,
        components: int = 1,
        plain_components: int = 1,
        dropped: Sequence[int] = (),
        size: int | None = None,
        floors: Sequence[float] = (1e-4, 1e-4),
    ):
        super().__init__()
        self.latent_dim, self.features, self.dropped = latent_dim, features, tuple(dropped)
        self.joint = MixtureDensity(features, components, floor=floors[0])
        self.plain = MixtureDensity(features, plain_components, floor=floors[1])
        self.register_buffer("weights", torch.full((len(PARTS),), 1 / len(PARTS)))
        self.register_buffer("log_scales", torch.zeros(len(self.dropped)))
        self.register_buffer("low", torch.full((size or features,), -torch.inf))
        self.register_buffer("high", torch.full((size or features,), torch.inf))
        self.requires_grad_(False)

    @classmethod
    @torch.no_grad()
    def fitted(
        cls, train: Coordinates, held_out: Coordinates, latent_dim: int, seed: int = 0, like: Scatter | None = None
    ) -> Scatter:
        """From the coordinates of rows, the weights from those of rows held out.

        Args:
            train: of the rows that the manifold was trained on.
            held_out: of others, at least one.
            latent_dim: d.
            seed: of the mixtures.
            like: one whose choices are taken as they are: numbers of components, and floors of their variance.
        """
        train, held_out = train[train.finite()], held_out[held_out.finite()]  # a flow may overflow far out
        joint = MixtureDensity.fitted(train.u, held_out.u, seed, None if like is None else like.joint)
        plain = MixtureDensity.fitted(train.w, held_out.w, seed, None if like is None else like.plain)
        counts, floors = (joint.components, plain.components), (joint.floor, plain.floor)
        scatter = cls(latent_dim, train.u.shape[1], *counts, train.dropped, train.y.shape[1], floors).double()
        scatter.joint.load_state_dict(joint.state_dict())
        scatter.plain.load_state_dict(plain.state_dict())
        if train.dropped:
            sizes = torch.tensor(train.dropped, dtype=torch.float64)
            scatter.log_scales.copy_((train.residuals.double().mean(dim=0) / sizes).clamp_min(1e-30).log() / 2)
        low, high = train.y.double().amin(dim=0), train.y.double().amax(dim=0)
        span = _MARGIN * (high - low)
        scatter.low.copy_(low - span)
        scatter.high.copy_(high + span)
        parts = scatter.parts(held_out)
        weights = scatter.weights
        for _ in range(_ROUNDS):  # one row in favour of each part keeps a weight above zero
            shares = (weights.log() + parts).softmax(dim=1)
            weights = (shares.sum(dim=0) + 1) / (len(parts) + len(PARTS))
        scatter.weights.copy_(weights)
        return scatter

    def parts(self, at: Coordinates) -> Tensor:
        """Log-density of every row under each part, (B, 3), float64, in the model's units."""
        u, log_det = at.u.double(), at.log_det.double()
        joint = _log_prob(self.joint, u)
        given = joint - _log_prob(self.joint, u[:, : self.latent_dim])
        manifold = at.latent_log_prob.double() + given
        value = torch.stack([manifold + log_det, joint + log_det, _log_prob(self.plain, at.w.double())], dim=1)
        if self.dropped:
            scale = self.log_scales.double()
            sizes = torch.tensor(self.dropped, dtype=torch.float64, device=u.device)
            height = -0.5 * sizes * torch.log(torch.tensor(2 * torch.pi, dtype=torch.float64)) - sizes * scale
            off = (height - at.residuals.double() * (-2 * scale).exp() / 2).sum(dim=1)
            value = value + off[:, None]
        return value + at.outer_log_det.double()[:, None]

    def log_prob(self, at: Coordinates) -> Tensor:
        """log p of every row, (B,), float64, in the model's units."""
        return torch.logsumexp(self.parts(at) + self.weights.double().log(), dim=1)

    def draw_parts(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Which part each of so many samples comes from, (count,)."""
        device = self.weights.device if generator is None else generator.device
        odds = self.weights.float().to(device)
        return torch.multinomial(odds, max(count, 1), replacement=True, generator=generator)[:count].to(
            self.weights.device
        )

    def inside(self, y: Tensor) -> Tensor:
        """Whether rows in the model's units lie where the data do, or little beyond, (B,)."""
        flat = y.flatten(1)
        return ((flat >= self.low) & (flat <= self.high)).all(dim=1)

    def to_edge(self, y: Tensor) -> Tensor:
        """Rows in the model's units, moved to where :meth:`inside` holds."""
        return y.flatten(1).clamp(self.low, self.high).view_as(y)


@dataclass(frozen=True, eq=False)
class Coordinates:
    """What the inverse of a flow makes of rows: see :meth:`RectangularFlow.coordinates`.

    Attributes:
        y: the rows in the model's units, (B, D).
        w: f̃(u), (B, D′).
        u: (z, z′), (B, D′).
        log_det: log|det ∂u/∂w|, (B,).
        outer_log_det: of the bijections between w and y, (B,).
        residuals: squared distance of every row from what each embedding can reach, (B, number of embeddings).
        latent_log_prob: log p_h(z), (B,).
        dropped: dimensions that each embedding drops.
    """

    y: Tensor
    w: Tensor
    u: Tensor
    log_det: Tensor
    outer_log_det: Tensor
    residuals: Tensor
    latent_log_prob: Tensor
    dropped: tuple[int, ...]

    def finite(self) -> Tensor:
        """Whether every number of a row is finite, (B,)."""
        parts = [getattr(self, name) for name in _TENSORS]
        return torch.stack([part.isfinite().reshape(len(self.u), -1).all(dim=1) for part in parts]).all(dim=0)

    def __getitem__(self, rows: Tensor) -> Coordinates:
        """Those of some rows."""
        return replace(self, **{name: getattr(self, name)[rows] for name in _TENSORS})

    @classmethod
    def cat(cls, parts: Sequence[Coordinates]) -> Coordinates:
        """Those of several batches as one."""
        joined: dict[str, Any] = {name: torch.cat([getattr(part, name) for part in parts]) for name in _TENSORS}
        return replace(parts[0], **joined)


_TENSORS = [f.name for f in fields(Coordinates) if f.name != "dropped"]


def _log_prob(mixture: MixtureDensity, u: Tensor) -> Tensor:
    """In float64 whatever the mixture has; a batch at a time, to bound memory."""
    wide = mixture if mixture.means.dtype == torch.float64 else _double(mixture)
    rows = max(1, 2**22 // (mixture.components * mixture.features))
    return torch.cat([wide.log_prob(part) for part in u.split(rows)]) if len(u) else u.new_zeros(0)


def _double(mixture: MixtureDensity) -> MixtureDensity:
    wide = MixtureDensity(mixture.features, mixture.components, mixture.seed).to(mixture.means.device).double()
    wide.load_state_dict(mixture.state_dict())
    return wide
