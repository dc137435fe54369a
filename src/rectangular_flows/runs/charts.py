"""How many charts a table needs, where the user leaves it open: by its pieces and loops, then by rows held out."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from ..data.periodic import PeriodicColumn
from ..data.rows import Rows, shuffled, take
from ..errors import NumericalError
from ..metrics.arrays import Array
from ..partition import LANDMARKS, partition, separate_pieces
from ..settings import FitSettings
from ..training import fit
from .build import build_flow

LOOP = 3  # charts that close a loop: each touches both others
_ROWS, _STEPS = 4_000, 150
_SIGMAS = 2.0  # standard errors by which more charts have to be better
_FEW = 100
_WORST = 100.0  # nats below zero at which a row counts no more, lest one decide


@dataclass(frozen=True)
class Charts:
    """A number of charts, and why."""

    count: int
    reason: str


def choose_charts(settings: FitSettings, train: Rows, seed: int, periodic: Sequence[PeriodicColumn] = ()) -> Charts:
    """One chart, or one for each separate piece and three for each loop, whichever is likelier on rows held out.

    Pieces and loops are those of the graph of nearest neighbours of 2,000 rows. The candidates are trained for 150 steps
    each, and compared by the log-density in all columns that their charts give to rows held out, not counting the mixtures
    that are pooled with it. More charts have to be better by two standard errors.

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
    loops = [not closed and is_loop(y.numpy()[piece == i], settings.model.latent_dim) for i in range(pieces)]
    count = sum(LOOP if loop else 1 for loop in loops)
    what = f"the data form {pieces} separate pieces" if pieces > 1 else "the data form one piece"
    if any(loops):
        what += f", {sum(loops)} of them loops" if pieces > 1 else ", a loop, which one chart cannot close"
    if count == 1:
        return Charts(1, f"{what}, and no loop was found")
    gain, error = _gain(settings, rows.to(getattr(torch, settings.training.dtype or "float32")), count, seed)
    told = f"{count} charts give rows held out {gain:.2g} ± {error:.1g} nats more than one"
    if not gain > _SIGMAS * error:
        return Charts(1, f"{what}, but {told}")
    if any(loops):
        told += "; --latent-space circle closes a loop with one"
    return Charts(count, f"{what}; {told}")


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
    start = settings.training.start_latent
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        flow = build_flow(model, kept, seed, start_latent=not start, dtype=kept.dtype)
        try:
            fit(flow, kept, training, validation=held_out)
            flow.fit_scatter(kept.to(flow.device), held_out.to(flow.device), seed)
            found = flow.alone("manifold").ambient_log_prob(held_out.to(flow.device)).detach()
        except NumericalError:  # of a chart that collapsed
            return np.full(len(held_out), -_WORST)
    return np.nan_to_num(found.cpu().numpy(), nan=-_WORST).clip(-_WORST, None)
