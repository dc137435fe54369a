"""Tables as arrays: .npy, .npz and Parquet."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ._files import Array, DataError, as_option, check_names, listing

MMAP_BYTES = 256 * 2**20  # a larger .npy file stays on disk

Choose = Callable[[tuple[str, ...]], list[int]]
Read = tuple[Array, tuple[str, ...], bool]  # values, the names kept, whether the names are the file's


def read_npy(path: Path, choose: Choose) -> Read:
    """A 2-D array from a .npy file, memory-mapped if it is large."""
    array = load_npy(path, mmap=path.stat().st_size > MMAP_BYTES)
    return _select(array, _generated(array, str(path)), False, choose, str(path))


def load_npy(path: Path, *, mmap: bool = False) -> Array:
    """``np.load`` without pickle, with an error that names the file."""
    try:
        array = np.load(path, mmap_mode="r" if mmap else None, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise DataError(f"Expected a numpy array; cannot read '{path}': {error}") from error
    if not isinstance(array, np.ndarray):  # a .npz archive under another name
        array.close()
        raise DataError(f"Expected one numpy array in '{path}'; got an archive. Name it .npz.")
    return array


def load_npz(path: Path) -> dict[str, Array]:
    """The arrays of a .npz file by name, without any pickle."""
    try:
        with open(path, "rb") as file:  # numpy leaves a damaged file open
            archive = np.load(file, allow_pickle=False)
            if isinstance(archive, np.ndarray):
                raise DataError(f"Expected a .npz archive; '{path}' holds one plain array. Name it .npy.")
            return {name: archive[name] for name in archive.files}
    except DataError:
        raise
    except Exception as error:  # whatever a damaged file leads to
        raise DataError(f"Expected numpy arrays; cannot read '{path}': {error}") from error


def read_npz(path: Path, choose: Choose) -> Read:
    """The only 2-D array of a .npz file, or the one called 'data' or 'X'; column names from 'columns', if it is there."""
    arrays = load_npz(path)
    tables = [name for name, array in arrays.items() if array.ndim == 2]
    preferred = [name for name in ("data", "X") if name in tables]
    if not preferred and len(tables) != 1:
        shapes = [f"{name} {array.shape}" for name, array in arrays.items()]
        raise DataError(
            f"Expected one 2-D array in '{path}', or one called 'data' or 'X'; got {listing(shapes, 12)}. "
            "Save the right one as 'data'."
        )
    array = arrays[(preferred or tables)[0]]
    names = arrays.get("columns")
    if names is not None and names.dtype.kind == "U" and names.shape == array.shape[1:]:
        check_names(names.tolist(), f"'columns' of '{path}'")
        return _select(array, tuple(names.tolist()), True, choose, str(path))
    return _select(array, _generated(array, str(path)), False, choose, str(path))


def read_parquet(path: Path, choose: Choose) -> Read:
    """Numeric columns of a Parquet file; nulls become NaN."""
    arrow, _ = load_pyarrow()
    table, chosen = _parquet_columns(path, choose)
    kinds = {name: table.schema.field(name).type for name in chosen}
    numeric = (arrow.types.is_integer, arrow.types.is_floating, arrow.types.is_boolean, arrow.types.is_decimal)
    text = [name for name, kind in kinds.items() if not any(test(kind) for test in numeric)]
    if text:
        raise DataError(
            f"Expected only numbers; '{path}' has other columns: {listing([f'{n} ({kinds[n]})' for n in text])}. "
            f"Leave them out: --exclude {as_option(text)}."
        )
    single = all(arrow.types.is_float32(kind) for kind in kinds.values())
    values = np.empty((table.num_rows, len(kinds)), dtype=np.float32 if single else np.float64)
    for i, name in enumerate(kinds):
        values[:, i] = table[name].cast("float32" if single else "float64").to_numpy()
    return values, tuple(kinds), True


def read_parquet_text(path: Path, choose: Choose) -> dict[str, list[str]]:
    """Columns of a Parquet file of any type, as text; nulls become ''."""
    table, chosen = _parquet_columns(path, choose)
    return {name: ["" if cell is None else str(cell) for cell in table[name].to_pylist()] for name in chosen}


def _parquet_columns(path: Path, choose: Choose) -> tuple[Any, list[str]]:
    """The columns chosen as a pyarrow table, and their names in the order chosen."""
    arrow, parquet = load_pyarrow()
    try:
        file = parquet.ParquetFile(path)
        names = tuple(file.schema_arrow.names)
        check_names(names, f"'{path}'")
        chosen = [names[i] for i in choose(names)]
        return file.read(columns=chosen), chosen
    except DataError:
        raise
    except (arrow.ArrowException, OSError) as error:
        raise DataError(f"Expected a Parquet file; cannot read '{path}': {error}") from error


def load_pyarrow() -> tuple[Any, Any]:
    """The modules pyarrow and pyarrow.parquet, an optional extra."""
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise DataError("Parquet files need the pyarrow package: pip install 'rectangular-flows[parquet]'.") from error


def _generated(array: Array, source: str) -> tuple[str, ...]:
    if array.ndim != 2:
        shape = "-1, 1" if array.ndim == 1 else "len(array), -1"
        raise DataError(
            f"Expected a 2-D array (rows, columns); '{source}' holds shape {array.shape}. Save array.reshape({shape})."
        )
    return tuple(f"x{i + 1}" for i in range(array.shape[1]))


def _select(array: Array, names: tuple[str, ...], named: bool, choose: Choose, source: str) -> Read:
    if array.dtype.kind not in "fiub":
        raise DataError(f"Expected an array of numbers; '{source}' holds type {array.dtype}. Save it as float64.")
    kept = choose(names)
    if kept != list(range(len(names))):
        array = array[:, kept]
    kind = np.float32 if array.dtype.kind == "f" and array.dtype.itemsize <= 4 else np.float64
    if array.dtype != kind:  # integers, half precision, foreign byte order
        array = array.astype(kind)
    return array, tuple(names[i] for i in kept), named
