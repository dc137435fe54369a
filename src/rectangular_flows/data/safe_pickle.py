"""Numbers out of GAS's 'ethylene_CO.pickle', without running anything that the file asks for, and without pandas.

A pickle is a program: it names functions and has them called. Here every name that the file may use stands for an inert
record that remembers what it was called with, and every other name is an error. Only afterwards are column names and
blocks of numbers looked for among the records. Not even numpy's own constructors see the file.

The file is a DataFrame of pandas 0.x, written by Python 2.
"""

from __future__ import annotations

import math
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np

from ._files import Array, listing, reading

# by package, not by module: modules were renamed between versions, and a record is harmless wherever it comes from
_ALLOWED = {
    "pandas": {"DataFrame", "BlockManager", "_new_Index", "Index", "Int64Index", "Float64Index", "RangeIndex"},
    "numpy": {"_reconstruct", "ndarray", "dtype"},
    "__builtin__": {"slice", "object"},
    "copy_reg": {"_reconstructor"},
}


class _Record:
    """Stands for an object of the file: its name, the arguments it was made with, the state it was given."""

    name = ""
    args: tuple[Any, ...]
    state: Any = None

    def __new__(cls, *args: Any) -> _Record:
        record = super().__new__(cls)
        record.args = args
        return record

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> type[_Record]:
        if name not in _ALLOWED.get(module.split(".")[0], ()):
            raise ValueError(f"it asks for '{module}.{name}', which a table of numbers does not need; nothing was run")
        return type(name, (_Record,), {"name": name})


def read_frame(path: Path) -> tuple[tuple[str, ...], Array]:
    """The column names and the values (N, D), float64, of a pickled DataFrame of numbers.

    Nothing that the file names is imported or called: a file that asks for more than such a frame needs is refused.
    """
    # latin1 keeps the bytes of Python 2's strings, which hold the numbers
    with reading(path, "a pickled DataFrame of numbers"), open(path, "rb") as file:
        return _frame(_Unpickler(file, encoding="latin1").load())


def _frame(root: Any) -> tuple[tuple[str, ...], Array]:
    _expect(root, "DataFrame")
    manager = root.state["_data"] if isinstance(root.state, dict) else root.state
    _expect(manager, "BlockManager")
    # a block is (its columns, rows), and its columns are given by their labels
    axes, blocks, items = manager.state[:3]
    columns = _labels(axes[0])
    arrays = [_array(block) for block in blocks]
    rows = {array.shape[-1] for array in arrays}
    if len(rows) != 1 or any(array.ndim != 2 for array in arrays):
        raise ValueError(f"it holds blocks of shapes {[array.shape for array in arrays][:5]}, which make no table")
    out = np.empty((rows.pop(), len(columns)), dtype=np.float64)
    seen = []
    for array, labels in zip(arrays, map(_labels, items), strict=True):
        for row, label in zip(array, labels, strict=True):
            out[:, columns.index(label)] = row
            seen.append(label)
    if sorted(seen) != sorted(set(columns)):
        raise ValueError(f"it does not hold numbers for each of {listing(columns)} once")
    return columns, out


def _expect(thing: Any, name: str) -> None:
    # protocols 0 and 1 make an object by _reconstructor(class, base, state)
    made = thing.args[0] if isinstance(thing, _Record) and thing.name == "_reconstructor" else thing
    if getattr(made, "name", None) != name:
        raise ValueError(f"it holds a '{getattr(made, 'name', type(made).__name__)}' in place of a '{name}'")


def _labels(thing: Any) -> tuple[str, ...]:
    """The labels of an axis: an index of pandas ≥ 0.15, or an older one, which is an array itself."""
    if isinstance(thing, _Record) and thing.name == "_new_Index":
        thing = thing.args[1]["data"]
    labels = _state(thing)[-1]
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise ValueError("it names its columns by other things than text")
    return tuple(labels)


def _state(thing: Any) -> tuple[Any, Any, Any, Any]:
    """Shape, type, order and content of an array."""
    _expect(thing, "_reconstruct")
    # an older index has a state of its own
    state = thing.state[0] if isinstance(thing.state[0], tuple) else thing.state
    shape, dtype, fortran, content = state[-4:]
    _expect(dtype, "dtype")
    return shape, dtype, fortran, content


def _array(thing: Any) -> Array:
    shape, dtype, fortran, content = _state(thing)
    if not (isinstance(shape, tuple) and all(isinstance(n, int) and n >= 0 for n in shape)):
        raise ValueError("it has an array without a shape")
    spelled = f"{dtype.state[1]}{dtype.args[0]}"
    if not re.fullmatch("[<>=|][fiub][1248]", spelled):
        raise ValueError(f"it has a column of type '{dtype.args[0]}', which is no number")
    kind, data = np.dtype(spelled), content.encode("latin1")
    if len(data) != math.prod(shape) * kind.itemsize:
        raise ValueError(f"it has {len(data)} bytes for an array of shape {shape} and type '{dtype.args[0]}'")
    return np.frombuffer(data, dtype=kind).reshape(shape, order="F" if fortran else "C")
