"""Numbers out of a pickled DataFrame or dictionary, without running anything that the file asks for, and without pandas.

A pickle is a program: it names functions and has them called. Here every name it may use stands for an inert record
that remembers what it was called with, every other name is an error, and only afterwards are column names and blocks
of numbers looked for among the records. Not even numpy's own constructors see the file.

Understood are frames of pandas 0.x (Python 2 included), 1, 2 and 3.
"""

from __future__ import annotations

import math
import pickle
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np

from ._files import Array, DataError, existing_file, listing

# by package, not by module: the modules were renamed between versions, and a record is harmless wherever it is from
_ALLOWED = {
    "pandas": {
        *("DataFrame", "BlockManager", "_unpickle_block", "new_block", "BlockPlacement"),
        *("_new_Index", "Index", "RangeIndex", "Int64Index", "Float64Index", "NumericIndex"),
        *("ArrowStringArray", "StringArray", "ArrowStringArrayNumpySemantics", "StringArrayNumpySemantics"),
        *("StringDtype", "__pyx_unpickle_NDArrayBacked", "__pyx_unpickle_BlockPlacement"),
    },
    "numpy": {"_reconstruct", "ndarray", "dtype", "_frombuffer", "scalar"},
    "pyarrow": {"_restore_array", "type_for_alias", "py_buffer", "chunked_array"},
    "builtins": {"slice", "bytearray", "object", "bytes", "list"},
    "_codecs": {"encode"},
    "copyreg": {"_reconstructor"},
}
_T = TypeVar("_T")
_RENAMED = {"__builtin__": "builtins", "copy_reg": "copyreg"}  # Python 2


class _Record:
    """What stands for an object of the file: the name, the arguments it was made with, the state it was given."""

    name = ""
    args: tuple[Any, ...]
    state: Any

    def __new__(cls, *args: Any) -> _Record:
        record = object.__new__(cls)
        record.__dict__.update(args=args, state=None)
        return record

    def __init__(self, *args: Any) -> None:  # the arguments were kept by __new__
        pass

    def __setstate__(self, state: Any) -> None:
        self.__dict__["state"] = state

    # a pickle may store attributes through BUILD only, which __setstate__ takes
    def __setattr__(self, name: str, value: Any) -> None:
        raise TypeError("records do not change")


class _Remade(_Record):
    """For the functions that make an object of a class: copyreg's in protocols 0 and 1, Cython's in pandas.

    A class and not a function, because a pickle can set the attributes of a function.
    """

    def __new__(cls, made: Any = None, *rest: Any) -> Any:
        if not (isinstance(made, type) and issubclass(made, _Record)):
            raise DataError("makes an object without a class")
        record = made()
        record.__setstate__(rest[-1] if rest else None)
        return record


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> type[_Record]:
        package = _RENAMED.get(module, module).split(".")[0]
        if name not in _ALLOWED.get(package, ()):
            raise DataError(f"asks for '{module}.{name}', which a table of numbers does not need")
        remakes = name in ("_reconstructor", "__pyx_unpickle_NDArrayBacked")
        return type(name, (_Remade if remakes else _Record,), {"name": name})

    def persistent_load(self, pid: Any) -> Any:
        raise DataError("refers to objects outside the file")


def read_frame(source: str | Path | BinaryIO) -> tuple[tuple[str, ...], Array]:
    """The column names and the values (N, D), float64, of a pickled DataFrame of numbers.

    Args:
        source: a file name, or an open binary file.

    Raises:
        DataError: the file is no such frame, or asks for anything that such a frame does not need. Nothing that the
            file names is imported or called.
    """
    return _read(source, _frame, "DataFrame of numbers")


def read_arrays(source: str | Path | BinaryIO) -> dict[str, Array]:
    """The arrays of numbers, and the lists of whole numbers, of a pickled dictionary; its other values are left out.

    Args:
        source: a file name, or an open binary file.

    Raises:
        DataError: as for :func:`read_frame`.
    """
    return _read(source, _arrays, "dictionary of arrays")


def _read(source: str | Path | BinaryIO, make: Callable[[Any], _T], what: str) -> _T:
    if isinstance(source, (str, Path)):
        with open(existing_file(Path(source)), "rb") as file:
            return _read(file, make, what)
    name = getattr(source, "name", "the pickle")
    try:
        # latin1 keeps the bytes of Python 2's strings, in which it wrote its numbers
        return make(_Unpickler(source, encoding="latin1").load())
    except DataError as error:
        raise DataError(
            f"Expected a pickled {what} in '{name}', which {error}. It was not opened any further; "
            "get the file from its publisher again."
        ) from error
    except Exception as error:  # whatever a damaged file leads to
        raise DataError(
            f"Expected a pickled {what} in '{name}'; it cannot be read ({type(error).__name__}: {error})."
        ) from error


def _arrays(root: Any) -> dict[str, Array]:
    if not isinstance(root, dict):
        raise DataError(f"holds {_kind(root)} instead")
    found = {}
    for key, value in root.items():
        # Python 2's keys are bytes when Python 3 saves them again
        name = _bytes(key).decode("latin1") if isinstance(key, bytes) or _is(key, "encode") else str(key)
        if isinstance(value, _Record) and not _is(value, "encode"):  # which is text
            found[name] = _array(value)
        elif isinstance(value, list) and all(type(item) is int for item in value):
            found[name] = np.array(value, dtype=np.int64)
    return found


def _is(thing: Any, *names: str) -> bool:
    return isinstance(thing, _Record) and thing.name in names


def _frame(root: Any) -> tuple[tuple[str, ...], Array]:
    if not _is(root, "DataFrame"):
        raise DataError(f"holds {_kind(root)} instead")
    manager = root.state
    if isinstance(manager, dict):
        manager = manager.get("_mgr", manager.get("_data"))
    if not _is(manager, "BlockManager"):
        raise DataError("is a DataFrame of a version that is not known here")
    axes, blocks = _blocks(manager)
    if len(axes) != 2:
        raise DataError(f"has {len(axes)} axes where a table has 2")
    columns = _labels(axes[0])
    arrays = [(_array(values), place) for values, place in blocks]
    rows = {array.shape[-1] for array, _ in arrays if array.ndim == 2}
    if len(rows) != 1 or any(array.ndim != 2 for array, _ in arrays):
        raise DataError(f"holds blocks of shapes {[array.shape for array, _ in arrays][:5]}, which make no table")
    out = np.empty((rows.pop(), len(columns)), dtype=np.float64)
    seen = np.zeros(len(columns), dtype=int)
    for array, place in arrays:
        where = _place(place, columns)
        if len(where) != len(array) or (len(where) and not 0 <= where.min() <= where.max() < len(columns)):
            raise DataError("puts a block of numbers at columns that do not exist")
        out[:, where] = array.T
        np.add.at(seen, where, 1)
    if not (seen == 1).all():
        raise DataError(f"lacks numbers for {listing([n for n, k in zip(columns, seen, strict=True) if k != 1])}")
    return columns, out


def _blocks(manager: _Record) -> tuple[Sequence[Any], list[tuple[Any, Any]]]:
    """(axes, [(values, place)]): columns are axis 0, and a block is (its columns, rows)."""
    if manager.args:  # pandas ≥ 1.3: BlockManager(blocks, axes)
        blocks, axes = manager.args[:2]
        made = [block for block in blocks if _is(block, "_unpickle_block", "new_block")]
        if len(made) != len(blocks):
            raise DataError("has blocks of a version that is not known here")
        return axes, [(block.args[0], block.args[1]) for block in made]
    state = manager.state
    if len(state) >= 4 and "0.14.1" in state[3]:
        known = state[3]["0.14.1"]
        return known["axes"], [(block["values"], block["mgr_locs"]) for block in known["blocks"]]
    axes, values, items = state[:3]  # older still: a block's columns are given by their labels
    return axes, list(zip(values, items, strict=True))


def _place(place: Any, columns: tuple[str, ...]) -> Array:
    if _is(place, "slice"):
        start, stop, step = [*place.args, None, None][:3]
        return np.arange(len(columns))[slice(start, stop, step)]
    if _is(place, "BlockPlacement", "__pyx_unpickle_BlockPlacement"):
        return _place(place.args[0] if place.args else place.state[0], columns)
    if _is(place, "_reconstruct", "_frombuffer") and not _is_index(place):
        return _array(place).astype(np.int64)
    return np.array([columns.index(label) for label in _labels(place)], dtype=np.int64)


def _is_index(thing: _Record) -> bool:
    made = thing.args[0]
    return isinstance(made, type) and issubclass(made, _Record) and made.name.endswith("Index")


def _labels(thing: Any) -> tuple[str, ...]:
    """The labels of an axis as text."""
    if isinstance(thing, (list, tuple)):
        strange = [label for label in thing if not isinstance(label, (str, int, float))]
        if strange:
            raise DataError(f"names a column by {_kind(strange[0])}")
        return tuple(str(label) for label in thing)
    if _is(thing, "_new_Index"):
        made, state = thing.args[:2]
        if issubclass(made, _Record) and made.name == "RangeIndex":
            return tuple(str(i) for i in range(*(int(state[key]) for key in ("start", "stop", "step"))))
        return _labels(state["data"])
    if _is(thing, "ArrowStringArray", "ArrowStringArrayNumpySemantics"):
        return _arrow_strings(thing.state["_pa_array"])
    if _is(thing, "StringArray", "StringArrayNumpySemantics"):
        state = thing.state if isinstance(thing.state, tuple) else (thing.state,)  # of the type, the array, the rest
        parts = [part["_ndarray"] if isinstance(part, dict) and "_ndarray" in part else part for part in state]
        return _labels(next((part for part in parts if _is(part, "_reconstruct", "_frombuffer")), None))
    if _is(thing, "_reconstruct", "_frombuffer"):
        found = _array(thing, objects=True)
        return _labels(found) if isinstance(found, list) else tuple(str(label) for label in found.tolist())
    raise DataError(f"names its columns by {_kind(thing)}")


def _arrow_strings(thing: Any) -> tuple[str, ...]:
    if _is(thing, "chunked_array"):
        return tuple(name for chunk in thing.args[0] for name in _arrow_strings(chunk))
    kind, length, _, offset, buffers = (thing.args if len(thing.args) > 1 else thing.args[0])[:5]
    _, ends, text = (None if buffer is None else _bytes(buffer.args[0]) for buffer in buffers)
    if ends is None or text is None:
        raise DataError("names its columns by an empty array")
    bounds = np.frombuffer(ends, dtype="<i8" if kind.args[0] == "large_string" else "<i4")[offset : offset + length + 1]
    return tuple(text[a:b].decode() for a, b in pairwise(bounds))


def _bytes(thing: Any) -> bytes | bytearray:
    if isinstance(thing, str):  # a string of Python 2
        return thing.encode("latin1")
    if _is(thing, "encode"):  # how protocol 2 writes bytes in Python 3
        return _bytes(thing.args[0])
    if _is(thing, "bytearray", "bytes"):
        return _bytes(thing.args[0]) if thing.args else b""
    if not isinstance(thing, (bytes, bytearray)):
        raise DataError(f"has {_kind(thing)} in place of numbers")
    return thing


def _array(thing: Any, objects: bool = False) -> Any:
    """The array of a record; for an array of objects, if allowed, their list."""
    if _is(thing, "_frombuffer"):
        data, dtype, shape, order = thing.args[:4]
    elif _is(thing, "_reconstruct"):
        state = thing.state
        if isinstance(state[0], tuple):  # an Index that was an array itself: (array state, own state)
            state = state[0]
        shape, dtype, fortran, data = state[-4:]
        order = "F" if fortran else "C"
    else:
        raise DataError(f"has {_kind(thing)} in place of an array of numbers")
    if not (_is(dtype, "dtype") and isinstance(shape, tuple) and all(isinstance(n, int) and n >= 0 for n in shape)):
        raise DataError("has an array without type or shape")
    code = str(dtype.args[0])
    if objects and code.startswith("O") and isinstance(data, list):
        return data
    spelled = f"{dtype.state[1] if dtype.state else '='}{code}"
    if not re.fullmatch("[<>=|][fiub][1248]", spelled):
        raise DataError(f"has a column of type '{code}', which is no number")
    kind = np.dtype(spelled)
    data = _bytes(data)
    if len(data) != math.prod(shape) * kind.itemsize:
        raise DataError(f"has {len(data)} bytes for an array of shape {shape} and type '{code}'")
    return np.frombuffer(data, dtype=kind).reshape(shape, order="F" if order == "F" else "C")


def _kind(thing: Any) -> str:
    return f"a '{thing.name}'" if isinstance(thing, _Record) else f"a '{type(thing).__name__}'"


__all__ = ["read_arrays", "read_frame"]
