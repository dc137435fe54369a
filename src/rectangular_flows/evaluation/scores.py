"""The one table of scores: what a row can be given, by which name, in which units, and whether high or low is usual.

Every command, the report, the estimator and the detector take their scores from here, out of one pass over the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import ArrayLike

from ..atlas import Atlas, Model
from ..data.discrete import dequantised, discrete_steps
from ..data.rows import Rows, shuffled, take
from ..densities.scatter import FEW_HELD_OUT, Scatter
from ..errors import NumericalError
from ..manifold import Scores
from ..metrics.arrays import Array
from ..runs.calibration import REFERENCE_ROWS, Calibration, neighbour_distance

_AT_ONCE = 500  # rows between two signs of progress
_CALIBRATION_ROWS = 5_000
_FAR = 1e6  # in the model's units: standard deviations
_ANY_TROUBLE = (NumericalError, ValueError, RuntimeError)  # which NaN leads to inside of torch and zuko
_FOLDS, _LEAST_FOLDS = 8, 4


@dataclass(frozen=True)
class Score:
    """One score of every row.

    Attributes:
        name: on the command line, in files and in Python.
        label: in tables and figures.
        unit: of its values, for the axis of a figure.
        higher_is_usual: its direction; where it is false, larger values are more unusual.
        value: (scores of a pass, calibration) → (N,).
        calibrated: whether it needs a calibration, which is None for ``value`` otherwise.
        model_units: whether it is in the model's units, and so left out where these are those of the data.
        written: whether ``rnf score`` writes a column of it.
        ambient: whether it needs a density in R^D, which models of version 0.1 lack.
    """

    name: str
    label: str
    unit: str
    higher_is_usual: bool
    value: Callable[[Scores, Calibration], ArrayLike]
    calibrated: bool = False
    model_units: bool = False
    written: bool = True
    ambient: bool = False

    def applies(self, flow: Model, calibration: Calibration | None) -> bool:
        """Whether the model has what it needs."""
        return (calibration is not None or not self.calibrated) and (flow.scatter is not None or not self.ambient)

    def __call__(self, scores: Scores, calibration: Calibration | None = None) -> Array:
        """Of every row, (N,), in float64."""
        if self.calibrated and calibration is None:
            raise ValueError(f"{self.name} needs a calibration: the scores of rows that were held out of training")
        if self.ambient and bool(scores.ambient_log_prob.isnan().all()):
            raise ValueError(f"{self.name} needs a density in all columns, which this model was saved without")
        return np.asarray(self.value(scores, calibration), dtype=np.float64)  # type: ignore[arg-type]


SCORES: dict[str, Score] = {}
"""All scores by name, in the order in which they are shown."""


def register_score(score: Score) -> None:
    """Add a score to the table; from then on every command shows it.

    Raises:
        ValueError: there is one of that name.

    Example:
        >>> depth = Score("radius", "distance of the coordinates from 0", "", False, lambda s, _: s.z.norm(dim=1))
        >>> register_score(depth)
        >>> SCORES.pop("radius").higher_is_usual
        False
    """
    if score.name in SCORES:
        raise ValueError(f"there is a score {score.name!r} already; choose another name")
    SCORES[score.name] = score


def _typicality(scores: Scores, calibration: Calibration) -> Array:
    """|log p − mean log p of held-out rows|: densities that are too high are suspect as well (arXiv:1906.02994)."""
    distance: Array = np.abs(calibration.pair(scores)[0] - calibration.log_density.mean())
    return distance


for _score in (
    Score("log_density", "log-density", "nats, data units", True, lambda s, _: s.log_prob),
    Score(
        "log_density_model",
        "log-density, model units",
        "nats, model units",
        True,
        lambda s, _: s.model_log_prob,
        model_units=True,
        written=False,
    ),
    Score(
        "reconstruction_error", "reconstruction error", "squared, data units", False, lambda s, _: s.squared_distance
    ),
    Score(
        "reconstruction_error_model",
        "reconstruction error, model units",
        "squared, model units",
        False,
        lambda s, _: s.model_squared_distance,
        model_units=True,
        written=False,
    ),
    Score(
        "log_density_ambient",
        "log-density in all columns",
        "nats, data units",
        True,
        lambda s, _: s.ambient_log_prob,
        ambient=True,
    ),
    Score(
        "outlier_score",
        "outlier score",
        "−log of a tail probability",
        False,
        lambda s, calibration: calibration.outlier_score(s),
        calibrated=True,
    ),
    Score(
        "p_value",
        "p-value",
        "share of usual rows that are as unusual",
        True,
        lambda s, calibration: calibration.p_value(calibration.outlier_score(s)),
        calibrated=True,
    ),
    Score("typicality", "typicality", "|log p − mean|, nats", False, _typicality, calibrated=True, written=False),
):
    register_score(_score)


def score_rows(
    flow: Model,
    rows: Rows,
    *,
    check: bool = False,
    tick: Callable[[int], None] | None = None,
    at_once: int | None = None,
) -> Scores:
    """One pass over the rows, in batches, on the CPU; where the model overflows, log-densities are −∞ and distances ∞.

    Args:
        flow: the model.
        rows: (N, *data_shape).
        check: warn where the model is not numerically invertible.
        tick: called with the number of rows after each batch.
        at_once: most rows of a batch; None: few, so that there are many signs of progress.
    """
    step = min(at_once or _AT_ONCE, flow.rows_at_once())
    parts = []
    for start in range(0, len(rows), step):
        parts.append(_score_batch(flow, take(rows, slice(start, start + step), flow.device, flow.row_dtype), check))
        if tick is not None:
            tick(len(parts[-1].z))
    found = Scores(**{name: value.cpu() for name, value in vars(Scores.cat(parts)).items()})
    names = [
        "log_prob",
        "model_log_prob",
        *(["ambient_log_prob", "smooth_log_prob"] if flow.scatter is not None else []),
    ]
    densities = {name: getattr(found, name) for name in names}
    distances = {name: getattr(found, name) for name in ("squared_distance", "model_squared_distance")}
    return replace(
        found,
        **{name: torch.where(value.isfinite(), value, -torch.inf) for name, value in densities.items()},
        **{name: value.nan_to_num(torch.inf, torch.inf) for name, value in distances.items()},
    )


def _score_batch(
    flow: Model, x: torch.Tensor, check: bool, trouble: tuple[type[Exception], ...] = (NumericalError,)
) -> Scores:
    far = _far(flow, x) if check else x.new_zeros(len(x), dtype=torch.bool)
    if bool(far.any()):  # what is not invertible there says nothing about the model
        parts = [
            _score_batch(flow, x[far], False),
            *([_score_batch(flow, x[~far], True)] if bool((~far).any()) else []),
        ]
        order = torch.argsort(torch.cat([far.nonzero(), (~far).nonzero()]).flatten())
        return Scores(**{name: value[order] for name, value in vars(Scores.cat(parts)).items()})
    try:
        return flow.score(x, check=check)
    except trouble:
        if len(x) > 1:
            return Scores.cat([_score_batch(flow, part, check, trouble) for part in x.tensor_split(2)])
    none = torch.full((1, flow.charts[0].latent.features), torch.nan).to(x.device, flow.dtype)
    low, distance, model_distance = none[:, 0], *(torch.full((1,), torch.inf, dtype=torch.float64) for _ in range(2))
    y = torch.full((1, flow.in_model_units.ambient_dim), torch.nan).to(none)
    ambient, smooth = low.double(), low.double()
    with torch.no_grad():
        try:  # the log-volume is what fails first
            y = flow.to_model_units(x)
            if flow.scatter is not None:
                ambient, smooth = flow.ambient_log_prob(x), flow.ambient_log_prob(x, smooth=True)
            distance, model_distance = flow.reconstruction_error(x), flow.in_model_units.reconstruction_error(y)
        except trouble:
            pass
    projection, distances = (
        torch.full_like(x, torch.nan, dtype=flow.dtype),
        (distance.to(x.device), model_distance.to(x.device)),
    )
    chart = torch.zeros(1, dtype=torch.long, device=x.device)
    return Scores(none, projection, low, distances[0], low, distances[1], ambient, smooth, y.flatten(1), chart)


@torch.no_grad()
def _far(flow: Model, x: torch.Tensor) -> torch.Tensor:
    """Which rows have values so large, in the model's units, that the model may overflow, (B,)."""
    try:
        y = flow.to_model_units(x).flatten(1)
    except NumericalError:
        return torch.zeros(len(x), dtype=torch.bool, device=x.device)
    return ~(y.abs().amax(dim=1) < _FAR)


@torch.no_grad()
def calibrate(flow: Model, validation: Rows, train: Rows | None = None, most: int = _CALIBRATION_ROWS) -> Calibration:
    """What is usual, from rows held out of training.

    Few validation rows say little. Then all rows are used, cross-fitted: the density in R^D, which they were fitted to as
    well, is fitted anew without each eighth of them, and no row is its own neighbour. What the manifold itself owes to the
    rows it was trained on is taken off again: their median is no higher than that of the validation rows.

    Args:
        flow: the trained model.
        validation: rows held out of training, of which the first ``most`` are used.
        train: rows that were trained on, for the distance from known rows; without them, and for a flow without a density
            in R^D, the outlier score is that of the manifold alone.
        most: rows.
    """
    held_out = take(validation, slice(min(most, _CALIBRATION_ROWS)), flow.device, flow.row_dtype)
    if train is None or flow.scatter is None or flow.kind == "image":
        return Calibration.of(score_rows(flow, held_out))
    some = shuffled(len(train), 0)[:REFERENCE_ROWS] if len(train) > REFERENCE_ROWS else slice(None)
    known = take(train, some, flow.device, flow.row_dtype)
    if isinstance(flow, Atlas) or len(held_out) >= FEW_HELD_OUT or flow.scatter.columns is not None:
        return Calibration.of(score_rows(flow, held_out), _reference(flow, known))
    steps = discrete_steps(known.cpu())
    noisy = torch.cat([dequantised(known, steps, 0), held_out])  # as the density was fitted: see training/scatter.py
    known = torch.cat([known, held_out])
    found, at, reference = score_rows(flow, known), flow.coordinates(known), _reference(flow, known)
    values = found.smooth_log_prob.clone()
    unit = values - flow.scatter.log_prob(at, smooth=True).cpu()
    near = flow.coordinates(noisy) if bool((steps > 0).any()) else at
    count = min(_FOLDS, len(known))
    folds = torch.arange(len(known)) % count
    for fold in range(count if count >= _LEAST_FOLDS else 0):
        inside = folds == fold
        scatter = Scatter.fitted(near[~inside], near[inside], flow.scatter.latent_dim, like=flow.scatter)
        values[inside] = scatter.log_prob(at[inside]).cpu() + unit[inside]
    distance = neighbour_distance(reference, reference, themselves=True)
    return Calibration.of(replace(found, smooth_log_prob=as_held_out(values, len(held_out))), reference, distance)


def as_held_out(values: torch.Tensor, held_out: int) -> torch.Tensor:
    """Log-densities, of which the last are of rows held out: the others lowered so far that their median is no higher.

    Example:
        >>> as_held_out(torch.tensor([5.0, 7.0, 9.0, 3.0, 4.0, 5.0]), held_out=3)
        tensor([2., 4., 6., 3., 4., 5.])
    """
    seen, others = values.split([len(values) - held_out, held_out])
    if not (bool(seen.isfinite().any()) and bool(others.isfinite().any())):
        return values
    above = seen[seen.isfinite()].median() - others[others.isfinite()].median()
    return torch.cat([seen - above.clamp_min(0), others])


def _reference(flow: Model, rows: torch.Tensor) -> Array:
    """Known rows in the model's units."""
    return flow.to_model_units(rows).flatten(1).double().cpu().numpy()
