"""Tables and images as arrays: .npy, .npz and Parquet."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..storage.limits import check_bytes
from ._files import Array, DataError, as_option, check_names, check_width, listing, reading
from ._npy import forget, gather, load_arrays
from ._table_file import TableFile

_BATCH_ROWS = 2**16  # at a time
_BUFFER_BYTES = 2**20  # of each column of a Parquet file
_CHANNELS = (1, 3)
# what the parts are called: here, in Keras's files and in MedMNIST's
_PARTS = {
    "train": ("train", "x_train", "train_images"),
    "validation": ("validation", "x_val", "val_images"),
    "test": ("test", "x_test", "test_images"),
}
_WHOLE = ("images", "data", "X", "x")


class ArrayFile(TableFile):
    """The only array of a file, or the one called 'data' or 'X'; column names from 'columns', if it is there."""

    def __init__(self, path: Path):
        self.path = path
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
        self.columns, self.named, self._array = tuple(f"x{i + 1}" for i in range(array.shape[1])), False, array
        if names is not None and names.dtype.kind in "US":
            if names.shape != array.shape[1:]:
                raise DataError(
                    f"Expected a name for each of {array.shape[1]} columns in 'columns' of '{path}'; got shape "
                    f"{names.shape}."
                )
            self.columns, self.named = tuple(names.astype(np.str_).tolist()), True
            check_names(self.columns, f"'columns' of '{path}'")
        single = array.dtype.kind == "f" and array.dtype.itemsize <= 4
        self._kind = np.dtype(np.float32 if single else np.float64)

    def parts(self, order: Sequence[int]) -> Iterator[Array]:
        for start in range(0, len(self._array), _BATCH_ROWS):
            yield self._array[start : start + _BATCH_ROWS][:, list(order)].astype(self._kind, copy=False)
            forget(self._array)

    def cells(self, order: Sequence[int]) -> Iterator[tuple[str, ...]]:
        for part in self.parts(order):
            yield from (tuple(repr(cell).removesuffix(".0") for cell in row) for row in part.tolist())

    def values(self, order: Sequence[int]) -> Array:
        if list(order) == list(range(len(self.columns))) and self._array.dtype == self._kind:
            return self._array  # not so: integers, half precision, foreign byte order
        return gather(self.parts(order), (len(self._array), len(order)), self._kind)


class ParquetFile(TableFile):
    """Columns of a Parquet file; of numbers, nulls become NaN."""

    def __init__(self, path: Path):
        self.path = path
        self._arrow, parquet = load_pyarrow()
        with reading(path, "a Parquet file"):
            # buffered, a page at a time: otherwise all of a row group is read at once, and that may be all of the file
            self._file = parquet.ParquetFile(path, buffer_size=_BUFFER_BYTES, pre_buffer=False)
        self.columns = tuple(self._file.schema_arrow.names)
        check_width(len(self.columns), f"'{path}'")
        check_names(self.columns, f"'{path}'")

    def parts(self, order: Sequence[int]) -> Iterator[Array]:
        names, kind = [self.columns[i] for i in order], self._kind(order)
        for batch in self._batches(names):
            # whole numbers beyond 2⁵³ are rounded, as in every other format
            columns = [batch.column(name).cast(kind.name, safe=False).to_numpy(zero_copy_only=False) for name in names]
            yield np.stack(columns, axis=1)

    def cells(self, order: Sequence[int]) -> Iterator[tuple[str, ...]]:
        names = [self.columns[i] for i in order]
        for batch in self._batches(names):
            columns = [["" if c is None else str(c) for c in batch.column(name).to_pylist()] for name in names]
            yield from zip(*columns, strict=True)

    def values(self, order: Sequence[int]) -> Array:
        rows, kind = self._file.metadata.num_rows, self._kind(order)
        check_bytes(8 * len(order) * rows, f"the rows of '{self.path}'")
        return gather(self.parts(order), (rows, len(order)), kind)

    def _batches(self, names: Sequence[str]) -> Iterator[Any]:
        with reading(self.path, "a Parquet file"):
            yield from self._file.iter_batches(_BATCH_ROWS, columns=list(names), use_threads=False)

    def _kind(self, order: Sequence[int]) -> np.dtype[Any]:
        """Of the array of these columns, which must hold numbers."""
        types = self._arrow.types
        kinds = {self.columns[i]: self._file.schema_arrow.types[i] for i in order}
        numeric = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
        plain = {name: kind.value_type if types.is_dictionary(kind) else kind for name, kind in kinds.items()}
        text = [name for name, kind in plain.items() if not any(test(kind) for test in numeric)]
        if text:
            raise DataError(
                f"Expected only numbers; '{self.path}' has other columns: "
                f"{listing([f'{n} ({kinds[n]})' for n in text])}. Leave them out: --exclude {as_option(text)}."
            )
        return np.dtype("float32" if all(types.is_float32(kind) for kind in kinds.values()) else "float64")


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
