"""Names that are imported when first used, so that the command line answers ``--help`` without loading torch."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package whose public names live in the modules given.

    Args:
        package: ``__name__`` of the package.
        homes: name → module relative to it, ".module:other" where it has another name there; "" for a submodule.
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home, _, original = homes[name].partition(":")
        module = importlib.import_module(home or f".{name}", package)
        value = getattr(module, original or name) if home else module
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: sorted(homes)


__all__ = ["lazy"]
