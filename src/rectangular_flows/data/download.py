"""Getting data: downloads that resume, are checked, and appear whole or not at all."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import shutil
import tarfile
import time
import urllib.error
import urllib.request
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from ._files import DataError, replacing
from .registry import Dataset, RemoteFile

Progress = Callable[[int, int | None], None]

ATTEMPTS = 3
BACKOFF = 1.0  # seconds before the second attempt; twice as long before the third
TIMEOUT = 30.0  # seconds without a byte
_BLOCK = 2**18
_SUMS = "checksums.json"


class FirstUseWarning(UserWarning):
    """A file came without a published checksum: what arrived first is trusted, and later downloads compared with it."""


def data_root() -> Path:
    """The folder of downloaded data: ``RNF_DATA``, or 'rectangular-flows' in the user's cache folder."""
    if given := os.environ.get("RNF_DATA"):
        return Path(given).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "rectangular-flows"


def fetch(dataset: Dataset, root: Path | None = None, *, progress: Progress | None = None) -> list[Path]:
    """Download what is not there yet, and return the paths of all files of the data set.

    Files that are there are taken as they are. A download goes to a '.part' file, which the next call resumes; it is
    compared with its checksum and then renamed. From an archive only the files named in the registry are taken.

    Args:
        dataset: an entry of :data:`~rectangular_flows.data.registry.DATASETS`.
        root: the data folder; by default :func:`data_root`.
        progress: called with the bytes done and the bytes in all (None if the server does not say).

    Raises:
        DataError: no connection, no such file, a wrong checksum (the file is removed), or an archive that lacks a
            file or would write outside the folder.
    """
    root = data_root() if root is None else Path(root)
    paths = []
    for file in dataset.files:
        targets = [_inside(root, target) for target in file.targets]
        if not all(target.is_file() for target in targets):
            archive = _inside(root, file.path)
            if not archive.is_file():
                _download(file, archive, progress or (lambda done, total: None))
            if file.members:
                _unpack(archive, file, root)
        paths += targets
    return paths


def _download(file: RemoteFile, target: Path, progress: Progress) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    if file.checksum is None:
        part.unlink(missing_ok=True)  # without a checksum nothing would show that two halves are of different files
    for attempt in range(ATTEMPTS):
        try:
            _transfer(file.url, part, progress)
            break
        except urllib.error.HTTPError as error:
            error.close()
            reason = f"the server answers {error.code} {error.reason}"
            if error.code < 500 and error.code not in (408, 429):  # asking again would not help
                raise DataError(f"Cannot download '{file.url}': {reason}. {_by_hand(file, target)}") from error
            failure: Exception = error
        except (OSError, http.client.HTTPException) as error:
            reason = str(getattr(error, "reason", "") or error or type(error).__name__)
            failure = error
        if attempt + 1 < ATTEMPTS:
            time.sleep(BACKOFF * 2**attempt)
    else:
        kept = (
            f" {part.stat().st_size:,} bytes are kept, and the next attempt goes on from there."
            if part.exists()
            else ""
        )
        raise DataError(
            f"Cannot download '{file.url}' after {ATTEMPTS} attempts: {reason}. Is there a connection to the internet?"
            f"{kept} {_by_hand(file, target)}"
        ) from failure
    try:
        _verify(file, part, target)
    except DataError:
        part.unlink()
        raise
    part.replace(target)


def _by_hand(file: RemoteFile, target: Path) -> str:
    return f"Or get the file by other means and put it at '{target}'."


def _transfer(url: str, part: Path, progress: Progress) -> None:
    """Append to the part what the server still has of the file."""
    if not url.startswith(("http://", "https://")):
        raise DataError(f"Expected an address that begins with http:// or https://; got '{url}'.")
    done = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "rectangular-flows", "Accept-Encoding": "identity"}
    if done:
        headers["Range"] = f"bytes={done}-"
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != 416 or not done:
            raise
        error.close()
        # nothing beyond what is here. Whole or stale? The checksum knows; without one, start again
        if error.headers.get("Content-Range") == f"bytes */{done}":
            return None
        part.unlink()
        return _transfer(url, part, progress)
    with response:
        resumed = response.status == 206 and str(response.headers.get("Content-Range")).startswith(f"bytes {done}-")
        done = done if resumed else 0  # a server without ranges sends the file from its beginning
        length = response.headers.get("Content-Length")
        total = done + int(length) if length is not None else None
        with open(part, "ab" if resumed else "wb") as out:
            progress(done, total)
            while block := response.read(_BLOCK):
                out.write(block)
                done += len(block)
                progress(done, total)
    if total is not None and done < total:
        raise ConnectionError(f"the connection was cut after {done:,} of {total:,} bytes")
    return None


def _verify(file: RemoteFile, part: Path, target: Path) -> None:
    if file.checksum is not None:
        kind, _, expected = file.checksum.partition(":")
        got = _digest(part, kind)
        origin = "published"
    else:
        record = target.with_name(_SUMS)
        known = json.loads(record.read_text(encoding="utf-8")) if record.is_file() else {}
        got = _digest(part, "sha256")
        if target.name not in known:
            with replacing(record) as temporary:
                temporary.write_text(
                    json.dumps({**known, target.name: got}, indent=1, sort_keys=True), encoding="utf-8"
                )
            warnings.warn(
                f"'{file.url}' has no published checksum. It was trusted, and its sha256 {got} recorded in '{record}'.",
                FirstUseWarning,
                stacklevel=4,
            )
            return
        kind, expected, origin = "sha256", known[target.name], f"recorded in '{record}' at the first download"
    if got != expected:
        raise DataError(
            f"'{file.url}' arrived damaged or was changed: expected {kind} {expected} ({origin}); got {got}. "
            f"It was removed. Try again; if it stays so, do not use it."
        )


def _digest(path: Path, kind: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest()


def _inside(root: Path, path: str) -> Path:
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or "\\" in path or ":" in path:
        raise DataError(f"Expected a path below the data folder; got '{path}'.")
    return root.joinpath(*pure.parts)


def _unpack(archive: Path, file: RemoteFile, root: Path) -> None:
    """Copy the named members out of a tar or zip archive. Names in the archive never become names on disk."""
    wanted = dict(file.members)
    try:
        for member, stream in _members(archive, wanted):
            target = _inside(root, wanted.pop(member))
            target.parent.mkdir(parents=True, exist_ok=True)
            with replacing(target) as temporary, open(temporary, "wb") as out:
                shutil.copyfileobj(stream, out, _BLOCK)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError) as error:
        raise DataError(f"The archive '{archive}' cannot be read: {error}. Remove it and try again.") from error
    if wanted:
        raise DataError(f"Expected {', '.join(sorted(wanted))} in the archive '{archive}'; not found there.")


def _members(archive: Path, wanted: dict[str, str]) -> Iterator[tuple[str, IO[bytes]]]:
    def match(name: str) -> str | None:
        fits = [w for w in wanted if name == w or name.endswith("/" + w)]
        if fits and (PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts):
            raise DataError(f"The archive '{archive}' holds '{name}', which points outside its folder. Do not use it.")
        return fits[0] if fits else None

    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            for info in zipped.infolist():
                if (found := match(info.filename)) is not None:
                    with zipped.open(info) as stream:
                        yield found, stream
        return
    with tarfile.open(archive, "r:*") as tar:
        for entry in tar:
            if (found := match(entry.name)) is None:
                continue
            stream_or_none = tar.extractfile(entry) if entry.isreg() else None
            if stream_or_none is None:
                raise DataError(f"The archive '{archive}' holds '{entry.name}' as a link or device, not as a file.")
            yield found, stream_or_none
            if not wanted:
                return  # the rest of a large archive need not be read


__all__ = ["FirstUseWarning", "data_root", "fetch"]
