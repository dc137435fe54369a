"""Tables as text: CSV and its relatives.

numpy's C parser reads every well-formed file. Where it gives up, a second pass in Python reads what is merely unusual
or says which line and column are wrong.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np

from ._files import Array, DataError, as_option, check_names

_MISSING = frozenset({"", "NA", "N/A", "null", "NULL", "None"})
_CHUNK = 20_000  # rows of Python floats held at a time
_SNIFFED_LINES = 10
Choose = Callable[[tuple[str, ...]], list[int]]


@dataclass(frozen=True)
class _Layout:
    """What the first lines of a file show."""

    delimiter: str | None  # None: runs of white space
    header: tuple[str, ...] | None
    width: int  # cells in a row, without the empty one after a trailing delimiter
    first_line: int  # line number of the row that set the width
    skip: int  # physical lines up to and including the header

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns: x1, x2, … without a header."""
        return self.header or tuple(f"x{i + 1}" for i in range(self.width))


def read_delimited(
    path: Path, suffix: str, choose: Choose
) -> tuple[Array, tuple[str, ...], bool, Callable[[int], int]]:
    """Read a text table.

    Args:
        path: the file; ``.gz`` is decompressed on the way.
        suffix: '.csv', '.tsv', '.txt' or '.dat': which delimiters to expect.
        choose: column names → the indices to keep.

    Returns:
        values (N, kept), float64; the names kept; whether the file had a header; data row (0-based) → line number.
    """
    with _readable(path):
        layout = _look(path, suffix)
        names = layout.names
        kept = choose(names)
        values = _plain(path, layout, kept)
        if values is None:
            values = _careful(path, layout, names, kept)
    return values, tuple(names[i] for i in kept), layout.header is not None, lambda row: _line_of(path, layout, row)


def read_cells(path: Path, suffix: str, choose: Choose) -> dict[str, list[str]]:
    """Some columns of a text table as they stand, without the blanks around them: name → one text a row.

    The arguments are those of :func:`read_delimited`.
    """
    with _readable(path), _open(path) as file:
        layout = _look(path, suffix)
        kept = choose(layout.names)
        rows = [cells for line, cells in _rows(iter(file), layout.delimiter) if line > layout.skip]
        short = [len(cells) for cells in rows if len(cells) < layout.width]
        if short:
            raise DataError(f"'{path}': expected {layout.width} cells in every row; got {short[0]} in one.")
        return {layout.names[i]: [cells[i].strip() for cells in rows] for i in kept}


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Errors of files that are not text, as ours."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise DataError(
            f"'{path}' is not UTF-8 text ({error.reason}, byte {error.start}). Save it as UTF-8."
        ) from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"'{path}' is not a whole gzip file: {error}. Compress or copy it again.") from error
    except csv.Error as error:
        raise DataError(f"'{path}' is not a text table: {error}.") from error


def cell_value(cell: str) -> float | None:
    """The number in a cell: NaN if it is empty or marked as missing, None if it holds text.

    Example:
        >>> cell_value(" 1e3 "), cell_value("inf"), cell_value(""), cell_value("red"), cell_value("1_000")
        (1000.0, inf, nan, None, None)
    """
    cell = cell.strip()
    if cell in _MISSING:
        return float("nan")
    try:
        return None if "_" in cell else float(cell)  # in Python 1_000 is a number
    except ValueError:
        return None


def _open(path: Path) -> TextIO:
    if path.name.lower().endswith(".gz"):
        return io.TextIOWrapper(gzip.open(path, "rb"), encoding="utf-8-sig", newline="")
    return open(path, encoding="utf-8-sig", newline="")


def _rows(lines: Iterator[str], delimiter: str | None) -> Iterator[tuple[int, list[str]]]:
    """(line number, cells) of every line that is neither blank nor a comment.

    A line that begins with # is a comment before the table; inside the table only if it has another number of
    delimiters than the first line, since '#7' may be a name. In a table without delimiters (white space), what follows
    # is a comment, as for numpy.
    """
    count = 0
    marks: int | None = None  # delimiters in the first line of the table

    def content() -> Iterator[str]:
        nonlocal count, marks
        for line in lines:
            count += 1
            if not line.strip() or (line.startswith("#") and _is_comment(line, delimiter, marks)):
                continue
            if marks is None and delimiter is not None:
                marks = _outside_quotes(line, delimiter)
            yield line.split("#", 1)[0] if delimiter is None else line

    if delimiter is None:
        for line in content():
            yield count, line.split()
    else:
        for cells in csv.reader(content(), delimiter=delimiter, skipinitialspace=True):
            yield count, cells


def _is_comment(line: str, delimiter: str | None, marks: int | None) -> bool:
    """Whether a line that begins with # is a comment; ``marks``: delimiters in a line of the table, None before it."""
    return delimiter is None or marks is None or _outside_quotes(line, delimiter) != marks


def _look(path: Path, suffix: str) -> _Layout:
    with _open(path) as file:
        if "\0" in file.read(4096):
            raise DataError(f"'{path}' is not text: it holds zero bytes. Save it as UTF-8 text, or check the suffix.")
        file.seek(0)
        sample = []
        for raw in file:
            if raw.strip() and not raw.startswith("#"):
                sample.append(raw)
                if len(sample) == _SNIFFED_LINES:
                    break
        delimiter = _sniff(sample, suffix)
        file.seek(0)
        rows = _rows(iter(file), delimiter)
        line, cells = next(rows, (0, []))
        if not line:
            raise DataError(f"Expected a table; '{path}' has only blank lines and comments.")
        if all(cell_value(cell) is not None for cell in cells):
            # without a header, an empty last cell is a trailing delimiter only if all rows have one
            ends = [cells, *(row for _, row in zip(range(_SNIFFED_LINES - 1), (r for _, r in rows), strict=False))]
            trailing = len(cells) > 1 and all(len(row) == len(cells) and not row[-1].strip() for row in ends)
            return _Layout(delimiter, None, len(cells) - trailing, line, line - 1)
        second = next(rows, None)
        if second is None:
            raise DataError(f"Expected rows of numbers; '{path}' has a header (line {line}) and no rows.")
    header = [cell.strip() for cell in cells]
    if len(header) > 1 and not header[-1] and not second[1][-1].strip():
        header.pop()
    header = [name or f"x{i + 1}" for i, name in enumerate(header)]
    check_names(header, f"'{path}', line {line},")
    return _Layout(delimiter, tuple(header), len(header), line, line)


def _sniff(lines: Sequence[str], suffix: str) -> str | None:
    """The delimiter that occurs equally often in each of the first lines; else the most frequent in the first line."""
    if suffix == ".tsv":
        return "\t"
    if not lines:
        return ","
    counts = {mark: [_outside_quotes(line, mark) for line in lines] for mark in ("\t", ";", ",")}
    for mark, count in counts.items():
        if count[0] and len(set(count)) == 1:
            return mark
    if any(count[0] for count in counts.values()):
        return max(counts, key=lambda mark: counts[mark][0])
    return "," if suffix == ".csv" else None


def _outside_quotes(line: str, mark: str) -> int:
    return sum(part.count(mark) for part in line.strip("\r\n").split('"')[::2])


def _plain(path: Path, layout: _Layout, kept: Sequence[int]) -> Array | None:
    """The table by numpy's C parser, with NaN for empty cells and without trailing delimiters; None if it needs help."""
    mark, width = layout.delimiter, layout.width
    everything = list(kept) == list(range(width))

    def lines(file: TextIO) -> Iterator[str]:
        for number, line in enumerate(file, 1):
            line = line.strip(" \r\n")
            if number <= layout.skip or not line:
                continue
            if line[0] == "#" and _is_comment(line, mark, width - 1):
                continue
            if mark is not None:
                count = _outside_quotes(line, mark) if '"' in line else line.count(mark)
                if count == width and line.endswith(mark):
                    line, count = line[:-1], count - 1
                if count != width - 1:
                    raise ValueError("a line with another number of cells")
                if not line or line[0] == mark or line[-1] == mark or mark + mark in line:
                    line = mark.join([cell or "nan" for cell in line.split(mark)])
            elif not everything and len(line.split()) != width:
                raise ValueError("a line with another number of cells")
            yield line

    with _open(path) as file:
        try:
            values = np.loadtxt(
                lines(file),
                dtype=np.float64,
                comments="#" if mark is None else None,
                delimiter=mark,
                usecols=None if everything else tuple(kept),  # numpy does not count the cells that it leaves out
                ndmin=2,
                quotechar='"',
            )
        except UnicodeDecodeError:
            raise
        except ValueError:
            return None
    # the header, or the first row, may have another number of cells than the rest
    return values if values.shape[1] == len(kept) else None


def _careful(path: Path, layout: _Layout, names: Sequence[str], kept: Sequence[int]) -> Array:
    """The table by Python's csv module, or an error that says which line and column are wrong."""
    blocks: list[Array] = []
    block: list[list[float]] = []
    text: dict[int, tuple[int, str, int]] = {}  # column → first line, what it says there, how many cells
    total = 0
    nan = float("nan")
    with _open(path) as file:
        for line, cells in _rows(iter(file), layout.delimiter):
            if line <= layout.skip:
                continue
            if len(cells) == layout.width + 1 and not cells[-1].strip():
                cells.pop()  # trailing delimiter
            if len(cells) != layout.width:
                raise DataError(
                    f"'{path}', line {line}: expected {layout.width} cells, as in line {layout.first_line}; "
                    f"got {len(cells)}. Correct that line: is a delimiter missing, or is there one too many?"
                )
            picked = [cells[i] for i in kept]
            try:
                row = [float(cell) if cell else nan for cell in picked]
                plain = "_" not in "".join(picked)
            except ValueError:
                plain = False
            if not plain:
                row = []
                for i, cell in zip(kept, picked, strict=True):
                    value = cell_value(cell)
                    if value is None:
                        first, sample, count = text.get(i, (line, cell.strip(), 0))
                        text[i] = first, sample, count + 1
                    row.append(nan if value is None else value)
            total += 1
            block.append(row)
            if len(block) == _CHUNK:
                blocks.append(np.array(block, dtype=np.float64))
                block.clear()
    if text:
        raise _text_error(path, names, text, total)
    if block:
        blocks.append(np.array(block, dtype=np.float64))
    return np.concatenate(blocks) if blocks else np.empty((0, len(kept)))


def _text_error(path: Path, names: Sequence[str], text: dict[int, tuple[int, str, int]], total: int) -> DataError:
    columns = sorted(text)
    where = "; ".join(
        f"column '{names[i]}' has text in {text[i][2]} of {total} rows (first: '{text[i][1][:30]}' in line {text[i][0]})"
        for i in columns[:5]
    )
    more = f"; and {len(columns) - 5} more columns" if len(columns) > 5 else ""
    samples = [text[i][1] for i in columns]
    if all(s.count(",") == 1 and cell_value(s.replace(",", ".")) is not None for s in samples):
        advice = "These look like decimal commas: use decimal points."
    else:
        advice = f"Correct those cells, or leave the columns out: --exclude {as_option([names[i] for i in columns])}."
    return DataError(f"Expected only numbers; in '{path}' {where}{more}. {advice}")


def _line_of(path: Path, layout: _Layout, row: int) -> int:
    with _open(path) as file:
        content = (line for line, _ in _rows(iter(file), layout.delimiter) if line > layout.skip)
        return next(line for index, line in enumerate(content) if index == row)
