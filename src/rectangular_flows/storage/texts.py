"""JSON and TOML in files, of bounded size. What cannot be read is a ``ValueError`` that names the file."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .damage import DamagedFileError

MOST_BYTES = 2**28


def read_json(path: Path, advice: str = "") -> dict[str, Any]:
    """The JSON object in a file.

    Args:
        path: of the file.
        advice: what to do if it is damaged.

    Raises:
        ValueError: it is damaged, too large, too deep, or no object.
    """
    return parse_json(_content(path, "JSON"), path, advice)


def read_toml(path: Path, advice: str = "") -> dict[str, Any]:
    """The TOML table in a file; the arguments are those of :func:`read_json`."""
    return parse_toml(_content(path, "TOML"), path, advice)


def parse_json(content: bytes, path: Path, advice: str = "") -> dict[str, Any]:
    """The JSON object in what was read from a file; damage is a :class:`DamagedFileError`."""
    return _parse(content, path, "JSON", json.loads, advice)


def parse_toml(content: bytes, path: Path, advice: str = "") -> dict[str, Any]:
    """The TOML table in what was read from a file."""
    return _parse(content, path, "TOML", tomllib.loads, advice)


def as_json(values: Any) -> str:
    """As the text of a JSON file; a number that is not finite, which JSON has not, is null.

    Example:
        >>> print(as_json({"a": float("nan")}).strip())
        {
         "a": null
        }
    """
    return json.dumps(_finite(values), indent=1, allow_nan=False) + "\n"


def _finite(values: Any) -> Any:
    if isinstance(values, dict):
        return {key: _finite(value) for key, value in values.items()}
    if isinstance(values, list | tuple):
        return [_finite(value) for value in values]
    return None if isinstance(values, float) and not math.isfinite(values) else values


def _content(path: Path, kind: str) -> bytes:
    _check_size(path.stat().st_size, path, kind)
    return path.read_bytes()


def _check_size(size: int, path: Path, kind: str) -> None:
    if size > MOST_BYTES:
        raise ValueError(f"{path} is too large: {size:,} bytes of {kind}, of which {MOST_BYTES:,} are read at most")


def _parse(content: bytes, path: Path, kind: str, parse: Callable[[str], Any], advice: str) -> dict[str, Any]:
    _check_size(len(content), path, kind)
    more = f". {advice}" if advice else ""
    try:
        values = parse(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        if kind == "TOML":  # people write it
            raise ValueError(f"{path} is not valid TOML: {reason}{more}") from error
        raise DamagedFileError(f"{path} is damaged: not valid {kind}: {reason}{more}") from error
    if not isinstance(values, dict):
        raise DamagedFileError(f"{path} is damaged: expected a {kind} object; got {type(values).__name__}{more}")
    return values
