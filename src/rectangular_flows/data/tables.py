"""A user's own table: read from any common file, checked, split, matched by column names, written back.

Text (.csv, .tsv, .txt, .dat, each also with .gz), numpy (.npy, .npz) and Parquet. Nothing is guessed silently: a cell
that is not a number, a row that is too short or a NaN is an error that says where it is and what to do.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..spelling import nearest
from ..storage.files import parts_of
from ._arrays import ArrayFile, ParquetFile
from ._delimited import TextFile
from ._files import Array, as_option, check_file, choose_columns, listing
from ._files import DataError as DataError
from ._files import MissingFileError as MissingFileError
from ._invalid import InvalidRows
from ._npy import forget as forget
from ._npy import gather, parts_in
from ._table_file import TableFile as TableFile
from ._writing import Write, table_writer
from ._writing import check_room as check_room
from .columns import UsedColumns, WholeTable
from .rows import pick

_TEXT = (".csv", ".tsv", ".txt", ".dat")
_SUPPORTED = ".csv, .tsv, .txt, .dat (each also .gz), .npy, .npz, .parquet"


@dataclass(frozen=True, eq=False)
class Table:
    """Numbers in rows and named columns.

    Attributes:
        values: (N, D), float64 or float32; a ``np.memmap`` when a large .npy file was read.
        columns: D names; 'x1', 'x2', … where the file had none.
        source: the file name as given.
        dropped: the number of rows that ``drop_invalid`` left out.
        named: whether the names come from the file.
        kept: the numbers, from 1, of the remaining rows where some were dropped; None where none were.
    """

    values: Array
    columns: tuple[str, ...]
    source: str
    dropped: int = 0
    named: bool = True
    kept: Array | None = None


def read_table(
    path: str | Path,
    *,
    columns: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
    drop_invalid: bool = False,
) -> Table:
    """Read a table of numbers from a file, by its suffix.

    A first row with a cell that is not a number is a header (NaN and inf are numbers); lines that begin with # and
    blank lines are skipped; an empty cell is NaN.

    Args:
        path: .csv, .tsv, .txt, .dat (each also .gz), .npy, .npz or .parquet.
        columns: the columns to keep, in this order: names, or positions from 1.
        exclude: the columns to leave out, likewise.
        drop_invalid: leave out rows with NaN or infinite cells (and record how many) instead of raising an error.

    Raises:
        DataError: what is wrong, in which line and column, and what to do.
    """
    file = open_table(path)
    order = choose_columns(file.columns, columns, exclude, str(path))
    values, names = file.values(order), tuple(file.columns[i] for i in order)
    invalid = InvalidRows(file, names)
    good = np.concatenate([np.ones(0, dtype=bool), *(invalid.add(part) for part in parts_in(values))])
    invalid.check(drop_invalid)
    table = Table(values, names, str(path), named=file.named)
    if not invalid.count:
        return table
    kept = np.flatnonzero(good)
    parts = (part[good[where]] for part, where in zip(parts_in(values), parts_of(values), strict=True))
    values = gather(parts, (len(kept), values.shape[1]), values.dtype)
    return replace(table, values=values, dropped=invalid.count, kept=kept + 1)


def open_table(path: str | Path) -> TableFile:
    """A file with a table, by its suffix: its columns, and its rows a part at a time.

    Raises:
        DataError: there is no such file, or it holds no table.
    """
    path = Path(path)
    check_file(path)
    suffix = table_suffix(path)
    if suffix in _TEXT:
        return TextFile(path, suffix)
    return ParquetFile(path) if suffix == ".parquet" else ArrayFile(path)


def read_text_columns(path: str | Path, columns: Sequence[str]) -> dict[str, list[str]]:
    """Columns of a file as they stand there, text or numbers, name → a text for each of its rows.

    Args:
        path: as for :func:`read_table`.
        columns: names, or positions from 1.

    Raises:
        DataError: there is no such column.
    """
    file = open_table(path)
    order = choose_columns(file.columns, columns, None, str(path))
    cells = list(zip(*file.cells(order), strict=True)) or [()] * len(order)
    return {file.columns[i]: list(column) for i, column in zip(order, cells, strict=True)}


class ByPositionWarning(UserWarning):
    """Columns of a table are taken by position, since the table or the model has no names for them."""


def match_columns(table: Table, expected: Sequence[str]) -> Table:
    """The columns that a model was trained on, in its order, by name; others are left out.

    If one side has no names (no header), the columns are taken by position if their number agrees, with a
    :class:`ByPositionWarning`.
    """
    order = column_order(table.columns, expected, table.source, table.named)
    if order == list(range(len(table.columns))):
        return replace(table, columns=tuple(expected))
    parts = (part[:, order] for part in parts_in(table.values))
    values = gather(parts, (len(table.values), len(order)), table.values.dtype)
    return replace(table, values=values, columns=tuple(expected))


def column_order(columns: Sequence[str], expected: Sequence[str], source: str, named: bool) -> list[int]:
    """The positions of the columns that :func:`match_columns` takes.

    Raises:
        DataError: some are missing.
    """
    columns, expected = tuple(columns), tuple(expected)
    index = {name: i for i, name in enumerate(columns)}
    missing = [name for name in expected if name not in index]
    if not missing:
        return [index[name] for name in expected]
    if (not named or unnamed(expected)) and len(columns) == len(expected):
        why = "the model's data had no names" if named else "it has no header"
        text = f"the columns of '{source}' are taken by position, since {why}"
        warnings.warn(text, ByPositionWarning, stacklevel=3)
        return list(range(len(columns)))
    if not named:
        raise DataError(
            f"Expected {len(expected)} columns ({listing(expected)}); '{source}' has {len(columns)} and no "
            "header. Give it a header line with the names, or exactly those columns in that order."
        )
    unexpected = [name for name in columns if name not in expected]
    hints = "".join(nearest(name, unexpected) for name in missing[:3])
    extra = f" It has other columns: {listing(unexpected)}." if unexpected else ""
    raise DataError(
        f"Expected columns {listing(expected, 12)}; '{source}' lacks {listing(missing, 12)}.{extra}{hints} "
        "Rename the columns in the header line."
    )


def unnamed(columns: Sequence[str]) -> bool:
    """Whether names stand for columns without names, x1, x2, …: they say nothing about order."""
    return tuple(columns) == tuple(f"x{i + 1}" for i in range(len(columns)))


def split_rows(count: int, *, validation: float = 0.1, test: float = 0.1, seed: int = 0) -> tuple[Array, Array, Array]:
    """Row indices for training, validation and test: a random permutation of 0 … count−1, cut in three.

    A part whose fraction is positive gets at least one row.
    """
    for name, fraction in (("validation", validation), ("test", test)):
        if not 0 <= fraction < 1:
            raise DataError(f"Expected a fraction of the rows for {name}, 0 ≤ fraction < 1; got {fraction}.")
    n_validation, n_test = (max(1, int(fraction * count)) if fraction else 0 for fraction in (validation, test))
    n_train = count - n_validation - n_test
    if n_train < 1:
        raise DataError(
            f"Expected rows to train on; {count} rows less {n_validation} for validation and {n_test} for test "
            f"leave {n_train}. Use smaller fractions or more data."
        )
    order = np.random.default_rng(seed).permutation(count)
    return order[:n_train], order[n_train : n_train + n_validation], order[n_train + n_validation :]


def check_table(table: Table, latent_dim: int | None, periodic: bool = False) -> None:
    """Raise :class:`DataError` for a table that no model of that latent dimension (None: not chosen) can be trained on.

    With periodic columns the manifold may be all there is: a torus, and the density on it.
    """
    rows, width = table.values.shape
    if width < 2 and not periodic:
        raise DataError(
            f"Expected at least 2 columns (a manifold has fewer dimensions than the data); '{table.source}' has {width}."
        )
    most = width if periodic else width - 1
    if latent_dim is not None and not 1 <= latent_dim <= most:
        whole = "With all of them there is no manifold to learn. " if latent_dim == width else ""
        raise DataError(
            f"Expected a latent dimension from 1 to {most} for '{table.source}' with {width} columns; "
            f"got {latent_dim}. {whole}Choose one in that range, --latent-dim auto, or a smaller --latent-space."
        )
    needed = max(20, 2 * (width + 1))
    if rows < needed:
        raise DataError(
            f"Expected at least {needed} rows for {width} columns; '{table.source}' has {rows}. "
            "Get more rows, or use fewer columns: --columns."
        )
    used = UsedColumns.of(table.values, units=False)
    if not used.all:
        left_out = [table.columns[i] for i in used.left_out]
        raise DataError(
            f"Expected columns that vary and differ from each other; in '{table.source}' {used.reasons(table.columns)}. "
            f"Leave them out: --exclude {as_option(left_out)}."
        )
    spread = np.zeros(width)
    for part in parts_of(table.values):
        spread = np.maximum(spread, spread_of(table.values[part], table.values[0]))
    check_spread(spread, table.columns, f"'{table.source}'")


def used_columns(table: Table, train: Array) -> tuple[Table, WholeTable | None]:
    """The table without columns that hold one value or repeat another in the rows to train on.

    Returns:
        The table, and what all of its columns were; None where all are used.
    """
    used = UsedColumns.of(pick(table.values, np.sort(train)))  # a file is read in its order
    if used.all or not used.kept:
        return table, None
    whole = WholeTable(table.columns, used, len(train))
    return match_columns(table, whole.seen), whole


def spread_of(rows: Array, first: Array) -> Array:
    """The largest difference of each column from a first row, (D,)."""
    with np.errstate(over="ignore"):
        return np.asarray(np.abs(rows - np.asarray(first, dtype=np.float64)).max(axis=0))


def check_spread(spread: Array, columns: Sequence[str], source: str) -> None:
    """Refuse columns that vary so much or so little that float64 cannot square their differences."""
    outside = np.flatnonzero((spread > 1 / _LEAST_SPREAD) | ((spread > 0) & (spread < _LEAST_SPREAD)))
    if len(outside):
        i = int(outside[0])
        raise DataError(
            f"Expected columns that vary by {_LEAST_SPREAD:g} to {1 / _LEAST_SPREAD:g}, whose squares are numbers; in "
            f"{source} '{columns[i]}' varies by {spread[i]:.3g}. Give it in other units."
        )


_LEAST_SPREAD = 1e-140


def write_table(
    path: str | Path, columns: Sequence[str], values: Array, *, text: Mapping[str, Sequence[str]] | None = None
) -> None:
    """Write a table by suffix: .csv, .tsv (each also .gz), .npy (no names), .npz, .parquet.

    The file is written as a whole or not at all. Text holds enough digits to give the same number back. Whole numbers
    have no decimal point.

    Args:
        path: of the file.
        columns: names of the columns.
        values: (N, columns).
        text: names and the N texts of more columns, before the others; in a .npz file 'text', (N,) or (N, their number),
            and left out of a .npy file.
    """
    path = Path(path)
    suffix = table_suffix(path)
    text = text or {}
    if values.ndim != 2 or values.shape[1] != len(columns):
        raise DataError(f"Expected values of shape (N, {len(columns)}), one column a name; got {values.shape}.")
    for texts in text.values():
        if len(texts) != len(values):
            raise DataError(f"Expected a text for each of {len(values)} rows; got {len(texts)}.")
    with table_writer(path, suffix, columns, len(values), values.dtype, tuple(text)) as write:
        for part in parts_of(values):
            write(values[part], {name: texts[part] for name, texts in text.items()})


@contextmanager
def write_parts(
    path: str | Path, columns: Sequence[str], rows: int, kind: np.dtype[Any], texts: Sequence[str] = ()
) -> Iterator[Write]:
    """Within it, a function that adds rows to a file, (n, columns) and their texts by name; see :func:`write_table`."""
    path = Path(path)
    with table_writer(path, table_suffix(path), columns, rows, kind, texts) as write:
        yield write


def table_suffix(path: Path) -> str:
    """The suffix that says the format of a table, without '.gz'; a :class:`DataError` for any other."""
    name = path.name.lower()
    plain = Path(name.removesuffix(".gz")).suffix
    if plain in _TEXT or (plain in (".npy", ".npz", ".parquet") and not name.endswith(".gz")):
        return plain
    got = f"'{''.join(Path(name).suffixes[-2 if name.endswith('.gz') else -1 :])}'" if "." in name else "no suffix"
    raise DataError(f"Expected a file name that ends in {_SUPPORTED}; got {got} in '{path}'. Convert or rename it.")
