"""Writing TOML (the standard library only reads it): plain values, lists, and one level of tables."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def dumps(values: Mapping[str, Any]) -> str:
    """A mapping as TOML. A value of None, which TOML does not know, becomes a comment.

    Example:
        >>> print(dumps({"epochs": 5, "clip": None, "anneal": [1.0, 2.5], "record": {"data": "a.csv"}}), end="")
        epochs = 5
        # clip = none
        anneal = [1.0, 2.5]
        <BLANKLINE>
        [record]
        data = "a.csv"
    """
    tables = {key: value for key, value in values.items() if isinstance(value, Mapping)}
    lines = [_line(key, value) for key, value in values.items() if key not in tables]
    for name, table in tables.items():
        lines += ["", f"[{_key(name)}]", *(_line(key, value) for key, value in table.items())]
    return "\n".join(lines) + "\n"


def _line(key: str, value: Any) -> str:
    return f"# {_key(key)} = none" if value is None else f"{_key(key)} = {_value(value)}"


def _key(key: str) -> str:
    return key if key.replace("_", "").replace("-", "").isalnum() and key.isascii() else _quoted(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(item) for item in value)}]"
    raise TypeError(f"expected a plain value for TOML; got {type(value).__name__}")


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


__all__ = ["dumps"]
