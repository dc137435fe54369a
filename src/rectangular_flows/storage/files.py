"""The one way files are written and read back: atomically, synced to disk, and never by unpickling.

A file is written beside its final name and moved there, so that a reader sees the old file or the new one, never half of
one. After a crash a temporary file may be left; :func:`remove_leftovers` cleans up.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from .limits import check_bytes

CHUNK_BYTES = 2**26
_TEMPORARY = ".rnf-tmp"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path in the same folder, which takes the place of ``path``, synced to disk, if the block ends well."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{_TEMPORARY}")
    try:
        yield temporary
        _sync(temporary)
        os.replace(temporary, path)
        _sync(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write a file completely or not at all."""
    with replacing(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files that a crash left in a folder."""
    for path in folder.glob(f".*{_TEMPORARY}"):
        path.unlink(missing_ok=True)


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Named tensors as one safetensors file, atomically."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomically(path, save(plain, dict(metadata or {})))


def load_tensors(path: Path) -> dict[str, Tensor]:
    """The inverse of :func:`save_tensors`; a ``ValueError`` if the file is damaged or not safetensors."""
    check_bytes(path.stat().st_size, str(path))
    try:
        return load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged, or not a safetensors file: {error}") from error


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


def _sync(path: Path) -> None:
    if os.name == "nt" and path.is_dir():  # Windows cannot open a folder
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
