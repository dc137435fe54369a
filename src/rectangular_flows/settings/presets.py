"""Settings that come with the package, and those in a user's file."""

from __future__ import annotations

import importlib.resources
import re
import tomllib
from importlib.resources.abc import Traversable
from itertools import takewhile
from pathlib import Path
from typing import Any

from ..kinds import choices_of
from ..spelling import nearest
from ..storage import texts
from .fit import settings_table

DEFAULT_PRESET = "table"
"""The preset of ``rnf fit`` and of the estimator where none is named."""

PRESET_FOLDERS: list[Traversable] = [
    importlib.resources.files("rectangular_flows") / room / "presets" for room in ("settings", "paper")
]
"""Where presets are: TOML files whose name is that of the preset. Those of the first folder are for users' own data."""


def preset_files(folders: list[Traversable] | None = None) -> dict[str, Traversable]:
    """The presets by name, and their files."""
    files = [file for folder in folders or PRESET_FOLDERS for file in folder.iterdir() if file.name.endswith(".toml")]
    return dict(sorted((file.name.removesuffix(".toml"), file) for file in files))


def read_preset(name: str) -> dict[str, Any]:
    """The settings of a preset.

    ``extends = "table"`` in its file starts from those of another, and the value "none" takes one of them out again.

    Raises:
        ValueError: there is no such preset.
    """
    files, known = preset_files(), settings_table().settings()
    if name not in files:
        raise ValueError(f"no preset {name!r}.{nearest(name, files)} 'rnf fit --list-presets' lists them")
    values = tomllib.loads(files[name].read_text(encoding="utf-8"))
    base = read_preset(values.pop("extends")) if "extends" in values else {}
    values = {**base, **values}
    return {key: v for key, v in values.items() if v != "none" or "none" in choices_of(known[key].hint)}


def preset_summary(name: str) -> str:
    """The first sentence of the comment that a preset begins with."""
    lines = preset_files()[name].read_text(encoding="utf-8").splitlines()
    comment = " ".join(line.removeprefix("#").strip() for line in takewhile(lambda line: line.startswith("#"), lines))
    return re.split(r"(?<=[.:]) ", comment)[0].rstrip(".:")


def read_toml(path: str | Path) -> tuple[dict[str, Any], bool]:
    """The settings in a configuration file, and whether it is the config.toml of a run.

    Raises:
        ValueError: the file is not valid TOML.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no configuration file {path}")
    values = texts.read_toml(path)
    return values, values.pop("record", None) is not None
