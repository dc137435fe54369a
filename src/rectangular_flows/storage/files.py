"""The one way files are written and read back: atomically, synced to disk, and never by unpickling.

A file is written beside its final name and moved there, so that a reader sees the old file or the new one, never half of
one. After a crash a temporary file may be left: the next writer of the same file removes it, and in a run folder
:func:`remove_leftovers` does.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from .damage import DamagedFileError as DamagedFileError
from .derived import note_derived
from .limits import check_bytes
from .processes import host_digits, started

CHUNK_BYTES = 2**26
_TEMPORARY = ".rnf-tmp"
_LONGEST = 150  # characters of a file's name in that of its temporary file
_OURS = re.compile(rf"\..+\.(?:(?P<pid>\d+)-(?P<host>[0-9a-f]{{8}})-)?\w+{re.escape(_TEMPORARY)}")
_writing: set[Path] = set()  # temporary files of this process


def temporary_beside(path: Path) -> Path:
    """A new name in the same folder, which says which process has it."""
    return path.with_name(f".{path.name[:_LONGEST]}.{os.getpid()}-{host_digits()}-{secrets.token_hex(4)}{_TEMPORARY}")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path in the same folder, which takes the place of ``path``, synced to disk, if the block ends well."""
    remove_leftovers(path.parent, path.name)
    temporary = temporary_beside(path)
    _writing.add(temporary)
    try:
        yield temporary
        sync(temporary)
        note_derived(path)
        os.replace(temporary, path)
        sync(path.parent)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    finally:
        _writing.discard(temporary)


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write a file completely or not at all."""
    with replacing(path) as temporary:
        write_new(temporary, content.encode() if isinstance(content, str) else content)


def write_synced(path: Path, content: bytes) -> None:
    """Write a new file, and wait until it is on the disk; the folder's entry is not waited for."""
    write_new(path, content)
    sync(path)


def is_temporary(path: Path) -> bool:
    """Whether a file is one of ours that a crash may have left."""
    return _OURS.fullmatch(path.name) is not None


def remove_leftovers(folder: Path, name: str = "") -> None:
    """Remove the temporary files that a crash left in a folder, or those of one file; never those of a process that runs."""
    start = f".{name[:_LONGEST]}." if name else "."
    try:
        entries = [entry for entry in os.scandir(folder) if entry.name.startswith(start) and _stale(Path(entry.path))]
    except OSError:  # no such folder, or not ours to look into: writing says so better
        return
    for entry in entries:
        with suppress(OSError):
            os.unlink(entry.path)


def _stale(path: Path) -> bool:
    """Whether it is a temporary file of ours whose process has ended; one of another machine may still be written to."""
    found = _OURS.fullmatch(path.name)
    if found is None or path in _writing:
        return False
    if found["pid"] is None or int(found["pid"]) == os.getpid():  # of version 0.1, or forgotten by this process
        return True
    return found["host"] == host_digits() and started(int(found["pid"])) is None


def pack_tensors(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """Named tensors as the content of a safetensors file."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    packed: bytes = save(plain, dict(metadata or {}))
    return packed


def unpack_tensors(content: bytes, source: Path | str) -> dict[str, Tensor]:
    """The inverse of :func:`pack_tensors`; a :class:`DamagedFileError`, which names the source, if that cannot be."""
    try:
        found: dict[str, Tensor] = load(content)
    except SafetensorError as error:
        raise DamagedFileError(f"{source} is damaged, or not a safetensors file: {error}") from error
    return found


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Named tensors as one safetensors file, atomically."""
    write_atomically(path, pack_tensors(tensors, metadata))


def load_tensors(path: Path) -> dict[str, Tensor]:
    """The inverse of :func:`save_tensors`; a ``ValueError`` if the file is damaged or not safetensors."""
    check_bytes(path.stat().st_size, str(path))
    return unpack_tensors(path.read_bytes(), path)


def save_figure(path: Path, figure: Any, dpi: int = 150) -> None:
    """Write a figure of matplotlib, by the suffix of the path, so that it is there completely or not at all."""
    with replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:] or "png", dpi=dpi)


def parts_of(rows: Any) -> Iterator[slice]:
    """Slices of some 64 MiB that together cover the rows of an array, a tensor or images."""
    step = max(1, CHUNK_BYTES // max(1, prod(rows.shape[1:]) * rows.dtype.itemsize))
    return (slice(start, start + step) for start in range(0, len(rows), step))


def fingerprint(rows: Any) -> str:
    """SHA-256 of dtype, shape and values of rows: shows whether a run resumes with the data it began with."""
    digest = hashlib.sha256(f"{str(rows.dtype).removeprefix('torch.')} {tuple(rows.shape)}".encode())
    for part in parts_of(rows):
        values = rows[part].detach().cpu() if isinstance(rows, Tensor) else rows[part]
        digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()


def write_new(path: Path, content: bytes) -> None:
    """Write a new file."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    finally:
        os.close(descriptor)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    if os.name == "nt" and path.is_dir():  # Windows cannot open a folder
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
