"""The folder of a run: its configuration, its history as it grows, the best model so far, and the state to go on from."""

from __future__ import annotations

import csv
import io
import json
import platform
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from .. import toml
from .._version import __version__
from ..storage.files import write_atomically
from ..storage.models import DESCRIPTION, WEIGHTS
from .checkpoint import FILE
from .run import Epoch

CONFIG, HISTORY, TABLE, CHECKPOINT = "config.toml", "metrics.jsonl", "metrics.csv", "checkpoint"
FAILURE = "failure.txt"
_TAIL = 65_536  # bytes of a history that hold its last line, however many metrics it has
# made from a model, and gone with it
DERIVED = (FAILURE, "calibration.safetensors", "evaluation.json", "report.html", "circle.json", "tabular.json")


class RunFolder:
    """Reads and writes the files of one run.

    Args:
        path: the folder.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)

    @property
    def checkpoint(self) -> Path:
        """Where the state to go on from is."""
        return self.path / CHECKPOINT

    def create(self, settings: Mapping[str, Any], record: Mapping[str, Any], overwrite: bool) -> None:
        """Begin a run here.

        Raises:
            FileExistsError: there is one already, and it is not to be overwritten.
        """
        if (self.path / CONFIG).exists():
            if not overwrite:
                resume = f"Go on with it: rnf fit --resume {self.path} (in Python, resume=True); or choose"
                how = resume if (self.checkpoint / FILE).exists() else "It cannot be gone on with. Choose"
                raise FileExistsError(
                    f"{self.path} holds a run already. {how} another folder; or say --overwrite (overwrite=True)."
                )
            for name in (HISTORY, TABLE, WEIGHTS, DESCRIPTION):
                (self.path / name).unlink(missing_ok=True)
            for name in (CHECKPOINT, "tensorboard"):
                shutil.rmtree(self.path / name, ignore_errors=True)
            self.forget_derived()
        self.path.mkdir(parents=True, exist_ok=True)
        versions = {"rectangular_flows": __version__, "torch": torch.__version__, "python": platform.python_version()}
        started = datetime.now(UTC).isoformat(timespec="seconds")
        content = {**settings, "record": {"started": started, **versions, **record}}
        write_atomically(self.path / CONFIG, toml.dumps(content))

    def forget_derived(self) -> None:
        """Remove what was made from a model that is about to change: figures, evaluations, pages."""
        for name in DERIVED:
            (self.path / name).unlink(missing_ok=True)
        shutil.rmtree(self.path / "figures", ignore_errors=True)
        for figures in self.path.glob("ood-*/ood.*"):
            figures.unlink()

    def check_resumable(self, record: Mapping[str, Any]) -> None:
        """Whether there is a state to go on from, and the data are those the run began with.

        Raises:
            FileNotFoundError: there is no checkpoint.
            ValueError: the data are others.
        """
        if not (self.checkpoint / FILE).exists():
            raise FileNotFoundError(
                f"nothing to go on from in {self.path}: expected {CHECKPOINT}/{FILE} there. A run writes it when it is "
                "stopped, and now and then as it goes."
            )
        before = read_config(self.path).get("record", {})
        for key in ("train_sha256", "validation_sha256"):
            if key in before and before[key] != record.get(key):
                which = key.removesuffix("_sha256")
                raise ValueError(
                    f"the {which} rows are not those that {self.path} began with ({before[key][:12]}… then, "
                    f"{str(record.get(key))[:12]}… now). Give it the same data, or start a new run."
                )

    def keep_history(self, history: list[Epoch]) -> None:
        """Write the whole history again: what was written after the last checkpoint is cut off on resuming."""
        lines = [json.dumps(line.flat()) + "\n" for line in history]
        write_atomically(self.path / HISTORY, "".join(lines))
        write_atomically(self.path / TABLE, _csv(history, header=True))

    def append(self, line: Epoch, first: bool) -> None:
        """Add a line to the history."""
        with (self.path / HISTORY).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line.flat()) + "\n")
        with (self.path / TABLE).open("a", encoding="utf-8") as file:
            file.write(_csv([line], header=first))


def read_config(folder: str | Path) -> dict[str, Any]:
    """What ``config.toml`` of a run says."""
    import tomllib

    path = Path(folder) / CONFIG
    if not path.exists():
        raise FileNotFoundError(f"no run in {folder}: expected {CONFIG} there, as 'rnf fit … --out {folder}' writes it")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is not valid TOML: {error}") from error


def read_history(folder: str | Path) -> list[Epoch]:
    """The history of a run, from ``metrics.jsonl``; a last line cut short by a crash is left out."""
    path = Path(folder) / HISTORY
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    history = []
    for i, text in enumerate(lines):
        try:
            history.append(_epoch(json.loads(text)))
        except (json.JSONDecodeError, KeyError) as error:
            if i == len(lines) - 1:
                break
            raise ValueError(f"{path}, line {i + 1}, is damaged: {error!r}") from error
    return history


def last_epoch(folder: str | Path) -> Epoch | None:
    """The last whole line of that history, which a run under way may be adding to; None where there is none yet."""
    path = Path(folder) / HISTORY
    if not path.exists():
        return None
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL))
        lines = file.read().split(b"\n")[:-1]  # what follows the last end of a line is not whole
    return _epoch(json.loads(lines[-1])) if lines else None


def _epoch(values: dict[str, Any]) -> Epoch:
    own = {name: values.pop(name) for name in Epoch.__dataclass_fields__ if name != "metrics"}
    return Epoch(**own, metrics=values)


def _csv(history: list[Epoch], header: bool) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if header and history:
        writer.writerow(history[0].flat())
    writer.writerows(line.flat().values() for line in history)
    return text.getvalue()
