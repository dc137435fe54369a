"""Tables as text: CSV and its relatives.

numpy's C parser reads every plain file. Where it gives up, a second pass in Python reads what is merely unusual or says
which line and column are wrong.
"""

from __future__ import annotations

import csv
import gzip
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

from ._arrays import Choose
from ._files import Array, DataError, as_option, check_names, check_width
from ._packed import open_gzip

_MISSING = frozenset({"", "NA", "N/A", "null", "NULL", "None"})
_SNIFFED_LINES = 10
_LONGEST_LINE = 2**26


@dataclass(frozen=True)
class _Layout:
    """What the first lines of a file show."""

    delimiter: str | None  # None: runs of white space
    names: tuple[str, ...]  # of the columns, without an empty one after a trailing delimiter
    line: int  # number of the line that shows how many columns there are: the header, or the first row
    named: bool  # whether there is a header


def read_delimited(
    path: Path, suffix: str, choose: Choose
) -> tuple[Array, tuple[str, ...], bool, Callable[[int], int]]:
    """Values in float64, the names kept, whether the file had a header, and data row (0-based) → line number."""
    with _readable(path):
        layout = _look(path, suffix)
        kept = choose(layout.names)
        values = _plain(path, layout, kept)
        if values is None:
            values = _careful(path, layout, kept)
    names = tuple(layout.names[i] for i in kept)
    return values, names, layout.named, lambda row: next(islice(_data(path, layout), row, None))[0]


def read_cells(path: Path, suffix: str, choose: Choose) -> dict[str, list[str]]:
    """Some columns of a text table as they stand, without the blanks around them: name → one text a row."""
    with _readable(path):
        layout = _look(path, suffix)
        kept = choose(layout.names)
        rows = [cells for _, cells in _data(path, layout)]
        short = [len(cells) for cells in rows if len(cells) < len(layout.names)]
        if short:
            raise DataError(f"'{path}': expected {len(layout.names)} cells in every row; got {short[0]} in one.")
        return {layout.names[i]: [cells[i].strip() for cells in rows] for i in kept}


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


def _plain(path: Path, layout: _Layout, kept: Sequence[int]) -> Array | None:
    """The table by numpy's C parser, with NaN for empty cells; None if there is anything else out of the ordinary."""
    mark = layout.delimiter

    def lines(file: TextIO) -> Iterator[str]:
        for line in islice(_lines(file, path), layout.line - (not layout.named), None):
            line = line.strip(" \r\n")
            cells = line.split(mark)
            if not line:
                continue
            # numpy does not look at the cells that it leaves out
            if len(cells) != len(layout.names) or (mark is None and "#" in line):
                raise ValueError("a line with a comment, or with another number of cells")
            yield line if mark is None or "" not in cells else mark.join(cell or "nan" for cell in cells)

    with _open(path) as file:
        try:
            return np.loadtxt(lines(file), comments=None, delimiter=mark, usecols=kept, ndmin=2, quotechar='"')
        except DataError:
            raise
        except ValueError:
            return None


def _careful(path: Path, layout: _Layout, kept: Sequence[int]) -> Array:
    """The table by Python's csv module, or an error that says which line and column are wrong."""
    first: dict[int, tuple[int, str]] = {}  # column → first line with text, and the text
    texts: Counter[int] = Counter()  # column → how many cells have text
    width = len(layout.names)

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

    values = np.fromiter(numbers(), dtype=np.dtype((np.float64, (len(kept),))))
    if not texts:
        return values
    columns = sorted(texts)
    where = "; ".join(
        f"column '{layout.names[i]}' has text in {texts[i]} of {len(values)} rows (first: '{first[i][1][:30]}' in line "
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
