"""Arrays and DataFrames, in and out."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[Any]


def refuse_masked(X: Any, name: str) -> None:
    """Refuse a masked array with masked entries, whose mask would be lost."""
    if isinstance(X, np.ma.MaskedArray) and np.ma.getmaskarray(X).any():
        raise ValueError(
            f"{name} is a masked array with {int(np.ma.getmaskarray(X).sum())} masked entries, which count as missing. Drop "
            "those rows, or fill them in"
        )


def is_frame(X: Any) -> bool:
    """Whether it is a pandas DataFrame; pandas is not imported for this."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(X, pandas.DataFrame)


def given_type(X: Any) -> torch.dtype | None:
    """The type of single or half precision that numbers are given in; None for others.

    Example:
        >>> given_type(np.zeros((2, 2), dtype=np.float32)), given_type([[1.0]])
        (torch.float32, None)
    """
    kinds = {str(kind).removeprefix("torch.") for kind in (X.dtypes if is_frame(X) else [getattr(X, "dtype", "")])}
    narrow = kinds & {"float32", "float16", "bfloat16"}
    return getattr(torch, narrow.pop()) if narrow == kinds and len(kinds) == 1 else None


def refuse_dates(X: Any) -> None:
    """Refuse a DataFrame with columns of dates or durations, which have no unit."""
    if not is_frame(X):
        return
    dates = [str(name) for name, kind in X.dtypes.items() if getattr(kind, "kind", "") in "mM"]
    if dates:
        one, named = dates[0], ", ".join(map(repr, dates))
        raise ValueError(
            f"expected columns of numbers; {named} of X hold dates or durations. Leave them out, or give "
            f"numbers: (X[{one!r}] - X[{one!r}].min()).dt.total_seconds() for dates"
        )


def as_frame(values: Array, columns: list[str], index: Any = None) -> Any:
    """As a DataFrame; as it is where pandas is not installed."""
    try:
        pandas = importlib.import_module("pandas")
    except ImportError:
        return values
    return pandas.DataFrame(values, index=index, columns=columns)
