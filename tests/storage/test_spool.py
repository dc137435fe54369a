"""Rows that outlive a crash: what a note counts is there, bit for bit; nothing else is taken for it."""

import contextlib
import json
import os

import numpy as np
import pytest

from rectangular_flows.storage import spool as module
from rectangular_flows.storage.files import DamagedFileError
from rectangular_flows.storage.lock import InUseError, _held
from rectangular_flows.storage.processes import started
from rectangular_flows.storage.spool import UnfinishedError, spooled

KEY, ROWS = {"the data": "1", "the model": ["x", 2]}, np.random.default_rng(0).normal(size=(30, 3))


class Killed(BaseException):
    """What ends a process without asking."""


@pytest.fixture(autouse=True)
def notes_at_once(monkeypatch):
    monkeypatch.setattr(module, "_SECONDS", 0.0)


def begun(output, rows, last=True, monkeypatch=None):
    """Work that is killed after so many rows, of which the last ten may not be noted."""
    with contextlib.suppress(Killed), spooled(output, 3, KEY) as spool:
        for start in range(0, rows, 10):
            if not last and start == rows - 10:
                monkeypatch.setattr(module, "_SECONDS", 1e9)
            spool.add(ROWS[start : start + 10], {"done": start + 10})
        raise Killed
    return output.with_name("out.csv.partial")


def test_finished_work_leaves_nothing(tmp_path):
    with spooled(tmp_path / "out.csv", 3, KEY) as spool:
        spool.add(ROWS, {})
        assert np.concatenate(list(spool.parts(7))).tobytes() == ROWS.tobytes()
        with pytest.raises(ValueError, match="rows of 3 numbers; got 2"):
            spool.add(ROWS[:, :2], {})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("last", [True, False])
def test_what_is_noted_is_continued(tmp_path, monkeypatch, last):
    folder = begun(tmp_path / "out.csv", 20, last, monkeypatch)
    if not last:
        assert (folder / "rows").stat().st_size == 20 * 24  # ten of them no note counts
    with (folder / "rows").open("ab") as file:
        file.write(b"half a row")
    with spooled(tmp_path / "out.csv", 3, KEY, resume=True) as spool:
        assert (spool.rows, spool.state["done"]) == ((20, 20) if last else (10, 10))
        spool.add(ROWS[spool.rows :], {})
        assert np.concatenate(list(spool.parts(8))).tobytes() == ROWS.tobytes()
        spool.keep()
        assert (folder / "rows").stat().st_size == 30 * 24
    assert os.listdir(tmp_path) == []


def test_resuming_nothing_begins(tmp_path):
    with spooled(tmp_path / "out.csv", 3, KEY, resume=True) as spool:
        assert spool.rows == 0


def test_other_work_is_not_continued(tmp_path):
    begun(tmp_path / "out.csv", 20)
    with pytest.raises(UnfinishedError, match=r"20 rows of it are done: continue with --resume, or begin again with"):
        spooled(tmp_path / "out.csv", 3, KEY).__enter__()
    with pytest.raises(UnfinishedError, match="the model changed since"):
        spooled(tmp_path / "out.csv", 3, {**KEY, "the model": ["x", 3]}, resume=True).__enter__()
    with pytest.raises(UnfinishedError, match="width changed"):
        spooled(tmp_path / "out.csv", 4, KEY, resume=True).__enter__()
    with spooled(tmp_path / "out.csv", 3, KEY, restart=True) as spool:
        assert spool.rows == 0
    assert os.listdir(tmp_path) == []


def test_damage_is_seen(tmp_path):
    folder = begun(tmp_path / "out.csv", 20)
    content = (folder / "rows").read_bytes()
    for damaged in (content[:100] + bytes([content[100] ^ 1]) + content[101:], content[:-1], b""):
        (folder / "rows").write_bytes(damaged)
        with pytest.raises(DamagedFileError, match="--restart"):
            spooled(tmp_path / "out.csv", 3, KEY, resume=True).__enter__()
        assert (folder / "progress.json").exists()
    (folder / "rows").write_bytes(content)
    note = json.loads((folder / "progress.json").read_text())
    for text in ("{", "[]", json.dumps({**note, "rows": "many"})):
        (folder / "progress.json").write_text(text)
        with pytest.raises(DamagedFileError, match="--restart"):
            spooled(tmp_path / "out.csv", 3, KEY, resume=True).__enter__()
    with spooled(tmp_path / "out.csv", 3, KEY, restart=True) as spool:
        assert spool.rows == 0


def test_strangers_are_left_alone(tmp_path):
    folder = tmp_path / "out.csv.partial"
    folder.mkdir()
    (folder / "mine.txt").write_text("keep")
    with pytest.raises(UnfinishedError, match=r"mine\.txt, which is not ours"):
        spooled(tmp_path / "out.csv", 3, KEY, restart=True).__enter__()
    assert os.listdir(folder) == ["mine.txt"]


def test_two_at_once_are_refused(tmp_path):
    with spooled(tmp_path / "out.csv", 3, KEY) as spool:
        spool.add(ROWS, {})
        lock = spool.folder / ".rnf-lock"
        owner = json.loads(lock.read_text())
        kept = dict(_held)
        _held.clear()  # as another process sees it
        lock.write_text(json.dumps({**owner, "pid": os.getppid(), "started": started(os.getppid())}))
        with pytest.raises(InUseError):
            spooled(tmp_path / "out.csv", 3, KEY, resume=True).__enter__()
        _held.update(kept)
        lock.write_text(json.dumps(owner))
        assert (spool.folder / "rows").exists()


def test_ctrl_c_keeps_what_is_done(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_SECONDS", 1e9)
    with contextlib.suppress(KeyboardInterrupt), spooled(tmp_path / "out.csv", 3, KEY) as spool:
        spool.add(ROWS[:10], {"done": 10})
        raise KeyboardInterrupt
    with spooled(tmp_path / "out.csv", 3, KEY, resume=True) as spool:
        assert (spool.rows, spool.state) == (10, {"done": 10})


def test_work_that_fails_at_once_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_SECONDS", 1e9)
    with contextlib.suppress(OSError), spooled(tmp_path / "out.csv", 3, KEY) as spool:
        spool.add(ROWS[:10], {})
        raise OSError("full")
    assert os.listdir(tmp_path) == []
