r"""How rows scatter around a manifold: a density of (z, z′), the coordinates on the manifold and those that padding drops.

.. math:: p(w) = |\det \partial u/\partial w|\,\bigl[a_1\, p_h(z)\, q(z'|z) + a_2\, q(u)\bigr] + a_3\, r(w),
          + a_4\, s(y), \qquad u = (z, z') = \tilde f^{-1}(w),

with mixtures of Gaussians q and r, a density s of the columns y one after another (where rows are enough), and weights a
that sum to one and are best for rows held out. All parts are exact densities in R^D, so p is one:
comparable across latent dimensions, weights of the reconstruction error, and other libraries' flows. Dimensions that an
embedding drops are Gaussian, all of one width.

Reference for the pool: Smyth & Wolpert, Linearly combining density estimators via stacking, Machine Learning 36 (1999).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..flows.description import Described
from .closed_mixture import ClosedMixture
from .columnwise import ColumnwiseDensity
from .mixture import MixtureDensity

PARTS = ("manifold", "joint", "plain", "columns")
SMOOTH = PARTS[:3]  # that say how far a row is from the others: cells say only how often it occurs
FEW_HELD_OUT = 60  # rows that are too few to do without, once the choices are made
_ROUNDS = 100  # of EM for the weights
_HOPELESS = 3.0  # nats below the other parts at which the density of the columns is given up
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
        cells: of a part that takes the columns one after another; 0: without it.
        flat: D′ where the latent space closes up, and u has more coordinates: those of the embedded z, of which the first
            ``latent_dim`` are, offsets from it, and z′. The second part is then the first once more. 0: it does not.
        space: of w, where some of its coordinates are angles; r is then a mixture on it. None: there are none.
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
        cells: int = 0,
        flat: int = 0,
        space: str | None = None,
    ):
        super().__init__()
        self.latent_dim, self.features, self.dropped = latent_dim, features, tuple(dropped)
        self.space = space
        self.joint = MixtureDensity(features, components, floor=floors[0])
        self.plain: MixtureDensity | ClosedMixture = (
            MixtureDensity(flat or features, plain_components, floor=floors[1])
            if space is None
            else ClosedMixture(space, plain_components, floor=floors[1])
        )
        self.columns = ColumnwiseDensity(size or features, cells) if cells else None
        parts = len(PARTS) if cells else len(PARTS) - 1
        self.register_buffer("weights", torch.full((parts,), 1 / parts))
        self.register_buffer("log_scales", torch.zeros(len(self.dropped)))
        self.register_buffer("low", torch.full((size or features,), -torch.inf))
        self.register_buffer("high", torch.full((size or features,), torch.inf))
        self.requires_grad_(False)

    @classmethod
    @torch.no_grad()
    def fitted(
        cls,
        train: Coordinates,
        held_out: Coordinates,
        latent_dim: int,
        seed: int = 0,
        *,
        like: Scatter | None = None,
        steps: int = 0,
        space: str | None = None,
        on_step: Callable[[int, int], None] | None = None,
    ) -> Scatter:
        """From the coordinates of rows, the weights from those of rows held out.

        Args:
            train: of the rows that the manifold was trained on.
            held_out: of others, at least one.
            latent_dim: d.
            seed: of the mixtures.
            like: one without a part of columns, whose choices are taken as they are: numbers of components, floors of their
                variance, weights.
            steps: of training for the part of columns; 0: without it.
            space: of w, if some of its coordinates are angles.
            on_step: called after every step with its number and ``steps``.
        """
        space = space if like is None else like.space
        train, held_out = train[train.finite()], held_out[held_out.finite()]  # a flow may overflow far out
        joint = MixtureDensity.fitted(train.u, held_out.u, seed, None if like is None else like.joint)
        known: Any = None if like is None else like.plain
        plain: MixtureDensity | ClosedMixture = (
            MixtureDensity.fitted(train.w, held_out.w, seed, known)
            if space is None
            else ClosedMixture.fitted(space, train.w, held_out.w, seed, known)
        )
        counts, floors = (joint.components, plain.components), (joint.floor, plain.floor)
        columns = ColumnwiseDensity.started(train.y.float(), seed) if steps else None
        size, cells = train.y.shape[1], 0 if columns is None else columns.cells
        flat = train.w.shape[1] if train.u.shape[1] > train.w.shape[1] else 0
        scatter = cls(latent_dim, train.u.shape[1], *counts, train.dropped, size, floors, cells, flat, space).double()
        scatter.joint.load_state_dict(joint.state_dict())
        scatter.plain.load_state_dict(plain.state_dict())
        if train.dropped:
            sizes = torch.tensor(train.dropped, dtype=torch.float64)
            scatter.log_scales.copy_((train.residuals.double().mean(dim=0) / sizes).clamp_min(1e-30).log() / 2)
        low, high = train.y.double().amin(dim=0), train.y.double().amax(dim=0)
        span = _MARGIN * (high - low)
        scatter.low.copy_(low - span)
        scatter.high.copy_(high + span)
        if columns is not None:
            known = float(scatter.parts(held_out, columns=False).mean(dim=0).max())
            columns.train_on(train.y.float(), held_out.y.float(), steps, seed, known - _HOPELESS, on_step)
            scatter.columns = columns
        if like is not None:
            scatter.weights.copy_(like.weights)
            return scatter
        parts = scatter.parts(held_out)
        smooth = stacked(parts[:, : len(SMOOTH)])
        scatter.weights[: len(SMOOTH)] = smooth
        if (
            columns is not None
        ):  # so that the smooth parts are a density of their own, with the weights that are best for it
            whole = stacked(torch.stack([scatter.pooled(parts[:, : len(SMOOTH)]), parts[:, -1]], dim=1))
            scatter.weights.copy_(torch.cat([whole[0] * smooth, whole[1:]]))
        return scatter

    def alone(self, part: str) -> Scatter:
        """The same with one of its parts, "manifold", "joint", "plain" or "columns", and without the others."""
        names = PARTS[: len(self.weights)]
        if part not in names:
            raise ValueError(f"expected one of {', '.join(names)}; got {part!r}")
        found = copy.copy(self)
        found._buffers = {**self._buffers, "weights": torch.zeros_like(self.weights)}
        found.weights[PARTS.index(part)] = 1
        return found

    def parts(self, at: Coordinates, columns: bool = True) -> Tensor:
        """Log-density of every row under each part, (B, parts), float64, in the model's units."""
        u, log_det = at.u.double(), at.log_det.double()
        joint = _log_prob(self.joint, u)
        given = joint - _log_prob(self.joint, u[:, : self.latent_dim])
        manifold = at.latent_log_prob.double() + given
        if u.shape[1] > at.w.shape[1]:  # a mixture of embedded coordinates is no density in R^D
            joint = manifold
        value = torch.stack([manifold + log_det, joint + log_det, _log_prob(self.plain, at.w.double())], dim=1)
        if self.dropped:
            scale = self.log_scales.double()
            sizes = torch.tensor(self.dropped, dtype=torch.float64, device=u.device)
            height = -0.5 * sizes * torch.log(torch.tensor(2 * torch.pi, dtype=torch.float64)) - sizes * scale
            off = (height - at.residuals.double() * (-2 * scale).exp() / 2).sum(dim=1)
            value = value + off[:, None]
        value = value + at.outer_log_det.double()[:, None]
        if self.columns is None or not columns:
            return value
        found = self.columns.log_prob(at.y.to(self.columns.linear.dtype))
        return torch.cat([value, found.double()[:, None]], dim=1)

    def log_prob(self, at: Coordinates, smooth: bool = False) -> Tensor:
        """log p of every row, (B,), float64, in the model's units; without the part of columns if it is to be smooth."""
        return self.pooled(self.parts(at, columns=not smooth))

    def pooled(self, parts: Tensor) -> Tensor:
        """The pool of all parts, (B, parts) → (B,), or of the first of them, whose weights then sum to one."""
        weights = self.weights[: parts.shape[1]].double()
        return torch.logsumexp(parts + (weights / weights.sum()).log(), dim=1)

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
        parts = (getattr(self, f.name) for f in fields(self) if f.name != "dropped")
        return torch.stack([part.isfinite().reshape(len(self.u), -1).all(dim=1) for part in parts]).all(dim=0)

    def __getitem__(self, rows: Tensor) -> Coordinates:
        """Those of some rows."""
        values: dict[str, Any] = {name: getattr(self, name)[rows] for name in self._tensors()}
        return replace(self, **values)

    @classmethod
    def cat(cls, parts: Sequence[Coordinates]) -> Coordinates:
        """Those of several batches as one."""
        values: dict[str, Any] = {name: torch.cat([getattr(part, name) for part in parts]) for name in cls._tensors()}
        return replace(parts[0], **values)

    @classmethod
    def _tensors(cls) -> list[str]:
        return [f.name for f in fields(cls) if f.name != "dropped"]


def stacked(parts: Tensor) -> Tensor:
    """Weights of parts that are best for rows with these log-densities, (N, parts) → (parts,), by EM."""
    weights = parts.new_full((parts.shape[1],), 1 / parts.shape[1])
    for _ in range(_ROUNDS):  # one row in favour of each part keeps a weight above zero
        shares = (weights.log() + parts).softmax(dim=1)
        weights = (shares.sum(dim=0) + 1) / (len(parts) + len(weights))
    return weights


def _log_prob(mixture: MixtureDensity | ClosedMixture, u: Tensor) -> Tensor:
    """In float64 whatever the mixture has; a batch at a time, to bound memory."""
    wide = mixture if mixture.logits.dtype == torch.float64 else _double(mixture)
    rows = max(1, 2**22 // (mixture.components * mixture.features))
    return torch.cat([wide.log_prob(part) for part in u.split(rows)]) if len(u) else u.new_zeros(0)


def _double(mixture: MixtureDensity | ClosedMixture) -> MixtureDensity | ClosedMixture:
    if isinstance(mixture, ClosedMixture):
        return copy.deepcopy(mixture).double()
    wide = MixtureDensity(mixture.features, mixture.components, mixture.seed).to(mixture.means.device).double()
    wide.load_state_dict(mixture.state_dict())
    return wide
