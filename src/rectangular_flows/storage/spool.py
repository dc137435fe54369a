"""Rows of numbers that outlive a crash while there are not yet all of them.

They are added to a file in a folder beside the output, ``OUTPUT.partial``. Every few seconds the file is synced, and then a
note of how many rows are good, of what they were made, and their SHA-256 takes the place of the note before. After a crash,
rows that no note counts are cut off. The output itself is written from here when all rows are there.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .damage import DamagedFileError
from .files import remove_leftovers, sync, write_atomically
from .lock import LOCK, locked
from .texts import parse_json

Array = npt.NDArray[Any]
_ROWS, _NOTE = "rows", "progress.json"
_SECONDS = 5.0  # between two notes
_CHUNK = 2**24
_AGAIN = "Begin again with --restart"


class UnfinishedError(ValueError):
    """There is unfinished work of other data, or work that nobody asked to continue."""


class Spool:
    """Rows (N, width) in float64, added one part after another; see :func:`spooled`.

    Attributes:
        folder: where they are.
        rows: how many there are.
        state: what was last kept with them; JSON.
    """

    def __init__(self, folder: Path, width: int, key: Mapping[str, Any]):
        self.folder, self._width, self._key = folder, width, dict(key)
        self.rows, self.state, self._digest = 0, dict[str, Any](), hashlib.sha256()
        self._file = os.open(folder / _ROWS, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
        self._noted = time.monotonic()

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def restore(self, note: Mapping[str, Any]) -> None:
        """Go back to what a note counts.

        Raises:
            DamagedFileError: the file does not hold it.
        """
        left = int(note["rows"]) * self._width * 8
        while left and (data := os.read(self._file, min(left, _CHUNK))):
            self._digest.update(data)
            left -= len(data)
        if left or self._digest.hexdigest() != note["sha256"]:
            raise DamagedFileError(f"{self.folder / _ROWS} is damaged. {_AGAIN}")
        self.rows, self.state = int(note["rows"]), dict(note["state"])

    def add(self, values: Array, state: Mapping[str, Any]) -> None:
        """Add rows, (n, width), and what is to be kept with all of them so far."""
        data = memoryview(np.ascontiguousarray(values, dtype="<f8").tobytes())
        if values.shape[1] != self._width:
            raise ValueError(f"expected rows of {self._width} numbers; got {values.shape[1]}")
        os.lseek(self._file, self.rows * self._width * 8, os.SEEK_SET)
        self._digest.update(data)
        while data:
            data = data[os.write(self._file, data) :]
        self.rows, self.state = self.rows + len(values), dict(state)
        if time.monotonic() - self._noted >= _SECONDS:
            self.keep()

    def keep(self) -> None:
        """Make sure that the rows outlive a crash."""
        os.ftruncate(self._file, self.rows * self._width * 8)
        os.fsync(self._file)
        note = {"key": self._key, "rows": self.rows, "sha256": self._digest.hexdigest(), "state": self.state}
        write_atomically(self.folder / _NOTE, json.dumps(note, indent=1) + "\n")
        self._noted = time.monotonic()

    def parts(self, at_once: int) -> Iterator[Array]:
        """All rows, part by part, (n, width)."""
        for first in range(0, self.rows, at_once):
            count = min(at_once, self.rows - first)
            os.lseek(self._file, first * self._width * 8, os.SEEK_SET)
            yield np.frombuffer(os.read(self._file, count * self._width * 8), dtype="<f8").reshape(count, self._width)


@contextmanager
def spooled(
    output: Path, width: int, key: Mapping[str, Any], *, resume: bool = False, restart: bool = False
) -> Iterator[Spool]:
    """Rows on their way to an output; the folder is removed if the block ends well, and kept if it was cut short.

    Args:
        output: the file that will be written in the end.
        width: numbers in a row.
        key: what the rows are made of, name → a JSON value; rows of anything else are not continued.
        resume: continue where unfinished work stopped, if there is any.
        restart: throw it away, if there is any.

    Raises:
        UnfinishedError: the unfinished work is of another key; or it is there, and neither was asked for.
        InUseError: another process is at it.
    """
    folder = output.with_name(f"{output.name}.partial")
    if folder.exists() and not folder.is_dir():
        raise UnfinishedError(f"{folder} is in the way: unfinished work is kept there. Move it, or choose another -o")
    folder.mkdir(exist_ok=True)
    try:
        with locked(folder):
            remove_leftovers(folder)
            note = _checked(folder, output, json.loads(json.dumps({**key, "width": width})), resume, restart)
            yield from _open(folder, width, key, note)
    finally:
        with suppress(OSError):  # unfinished work is in it
            os.rmdir(folder)


def _open(folder: Path, width: int, key: Mapping[str, Any], note: Mapping[str, Any] | None) -> Iterator[Spool]:
    spool, finished = Spool(folder, width, {**key, "width": width}), False
    try:
        if note is not None:
            spool.restore(note)
        try:
            yield spool
            finished = True
        except (KeyboardInterrupt, SystemExit):
            if spool.rows:
                spool.keep()
            raise
    finally:
        spool.close()
        if finished or not (folder / _NOTE).exists():
            for name in (_NOTE, _ROWS):  # the note first: rows without one are nobody's
                with suppress(FileNotFoundError):
                    os.unlink(folder / name)
            sync(folder)


def _checked(folder: Path, output: Path, key: dict[str, Any], resume: bool, restart: bool) -> dict[str, Any] | None:
    """The note of the work to continue; None to begin."""
    if restart:
        with suppress(FileNotFoundError):
            os.unlink(folder / _NOTE)
    note = _note(folder)
    if note is None:
        return None
    if not resume:
        raise UnfinishedError(
            f"{output} was begun before, and {note['rows']:,} rows of it are done: continue with --resume, or begin "
            "again with --restart"
        )
    changed = [name for name in key if note["key"].get(name) != key[name]]
    if changed:
        raise UnfinishedError(
            f"{output} cannot be resumed: {' and '.join(changed)} changed since it was begun. Begin again with --restart"
        )
    return note


def _note(folder: Path) -> dict[str, Any] | None:
    """What was noted of unfinished work; None if there is none."""
    path = folder / _NOTE
    if not path.exists():
        strangers = sorted(set(os.listdir(folder)) - {LOCK, _ROWS})
        if strangers:
            raise UnfinishedError(f"{folder} is in the way: it holds {strangers[0]}, which is not ours. Move it away")
        return None
    note = parse_json(path.read_bytes(), path, _AGAIN)
    kinds = {"key": dict, "rows": int, "sha256": str, "state": dict}
    if not all(isinstance(note.get(name), kind) for name, kind in kinds.items()):
        raise DamagedFileError(f"{path} is damaged. {_AGAIN}")
    return note
