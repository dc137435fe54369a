"""Tables and images as arrays: .npy, .npz and Parquet."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..storage.limits import check_bytes
from ._files import Array, DataError, as_option, check_names, check_width, listing, reading
from ._npy import gather, load_arrays, parts_in

Choose = Callable[[tuple[str, ...]], list[int]]
Read = tuple[Array, tuple[str, ...], bool]  # values, the names kept, whether the names are the file's

_BATCH_ROWS = 2**16  # of a Parquet file at a time
_BUFFER_BYTES = 2**20  # of each of its columns
_CHANNELS = (1, 3)
# what the parts are called: here, in Keras's files and in MedMNIST's
_PARTS = {
    "train": ("train", "x_train", "train_images"),
    "validation": ("validation", "x_val", "val_images"),
    "test": ("test", "x_test", "test_images"),
}
_WHOLE = ("images", "data", "X", "x")


def read_array(path: Path, choose: Choose) -> Read:
    """The only array of a file, or the one called 'data' or 'X'; column names from 'columns', if it is there."""
    arrays = load_arrays(path)
    tables = [name for name, array in arrays.items() if array.ndim == 2 or len(arrays) == 1]
    preferred = [name for name in ("data", "X") if name in tables]
    if not preferred and len(tables) != 1:
        raise DataError(
            f"Expected one 2-D array in '{path}', or one called 'data' or 'X'; got {_shapes(arrays)}. "
            "Save the right one as 'data'."
        )
    array, names = arrays[(preferred or tables)[0]], arrays.get("columns")
    if array.ndim != 2:
        shape = "-1, 1" if array.ndim == 1 else "len(array), -1"
        raise DataError(
            f"Expected a 2-D array (rows, columns); '{path}' holds shape {array.shape}. Save array.reshape({shape})."
        )
    if array.dtype.kind not in "fiub":
        raise DataError(f"Expected an array of numbers; '{path}' holds type {array.dtype}. Save it as float64.")
    if not len(array):
        raise DataError(f"Expected rows of numbers; '{path}' holds shape {array.shape}: no rows.")
    check_width(array.shape[1], f"'{path}'")
    columns, named = tuple(f"x{i + 1}" for i in range(array.shape[1])), False
    if names is not None and names.dtype.kind in "US":
        if names.shape != array.shape[1:]:
            raise DataError(
                f"Expected a name for each of {array.shape[1]} columns in 'columns' of '{path}'; got shape {names.shape}."
            )
        columns, named = tuple(names.astype(np.str_).tolist()), True
        check_names(columns, f"'columns' of '{path}'")
    kept = choose(columns)
    kind = np.dtype(np.float32 if array.dtype.kind == "f" and array.dtype.itemsize <= 4 else np.float64)
    if kept != list(range(len(columns))) or array.dtype != kind:  # integers, half precision, foreign byte order
        parts = (part[:, kept].astype(kind) for part in parts_in(array))
        array = gather(parts, (len(array), len(kept)), kind)
    return array, tuple(columns[i] for i in kept), named


def read_parquet(path: Path, choose: Choose) -> Read:
    """Numeric columns of a Parquet file; nulls become NaN. Many rows are kept on disk, in a temporary file."""
    arrow, _ = load_pyarrow()
    with reading(path, "a Parquet file"):
        file, kept = _parquet(path, choose)
        kinds = {name: file.schema_arrow.field(name).type for name in kept}
        numeric = (arrow.types.is_integer, arrow.types.is_floating, arrow.types.is_boolean, arrow.types.is_decimal)
        text = [name for name, kind in kinds.items() if not any(test(kind) for test in numeric)]
        if text:
            raise DataError(
                f"Expected only numbers; '{path}' has other columns: {listing([f'{n} ({kinds[n]})' for n in text])}. "
                f"Leave them out: --exclude {as_option(text)}."
            )
        kind = np.dtype("float32" if all(arrow.types.is_float32(kind) for kind in kinds.values()) else "float64")
        shape = (file.metadata.num_rows, len(kept))

        def parts() -> Iterator[Array]:
            for batch in file.iter_batches(_BATCH_ROWS, columns=kept, use_threads=False):
                yield _numbers(batch, kept, kind)

        return gather(parts(), shape, kind), tuple(kept), True


def _numbers(batch: Any, names: Sequence[str], kind: np.dtype[Any]) -> Array:
    """Columns of a batch as an array; whole numbers beyond 2⁵³ are rounded, as in every other format."""
    columns = [batch.column(name).cast(kind.name, safe=False).to_numpy(zero_copy_only=False) for name in names]
    return np.stack(columns, axis=1)


def read_parquet_text(path: Path, choose: Choose) -> dict[str, list[str]]:
    """Columns of a Parquet file of any type, as text; nulls become ''."""
    with reading(path, "a Parquet file"):
        file, chosen = _parquet(path, choose)
        table = file.read(columns=chosen)
        return {name: ["" if cell is None else str(cell) for cell in table[name].to_pylist()] for name in chosen}


def _parquet(path: Path, choose: Choose) -> tuple[Any, list[str]]:
    """A Parquet file, and the names of the columns chosen, in that order; it must not unfold to too much."""
    _, parquet = load_pyarrow()
    # buffered, a page at a time: otherwise all of a row group is read at once, and that may be all of the file
    file = parquet.ParquetFile(path, buffer_size=_BUFFER_BYTES, pre_buffer=False)
    names = tuple(file.schema_arrow.names)
    check_width(len(names), f"'{path}'")
    check_names(names, f"'{path}'")
    chosen = [names[i] for i in choose(names)]
    check_bytes(8 * len(chosen) * file.metadata.num_rows, f"the rows of '{path}'")
    return file, chosen


def load_pyarrow() -> tuple[Any, Any]:
    """The modules pyarrow and pyarrow.parquet, an optional extra."""
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise DataError("Parquet files need the pyarrow package: pip install 'rectangular-flows[parquet]'.") from error


def read_image_array(path: Path) -> dict[str, Array]:
    """Images of a .npy file, or of a .npz file with its parts, if it has any.

    A .npz file holds 'images', or 'train', 'test' and perhaps 'validation'. The names of Keras and MedMNIST work too,
    and so does any name if there is only one array.
    """
    arrays = load_arrays(path)
    found = {which: arrays[name] for which, names in _PARTS.items() for name in reversed(names) if name in arrays}
    if "train" not in found:
        named = [arrays[name] for name in _WHOLE if name in arrays]
        if not named and len(arrays) != 1:
            raise DataError(
                f"Expected an array 'images', or 'train' and 'test', in '{path}'; got {_shapes(arrays) or 'nothing'}. "
                "Save the right one as 'images'."
            )
        found = {"train": (named or list(arrays.values()))[0]}
    return {which: as_images(array, str(path)) for which, array in found.items()}


def as_images(array: Array, source: str) -> Array:
    """Images as (N, C, H, W), from an array (N, H, W), (N, H, W, C) or (N, C, H, W) of uint8; C is 1 or 3."""
    if array.dtype != np.uint8:
        advice = {
            "f": "(255 * array).round().astype(np.uint8) if they lie in [0, 1]",
            "b": "255 * array.astype(np.uint8)",
        }.get(array.dtype.kind, "array.astype(np.uint8) if they lie in 0 … 255")
        raise DataError(
            f"Expected images of uint8, 0 to 255, in '{source}'; got type {array.dtype}. Save them as {advice}."
        )
    if array.ndim == 3 and array.shape[2] not in _CHANNELS:
        return array[:, None]
    if array.ndim == 4:
        first, last = array.shape[1] in _CHANNELS, array.shape[3] in _CHANNELS
        if first != last:
            return array if first else array.transpose(0, 3, 1, 2)
    meant = " It looks like one picture; several are needed." if array.ndim == 3 else ""
    raise DataError(
        f"Expected images as (N, height, width), (N, height, width, C) or (N, C, height, width), with C = 1 or 3, in "
        f"'{source}'; got shape {array.shape}.{meant}"
    )


def _shapes(arrays: dict[str, Array]) -> str:
    return listing([f"{name} {array.shape}" for name, array in arrays.items()], 12)
