"""Tables written to files a part at a time, so that no more than one part is in memory."""

from __future__ import annotations

import csv
import gzip
import io
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from ..storage.files import replacing
from ..storage.limits import in_words
from ._arrays import load_pyarrow
from ._files import Array, DataError
from ._numbers import lines_of, texts_of

Texts = Mapping[str, Sequence[str]]
Write = Callable[[Array, Texts], None]
_CELL_BYTES = 8  # of a cell of text, at least
_TEXT_ROWS = 2**14


@contextmanager
def table_writer(
    path: Path, suffix: str, columns: Sequence[str], rows: int, kind: np.dtype[Any], texts: Sequence[str] = ()
) -> Iterator[Write]:
    """A function that adds rows to a file, which is there as a whole when all have been added, or not at all.

    Args:
        path: of the file.
        suffix: its format: one of text, '.npy', '.npz' or '.parquet'.
        columns: names of the columns of numbers.
        rows: how many there will be.
        kind: of the numbers.
        texts: names of columns of text, before the others.

    Raises:
        DataError: the file cannot be written, or another number of rows was added.
    """
    check_room(path, rows * len(columns) * (kind.itemsize if suffix.startswith((".np", ".p")) else _CELL_BYTES))
    written = 0
    try:
        with ExitStack() as stack:
            temporary = stack.enter_context(replacing(path))
            file = stack.enter_context(open(temporary, "wb"))
            make = _WRITERS.get(suffix, _text)
            add = stack.enter_context(make(file, _Table(path, columns, rows, kind, texts)))

            def write(values: Array, text: Texts) -> None:
                nonlocal written
                written += len(values)
                add(values, text)

            yield write
            if written != rows:
                raise DataError(f"Expected {rows} rows to write to '{path}'; got {written}.")
    except OSError as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"Cannot write '{path}': {error.strerror} (in folder '{path.parent}').") from error


def check_room(path: Path, count: float) -> None:
    """Refuse to begin a file that the disk has no room for."""
    try:
        free = shutil.disk_usage(path.parent).free
    except OSError:
        return
    if count > free:
        raise DataError(
            f"Cannot write '{path}': it would take {in_words(count)} or more, and {in_words(free)} are free."
        )


class _Table(NamedTuple):
    """What a file will hold."""

    path: Path
    columns: Sequence[str]
    rows: int
    kind: np.dtype[Any]
    texts: Sequence[str]


@contextmanager
def _text(file: IO[bytes], table: _Table) -> Iterator[Write]:
    packed = table.path.suffix.lower() == ".gz"
    opened: Any = gzip.GzipFile("", "wb", fileobj=file, mtime=0) if packed else file  # the same rows, the same bytes
    mark = "," if ".csv" in [suffix.lower() for suffix in table.path.suffixes[-2:]] else "\t"
    with io.TextIOWrapper(opened, encoding="utf-8", newline="") as lines:
        writer = csv.writer(lines, delimiter=mark, lineterminator="\n")
        writer.writerow([*table.texts, *table.columns])
        lines.flush()
        if table.texts:  # which may have to be quoted; numbers never
            yield lambda values, text: writer.writerows(_cells(values, text))
        else:
            yield lambda values, text: opened.writelines(lines_of(values, mark))
        lines.flush()


@contextmanager
def _npy(file: IO[bytes], table: _Table) -> Iterator[Write]:
    _npy_head(file, table)
    yield lambda values, text: _npy_part(file, values, table.kind)


@contextmanager
def _npz(file: IO[bytes], table: _Table) -> Iterator[Write]:
    """'data', 'columns' and, of columns of text, 'text', (N,) or (N, their number), as np.savez would write them."""
    kept: dict[str, list[str]] = {name: [] for name in table.texts}

    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        with archive.open("data.npy", "w", force_zip64=True) as member:
            _npy_head(member, table)

            def add(values: Array, text: Texts) -> None:
                _npy_part(member, values, table.kind)
                for name, part in text.items():
                    kept[name] += part

            yield add
        others = {"columns": np.array(table.columns, dtype=np.str_)}
        if kept:
            cells = [np.array(part, dtype=np.str_) for part in kept.values()]
            others["text"] = cells[0] if len(cells) == 1 else np.stack(cells, axis=1)
        for name, array in others.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


@contextmanager
def _parquet(file: IO[bytes], table: _Table) -> Iterator[Write]:
    arrow, parquet = load_pyarrow()
    number = arrow.from_numpy_dtype(table.kind)
    schema = arrow.schema(
        [*((name, arrow.string()) for name in table.texts), *((name, number) for name in table.columns)]
    )
    with parquet.ParquetWriter(file, schema) as writer:

        def add(values: Array, text: Texts) -> None:
            numbers = [arrow.array(np.ascontiguousarray(column)) for column in values.T]
            cells = [arrow.array(list(text[name]), arrow.string()) for name in table.texts]
            writer.write_table(arrow.Table.from_arrays([*cells, *numbers], schema=schema))

        yield add


_WRITERS: dict[str, Any] = {".npy": _npy, ".npz": _npz, ".parquet": _parquet}


def _npy_head(file: IO[bytes], table: _Table) -> None:
    shape = table.rows, len(table.columns)
    head = {"descr": np.lib.format.dtype_to_descr(table.kind), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, head)


def _npy_part(file: IO[bytes], values: Array, kind: np.dtype[Any]) -> None:
    file.write(np.ascontiguousarray(values, dtype=kind).tobytes())


def _cells(values: Array, text: Texts) -> Iterator[Sequence[str]]:
    """The rows of a text file; NaN is an empty cell."""
    for start in range(0, len(values), _TEXT_ROWS):  # as text, a number takes ten times the memory
        part = slice(start, start + _TEXT_ROWS)
        yield from zip(*(cells[part] for cells in text.values()), *map(texts_of, values[part].T), strict=True)
