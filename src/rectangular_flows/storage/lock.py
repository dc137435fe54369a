"""One writer at a time in a folder: a lock file with the process that has it. Readers need no lock.

A process that is killed leaves its lock behind. Such a lock is recognised by its owner: a process of this machine that has
ended, or whose number another process has now. The lock of another machine is never taken: its owner cannot be seen.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .files import temporary_beside, write_new
from .processes import host, started

LOCK = ".rnf-lock"
_SECONDS_TO_WRITE = 10.0  # a lock, where the file system cannot make a whole file at once


class InUseError(OSError):
    """Another process writes to the folder."""


@dataclass
class _Held:
    """A lock of this process."""

    path: Path
    token: str
    thread: int
    process: int
    depth: int = 1


_held: dict[Path, _Held] = {}
_guard = threading.RLock()
_late = threading.local()  # whether locks are kept until the end of keeping_locks()


def acquire(folder: Path) -> None:
    """Take the lock of a folder; a thread that has it already may take it again.

    Raises:
        InUseError: another process has it.
    """
    key = folder.resolve()
    with _guard:
        own = _own(key)
        if own is not None and own.thread == threading.get_ident():
            own.depth += 1
            return
        path, token = folder / LOCK, secrets.token_hex(8)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        owner = {"pid": os.getpid(), "host": host(), "started": started(os.getpid()), "since": now, "token": token}
        content = json.dumps(owner).encode()
        while not _create(path, content):
            _remove_if_stale(path, folder)
        _held[key] = _Held(path, token, threading.get_ident(), os.getpid())


def release(folder: Path) -> None:
    """Give the lock back; at the end of :func:`keeping_locks` in such a block."""
    with _guard:
        own = _own(folder.resolve())
        if own is not None:
            own.depth -= 1
            if own.depth < 1 and not getattr(_late, "blocks", 0):
                _give_back(folder.resolve())


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """The lock of a folder for a block."""
    acquire(folder)
    try:
        yield
    finally:
        release(folder)


@contextmanager
def keeping_locks() -> Iterator[None]:
    """Locks taken in this block by this thread are given back at its end, so that nothing comes between its parts."""
    _late.blocks = getattr(_late, "blocks", 0) + 1
    try:
        yield
    finally:
        _late.blocks -= 1
        if not _late.blocks:
            with _guard:
                mine = [key for key, held in _held.items() if held.thread == threading.get_ident() and held.depth < 1]
                for key in mine:
                    _give_back(key)


def check_lock(folder: Path) -> None:
    """Whether the lock is still ours: somebody may have removed it.

    Raises:
        InUseError: it is not.
    """
    own = _own(folder.resolve())
    there = _read(folder / LOCK)
    if own is None or there is None or there.get("token") != own.token:
        by = "" if not there else f", and process {there.get('pid')} on {there.get('host')} has it now"
        raise InUseError(
            f"the lock of {folder} was removed while this process wrote to it{by}. Nothing more is written"
        )


def _own(key: Path) -> _Held | None:
    own = _held.get(key)
    return own if own is not None and own.process == os.getpid() else None  # not that of a parent process


def _give_back(key: Path) -> None:
    own = _held.pop(key, None)
    if own is not None and own.process == os.getpid():
        with suppress(OSError):  # what is left is recognised as ours, and by others once this process has ended
            there = _read(own.path)
            if there is not None and there.get("token") == own.token:
                os.unlink(own.path)


def _create(path: Path, content: bytes) -> bool:
    """Make a file with this content unless there is one; whether it was made."""
    temporary = temporary_beside(path)
    try:
        write_new(temporary, content)
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        except OSError:  # a file system without links
            try:
                descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            except FileExistsError:
                return False
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
        return True
    finally:
        with suppress(OSError):
            os.unlink(temporary)


def _read(path: Path) -> dict[str, Any] | None:
    """What a lock says; None if there is none; nothing if it is damaged."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _remove_if_stale(path: Path, folder: Path) -> None:
    """Remove a lock whose owner has ended; complain about any other."""
    there = _read(path)
    if there is None:
        return
    if there:
        own = there.get("pid") == os.getpid() and any(held.token == there.get("token") for held in _held.values())
        here = there.get("host") == host()
        now = started(there["pid"]) if here and isinstance(there.get("pid"), int) else None
        if own or not here or (now is not None and now == there.get("started") and there["pid"] != os.getpid()):
            gone = "" if here else f". If it has ended, remove {path}"
            raise InUseError(
                f"{folder} is in use: process {there.get('pid')} on {there.get('host')} has written to it since "
                f"{there.get('since')}. Wait until it has ended, stop it, or choose another folder{gone}"
            )
    elif time.time() - path.stat().st_mtime < _SECONDS_TO_WRITE:
        raise InUseError(f"{folder} is in use: another process has just begun to write to it")
    aside = temporary_beside(path)  # moved before it is removed: another process may have replaced it meanwhile
    with suppress(FileNotFoundError):
        os.rename(path, aside)
        if _read(aside) != there:
            with suppress(OSError):
                os.link(aside, path)
        os.unlink(aside)
