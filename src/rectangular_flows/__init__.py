"""Rectangular flows: learn a low-dimensional manifold in data and the density on it, by maximum likelihood."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from . import errors, flows, volume
    from .manifold import RectangularFlow

# name → module; loaded on first use, so that the command line can answer --help without torch
_HOMES = {"RectangularFlow": ".manifold", "errors": "", "flows": "", "volume": ""}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES[name]
    value = (
        getattr(importlib.import_module(home, __name__), name)
        if home
        else importlib.import_module(f".{name}", __name__)
    )
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = ["RectangularFlow", "__version__", "errors", "flows", "volume"]
