"""Arrays in numpy's files, .npy and .npz: never a pickle, and never more memory than there are data for it."""

from __future__ import annotations

import lzma
import mmap
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..storage.files import parts_of
from ..storage.limits import check_bytes, in_words
from ._files import Array, DataError, listing, reading

MMAP_BYTES = 256 * 2**20  # a larger .npy file stays on disk
_SUFFIX, _MAGIC = ".npy", np.lib.format.MAGIC_PREFIX

Head = tuple[tuple[int, ...], np.dtype[Any]]


def load_arrays(path: Path) -> dict[str, Array]:
    """The arrays of a .npz file by name, or the one of a .npy (or .npy.xz) file under ''; never a pickle.

    Raises:
        DataError: the file is damaged, claims more than it holds or than fits, or two arrays have one name.
    """
    size = path.stat().st_size
    with reading(path, "numpy arrays"), path.open("rb") as file:
        alone = file.read(len(_MAGIC)) == _MAGIC  # perhaps under the name of an archive
    if path.suffix.lower() == ".npz" and not alone:
        return _load_archive(path)
    packed = path.suffix == ".xz"
    # files are opened here, since numpy leaves a damaged one open
    with reading(path, "a numpy array"), (lzma.open if packed else open)(path, "rb") as file:
        head = _read_head(file)
        _check_claim(path, head, None if packed else size - file.tell())
        large = size > MMAP_BYTES and not packed
        file.seek(0)
        loaded = np.load(path if large else file, mmap_mode="r" if large else None, allow_pickle=False)
        if not isinstance(loaded, np.ndarray):
            raise DataError(f"Expected a numpy array in '{path}'; got an archive of several. Name it .npz.")
        return {"": loaded}


def array_heads(path: Path) -> list[Head]:
    """Shapes and types of the arrays in a .npy or .npz file, from their headers; none for any other or a damaged file."""
    try:
        if path.suffix.lower() == ".npz":
            with zipfile.ZipFile(path) as archive:
                return [_head(archive.open(name)) for name in archive.namelist()]
        return [_head(path.open("rb"))] if path.suffix.lower() == _SUFFIX else []
    except Exception:  # the reader says what is wrong
        return []


def parts_in(values: Array) -> Iterator[Array]:
    """Parts of some 64 MiB; of an array on disk, those that have been read are let go of."""
    for part in parts_of(values):
        yield values[part]
        forget(values)


def forget(values: Any) -> None:
    """Let go of the pages of an array on disk that are in memory; reading it brings them back."""
    mapped = getattr(values, "_mmap", None)
    if mapped is not None and hasattr(mapped, "madvise"):
        mapped.madvise(mmap.MADV_DONTNEED)


def after(parts: Iterable[Array], rows: int) -> Iterator[Array]:
    """The rest of parts that follow one another, without so many of the first rows."""
    for part in parts:
        if rows < len(part):
            yield part[rows:]
        rows = max(0, rows - len(part))


def gather(parts: Iterable[Array], shape: tuple[int, ...], kind: np.dtype[Any]) -> Array:
    """Parts that follow one another as one array, (N, D); where they are large, in a temporary file that stays on disk.

    Args:
        parts: (n, D) each.
        shape: of the array; N is −1 where it is not known.
        kind: of the array.

    Raises:
        DataError: they have another number of rows.
    """
    held: list[Array] = []
    with ExitStack() as stack:
        file: Any = None
        for part in parts:
            held.append(np.ascontiguousarray(part, dtype=kind))
            if file is None and sum(part.nbytes for part in held) > MMAP_BYTES:
                file = stack.enter_context(tempfile.TemporaryFile(prefix="rnf-"))  # of no name, and gone with the array
            if file is not None:
                for part in held:
                    file.write(part.data)
                held.clear()
        rows = sum(map(len, held)) if file is None else file.tell() // (kind.itemsize * prod(shape[1:]))
        if shape[0] not in (-1, rows):
            raise DataError(f"Expected {shape[0]} rows; got {rows}.")
        if file is None:
            return np.concatenate([np.empty((0, *shape[1:]), kind), *held]) if len(held) != 1 else held[0]
        file.flush()
        return np.memmap(file, dtype=kind, mode="r", shape=(rows, *shape[1:]))


def _load_archive(path: Path) -> dict[str, Array]:
    with reading(path, "numpy arrays"), zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        twice = [name for name, count in Counter(map(_plain_name, names)).items() if count > 1]
        if twice:
            raise DataError(
                f"Expected different names of arrays; '{path}' repeats {listing(sorted(twice))}. Save it again."
            )
        inside = {_plain_name(info.filename): info for info in archive.infolist() if info.filename.endswith(_SUFFIX)}
        if not inside:
            holds = f"it holds {listing(names)}" if names else "it is an empty archive"
            raise DataError(
                f"Expected numpy arrays in '{path}'; {holds}. Save arrays with np.savez, or check the suffix."
            )
        total = 0
        for name, info in inside.items():
            with archive.open(info) as member:
                head = _read_head(member)
                total += _check_claim(path, head, info.file_size - member.tell(), name)
        check_bytes(total, f"the arrays in '{path}'")
        arrays: dict[str, Array] = {}
        for name, info in inside.items():
            with archive.open(info) as member:
                arrays[name] = np.lib.format.read_array(member, allow_pickle=False)
        return arrays


def _plain_name(name: str) -> str:
    return name.removesuffix(_SUFFIX)


def _check_claim(path: Path, head: Head, there: int | None, name: str = "") -> int:
    """The bytes of an array by its header; refused where the file has not as many, or where they are too many."""
    shape, kind = head
    claimed, whose = prod(shape) * kind.itemsize, f"'{name}' in '{path}'" if name else f"'{path}'"
    if kind.hasobject:
        raise DataError(
            f"Expected an array of numbers; {whose} holds Python objects (a pickle), and "
            "these are never read. Save numbers."
        )
    if min(shape, default=0) < 0 or (there is not None and claimed > there):
        held = "" if there is None else f" and holds {in_words(max(there, 0))}"
        raise DataError(f"{whose} is damaged: its header claims shape {shape} of {kind}, {in_words(claimed)},{held}.")
    if there is None:  # what a compressed file holds is known when it is too late
        check_bytes(claimed, whose)
    return claimed


def _read_head(file: IO[bytes]) -> Head:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, kind = read(file)
    return shape, kind


def _head(file: IO[bytes]) -> Head:
    with file:
        return _read_head(file)
