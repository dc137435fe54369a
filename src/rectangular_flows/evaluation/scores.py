"""The one table of scores: what a row can be given, by which name, in which units, and whether high or low is usual.

Every command, the report, the estimator and the detector take their scores from here, out of one pass over the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike

from ..data.images import picture_names
from ..data.rows import Rows, take
from ..data.tables import write_table
from ..errors import NumericalError
from ..manifold import RectangularFlow, Scores
from ..metrics.arrays import Array
from ..runs.calibration import Calibration
from ..runs.saved import SavedRun

_AT_ONCE = 500  # rows between two signs of progress
_CALIBRATION_ROWS = 5_000


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
    """

    name: str
    label: str
    unit: str
    higher_is_usual: bool
    value: Callable[[Scores, Calibration], ArrayLike]
    calibrated: bool = False
    model_units: bool = False
    written: bool = True

    def __call__(self, scores: Scores, calibration: Calibration | None = None) -> Array:
        """Of every row, (N,), in float64."""
        if self.calibrated and calibration is None:
            raise ValueError(f"{self.name} needs a calibration: the scores of rows that were held out of training")
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
        "outlier_score",
        "outlier score",
        "−log of two tail probabilities",
        False,
        lambda s, calibration: -calibration.combined(*calibration.pair(s)),
        calibrated=True,
    ),
    Score("typicality", "typicality", "|log p − mean|, nats", False, _typicality, calibrated=True, written=False),
):
    register_score(_score)


def score_rows(
    flow: RectangularFlow, rows: Rows, *, check: bool = False, tick: Callable[[int], None] | None = None
) -> Scores:
    """One pass over the rows, in batches, on the CPU; where the model overflows, log-densities are −∞ and distances ∞.

    Args:
        flow: the model.
        rows: (N, *data_shape).
        check: warn where the model is not numerically invertible.
        tick: called with the number of rows after each batch.
    """
    step = min(_AT_ONCE, flow.rows_at_once())
    parts = []
    for start in range(0, len(rows), step):
        parts.append(_score_batch(flow, take(rows, slice(start, start + step), flow.device, flow.dtype), check))
        if tick is not None:
            tick(len(parts[-1].z))
    found = Scores(**{name: value.cpu() for name, value in vars(Scores.cat(parts)).items()})
    densities = {name: getattr(found, name) for name in ("log_prob", "model_log_prob")}
    distances = {name: getattr(found, name) for name in ("squared_distance", "model_squared_distance")}
    return replace(
        found,
        **{name: torch.where(value.isfinite(), value, -torch.inf) for name, value in densities.items()},
        **{name: value.nan_to_num(torch.inf, torch.inf) for name, value in distances.items()},
    )


def _score_batch(flow: RectangularFlow, x: torch.Tensor, check: bool) -> Scores:
    try:
        return flow.score(x, check=check)
    except NumericalError:
        if len(x) > 1:
            return Scores.cat([_score_batch(flow, part, check) for part in x.tensor_split(2)])
    none = torch.full((1, flow.latent_dim), torch.nan).to(x)
    low, distance, model_distance = none[:, 0], *(torch.full((1,), torch.inf, dtype=torch.float64) for _ in range(2))
    with torch.no_grad():
        try:  # the log-volume is what fails first
            y = flow.to_model_units(x)
            distance, model_distance = flow.reconstruction_error(x), flow.in_model_units.reconstruction_error(y)
        except NumericalError:
            pass
    return Scores(none, torch.full_like(x, torch.nan), low, distance.to(x.device), low, model_distance.to(x.device))


def calibrate(flow: RectangularFlow, validation: Rows, most: int = _CALIBRATION_ROWS) -> Calibration:
    """What is usual, from the first validation rows, at most ``most`` of them."""
    return Calibration.of(score_rows(flow, take(validation, slice(min(most, _CALIBRATION_ROWS)))))


@dataclass(frozen=True, eq=False)
class ScoredRows:
    """What ``rnf score`` writes.

    Attributes:
        columns: name → values, (N,): the number of each row where some were left out, the scores, the coordinates.
        files: the names of the pictures of a folder, or None.
        notes: what the reader should know.
    """

    columns: dict[str, Array]
    files: list[str] | None
    notes: list[str]

    def write(self, path: Path) -> None:
        """As a table, by the suffix of the path."""
        path.parent.mkdir(parents=True, exist_ok=True)
        text = None if self.files is None else ("file", self.files)
        write_table(path, list(self.columns), np.stack(list(self.columns.values()), axis=1), text=text)


def score_file(run: SavedRun, source: str, *, drop_invalid: bool = False, coordinates: bool = False) -> ScoredRows:
    """Every written score of other rows, matched with the columns of a run by name.

    Args:
        run: a run, or a saved estimator or detector.
        source: see :meth:`SavedRun.rows <rectangular_flows.SavedRun.rows>`.
        drop_invalid: leave out rows with missing or infinite values.
        coordinates: also the coordinates on the manifold, z1, z2, …
    """
    flow, images, columns, notes = run.flow, run.flow.kind == "image", {}, []
    if images:
        rows = run.rows(source)
    else:
        table = run.table(source, drop_invalid)
        rows = torch.from_numpy(np.array(table.values)).to(flow.dtype)
        if table.kept is not None:  # which of the rows of the file these are
            columns["row"] = table.kept
            left_out = f"{table.dropped} of {table.dropped + len(rows)} rows have missing or infinite values"
            notes.append(f"{left_out} and were left out; the column 'row' says which are left, from 1")
    found = score_rows(flow, rows, check=True)
    broken = int((~found.log_prob.isfinite()).sum())
    if broken:
        notes.append(f"{broken} rows have no finite log-density under the model: they are far from its data")
    if run.calibration is None:
        how = f"the run was not finished: rnf fit --resume {run.path}" if run.trained else "it was saved without one"
        notes.append(f"no outlier_score, which needs a calibration; {how}")
    for score in SCORES.values():
        if score.written and (run.calibration is not None or not score.calibrated):
            columns[score.name] = score(found, run.calibration)
    if coordinates:
        columns |= {f"z{i + 1}": z.double().numpy() for i, z in enumerate(found.z.T)}
    return ScoredRows(columns, picture_names(source) if images else None, notes)
