"""The folder of a run: its configuration, its history as it grows, the best model so far, and the state to resume from."""

from __future__ import annotations

import copy
import csv
import io
import json
import platform
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import tomli_w
import torch
from torch import Tensor

from .._version import __version__
from ..data.rows import Rows
from ..storage.files import fingerprint, remove_leftovers, write_atomically
from ..storage.models import DESCRIPTION, WEIGHTS, save_model
from ..storage.texts import read_toml
from .average import Average
from .checkpoint import FILE, save_checkpoint
from .run import Epoch, Run

CONFIG, HISTORY, TABLE, CHECKPOINT = "config.toml", "metrics.jsonl", "metrics.csv", "checkpoint"
FAILURE = "failure.txt"
# made from a model, and removed with it
DERIVED = (
    *(FAILURE, "calibration.safetensors", "evaluation.json", "verdict.json", "report.html"),
    *("circle.json", "tabular.json"),
)


class RunFolder:
    """Reads and writes the files of one run.

    Args:
        path: the folder.
        writes: whether this process writes to it; of several processes one does.
    """

    def __init__(self, path: str | Path, writes: bool = True):
        self.path, self.writes = Path(path), writes

    @property
    def checkpoint(self) -> Path:
        """Where the state to resume from is."""
        return self.path / CHECKPOINT

    def create(self, settings: Mapping[str, Any], train: Rows, validation: Tensor, overwrite: bool) -> None:
        """Begin a run here, with its settings and the fingerprints of its rows.

        Raises:
            FileExistsError: there is one already, and it is not to be overwritten.
        """
        if not self.writes:
            return
        if (self.path / CONFIG).exists():
            if not overwrite:
                resume = f"Resume it with rnf fit --resume {self.path} (in Python, resume=True), choose"
                how = resume if (self.checkpoint / FILE).exists() else "It cannot be resumed. Choose"
                raise FileExistsError(
                    f"{self.path} holds a run already. {how} another folder, or replace it: --overwrite (overwrite=True)."
                )
            for name in (HISTORY, TABLE, WEIGHTS, DESCRIPTION):
                (self.path / name).unlink(missing_ok=True)
            for name in (CHECKPOINT, "tensorboard"):
                shutil.rmtree(self.path / name, ignore_errors=True)
            self.forget_derived()
        self.path.mkdir(parents=True, exist_ok=True)
        remove_leftovers(self.path)
        versions = {"rectangular_flows": __version__, "torch": torch.__version__, "python": platform.python_version()}
        started = datetime.now(UTC).isoformat(timespec="seconds")
        record = {"started": started, **versions, "train_rows": len(train), **_fingerprints(train, validation)}
        write_atomically(self.path / CONFIG, tomli_w.dumps(_known({**settings, "record": record})))

    def forget_derived(self) -> None:
        """Remove what was made from a model that is about to change: figures, evaluations, pages."""
        for name in DERIVED:
            (self.path / name).unlink(missing_ok=True)
        shutil.rmtree(self.path / "figures", ignore_errors=True)
        for figures in self.path.glob("ood-*/ood.*"):
            figures.unlink()

    def check_resumable(self, train: Rows, validation: Tensor) -> None:
        """Whether there is a state to resume from, and the data are those the run began with.

        Raises:
            FileNotFoundError: there is no checkpoint.
            ValueError: the data are others.
        """
        if not (self.checkpoint / FILE).exists():
            raise FileNotFoundError(
                f"nothing to resume from in {self.path}: expected {CHECKPOINT}/{FILE} there. A run writes it when it is "
                "stopped, and every 30 seconds or so before."
            )
        before = read_config(self.path).get("record", {})
        for key, now in _fingerprints(train, validation).items():
            if before.get(key, now) != now:
                raise ValueError(
                    f"the {key.removesuffix('_sha256')} rows are not those that {self.path} began with "
                    f"({before[key][:12]}… then, {now[:12]}… now). Give it the same data, or start a new run."
                )

    def resume(self, history: list[Epoch], finished: bool) -> None:
        """Clean up before a run continues: what was written after the last checkpoint, or made from its model."""
        if not self.writes:
            return
        for folder in (self.path, self.checkpoint):
            remove_leftovers(folder)
        self.write_history(history)
        if not finished:
            self.forget_derived()

    def write_history(self, lines: list[Epoch], append: bool = False) -> None:
        """Write the history, as JSON lines and as a table, or append lines to it."""
        if not self.writes:
            return
        table = io.StringIO()
        writer = csv.writer(table, lineterminator="\n")
        if lines and not append:
            writer.writerow(lines[0].flat())  # its keys
        writer.writerows(line.flat().values() for line in lines)
        texts = {HISTORY: "".join(json.dumps(line.flat()) + "\n" for line in lines), TABLE: table.getvalue()}
        for name, text in texts.items():
            if append:
                with (self.path / name).open("a", encoding="utf-8") as file:
                    file.write(text)
            else:
                write_atomically(self.path / name, text)

    def save_checkpoint(self, run: Run, optimiser: torch.optim.Optimizer, average: Average) -> None:
        """The state to resume from."""
        if self.writes:
            save_checkpoint(self.checkpoint, run.flow, optimiser, average, run.progress, run.best_weights)

    def save_model(self, run: Run, facts: Mapping[str, Any], final: bool = False) -> None:
        """The model with its best weights so far, or with those it has; in the end as it is."""
        if self.writes:
            model = copy.deepcopy(run.flow)
            if run.best_weights and not final:
                model.load_state_dict(run.best_weights)
            save_model(model, self.path, **facts)


def read_config(folder: str | Path) -> dict[str, Any]:
    """The contents of ``config.toml`` of a run."""
    path = Path(folder) / CONFIG
    if not path.exists():
        raise FileNotFoundError(f"no run in {folder}: expected {CONFIG} there, as 'rnf fit … --out {folder}' writes it")
    return read_toml(path)


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
    """The last line of that history; None if there is none yet."""
    history = read_history(folder)
    return history[-1] if history else None


def _fingerprints(train: Rows, validation: Tensor) -> dict[str, str]:
    return {"train_sha256": fingerprint(train), "validation_sha256": fingerprint(validation)}


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    """Without the values that are None, which TOML cannot write."""
    known = {key: value for key, value in values.items() if value is not None}
    return {key: _known(value) if isinstance(value, Mapping) else value for key, value in known.items()}


def _epoch(values: dict[str, Any]) -> Epoch:
    own = {name: values.pop(name) for name in Epoch.__dataclass_fields__ if name != "metrics"}
    return Epoch(**own, metrics=values)
