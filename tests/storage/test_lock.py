"""One writer at a time, and locks whose owner has gone."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from rectangular_flows.storage import lock as module
from rectangular_flows.storage.lock import LOCK, InUseError, acquire, check_lock, keeping_locks, locked, release
from rectangular_flows.storage.manifest import commit, read_files
from rectangular_flows.storage.processes import host, started


def write_lock(folder, **changes):
    owner = {"pid": os.getpid(), "host": host(), "started": started(os.getpid()), "since": "today", "token": "x"}
    (folder / LOCK).write_text(json.dumps({**owner, **changes}))


@pytest.fixture
def sleeper():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


def test_a_lock_is_there_while_it_is_held_and_says_whose_it_is(tmp_path):
    with locked(tmp_path):
        owner = json.loads((tmp_path / LOCK).read_text())
        assert (owner["pid"], owner["host"], owner["started"]) == (os.getpid(), host(), started(os.getpid()))
        with locked(tmp_path):  # the same thread may take it again
            pass
        assert (tmp_path / LOCK).exists()
    assert list(tmp_path.iterdir()) == []


def test_another_process_is_kept_out_but_may_read(tmp_path, sleeper):
    commit(tmp_path, {"a": b"one"})
    write_lock(tmp_path, pid=sleeper.pid, started=started(sleeper.pid))
    with pytest.raises(InUseError, match=rf"in use: process {sleeper.pid} on .* since today.*Wait"):
        acquire(tmp_path)
    with pytest.raises(InUseError):
        commit(tmp_path, {"a": b"two"})
    assert read_files(tmp_path, ("a",)) == {"a": b"one"}
    sleeper.send_signal(signal.SIGKILL)
    while started(sleeper.pid) is not None:  # a zombie does not count, though nobody has waited for it
        time.sleep(0.01)
    commit(tmp_path, {"a": b"two"})
    assert read_files(tmp_path, ("a",)) == {"a": b"two"}
    assert not (tmp_path / LOCK).exists()


def test_another_thread_is_kept_out(tmp_path):
    with locked(tmp_path):
        found = []

        def other():
            try:
                acquire(tmp_path)
            except InUseError as error:
                found.append(error)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert len(found) == 1


@pytest.mark.parametrize(
    "owner",
    [
        {"pid": 2**22 + 1},  # above what Linux gives
        {"pid": 1, "started": "another boot 17"},  # a number that another process has now
        {},  # this very process, which does not hold it
    ],
)
def test_a_stale_lock_is_taken_over(tmp_path, owner):
    write_lock(tmp_path, **owner)
    with locked(tmp_path):
        assert json.loads((tmp_path / LOCK).read_text())["token"] != "x"


def test_a_damaged_lock_is_taken_over_once_it_is_old(tmp_path):
    (tmp_path / LOCK).write_text("")
    with pytest.raises(InUseError, match="just begun"):
        acquire(tmp_path)
    os.utime(tmp_path / LOCK, (0, 0))
    with locked(tmp_path):
        check_lock(tmp_path)


def test_the_lock_of_another_machine_stays(tmp_path):
    write_lock(tmp_path, host="elsewhere", pid=2**22 + 1)
    with pytest.raises(InUseError, match=rf"on elsewhere .*If it has ended, remove {tmp_path / LOCK}"):
        acquire(tmp_path)
    assert (tmp_path / LOCK).exists()


def test_locks_are_kept_to_the_end_of_a_block(tmp_path):
    with keeping_locks():
        with locked(tmp_path):
            pass
        first = (tmp_path / LOCK).read_text()
        with locked(tmp_path):
            assert (tmp_path / LOCK).read_text() == first
    assert not (tmp_path / LOCK).exists()


def test_nothing_is_saved_without_the_lock(tmp_path):
    commit(tmp_path, {"a": b"one"})
    acquire(tmp_path)
    write_lock(tmp_path, pid=1, token="another")
    with pytest.raises(InUseError, match="was removed while this process wrote to it, and process 1"):
        commit(tmp_path, {"a": b"two"})
    release(tmp_path)
    assert read_files(tmp_path, ("a",)) == {"a": b"one"}
    assert (tmp_path / LOCK).exists()  # that of the other


@pytest.mark.slow
def test_one_of_several_processes_gets_a_stale_lock(tmp_path):
    write_lock(tmp_path, pid=2**22 + 1)
    code = """
import sys, time
from pathlib import Path
from rectangular_flows.storage.lock import acquire, InUseError
while time.time() < float(sys.argv[2]): pass
try:
    acquire(Path(sys.argv[1]))
except InUseError:
    print("no")
else:
    print("yes", flush=True)
    time.sleep(1)
"""
    at = str(time.time() + 8)
    arguments = [sys.executable, "-c", code, str(tmp_path), at]
    processes = [subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert sorted(process.communicate(timeout=60)[0].strip() for process in processes) == ["no", "yes"]


def test_a_file_system_without_links(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("not supported")

    monkeypatch.setattr(module.os, "link", fail)
    with locked(tmp_path):
        check_lock(tmp_path)
        with pytest.raises(InUseError):
            module._remove_if_stale(tmp_path / LOCK, tmp_path)
    assert list(tmp_path.iterdir()) == []
