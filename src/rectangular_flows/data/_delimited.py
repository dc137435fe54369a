"""Tables as text: CSV and its relatives.

pyarrow's parser, if it is installed, or else numpy's reads every plain file. Where they give up, Python reads what is merely
unusual or says which line and column are wrong.
"""

from __future__ import annotations

import csv
import gzip
import importlib.util
import io
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TextIO

import numpy as np

from ._files import Array, DataError, as_option, check_names, check_width
from ._npy import after
from ._packed import open_gzip
from ._table_file import TableFile

_MISSING = frozenset({"", "NA", "N/A", "null", "NULL", "None"})
_SNIFFED_LINES = 10
_LONGEST_LINE = 2**26
_AT_ONCE = 2**14  # rows
_SMALL_BYTES, _BLOCK_BYTES = 2**20, 2**20  # for a small file, pyarrow takes longer to import than to read


@dataclass(frozen=True)
class _Layout:
    """What the first lines of a file show."""

    delimiter: str | None  # None: runs of white space
    names: tuple[str, ...]  # of the columns, without an empty one after a trailing delimiter
    line: int  # number of the line that shows how many columns there are: the header, or the first row
    named: bool  # whether there is a header


class TextFile(TableFile):
    """A table as text; its values are float64, and an empty cell is NaN."""

    row_name = "line"

    def __init__(self, path: Path, suffix: str):
        self.path = path
        with _readable(path):
            self._layout = _look(path, suffix)
        self.columns, self.named = self._layout.names, self._layout.named
        large = path.stat().st_size > _SMALL_BYTES and importlib.util.find_spec("pyarrow") is not None
        self._readers: list[_Reader] = [*([_by_arrow] if large else []), _plain, _careful]

    def number(self, row: int) -> int:
        return next(islice(_data(self.path, self._layout), row, None))[0]

    def parts(self, order: Sequence[int]) -> Iterator[Array]:
        """As :meth:`TableFile.parts`. A reader that gives up has read what the next, more patient one then skips."""
        done = 0
        with _readable(self.path):
            while True:
                try:
                    for part in after(self._readers[0](self.path, self._layout, order), done):
                        done += len(part)
                        yield part
                    return
                except _UnusualError:
                    self._readers = self._readers[1:]

    def cells(self, order: Sequence[int]) -> Iterator[tuple[str, ...]]:
        width = len(self.columns)
        with _readable(self.path):
            for _, cells in _data(self.path, self._layout):
                if len(cells) < width:
                    raise DataError(f"'{self.path}': expected {width} cells in every row; got {len(cells)} in one.")
                yield tuple(cells[i].strip() for i in order)


class _UnusualError(ValueError):
    """There is something in the file that a quick reader does not take."""


_Reader = Callable[[Path, _Layout, Sequence[int]], Iterator[Array]]


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Errors of files that are not text, as ours."""
    try:
        yield
    except UnicodeDecodeError as error:
        where = f"{error.reason}, byte {error.start}"
        raise DataError(f"'{path}' is not UTF-8 text ({where}). Save it as UTF-8.") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"'{path}' is not a whole gzip file: {error}. Compress or copy it again.") from error
    except csv.Error as error:
        long = f"it has a cell of more than {csv.field_size_limit():,} characters"
        reason = long if "field limit" in str(error) else str(error)
        raise DataError(f"'{path}' is not a text table: {reason}.") from error


def cell_value(cell: str) -> float | None:
    """The number in a cell: NaN if it is empty or marked as missing, None if it holds text."""
    try:
        return None if "_" in cell else float(cell)  # in Python 1_000 is a number
    except ValueError:
        return float("nan") if cell.strip() in _MISSING else None


def _open(path: Path) -> TextIO:
    if path.name.lower().endswith(".gz"):
        return io.TextIOWrapper(open_gzip(path), encoding="utf-8-sig", newline="")
    return open(path, encoding="utf-8-sig", newline="")


def _lines(file: TextIO, path: Path) -> Iterator[str]:
    """The lines of a file, none of which is so long that it would fill the memory."""
    while line := file.readline(_LONGEST_LINE):
        if len(line) >= _LONGEST_LINE:
            raise DataError(f"'{path}' is not a text table: it has a line of more than {_LONGEST_LINE:,} characters.")
        yield line


def _rows(lines: Iterable[str], delimiter: str | None) -> Iterator[tuple[int, list[str]]]:
    """(line number, cells) of every line that is neither blank nor a comment.

    A line that begins with # is a comment before the table; inside the table only if it has another number of
    delimiters than the first line, since '#7' may be a name. In a table without delimiters (white space), what follows
    # is a comment, as for numpy.
    """
    count = 0

    def content() -> Iterator[str]:
        nonlocal count
        marks = None  # delimiters in the first line of the table
        for line in lines:
            count += 1
            if delimiter is None:
                line = line.split("#", 1)[0]
            elif line.startswith("#") and marks != _outside_quotes(line, delimiter):
                continue
            if line.strip(None if marks is None else " \r\n"):  # in the table, a line of tabs is a row of missing cells
                marks = _outside_quotes(line, delimiter) if delimiter and marks is None else marks
                yield line

    rows: Iterator[list[str]] = map(str.split, content())
    if delimiter is not None:
        rows = csv.reader(content(), delimiter=delimiter, skipinitialspace=True)
    for cells in rows:
        yield count, cells


def _look(path: Path, suffix: str) -> _Layout:
    with _open(path) as file:
        if "\0" in file.read(4096):
            raise DataError(f"'{path}' is not text: it holds zero bytes. Save it as UTF-8 text, or check the suffix.")
    with _open(path) as file:
        content = (line for line in _lines(file, path) if line.strip() and not line.startswith("#"))
        delimiter = _sniff(list(islice(content, _SNIFFED_LINES)), suffix)
    with _open(path) as file:
        rows = list(islice(_rows(_lines(file, path), delimiter), _SNIFFED_LINES))
    if not rows:
        raise DataError(f"Expected a table; '{path}' has only blank lines and comments.")
    line, cells = rows[0]
    named = any(cell_value(cell) is None for cell in cells)
    if named and len(rows) == 1:
        raise DataError(f"Expected rows of numbers; '{path}' has a header (line {line}) and no rows.")
    # an empty last cell is a trailing delimiter only if all rows, or the header and the first row, have one
    ends = [row for _, row in rows[: 2 if named else None]]
    if len(cells) > 1 and not any(row[-1].strip() for row in ends) and (named or len(set(map(len, ends))) == 1):
        cells = cells[:-1]
    check_width(len(cells), f"'{path}'")
    names = tuple((cell.strip() if named else "") or f"x{i + 1}" for i, cell in enumerate(cells))
    check_names(names, f"'{path}', line {line},")
    return _Layout(delimiter, names, line, named)


def _sniff(lines: Sequence[str], suffix: str) -> str | None:
    """The delimiter that occurs equally often in each of the first lines; else the most frequent in the first line."""
    if suffix == ".tsv":
        return "\t"
    counts = {mark: [_outside_quotes(line, mark) for line in lines] for mark in ("\t", ";", ",")}
    found = {mark: (len(set(count)) == 1, count[0]) for mark, count in counts.items() if any(count[:1])}
    regular = [mark for mark, (same, _) in found.items() if same]
    if found:
        return regular[0] if regular else max(found, key=lambda mark: found[mark])
    return "," if suffix == ".csv" else None


def _outside_quotes(line: str, mark: str) -> int:
    return sum(part.count(mark) for part in line.strip("\r\n").split('"')[::2])


def _by_arrow(path: Path, layout: _Layout, kept: Sequence[int]) -> Iterator[Array]:
    """The table by pyarrow's parser, which takes less than ours do: what it takes, it reads as the others do."""
    if layout.delimiter is None or len(layout.names) < 2:  # where a line of blanks would be a row
        raise _UnusualError
    arrow, text = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.csv")
    names = [str(i) for i in range(len(layout.names))]
    chosen = [names[i] for i in kept]
    skip = layout.line - (not layout.named)
    file = open_gzip(path) if path.name.lower().endswith(".gz") else path.open("rb")
    with file:
        try:
            yield from (
                np.stack([column.to_numpy(zero_copy_only=False) for column in batch.columns], axis=1)
                for batch in text.open_csv(
                    file,
                    read_options=text.ReadOptions(
                        use_threads=False, block_size=_BLOCK_BYTES, column_names=names, skip_rows=skip
                    ),
                    parse_options=text.ParseOptions(delimiter=layout.delimiter, newlines_in_values=True),
                    convert_options=text.ConvertOptions(
                        column_types=dict.fromkeys(chosen, arrow.float64()),
                        include_columns=chosen,
                        null_values=sorted(_MISSING),
                    ),
                )
            )
        except (arrow.ArrowInvalid, arrow.ArrowNotImplementedError) as error:
            raise _UnusualError from error


def _plain(path: Path, layout: _Layout, kept: Sequence[int]) -> Iterator[Array]:
    """The table by numpy's C parser, with NaN for empty cells."""
    mark = layout.delimiter

    def lines(file: TextIO) -> Iterator[str]:
        for line in islice(_lines(file, path), layout.line - (not layout.named), None):
            line = line.strip(" \r\n")
            cells = line.split(mark)
            if not line:
                continue
            # numpy does not look at the cells that it leaves out
            if len(cells) != len(layout.names) or (mark is None and "#" in line):
                raise _UnusualError("a line with a comment, or with another number of cells")
            yield line if mark is None or "" not in cells else mark.join(cell or "nan" for cell in cells)

    with _open(path) as file:
        rest = lines(file)
        while some := list(islice(rest, _AT_ONCE)):
            try:
                part = np.loadtxt(some, comments=None, delimiter=mark, usecols=kept, ndmin=2, quotechar='"')
            except ValueError as error:
                raise _UnusualError from error
            if len(part) != len(some):
                raise _UnusualError("a cell with a line break")
            yield part


def _careful(path: Path, layout: _Layout, kept: Sequence[int]) -> Iterator[Array]:
    """The table by Python's csv module, or an error that says which line and column are wrong."""
    first: dict[int, tuple[int, str]] = {}  # column → first line with text, and the text
    texts: Counter[int] = Counter()  # column → how many cells have text
    width, total = len(layout.names), 0

    def numbers() -> Iterator[list[float | None]]:
        for line, cells in _data(path, layout):
            if len(cells) == width + 1 and not cells[-1].strip():
                cells.pop()  # trailing delimiter
            if len(cells) != width:
                raise DataError(
                    f"'{path}', line {line}: expected {width} cells, as in line {layout.line}; got {len(cells)}. "
                    "Correct that line: is a delimiter missing, or is there one too many?"
                )
            row = [cell_value(cells[i]) for i in kept]
            for i, value in zip(kept, row, strict=True) if None in row else ():
                if value is None:
                    first.setdefault(i, (line, cells[i].strip()))
                    texts[i] += 1
            yield row

    rest, kind = numbers(), np.dtype((np.float64, (len(kept),)))
    while len(part := np.fromiter(islice(rest, _AT_ONCE), dtype=kind)):
        total += len(part)
        yield part
    if not texts:
        return
    columns = sorted(texts)
    where = "; ".join(
        f"column '{layout.names[i]}' has text in {texts[i]} of {total} rows (first: '{first[i][1][:30]}' in line "
        f"{first[i][0]})"
        for i in columns[:5]
    )
    more = f"; and {len(columns) - 5} more columns" if len(columns) > 5 else ""
    if all(text.count(",") == 1 and cell_value(text.replace(",", ".")) is not None for _, text in first.values()):
        advice = "These look like decimal commas: use decimal points."
    else:
        names = [layout.names[i] for i in columns]
        advice = f"Correct those cells, or leave the columns out: --exclude {as_option(names)}."
    raise DataError(f"Expected only numbers; in '{path}' {where}{more}. {advice}")


def _data(path: Path, layout: _Layout) -> Iterator[tuple[int, list[str]]]:
    with _open(path) as file:
        yield from islice(_rows(_lines(file, path), layout.delimiter), int(layout.named), None)
