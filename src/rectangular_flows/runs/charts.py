"""How many charts a table needs, where the user leaves it open: by the shape of its pieces, then by rows held out."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from sklearn.neighbors import NearestNeighbors

from ..data.periodic import PeriodicColumn
from ..data.rows import Rows, shuffled, take
from ..errors import NumericalError
from ..metrics.arrays import Array
from ..partition import LANDMARKS, partition, separate_pieces
from ..settings import FitSettings
from ..training import fit
from .build import build_flow

LOOP = 3  # charts that close a loop: each touches both others
SURFACE = 4  # charts for a closed surface: three discs cover a torus, two a sphere, and smaller ones bend less
_AROUND = 20  # neighbours, which lie on one side of a point within a surface once in 26,000 times
_RIM = 0.2  # share of points on a rim, times the root of their number: 0.4 and more where there is a rim
_FLAT = 0.9  # share of the variance of neighbours along a plane: 0.83 in a cloud of three dimensions
_ENOUGH = 500
_ROWS, _STEPS = 4_000, 150
_SIGMAS = 2.0  # standard errors by which more charts may seem worse by chance
_GAP = 0.1  # nats that a loop or a closed surface without a gap may cost after so short a training
_FEW = 100
_WORST = 100.0  # nats below zero at which a row counts no more, lest one decide


@dataclass(frozen=True)
class Charts:
    """A number of charts, and why."""

    count: int
    reason: str


def choose_charts(settings: FitSettings, train: Rows, seed: int, periodic: Sequence[PeriodicColumn] = ()) -> Charts:
    """One chart, or as many as pieces, loops and closed surfaces need, whichever is likelier on rows held out.

    A separate piece needs one, a loop three, a closed surface four; all are looked for in 2,000 rows and their nearest
    neighbours. The candidates are trained for 150 steps each, and compared by the log-density in all columns that their
    charts give to rows held out, not counting the mixtures that are pooled with it. More charts are taken unless they are
    worse by two standard errors, since one chart would join separate pieces; for a loop or a closed surface, where it
    would leave a gap, they may be worse by another 0.1 nats.

    Args:
        settings: whose charts are not used; with a latent dimension.
        train: rows of a table, (N, D).
        seed: of the rows and of the trainings.
        periodic: columns that are angles, which have one chart.
    """
    if periodic:
        return Charts(1, "angles are one chart")
    if len(train) < _FEW:
        return Charts(1, "there are few rows")
    rows = take(train, shuffled(len(train), seed)[: _ROWS + _ROWS // 4], dtype=torch.float64)
    one = replace(settings, model=replace(settings.model, charts=1))
    y = build_flow(one.model, rows, seed, start_latent=False, dtype=torch.float64).to_model_units(rows[:LANDMARKS])
    piece = separate_pieces(y.numpy())
    pieces, closed = int(piece.max()) + 1, settings.model.latent_space is not None
    parts, dim = [y.numpy()[piece == i] for i in range(pieces)], settings.model.latent_dim
    loops = 0 if closed else sum(is_loop(part, dim) for part in parts)
    surfaces = 0 if closed else sum(is_closed_surface(part, dim) for part in parts)
    count = pieces + (LOOP - 1) * loops + (SURFACE - 1) * surfaces
    what = f"the data form {pieces} separate pieces" if pieces > 1 else "the data form one piece"
    if loops:
        what += f", {loops} of them loops" if pieces > 1 else ", a loop, which one chart cannot close"
    if surfaces and pieces > 1:
        what += f", {surfaces} of them {'closed surfaces' if surfaces > 1 else 'a closed surface'}"
    elif surfaces:
        what += ", a closed surface, which one chart cannot cover"
    if count == 1:
        return Charts(1, f"{what}, and neither a loop nor a closed surface was found")
    gain, error = _gain(settings, rows, count, seed)
    more = "more" if gain >= 0 else "fewer"
    told = f"{count} charts give rows held out {abs(gain):.2g} ± {error:.1g} nats {more} than one"
    hint = "; --latent-space circle closes a loop with one" if loops else ""
    hint += "; --latent-space sphere or torus:2 may do with one" if surfaces else ""
    if not gain > -_SIGMAS * error - (_GAP if pieces == 1 else 0):
        return Charts(1, f"{what}, but {told}{hint}")
    return Charts(count, f"{what}; {told}{hint}")


def is_loop(y: Array, latent_dim: Any) -> bool:
    """Whether a piece is a closed curve: of three parts of it, each touches both others.

    Example:
        >>> t = np.random.default_rng(0).uniform(0, 1, 400)
        >>> [is_loop(np.stack([np.cos(k * t), np.sin(k * t)], axis=1), 1) for k in (4.0, 6.3)]
        [False, True]
    """
    if latent_dim != 1 or len(y) < 10 * LOOP:
        return False
    inside = partition(y, LOOP).members.numpy()
    if inside.all(axis=1).any():  # a blob has a middle
        return False
    return all(bool((inside[:, i] & inside[:, j]).any()) for i, j in ((0, 1), (1, 2), (0, 2)))


def is_closed_surface(y: Array, latent_dim: Any) -> bool:
    """Whether a piece is a surface without a rim: hardly a point has all its neighbours on one side.

    Example:
        >>> x = np.random.default_rng(0).normal(size=(1000, 3))
        >>> ball = x / np.linalg.norm(x, axis=1, keepdims=True)
        >>> is_closed_surface(ball, 2), is_closed_surface(ball[ball[:, 2] > -0.5], 2), is_closed_surface(x, 2)
        (True, False, False)
    """
    if latent_dim != 2 or len(y) < _ENOUGH or y.shape[1] < 3:
        return False
    spread = y.std(axis=0)
    y = y / np.where(spread > 0, spread, 1.0)  # a piece far from others is flat in the units of all
    near: Any = NearestNeighbors(n_neighbors=_AROUND).fit(y)
    around = y[near.kneighbors(return_distance=False)]
    _, sizes, directions = np.linalg.svd(around - around.mean(axis=1, keepdims=True), full_matrices=False)
    if np.square(sizes[:, :2]).sum() < _FLAT * np.square(sizes).sum():
        return False
    offsets = np.einsum("nkd,njd->nkj", around - y[:, None], directions[:, :2])
    angles = np.sort(np.arctan2(offsets[..., 1], offsets[..., 0]), axis=1)
    gaps = np.diff(angles, axis=1, append=angles[:, :1] + 2 * np.pi)
    return bool((gaps.max(axis=1) > np.pi).mean() < _RIM / np.sqrt(len(y)))


def _gain(settings: FitSettings, rows: torch.Tensor, count: int, seed: int) -> tuple[float, float]:
    """Mean log-density of rows held out with so many charts less that with one, and its standard error."""
    cut = len(rows) // 5
    held_out, kept = rows[:cut], rows[cut:]
    found = [_densities(settings, kept, held_out, number, seed) for number in (count, 1)]
    gain = found[0] - found[1]
    return float(gain.mean()), float(gain.std(ddof=1) / np.sqrt(len(gain)))


def _densities(settings: FitSettings, kept: torch.Tensor, held_out: torch.Tensor, count: int, seed: int) -> Array:
    model = replace(settings.model, charts=count)
    batches = max(1, -(-len(kept) // settings.training.batch_size))
    epochs = max(2, _STEPS // batches)
    training = replace(settings.training, epochs=epochs, time=None, evaluate_every=max(1, epochs // 3), scatter=False)
    start, dtype = settings.training.start_latent, getattr(torch, settings.training.dtype or "float32")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        flow = build_flow(model, kept, seed, start_latent=not start, dtype=dtype)
        kept, held_out = kept.to(flow.row_dtype), held_out.to(flow.row_dtype)
        try:
            fit(flow, kept, training, validation=held_out)
            flow.fit_scatter(kept.to(flow.device), held_out.to(flow.device), seed)
            found = flow.alone("manifold").ambient_log_prob(held_out.to(flow.device)).detach()
        except NumericalError:  # of a chart that collapsed
            return np.full(len(held_out), -_WORST)
    return np.nan_to_num(found.cpu().numpy(), nan=-_WORST).clip(-_WORST, None)
