"""Results of a benchmark, kept in one JSON file, so that a run that was stopped goes on where it was."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata

from rectangular_flows.storage.files import write_atomically


def read_kept(path: Path) -> dict[str, Any]:
    """What is there; empty where there is nothing."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def keep(path: Path, key: str, value: Any) -> None:
    """Add one result; several processes may do so, each for keys of its own."""
    with _lock(path):
        found = {**read_kept(path), key: value}
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(found, indent=1) + "\n")


class _lock:  # noqa: N801 - used like a function
    """Exclusive use of a file, while in it."""

    def __init__(self, path: Path):
        self.path = path.with_suffix(".lock")

    def __enter__(self) -> None:
        import fcntl

        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.file = os.open(self.path, os.O_CREAT | os.O_RDWR)
        fcntl.flock(self.file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        os.close(self.file)


def mean_ranks(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Mean rank of every column, (cases, methods) → (methods,), where higher values are better; ties share a rank."""
    return np.asarray(np.mean([rankdata(-row) for row in values], axis=0))


def markdown(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """A table."""
    head = list(head)
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows)])
