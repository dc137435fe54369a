"""The folder of a run: its configuration, its history as it grows, the best model so far, and the state to resume from.

What a run saves it saves at once: see :mod:`rectangular_flows.storage.manifest`. While it trains, it has the folder's lock.
"""

from __future__ import annotations

import copy
import hashlib
import json
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import tomli_w
import torch
from torch import Tensor

from .._version import __version__
from ..atlas import Model
from ..data.rows import Rows
from ..errors import warn
from ..storage.derived import derived_files
from ..storage.files import DamagedFileError, fingerprint, is_temporary, write_atomically
from ..storage.legacy import CONFIG, is_old_run
from ..storage.lock import LOCK, acquire, release
from ..storage.manifest import (
    DamagedFileWarning,
    Stored,
    commit,
    consistently,
    is_leftover,
    read_files,
    read_manifest,
    recover,
)
from ..storage.models import CALIBRATION, model_files, read_description
from ..storage.texts import parse_toml
from .average import Average
from .checkpoint import BEFORE, CHECKPOINT, pack_checkpoint, unpack_checkpoint
from .history import HISTORY, TABLE, history_files, parse_history, read_history
from .run import Epoch, Progress, Run

FAILURE = "failure.txt"
_PLACES = ("data", "validation_data", "test_data")
_TENSORBOARD = "tensorboard/events.out.tfevents.*"


class ChangedSettingsWarning(UserWarning):
    """The config.toml of a run is not the one that was saved."""


class RunFolder:
    """Reads and writes the files of one run.

    Args:
        path: the folder.
        writes: whether this process writes to it; of several processes one does.
    """

    def __init__(self, path: str | Path, writes: bool = True):
        self.path, self.writes = Path(path), writes
        self._locked = False
        self._restored: dict[str, bytes] = {}

    # --- beginning

    def create(
        self, settings: Mapping[str, Any], train: Rows, validation: Tensor, overwrite: bool, facts: Mapping[str, Any]
    ) -> None:
        """Begin a run here, with its settings and the fingerprints of its rows and the names of its columns.

        Raises:
            FileExistsError: there is a run already, and it is not to be overwritten; or there are other files.
            InUseError: another process writes to the folder.
        """
        if not self.writes:
            return
        self.check_vacant(overwrite)
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock()
        self.check_vacant(overwrite)  # now that nobody else can begin one
        recover(self.path)
        versions = {"rectangular_flows": __version__, "torch": torch.__version__, "python": platform.python_version()}
        started = datetime.now(UTC).isoformat(timespec="seconds")
        record = {"started": started, **versions, "train_rows": len(train), **_fingerprints(train, validation)}
        values = _known({**settings, "record": {**record, **_names(facts), "whole": facts.get("whole")}})
        remove = [*derived_files(self.path), *(path.relative_to(self.path).as_posix() for path in self._events())]
        known = {"settings_sha256": _meaning(values)}
        commit(self.path, {CONFIG: tomli_w.dumps(values).encode()}, remove=remove, facts=known, fresh=True)

    def check_vacant(self, overwrite: bool) -> None:
        """Whether a run can begin here.

        Raises:
            FileExistsError: there is a run already, and it is not to be overwritten; or there are other files.
        """
        if is_run(self.path):
            if not overwrite:
                resume = f"Resume it with rnf fit --resume {self.path} (in Python, resume=True), choose"
                how = resume if has_checkpoint(self.path) else "It cannot be resumed. Choose"
                raise FileExistsError(
                    f"{self.path} holds a run already. {how} another folder, or replace it: --overwrite (overwrite=True)."
                )
        elif self.path.exists() and not (self.path.is_dir() and all(map(_is_ours, self.path.iterdir()))):
            raise FileExistsError(
                f"{self.path} is not empty, and holds no run. Give a new folder or an empty one; nothing was written to it"
            )

    def _events(self) -> list[Path]:
        return sorted(self.path.glob(_TENSORBOARD))

    # --- continuing

    def last_state(self, train: Rows, validation: Tensor, facts: Mapping[str, Any]) -> bytes:
        """The last checkpoint, if the data are those that the run began with; for the process that writes.

        A damaged state is replaced by the one before it, with a warning.

        Raises:
            FileNotFoundError: there is no checkpoint.
            ValueError: the data are others, or no checkpoint can be read.
            InUseError: another process writes to the folder.
        """
        if not has_checkpoint(self.path):
            raise FileNotFoundError(
                f"nothing to resume from in {self.path}: expected {CHECKPOINT} there. A run writes it when it is "
                "stopped, and every checkpoint_every seconds before."
            )
        self._lock()
        recover(self.path)
        self._check_data(train, validation, facts)
        try:
            return read_files(self.path, [CHECKPOINT])[CHECKPOINT]
        except DamagedFileError as error:
            try:
                content = read_files(self.path, [BEFORE])[BEFORE]
            except (DamagedFileError, KeyError):
                raise error from None
            warn(DamagedFileWarning, f"{error}. The run continues from the state before that one")
            self._restored = {CHECKPOINT: content}
            return content

    def restore(
        self, state: bytes, flow: Model, optimiser: torch.optim.Optimizer, average: Average
    ) -> tuple[Progress, dict[str, Tensor], list[Epoch]]:
        """Put a state back into flow, optimiser and average; the progress, the best weights so far, and the history."""
        name = BEFORE if self._restored else CHECKPOINT
        progress, best, lines = unpack_checkpoint(state, self.path / name, flow, optimiser, average)
        history = read_history(self.path) if lines is None else parse_history(lines, self.path / name)
        return progress, best, [line for line in history if line.epoch <= progress.epoch]

    def _check_data(self, train: Rows, validation: Tensor, facts: Mapping[str, Any]) -> None:
        before, advice = read_config(self.path).get("record", {}), "Give it the same data, or start a new run."
        for key, names in _names(facts).items():
            then = before.get(key) if before.get(key) is not None else self._saved_facts().get(key)
            if then is not None and list(then) != names:
                raise ValueError(
                    f"the columns are not those that {self.path} began with: {_differ(then, names)}. {advice}"
                )
        for key, now in _fingerprints(train, validation).items():
            if before.get(key, now) != now:
                raise ValueError(
                    f"the {key.removesuffix('_sha256')} rows are not those that {self.path} began with "
                    f"({before[key][:12]}… then, {now[:12]}… now). {advice}"
                )

    def _saved_facts(self) -> dict[str, Any]:
        """What was saved with the model: version 0.1 kept the names of the columns only there."""
        try:
            found: dict[str, Any] = read_description(self.path)["facts"]
        except (ValueError, OSError):
            return {}
        return found

    def resume(self, history: list[Epoch], finished: bool) -> None:
        """Clean up before a run continues: what was written after the last checkpoint, or made from its model."""
        if not self.writes:
            return
        files = {**history_files(history), **self._restored}
        remove = [] if finished else derived_files(self.path)
        drop = () if finished else (CALIBRATION,)
        facts = None if finished else {"finished": ""}
        commit(self.path, files, growing=(HISTORY, TABLE), drop=drop, remove=remove, facts=facts)

    # --- while it trains

    def write_history(self, lines: list[Epoch], append: bool = False) -> None:
        """Write the history, as JSON lines and as a table, or append lines to it."""
        if not self.writes:
            return
        for name, content in history_files(lines, heading=not append).items():
            if append:
                with (self.path / name).open("ab") as file:
                    file.write(content)
            else:
                write_atomically(self.path / name, content)

    def save(
        self,
        run: Run,
        facts: Mapping[str, Any],
        optimiser: torch.optim.Optimizer | None = None,
        average: Average | None = None,
    ) -> None:
        """The model with its best weights so far, or with those it has; and the state to resume from, if it is given."""
        if not self.writes:
            return
        model = copy.deepcopy(run.flow)
        if run.best_weights:
            model.load_state_dict(run.best_weights)
        files = model_files(model, facts)
        if optimiser is not None and average is not None:
            lines = history_files(run.history)[HISTORY].decode()
            files[CHECKPOINT] = pack_checkpoint(run.flow, optimiser, average, run.progress, run.best_weights, lines)
        self._commit(run, files, "")

    def finish(self, run: Run, facts: Mapping[str, Any]) -> None:
        """The model as it is, in the end; with it the run is complete."""
        if self.writes:
            self._commit(run, model_files(run.flow, facts), run.finished)

    def _commit(self, run: Run, files: dict[str, bytes], finished: str) -> None:
        grown = history_files(run.history) if run.history else {}
        lost = {name: content for name, content in grown.items() if not (self.path / name).is_file()}
        commit(
            self.path,
            {**files, **lost},
            copies={BEFORE: CHECKPOINT} if CHECKPOINT in files else {},
            grown={name: content for name, content in grown.items() if name not in lost},
            growing=tuple(lost),
            facts={"finished": finished},
        )

    # --- the lock

    def _lock(self) -> None:
        acquire(self.path)
        self._locked = True

    def close(self) -> None:
        """Let other processes write."""
        if self._locked:
            self._locked = False
            release(self.path)


def is_run(folder: str | Path) -> bool:
    """Whether there is a run in a folder: by its manifest, or by what only version 0.1 wrote."""
    folder = Path(folder)
    manifest = read_manifest(folder)
    return (manifest is not None and CONFIG in manifest.files) or is_old_run(folder)


def has_checkpoint(folder: str | Path) -> bool:
    """Whether a run can be resumed."""
    stored = Stored(folder)
    return CHECKPOINT in stored or BEFORE in stored


def read_config(folder: str | Path) -> dict[str, Any]:
    """The contents of ``config.toml`` of a run; a warning where they are not those that were saved.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is not valid TOML.
    """
    path = Path(folder) / CONFIG

    def read(stored: Stored) -> bytes:
        return stored.read(CONFIG) if CONFIG in stored else path.read_bytes()

    changed = False
    try:
        content = consistently(folder, read)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"no run in {folder}: expected {CONFIG} there, as 'rnf fit … --out {folder}' writes it"
        ) from None
    except DamagedFileError:
        if not path.exists():
            raise
        content, changed = path.read_bytes(), True
    values = parse_toml(content, path)
    if changed and Stored(folder).facts.get("settings_sha256") != _meaning(values):
        warn(ChangedSettingsWarning, f"{path} has changed since the run began; its settings are taken as they are now")
    return values


def _meaning(values: Mapping[str, Any]) -> str:
    """SHA-256 of settings and record, but for the places of files, which may be moved."""
    known = {name: value for name, value in values.items() if name not in _PLACES}
    return hashlib.sha256(json.dumps(known, sort_keys=True, default=str).encode()).hexdigest()


def _is_ours(path: Path) -> bool:
    return path.name == LOCK or is_temporary(path) or is_leftover(path)


def _fingerprints(train: Rows, validation: Tensor) -> dict[str, str]:
    return {"train_sha256": fingerprint(train), "validation_sha256": fingerprint(validation)}


def _names(facts: Mapping[str, Any]) -> dict[str, list[str]]:
    """The names of the columns, and on the sphere those of the angles in the file."""
    return {key: list(facts[key]) for key in ("columns", "sphere") if facts.get(key) is not None}


def _differ(then: list[str], now: list[str]) -> str:
    if sorted(then) == sorted(now):
        return "they are in another order"
    lost, new = ([name for name in one if name not in other] for one, other in ((then, now), (now, then)))
    return f"{', '.join(map(repr, lost)) or 'fewer columns'} then, {', '.join(map(repr, new)) or 'fewer columns'} now"


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    """Without the values that are None, which TOML cannot write."""
    known = {key: value for key, value in values.items() if value is not None}
    return {key: _known(value) if isinstance(value, Mapping) else value for key, value in known.items()}
