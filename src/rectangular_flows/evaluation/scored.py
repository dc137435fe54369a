"""The scores of a file's rows as a file: what ``rnf score`` writes, a part of the rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .._version import __version__
from ..data.datasets import place_of
from ..data.images import images_like, picture_names
from ..data.pixels import ImageRows
from ..data.rows import take
from ..data.streams import Cells, FileRows, HeldRows, Part, RowStream
from ..data.tables import DataError, read_text_columns, table_suffix, write_parts
from ..metrics.arrays import Array
from ..runs.saved import SavedRun
from ..storage.spool import spooled
from .explain import Explanation, UnusualRow, explain
from .left_out import Broken
from .scores import SCORES, score_rows
from .totals import SHOWN, Totals, Written

AT_ONCE = 10_000
"""Rows of a part: what a row is scored with is the same, wherever the scoring begins."""


@dataclass(frozen=True, eq=False)
class ScoredRows:
    """Scores of rows.

    Attributes:
        columns: name → values, (N,): the number of each row, from 1, the scores, the coordinates, the explanation.
        texts: name → N texts: the names of the pictures of a folder, identifiers of rows.
        explanation: why rows are unusual, or None.
    """

    columns: dict[str, Array]
    texts: dict[str, list[str]]
    explanation: Explanation | None = None

    def most_unusual(self, count: int = SHOWN) -> list[UnusualRow]:
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
        rows: of shape (*data_shape); they may be on disk.
        source: where they come from.
        notes: what the reader should know.
        coordinates: whether to give the coordinates on the manifold too.
        reasons: whether to explain.
    """

    run: SavedRun
    rows: RowStream
    source: str
    notes: list[str] = field(default_factory=list)
    coordinates: bool = False
    reasons: bool = False

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of numbers."""
        return tuple(self._part(next(self.rows.parts(1)), {}).columns)

    @property
    def texts(self) -> dict[str, str]:
        """Names of the columns of text, as they are among the rows and as they are written."""
        return {name: f"id_{name}" if name in self.columns else name for name in self.rows.texts}

    @property
    def key(self) -> dict[str, Any]:
        """What the scores are made of, by the names that messages use."""
        return {
            "the data": self.rows.digest(),
            "the model": self.run.fingerprint,
            "--coordinates, --explain, --id or --drop-invalid": [list(self.columns), list(self.texts)],
            "the version of rnf or of torch": [__version__, str(torch.__version__)],
        }

    def parts(self, tick: Callable[[int], None] | None = None, start: int = 0) -> Iterator[ScoredRows]:
        """The scores of all rows, part by part.

        Args:
            tick: called with the number of rows after each batch.
            start: the first of them (0-based): a multiple of the rows of a part.
        """
        cells = self.rows.cells()
        for part in self.rows.parts(AT_ONCE, start):
            yield self._part(part, cells.at(part.numbers), tick)

    def written_texts(self, cells: Cells, numbers: Array) -> dict[str, list[str]]:
        """The texts of rows by the names under which they are written."""
        return {self.texts[name]: found for name, found in cells.at(numbers).items()}

    def _part(self, part: Part, texts: dict[str, list[str]], tick: Callable[[int], None] | None = None) -> ScoredRows:
        run, rows = self.run, take(part.rows, slice(None))
        broken = None
        if run.whole is not None:
            rows, more = rows.tensor_split([len(run.whole.seen)], dim=1)
            values = run.whole.values(rows.numpy(), dict(zip(self.rows.more, more.numpy().T, strict=True)))
            broken = Broken(run.whole, values)
        found = score_rows(run.flow, rows, check=True, tick=tick, at_once=AT_ONCE)
        given = run.flow, run.calibration
        scores = {s.name: s(found, run.calibration) for s in SCORES.values() if s.written and s.applies(*given)}
        if broken is not None:
            scores = broken.added(scores, run.calibration, scores.get("outlier_score"))
        columns: dict[str, Array] = {"row": part.numbers, **scores}
        if self.coordinates:
            if len(run.flow.charts) > 1:
                columns["chart"] = found.chart.double().numpy()
            columns |= {f"z{i + 1}": z.double().numpy() for i, z in enumerate(found.z.T)}
        why = explain(run.flow, run.calibration, rows, run.columns, scores=found) if self.reasons else None
        if why is not None:
            why = why if broken is None else broken.explained(why, run.calibration)
            columns |= why.table()
        return ScoredRows(columns, {f"id_{k}" if k in columns else k: v for k, v in texts.items()}, why)


Engine = Callable[[Scoring, Callable[[int], None] | None, int], Iterator[ScoredRows]]


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
    notes: list[str] = []
    rows: RowStream
    if run.flow.kind == "image":
        if ids:
            raise ValueError("--id is for tables; this is a model of images, whose files are named in any case")
        names = picture_names(source)
        texts = None if names is None else {"file": names}
        rows = HeldRows(ImageRows(images_like(source, run.flow.data_shape)), texts=texts)
    elif place_of(source) is None:
        if ids:
            raise ValueError(f"--id is for a file; got the data set {source}, which has no identifiers. Leave it out")
        rows = HeldRows(run.table(source).values)
    elif run.sphere is not None:  # small: latitudes and longitudes become three columns
        table = run.table(source, drop_invalid)
        index = slice(None) if table.kept is None else table.kept - 1
        texts = (
            {k: np.array(v, object)[index].tolist() for k, v in read_text_columns(source, ids).items()} if ids else {}
        )
        rows = HeldRows(table.values, table.kept, texts, table.dropped)
    else:
        rows = _rows_of_file(run, source, drop_invalid, ids)
        if missing := [name for name in (() if run.whole is None else run.whole.others) if name not in rows.more]:
            these = ", ".join(f"'{name}'" for name in missing)
            notes.append(f"not looked at, since they are not in the file or have cells that are no numbers: {these}")
    if rows.dropped:
        left_out = f"{rows.dropped} of {rows.dropped + len(rows)} rows have missing or infinite values"
        notes.append(f"{left_out} and were left out; the column 'row' says which are left, from 1")
    if reasons and run.sphere is not None:
        raise ValueError("--explain is for tables: a latitude and a longitude are one place. Leave it out")
    if run.calibration is None:
        how = f"the run was not finished: rnf fit --resume {run.path}" if run.trained else "it was saved without one"
        notes.append(f"no outlier_score, which needs a calibration; {how}")
    return Scoring(run, rows, source, notes, coordinates, reasons)


def _rows_of_file(run: SavedRun, source: str, drop_invalid: bool, ids: Sequence[str]) -> FileRows:
    """The rows of a file; with columns left out of the model, unless these have cells that are no numbers."""
    if run.whole is not None:
        try:
            rows = FileRows(source, run.columns, drop_invalid, ids, run.whole.names)
        except DataError:
            rows = None
        if rows is not None and not rows.dropped:
            return rows
    plain = FileRows(source, run.columns, drop_invalid, ids)
    return plain if run.whole is None or rows is None or plain.dropped < rows.dropped else rows


def write_scores(
    scoring: Scoring,
    path: Path,
    tick: Callable[[int], None] | None = None,
    *,
    resume: bool = False,
    restart: bool = False,
    resumed: Callable[[int], None] | None = None,
    engine: Engine | None = None,
) -> Written:
    """Score rows and write the scores as a table, by the suffix of the path, with few of them in memory at a time.

    Scores are kept in ``PATH.partial`` until there are all of them, and then written. After a crash or Ctrl-C the same call
    with ``resume`` continues there, and the file is the same, bit for bit, as one that was written without interruption.

    Args:
        scoring: the rows.
        path: of the file, which is written as a whole or not at all.
        tick: called with the number of rows after each batch.
        resume: continue where unfinished work stopped, if there is any.
        restart: throw it away, if there is any.
        resumed: called with the number of rows that were done before, if there are any.
        engine: what scores them, with the arguments of :meth:`Scoring.parts`; None: this process.

    Raises:
        UnfinishedError: it is of other data, another model or other options; or neither was asked for.
    """
    table_suffix(path)
    if path.exists() and Path(scoring.source).exists() and path.samefile(scoring.source):
        raise DataError(f"The scores would replace the rows that they are of: '{path}'. Choose another file with -o.")
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = scoring.columns
    with spooled(path, len(columns), scoring.key, resume=resume, restart=restart) as spool:
        totals = Totals.of(spool.state)
        if resumed is not None and spool.rows:
            resumed(spool.rows)
        for part in (engine or Scoring.parts)(scoring, tick, spool.rows):
            totals = totals.plus(part.columns, part.most_unusual())
            spool.add(np.stack(list(part.columns.values()), axis=1), asdict(totals))
        cells, names = scoring.rows.cells(), tuple(scoring.texts.values())
        with write_parts(path, columns, spool.rows, np.dtype(np.float64), names) as write:
            for values in spool.parts(AT_ONCE):
                write(values, scoring.written_texts(cells, values[:, 0]))
    return Written(spool.rows, totals, [*totals.notes, *scoring.notes])
