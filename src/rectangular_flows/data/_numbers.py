"""Numbers as text: the shortest that gives the same number back, as Python writes it; NaN is empty.

pyarrow, if it is installed, finds the digits of a column several times faster than Python does, and writes very small and
very large ones another way: these are left to Python, so that the text is the same without it.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from ._files import Array

_ROWS = 2**14  # at a time: as text, a number takes ten times the memory
_FEW = 2**11  # rows, for which pyarrow takes longer to import than Python to write
_LEAST, _MOST = 1e-4, 1e9  # between these pyarrow writes no exponent, and neither does Python


def texts_of(values: Array) -> list[str]:
    """The texts of a column, (n,); whole numbers have no decimal point."""
    arrow = _arrow(values)
    return _by_python(values) if arrow is None else _by_arrow(values, arrow).to_pylist()


def lines_of(values: Array, mark: str) -> Iterator[bytes]:
    """The rows of a text file, (n, D), with a mark between the cells, many at a time."""
    for start in range(0, len(values), _ROWS):
        part = values[start : start + _ROWS]
        arrow = _arrow(part)
        yield _joined_by_python(part, mark) if arrow is None else _joined_by_arrow(part, mark, arrow)


def _joined_by_python(values: Array, mark: str) -> bytes:
    columns = map(_by_python, values.T)
    return "".join(f"{mark.join(cells)}\n" for cells in zip(*columns, strict=True)).encode()


def _joined_by_arrow(values: Array, mark: str, arrow: Any) -> bytes:
    join = importlib.import_module("pyarrow.compute").binary_join_element_wise
    rows = join(*(_by_arrow(column, arrow) for column in values.T), mark)
    lines = join(rows, "\n", "")
    _, offsets, letters = lines.buffers()
    return memoryview(letters)[: np.frombuffer(offsets, np.int32)[len(values)]].tobytes()


@cache
def _installed() -> bool:
    return importlib.util.find_spec("pyarrow") is not None


def _arrow(values: Array) -> Any:
    """pyarrow, if it is there and would do these numbers good."""
    if values.dtype != np.float64 or len(values) < _FEW or not _installed():
        return None
    return importlib.import_module("pyarrow")


def _by_arrow(values: Array, arrow: Any) -> Any:
    compute = importlib.import_module("pyarrow.compute")
    values = np.ascontiguousarray(values)
    texts = compute.cast(arrow.array(values), arrow.string())
    size = np.abs(values)
    others = ~((size >= _LEAST) & (size < _MOST) | (values == 0))
    if not others.any():
        return texts
    return compute.replace_with_mask(
        texts, arrow.array(others), arrow.array(_by_python(values[others]), arrow.string())
    )


def _by_python(values: Array) -> list[str]:
    if values.dtype.kind != "f":
        return list(map(str, (values.astype(np.int8) if values.dtype.kind == "b" else values).tolist()))
    if values.dtype.itemsize <= 4:
        cells = [f"{cell:.9g}" for cell in values.tolist()]
    elif _plain_whole(values):  # quicker than shortening each
        return list(map(str, values.astype(np.int64).tolist()))
    else:
        cells = list(map(repr, values.tolist()))
        for i in np.flatnonzero(values == np.rint(values)).tolist():
            cells[i] = cells[i].removesuffix(".0")
    for i in np.flatnonzero(np.isnan(values)).tolist():
        cells[i] = ""
    return cells


def _plain_whole(values: Array) -> bool:
    """Whether all are whole numbers whose texts have neither an exponent nor the sign of −0."""
    with np.errstate(invalid="ignore"):
        return bool(
            ((values == np.rint(values)) & (np.abs(values) < 1e15) & ((values != 0) | ~np.signbit(values))).all()
        )
