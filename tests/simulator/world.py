"""A folder with a table and a run, commands on them, and what a reader sees of the run."""

import json
import os
import signal
import tempfile
import warnings
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch

import rectangular_flows as rnf
from rectangular_flows.storage.files import DamagedFileError
from tests.cli.command import run
from tests.storage.faults import Disk, Killed

NAMES = ("east", "north", "up")
ROWS = 120
_SETTINGS = {"latent-dim": 1, "epochs": 2, "batch-size": 50, "layers": 1, "hidden": 2, "latent": "affine"}
_SETTINGS |= {"validation-fraction": 0.1, "test-fraction": 0.1, "target-error": "none", "checkpoint-every": 0}
FIT = [*(f"--{name}={value}" for name, value in _SETTINGS.items()), "--no-scatter", "--quiet"]
KINDS = ("plain", "renamed", "reordered", "shuffled")
"""What a table may have become: a column has another name, the columns or the rows another order."""
DAMAGED = "damaged"
_ORDER = np.random.default_rng(1).permutation(ROWS)


def table(kind):
    """Names of columns, and rows."""
    angle = np.random.default_rng(0).normal(size=ROWS)
    rows = np.stack([np.cos(angle), np.sin(angle), 0.2 * angle], axis=1).round(6)
    if kind == "renamed":
        return (NAMES[0], "south", NAMES[2]), rows
    if kind == "reordered":
        return NAMES[::-1], rows[:, ::-1]
    return NAMES, rows[_ORDER] if kind == "shuffled" else rows


def same_columns(one, other):
    """Whether rows of one kind can be scored by a run of the other."""
    return set(table(one)[0]) == set(table(other)[0])


def same_rows(one, other):
    """Whether a run of one kind can go on with the other: columns are found by name, rows must be as they were."""
    return one == other or {one, other} == {"plain", "reordered"}


def write_table(folder, kind):
    names, rows = table(kind)
    lines = [",".join(names), *(",".join(map(repr, row)) for row in rows.tolist())]
    (folder / "table.csv").write_text("\n".join(lines) + "\n")


def seen(folder):
    """What a reader sees: the scores of some rows and what is usual, as bytes; None without a model."""
    try:
        saved = rnf.SavedRun(folder)
        rows = [table("plain")[1][:9, NAMES.index("north" if name == "south" else name)] for name in saved.columns]
        score = saved.flow.log_prob(torch.from_numpy(np.stack(rows, axis=1)).to(saved.flow.dtype)).detach()
        usual = saved.calibration
    except FileNotFoundError:
        return None
    except DamagedFileError:
        return DAMAGED
    known = b"" if usual is None else np.stack([usual.log_density, usual.squared_distance]).tobytes()
    return score.numpy().tobytes() + known


@dataclass(frozen=True)
class Life:
    """A run that nothing disturbs: what a reader sees after each of its saves."""

    states: tuple

    @property
    def end(self):
        return self.states[-1]


@cache
def life(kind, seed):
    """The life of a run on such a table."""
    with tempfile.TemporaryDirectory() as place:
        folder, states = Path(place), [None]
        write_table(folder, kind)

        def look(name, path):
            if name == "replace" and Path(path).name == "manifest.json":
                states.append(seen(folder / "run"))

        with Disk(folder, after=look).watched():
            done = run("fit", "table.csv", *FIT, "--seed", seed, "--out", "run", cwd=folder)
        assert done.returncode == 0, done.stderr
        assert len(set(states)) > 5  # every step has a state of its own
        return Life(tuple(states))


@dataclass(frozen=True)
class Trouble:
    """What goes wrong at the n-th call to the disk.

    Kind is one of the faults of the disk, 'SIGINT', 'SIGTERM', or 'beside', where other words are a second command that runs
    at that moment, in a process of its own.
    """

    kind: str
    at: int
    words: tuple = ()

    def __str__(self):
        return f"{' '.join(self.words) or self.kind} at call {self.at}"


@dataclass
class Outcome:
    """How a command ended: its exit code, None where it died; what it said; and the second command's, with what it saw."""

    code: int | None
    said: str
    beside: "Outcome | None" = None
    locked: bool = False


def carry_out(folder, words, trouble=None):
    """Run a command, with trouble or without."""
    if trouble is None:
        done = run(*words, cwd=folder)
        return Outcome(done.returncode, done.stdout + done.stderr)
    if trouble.kind in ("exit", "SIGTERM"):
        return _apart(lambda: _troubled(folder, words, trouble))
    return _troubled(folder, words, trouble)


def _troubled(folder, words, trouble):
    found = Outcome(None, "")

    def act(*_):
        if disk.count != trouble.at:
            return
        if trouble.kind == "beside":
            # of a run: unfinished scores have a lock of their own, and hold up nobody who trains
            found.locked = any(lock.parent.suffix != ".partial" for lock in folder.glob("*/.rnf-lock"))
            found.beside = _apart(lambda: carry_out(folder, trouble.words), disk)
        else:
            os.kill(os.getpid(), getattr(signal, trouble.kind))

    faulty = trouble.kind in ("ENOSPC", "EIO", "killed", "exit")
    disk = Disk(folder, trouble.at if faulty else 0, trouble.kind, after=None if faulty else act)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # which jobs in the background start without
    try:
        with disk.watched():
            done = run(*words, cwd=folder)
    except Killed:
        return found
    finally:
        left = signal.signal(signal.SIGINT, before)
    assert left is signal.default_int_handler, "a command has left a handler of its own"
    found.code, found.said = done.returncode, done.stdout + done.stderr
    return found


def _apart(work, disk=None):
    """The same in a process of its own, which starts as a copy of this one and so at once."""
    receive, send = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12, about threads
        child = os.fork()
    if not child:
        code = 99
        try:
            os.close(receive)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            if disk is not None:
                disk.after = None
            content = json.dumps(asdict(work())).encode()
            with open(send, "wb") as file:
                file.write(content)
            code = 0
        finally:
            os._exit(code)
    os.close(send)
    with open(receive, "rb") as file:
        content = file.read()
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) in (0, 9, -signal.SIGTERM), f"the copy ended by {status}"
    return Outcome(**json.loads(content)) if content else Outcome(None, "")
