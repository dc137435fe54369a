r"""How rows scatter around a manifold: a density of (z, z′), the coordinates on the manifold and those that padding drops.

.. math:: p(w) = |\det \partial u/\partial w|\,\bigl[a_1\, p_h(z)\, q(z'|z) + a_2\, q(u)\bigr] + a_3\, r(w),
          + a_4\, s(y), \qquad u = (z, z') = \tilde f^{-1}(w),

with mixtures of Gaussians q and r, autoregressive splines s of the columns y (where rows are enough), and weights a that sum
to one and are best for rows held out. All parts are exact densities in R^D, so p is one:
comparable across latent dimensions, weights of the reconstruction error, and other libraries' flows. Dimensions that an
embedding drops are Gaussian, all of one width.

Reference for the pool: Smyth & Wolpert, Linearly combining density estimators via stacking, Machine Learning 36 (1999).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..flows.description import Described
from .mixture import MixtureDensity
from .zuko import ZukoDensity

PARTS = ("manifold", "joint", "plain", "columns")
FEW_HELD_OUT = 60  # rows that are too few to do without, once the choices are made
_ROUNDS = 100  # of EM for the weights
_RATE, _BATCH, _CLIP = 3e-3, 250, 5.0  # of the training of splines
_VALIDATIONS, _WAIT, _JUDGED = 30, 8, 2_000
_HOPELESS = 3.0  # nats below the other parts at which splines are given up
_AT_ONCE = 2_000  # rows
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
        columns: D, for a part of autoregressive splines of the columns; 0: none.
        flat: D′ where the latent space closes up, and u has more coordinates: those of the embedded z, of which the first
            ``latent_dim`` are, offsets from it, and z′. The second part is then the first once more. 0: it does not.
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
        columns: int = 0,
        flat: int = 0,
    ):
        super().__init__()
        self.latent_dim, self.features, self.dropped = latent_dim, features, tuple(dropped)
        self.joint = MixtureDensity(features, components, floor=floors[0])
        self.plain = MixtureDensity(flat or features, plain_components, floor=floors[1])
        settings = {"features": columns, "transforms": 3, "hidden_features": (64, 64)}
        self.columns = ZukoDensity("NSF", whiten=False, **settings) if columns else None
        parts = len(PARTS) if columns else len(PARTS) - 1
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
    ) -> Scatter:
        """From the coordinates of rows, the weights from those of rows held out.

        Args:
            train: of the rows that the manifold was trained on.
            held_out: of others, at least one.
            latent_dim: d.
            seed: of the mixtures.
            like: one without splines, whose choices are taken as they are: numbers of components, floors of their variance,
                weights.
            steps: of training for the splines of the columns; 0: without them.
        """
        train, held_out = train[train.finite()], held_out[held_out.finite()]  # a flow may overflow far out
        joint = MixtureDensity.fitted(train.u, held_out.u, seed, None if like is None else like.joint)
        plain = MixtureDensity.fitted(train.w, held_out.w, seed, None if like is None else like.plain)
        counts, floors = (joint.components, plain.components), (joint.floor, plain.floor)
        size, flat = train.y.shape[1], train.w.shape[1] if train.u.shape[1] > train.w.shape[1] else 0
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            scatter = cls(
                latent_dim, train.u.shape[1], *counts, train.dropped, size, floors, size if steps else 0, flat
            ).double()
        scatter.joint.load_state_dict(joint.state_dict())
        scatter.plain.load_state_dict(plain.state_dict())
        if train.dropped:
            sizes = torch.tensor(train.dropped, dtype=torch.float64)
            scatter.log_scales.copy_((train.residuals.double().mean(dim=0) / sizes).clamp_min(1e-30).log() / 2)
        low, high = train.y.double().amin(dim=0), train.y.double().amax(dim=0)
        span = _MARGIN * (high - low)
        scatter.low.copy_(low - span)
        scatter.high.copy_(high + span)
        if scatter.columns is not None:
            scatter.columns = scatter.columns.float()
            known = float(scatter.parts(held_out, splines=False).mean(dim=0).max())
            _train(scatter.columns, train.y.float(), held_out.y.float(), steps, seed, least=known - _HOPELESS)
        if like is not None:
            scatter.weights.copy_(like.weights)
            return scatter
        parts = scatter.parts(held_out)
        weights = scatter.weights
        for _ in range(_ROUNDS):  # one row in favour of each part keeps a weight above zero
            shares = (weights.log() + parts).softmax(dim=1)
            weights = (shares.sum(dim=0) + 1) / (len(parts) + len(weights))
        scatter.weights.copy_(weights)
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

    def parts(self, at: Coordinates, splines: bool = True) -> Tensor:
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
        if self.columns is None or not splines:
            return value
        own = next(self.columns.parameters()).dtype
        spline = torch.cat([self.columns.log_prob(part.to(own)) for part in at.y.split(_AT_ONCE)])
        return torch.cat([value, spline.double()[:, None]], dim=1)

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


def _train(density: ZukoDensity, rows: Tensor, held_out: Tensor, steps: int, seed: int, least: float) -> None:
    """Maximum likelihood by Adam; ends with the weights that were best on the rows held out.

    It stops early where these get no better, or are still below ``least`` after a third of the steps.
    """
    parameters = [p.requires_grad_() for p in density.parameters()]
    optimiser = torch.optim.Adam(parameters, lr=_RATE)
    generator = torch.Generator().manual_seed(seed)
    best, weights, waited = math.inf, copy.deepcopy(density.state_dict()), 0
    judged = held_out[:_JUDGED]
    every = max(10, steps // _VALIDATIONS)
    for step in range(steps):
        batch = rows[torch.randint(len(rows), (min(_BATCH, len(rows)),), generator=generator).to(rows.device)]
        optimiser.param_groups[0]["lr"] = _RATE * 0.5 * (1 + math.cos(math.pi * step / steps))
        optimiser.zero_grad(set_to_none=True)
        with torch.enable_grad():
            (-density.log_prob(batch).mean()).backward()
        nn.utils.clip_grad_norm_(parameters, _CLIP)
        optimiser.step()
        if (step + 1) % every and step + 1 < steps:
            continue
        value = -float(density.log_prob(judged).mean())
        waited += 1
        if value < best:
            best, weights, waited = value, copy.deepcopy(density.state_dict()), 0
        if waited > _WAIT or (step > steps / 3 and -best < least):
            break
    density.load_state_dict(weights)
    density.requires_grad_(False)


def _log_prob(mixture: MixtureDensity, u: Tensor) -> Tensor:
    """In float64 whatever the mixture has; a batch at a time, to bound memory."""
    wide = mixture if mixture.means.dtype == torch.float64 else _double(mixture)
    rows = max(1, 2**22 // (mixture.components * mixture.features))
    return torch.cat([wide.log_prob(part) for part in u.split(rows)]) if len(u) else u.new_zeros(0)


def _double(mixture: MixtureDensity) -> MixtureDensity:
    wide = MixtureDensity(mixture.features, mixture.components, mixture.seed).to(mixture.means.device).double()
    wide.load_state_dict(mixture.state_dict())
    return wide
