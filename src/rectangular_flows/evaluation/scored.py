"""The scores of a file's rows as a file: what ``rnf score`` writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from ..data.images import picture_names
from ..data.tables import DataError, read_text_columns, write_table
from ..metrics.arrays import Array
from ..runs.saved import SavedRun
from .explain import Explanation, UnusualRow, explain
from .scores import SCORES, score_rows


@dataclass(frozen=True, eq=False)
class ScoredRows:
    """What ``rnf score`` writes.

    Attributes:
        columns: name → values, (N,): the number of each row, from 1, the scores, the coordinates, the explanation.
        texts: name → N texts: the names of the pictures of a folder, identifiers of rows.
        notes: what the reader should know.
        explanation: why rows are unusual, or None.
    """

    columns: dict[str, Array]
    texts: dict[str, list[str]]
    notes: list[str]
    explanation: Explanation | None = None

    def write(self, path: Path) -> None:
        """As a table, by the suffix of the path."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_table(path, list(self.columns), np.stack(list(self.columns.values()), axis=1), text=self.texts)

    def most_unusual(self, count: int = 5) -> list[UnusualRow]:
        """The most unusual rows and why; none without an explanation."""

        def name(row: int) -> str:
            ids = "; ".join(f"{column} {cells[row]}" for column, cells in self.texts.items())
            return f"row {self.columns['row'][row]:.0f}" + (f" ({ids})" if ids else "")

        return [] if self.explanation is None else self.explanation.most_unusual(count, name)


def score_file(
    run: SavedRun,
    source: str,
    *,
    drop_invalid: bool = False,
    coordinates: bool = False,
    ids: Sequence[str] = (),
    reasons: bool = False,
) -> ScoredRows:
    """Every written score of other rows, matched with the columns of a run by name.

    Args:
        run: a run, or a saved estimator or detector.
        source: see :meth:`SavedRun.rows <rectangular_flows.SavedRun.rows>`.
        drop_invalid: leave out rows with missing or infinite values.
        coordinates: also the coordinates on the manifold, z1, z2, …
        ids: columns of the file to keep as they stand, text or numbers.
        reasons: also what each column adds to the outlier score, and the nearest typical point.

    Raises:
        ValueError: the rows do not match, or something is asked for that the run or the file has not.
    """
    flow, images, notes = run.flow, run.flow.kind == "image", []
    names = picture_names(source) if images else None
    texts: dict[str, list[str]] = {} if names is None else {"file": names}
    if images:
        if ids:
            raise ValueError("--id is for tables; this is a model of images, whose files are named in any case")
        rows = run.rows(source)
        numbers = np.arange(1.0, len(rows) + 1)
    else:
        table = run.table(source, drop_invalid)
        rows = torch.from_numpy(np.array(table.values)).to(flow.dtype)
        numbers = np.arange(1.0, len(rows) + 1) if table.kept is None else table.kept.astype(np.float64)
        if table.kept is not None:
            left_out = f"{table.dropped} of {table.dropped + len(rows)} rows have missing or infinite values"
            notes.append(f"{left_out} and were left out; the column 'row' says which are left, from 1")
        texts = _identifiers(source, ids, numbers, len(rows) + table.dropped)
    if reasons and run.sphere is not None:
        raise ValueError("--explain is for tables: a latitude and a longitude are one place. Leave it out")
    columns: dict[str, Array] = {"row": numbers}
    found = score_rows(flow, rows, check=True)
    broken = int((~found.log_prob.isfinite()).sum())
    if broken:
        notes.append(f"{broken} rows have no finite log-density under the model: they are far from its data")
    if run.calibration is None:
        how = f"the run was not finished: rnf fit --resume {run.path}" if run.trained else "it was saved without one"
        notes.append(f"no outlier_score, which needs a calibration; {how}")
    for score in SCORES.values():
        if score.written and score.applies(flow, run.calibration):
            columns[score.name] = score(found, run.calibration)
    if coordinates:
        columns |= {f"z{i + 1}": z.double().numpy() for i, z in enumerate(found.z.T)}
    why = explain(flow, run.calibration, rows, run.columns, scores=found) if reasons else None
    if why is not None:
        columns |= why.table()
    return ScoredRows(columns, {f"id_{k}" if k in columns else k: v for k, v in texts.items()}, notes, why)


def _identifiers(source: str, ids: Sequence[str], numbers: Array, total: int) -> dict[str, list[str]]:
    """The texts of columns of a file, for the rows of these numbers."""
    if not ids:
        return {}
    if not Path(source).exists():
        raise ValueError(f"--id is for a file; got the data set {source}, which has no identifiers. Leave it out")
    texts = read_text_columns(source, ids)
    for name, cells in texts.items():
        if len(cells) != total:
            raise DataError(f"Expected {total} identifiers in column '{name}' of '{source}'; got {len(cells)}.")
    return {name: [cells[i - 1] for i in numbers.astype(int)] for name, cells in texts.items()}
