"""The scores of a file's rows as a file: what ``rnf score`` writes, a part of the rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..data.datasets import place_of
from ..data.images import images_like, picture_names
from ..data.pixels import ImageRows
from ..data.rows import Rows, take
from ..data.tables import DataError, forget, read_text_columns, write_parts, write_table
from ..metrics.arrays import Array
from ..runs.saved import SavedRun
from .explain import Explanation, UnusualRow, explain
from .scores import SCORES, score_rows

_AT_ONCE = 10_000  # rows of a part
_SHOWN = 5  # unusual rows


@dataclass(frozen=True, eq=False)
class ScoredRows:
    """Scores of rows.

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

    def most_unusual(self, count: int = _SHOWN) -> list[UnusualRow]:
        """The most unusual rows and why; none without an explanation."""

        def name(row: int) -> str:
            ids = "; ".join(f"{column} {cells[row]}" for column, cells in self.texts.items())
            return f"row {self.columns['row'][row]:.0f}" + (f" ({ids})" if ids else "")

        return [] if self.explanation is None else self.explanation.most_unusual(count, name)


@dataclass(frozen=True, eq=False)
class Scoring:
    """Rows to be scored: those of a file, matched with the columns of a run by name.

    Attributes:
        run: a run, or a saved estimator or detector.
        rows: (N, *data_shape); they may be on disk.
        numbers: of the rows in their file, from 1, (N,); None where these are all.
        texts: name → N texts.
        notes: what the reader should know.
        coordinates: whether to give the coordinates on the manifold too.
        reasons: whether to explain.
    """

    run: SavedRun
    rows: Rows
    numbers: Array | None
    texts: dict[str, list[str]]
    notes: list[str] = field(default_factory=list)
    coordinates: bool = False
    reasons: bool = False

    def parts(self, tick: Callable[[int], None] | None = None) -> Iterator[ScoredRows]:
        """The scores of all rows, part by part.

        Args:
            tick: called with the number of rows after each batch.
        """
        for start in range(0, len(self.rows), _AT_ONCE):
            yield self.part(slice(start, start + _AT_ONCE), tick)
            forget(self.rows)

    def part(self, which: slice, tick: Callable[[int], None] | None = None) -> ScoredRows:
        """Of some rows."""
        run, rows = self.run, take(self.rows, which)
        found = score_rows(run.flow, rows, check=True, tick=tick)
        first = which.start + 1.0
        numbers = np.arange(first, first + len(rows)) if self.numbers is None else self.numbers[which]
        columns: dict[str, Array] = {"row": numbers}
        for score in SCORES.values():
            if score.written and score.applies(run.flow, run.calibration):
                columns[score.name] = score(found, run.calibration)
        if self.coordinates:
            columns |= {f"z{i + 1}": z.double().numpy() for i, z in enumerate(found.z.T)}
        why = explain(run.flow, run.calibration, rows, run.columns, scores=found) if self.reasons else None
        if why is not None:
            columns |= why.table()
        texts = {f"id_{k}" if k in columns else k: v[which] for k, v in self.texts.items()}
        return ScoredRows(columns, texts, [], why)


@dataclass(frozen=True)
class Written:
    """What there is to say of scores that were written.

    Attributes:
        rows: how many.
        means: of the log-density and the reconstruction error of the rows where both are finite.
        notes: what the reader should know.
        most_unusual: rows, and why.
    """

    rows: int
    means: dict[str, float]
    notes: list[str]
    most_unusual: list[UnusualRow]


def open_scoring(
    run: SavedRun,
    source: str,
    *,
    drop_invalid: bool = False,
    coordinates: bool = False,
    ids: Sequence[str] = (),
    reasons: bool = False,
) -> Scoring:
    """Other rows, to be scored by a run.

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
    images, notes = run.flow.kind == "image", []
    names = picture_names(source) if images else None
    texts: dict[str, list[str]] = {} if names is None else {"file": names}
    rows: Rows
    numbers: Array | None = None
    if images:
        if ids:
            raise ValueError("--id is for tables; this is a model of images, whose files are named in any case")
        rows = ImageRows(images_like(source, run.flow.data_shape))
    else:
        table = run.table(source, drop_invalid)
        rows = table.values
        if table.kept is not None:
            numbers = table.kept.astype(np.float64)
            left_out = f"{table.dropped} of {table.dropped + len(rows)} rows have missing or infinite values"
            notes.append(f"{left_out} and were left out; the column 'row' says which are left, from 1")
        texts = _identifiers(source, ids, numbers, len(rows) + table.dropped)
    if reasons and run.sphere is not None:
        raise ValueError("--explain is for tables: a latitude and a longitude are one place. Leave it out")
    if run.calibration is None:
        how = f"the run was not finished: rnf fit --resume {run.path}" if run.trained else "it was saved without one"
        notes.append(f"no outlier_score, which needs a calibration; {how}")
    return Scoring(run, rows, numbers, texts, notes, coordinates, reasons)


def score_file(
    run: SavedRun,
    source: str,
    *,
    drop_invalid: bool = False,
    coordinates: bool = False,
    ids: Sequence[str] = (),
    reasons: bool = False,
) -> ScoredRows:
    """Every written score of other rows, all in memory; the arguments are those of :func:`open_scoring`."""
    options = {"drop_invalid": drop_invalid, "coordinates": coordinates, "reasons": reasons}
    scoring = open_scoring(run, source, ids=ids, **options)
    parts = list(scoring.parts())
    columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in parts[0].columns}
    texts = {name: [cell for part in parts for cell in part.texts[name]] for name in parts[0].texts}
    why = [part.explanation for part in parts if part.explanation is not None]
    notes = [*_far(int(_broken(columns).sum())), *scoring.notes]
    return ScoredRows(columns, texts, notes, Explanation.cat(why) if why else None)


def write_scores(scoring: Scoring, path: Path, tick: Callable[[int], None] | None = None) -> Written:
    """Score rows and write the scores as a table, by the suffix of the path, with few of them in memory at a time.

    Args:
        scoring: the rows.
        path: of the file, which is written as a whole or not at all.
        tick: called with the number of rows after each batch.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    first, unusual = scoring.part(slice(0, 1)), list[UnusualRow]()
    names = ("log_density", "reconstruction_error")
    total, broken, count = dict.fromkeys(names, 0.0), 0, len(scoring.rows)
    with write_parts(path, list(first.columns), count, np.dtype(np.float64), tuple(first.texts)) as write:
        for part in scoring.parts(tick):
            write(np.stack(list(part.columns.values()), axis=1), part.texts)
            fine = ~_broken(part.columns)
            broken += int((~fine).sum())
            for name in names:
                total[name] += float(part.columns[name][fine].sum())
            unusual = sorted([*unusual, *part.most_unusual()], key=lambda row: -row.score)[:_SHOWN]
    means = {name: value / (count - broken) if count > broken else float("nan") for name, value in total.items()}
    return Written(count, means, [*_far(broken), *scoring.notes], unusual)


def _broken(columns: dict[str, Array]) -> NDArray[np.bool_]:
    """Rows for which the model overflows."""
    return ~(np.isfinite(columns["log_density"]) & np.isfinite(columns["reconstruction_error"]))


def _far(count: int) -> list[str]:
    if not count:
        return []
    return [
        f"no finite log-density under the model: {count} row{'s' * (count != 1)}, far from its data. Log-density -inf, and "
        "the smallest p-value there is; the means are those of the other rows"
    ]


def _identifiers(source: str, ids: Sequence[str], numbers: Array | None, total: int) -> dict[str, list[str]]:
    """The texts of columns of a file, for the rows of these numbers."""
    if not ids:
        return {}
    if place_of(source) is None:
        raise ValueError(f"--id is for a file; got the data set {source}, which has no identifiers. Leave it out")
    texts = read_text_columns(source, ids)
    for name, cells in texts.items():
        if len(cells) != total:
            raise DataError(f"Expected {total} identifiers in column '{name}' of '{source}'; got {len(cells)}.")
    if numbers is None:
        return texts
    return {name: [cells[i - 1] for i in numbers.astype(int)] for name, cells in texts.items()}
