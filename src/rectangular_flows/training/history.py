"""The history of a run as files: a line for each validation, as JSON and as a table."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

from ..storage.manifest import Stored, consistently
from ..volume.auto import CHOICE
from .run import Epoch

HISTORY, TABLE = "metrics.jsonl", "metrics.csv"


def history_files(lines: list[Epoch], heading: bool = True) -> dict[str, bytes]:
    """The files of these lines, name → content; to add lines to files, without the heading of the table."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    if lines and heading:
        writer.writerow(lines[0].flat())  # its keys
    writer.writerows(line.flat().values() for line in lines)
    texts = {HISTORY: "".join(_json(line.flat()) + "\n" for line in lines), TABLE: table.getvalue()}
    return {name: text.encode() for name, text in texts.items()}


def parse_history(text: str, source: Path | str) -> list[Epoch]:
    """The inverse, from JSON lines; a last line cut short by a crash is left out."""
    lines, history = text.splitlines(), []
    for i, line in enumerate(lines):
        try:
            history.append(_epoch(json.loads(line)))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if i == len(lines) - 1:
                break
            raise ValueError(f"{source}, line {i + 1}, is damaged: {error!r}") from error
    return history


def read_history(folder: str | Path) -> list[Epoch]:
    """The history of a run, from ``metrics.jsonl``."""
    path = Path(folder) / HISTORY

    def read(stored: Stored) -> bytes:
        manifest = stored.manifest
        if HISTORY in stored:
            return stored.read(HISTORY)
        # the first lines are there before they are part of a saved state; those of a run that was replaced do not count
        gone = manifest is not None and HISTORY in manifest.remove
        return b"" if gone or not path.exists() else path.read_bytes()

    return parse_history(consistently(folder, read).decode("utf-8", errors="replace"), path)


def last_epoch(folder: str | Path) -> Epoch | None:
    """The last line of that history; None if there is none yet."""
    history = read_history(folder)
    return history[-1] if history else None


def _json(values: dict[str, Any]) -> str:
    """As JSON, which has no NaN: null instead. An infinity becomes a number too large for a float, which reads as one."""
    return "{" + ", ".join(f"{json.dumps(key)}: {_number(value)}" for key, value in values.items()) + "}"


def _number(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "null" if math.isnan(value) else "1e999" if value > 0 else "-1e999"
    return json.dumps(value)


def _epoch(values: dict[str, Any]) -> Epoch:
    values = {name: math.nan if value is None else value for name, value in values.items()}
    own = {name: values.pop(name) for name in Epoch.__dataclass_fields__ if name not in ("metrics", "volume")}
    volume = {name: values.pop(name) for name in CHOICE if name in values}
    return Epoch(**own, metrics=values, volume=volume)
