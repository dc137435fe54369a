"""JSON and TOML from files, of bounded size. What cannot be read is a ``ValueError`` that names the file."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

MOST_BYTES = 2**28


def read_json(path: Path, advice: str = "") -> dict[str, Any]:
    """The JSON object in a file.

    Args:
        path: of the file.
        advice: what to do if it is damaged.

    Raises:
        ValueError: it is damaged, too large, too deep, or no object.
    """
    return _read(path, "JSON", json.loads, advice)


def read_toml(path: Path, advice: str = "") -> dict[str, Any]:
    """The TOML table in a file; the arguments are those of :func:`read_json`."""
    return _read(path, "TOML", tomllib.loads, advice)


def _read(path: Path, kind: str, parse: Callable[[str], Any], advice: str) -> dict[str, Any]:
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise ValueError(f"{path} is too large: {size:,} bytes of {kind}, of which {MOST_BYTES:,} are read at most")
    more = f". {advice}" if advice else ""
    try:
        values = parse(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ValueError(f"{path} is not valid {kind}: {reason}{more}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path} is damaged: expected a {kind} object; got {type(values).__name__}{more}")
    return values
