"""Downloads: compared with a published checksum, and there as a whole or not at all."""

from __future__ import annotations

import importlib
import os
import shutil
import tarfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._files import DataError

if TYPE_CHECKING:
    from .datasets import Dataset, RemoteFile

_BLOCK = 2**18
# a server that compresses on the way would change the checksum
_HEADERS = {"User-Agent": "rectangular-flows", "Accept-Encoding": "identity"}


def data_root() -> Path:
    """The folder of downloaded data: ``RNF_DATA``, or 'rectangular-flows' in the user's cache folder."""
    if given := os.environ.get("RNF_DATA"):
        return Path(given).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rectangular-flows"


def fetch(dataset: Dataset, root: Path | None = None, *, progress: Any = False) -> list[Path]:
    """Download the missing files of a data set and return the paths of all its files.

    Existing files are used as they are. A download is compared with its checksum before it gets its name. Only the
    members that the entry names are taken out of an archive, and names in the archive never become names on disk.

    Args:
        dataset: an entry of :data:`~rectangular_flows.data.datasets.DATASETS`.
        root: the data folder; by default :func:`data_root`.
        progress: a progress bar as pooch takes it: an object with ``total``, ``update``, ``reset`` and ``close``.

    Raises:
        DataError: the message says where to put a file obtained in another way.
    """
    root = data_root() if root is None else Path(root)
    for file in dataset.files:
        if not all((root / target).is_file() for target in file.targets):
            source = root / file.path
            if not source.is_file():
                _download(file, source, progress)
            if file.members:
                _unpack(source, file, root)
    return [root / target for file in dataset.files for target in file.targets]


def _download(file: RemoteFile, target: Path, progress: Any) -> None:
    if file.checksum is None:
        raise DataError(
            f"'{file.url}' has no published checksum, so rnf does not download it. Download it yourself, check where it "
            f"comes from, and put it at '{target}'."
        )
    pooch: Any = importlib.import_module("pooch")  # slow to import, and for downloads only

    downloader = pooch.HTTPDownloader(progressbar=progress, chunk_size=_BLOCK, headers=_HEADERS)
    try:
        pooch.retrieve(file.url, file.checksum, target.name, target.parent, downloader=downloader)
    except (OSError, ValueError) as error:  # those of requests are OSErrors, a wrong checksum is a ValueError
        first: BaseException = error  # 'Connection refused', say, under what each library made of it
        while first.__context__ is not None:
            first = first.__context__
        reason = " ".join(str(first).split()).rstrip(".")
        raise DataError(
            f"Cannot download '{file.url}': {reason}. Try again, or get the file by other means and put it at '{target}'."
        ) from error


def _unpack(archive: Path, file: RemoteFile, root: Path) -> None:
    """Copy the named members out of a tar archive to the paths of the entry."""
    from ..storage.files import replacing  # imports torch, which a list of data sets does without

    wanted = dict(file.members)
    try:
        with tarfile.open(archive) as tar:
            while wanted and (entry := tar.next()) is not None:  # the rest of a large archive need not be read
                found = next((name for name in wanted if f"/{entry.name}".endswith(f"/{name}")), None)
                if found is None:
                    continue
                stream = tar.extractfile(entry) if entry.isreg() else None
                if stream is None:
                    raise DataError(f"Expected a file; '{archive}' holds '{entry.name}' as a link or device.")
                target = root / wanted.pop(found)
                target.parent.mkdir(parents=True, exist_ok=True)
                with replacing(target) as temporary, open(temporary, "wb") as out:
                    shutil.copyfileobj(stream, out, _BLOCK)
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise DataError(f"Cannot read the archive '{archive}': {error}. Delete it and try again.") from error
    if wanted:
        raise DataError(f"Expected {', '.join(sorted(wanted))} in the archive '{archive}'; not found there.")
