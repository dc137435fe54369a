"""Folders of version 0.1, which have no manifest: recognised by what only we write."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

CONFIG = "config.toml"
_MODEL = ("model.safetensors", "model.json", "calibration.safetensors")
_RUN = (CONFIG, "metrics.jsonl", "metrics.csv", *_MODEL, "checkpoint/state.safetensors")


def is_old_run(folder: Path) -> bool:
    """Whether the configuration in a folder is that of a run: it has our record of what was trained on what."""
    try:
        record = tomllib.loads((folder / CONFIG).read_text(encoding="utf-8")).get("record")
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(record, dict) and "train_sha256" in record and bool({"rectangular_flows", "version"} & {*record})


def old_files(folder: Path) -> list[str]:
    """The names of the files that make up the state of such a folder, a run or a model."""
    names = _RUN if is_old_run(folder) else _MODEL if _is_old_model(folder) else ()
    return [name for name in names if (folder / name).is_file()]


def _is_old_model(folder: Path) -> bool:
    try:
        found = json.loads((folder / "model.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and {"format", "version", "dtype", "model", "facts"} <= {*found}
