"""What a folder holds, as one file says: the size and SHA-256 of every file that makes up the state of a run or a model.

Saving has one commit point. New files are written beside the old ones under names of their own; then the manifest, which
lists them, takes the place of the one before; then they are moved to their final names. A crash before the middle step
leaves the old state, a crash after it the new one, and the next writer finishes the moves. A reader follows the manifest,
needs no lock, and checks what it reads. Folders of version 0.1 have no manifest: they are read as they are.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from .._version import __version__
from .derived import MANIFEST
from .files import DamagedFileError, remove_leftovers, sync, write_atomically, write_synced
from .legacy import old_files
from .limits import check_bytes
from .lock import check_lock, locked

T = TypeVar("T")

_FORMAT = 1
_OWNER = "rectangular-flows"
_STAGED = ".rnf-new"
_STAGED_NAME = re.compile(rf"\..+\.[0-9a-f]{{8}}{re.escape(_STAGED)}")
_ATTEMPTS = 20
_MOST_BYTES = 2**24  # of a manifest, which is short; what is longer is cut off, and so damaged
_ADVICE = "Restore it from a copy, or make it again; a run does so by rnf fit --resume"


class DamagedFileWarning(UserWarning):
    """A file is damaged, and something else was taken in its place."""


@dataclass(frozen=True)
class Entry:
    """A file as it was saved.

    Attributes:
        sha256: of its content.
        size: in bytes.
        grows: whether lines are added to it between two saves; then both are of its beginning.
        staged: its name until it is moved to its own.
        made_from: files that it belongs to, and their SHA-256; it is out of date when one of them changes.
    """

    sha256: str
    size: int
    grows: bool = False
    staged: str = ""
    made_from: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, content: bytes, grows: bool = False) -> Entry:
        """The entry of a file with this content."""
        return cls(hashlib.sha256(content).hexdigest(), len(content), grows)

    def check(self, content: bytes, path: Path) -> None:
        """Raise :class:`DamagedFileError` unless this is what was saved."""
        got = Entry.of(content[: self.size] if self.grows else content)
        if (got.sha256, got.size) != (self.sha256, self.size):
            raise DamagedFileError(
                f"{path} is damaged, or not the file that was saved there: expected {self.size:,} bytes with SHA-256 "
                f"{self.sha256[:12]}…, got {got.size:,} bytes with {got.sha256[:12]}…. {_ADVICE}"
            )


@dataclass(frozen=True)
class Manifest:
    """The files of a folder by name, with / between the parts of a name."""

    files: dict[str, Entry] = field(default_factory=dict)
    remove: tuple[str, ...] = ()
    """Files of ours that are not part of the state any more, and are yet to be removed."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What else is true of the state as a whole."""

    def text(self) -> str:
        """As a file; it ends with the SHA-256 of everything else in it."""
        files = {
            name: {k: v for k, v in asdict(entry).items() if v or k == "size"}
            for name, entry in sorted(self.files.items())
        }
        content = {"owner": _OWNER, "format": _FORMAT, "version": __version__, "files": files}
        content |= {"remove": list(self.remove), "facts": self.facts}
        return json.dumps({**content, "sha256": _checksum(content)}, indent=1) + "\n"


def _checksum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a folder; None where there is none of ours.

    Raises:
        DamagedFileError: it cannot be trusted.
    """
    path = folder / MANIFEST
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = {"owner": _OWNER} if any(word in text for word in (_OWNER.encode(), b'"facts"')) else None
    if not isinstance(content, dict) or (content.get("owner") != _OWNER and not {"files", "facts"} <= set(content)):
        return None
    known = content.get("format")
    if isinstance(known, int) and known > _FORMAT:
        raise ValueError(
            f"{path} has format {known}, from rectangular-flows {content.get('version')}; this is {__version__}, "
            f"which reads formats up to {_FORMAT}. Upgrade it."
        )
    expected = content.pop("sha256", None)
    try:
        files = {name: Entry(**entry) for name, entry in content["files"].items()}
        found = Manifest(files, tuple(content["remove"]), content["facts"])
        names = [*found.files, *found.remove, *(entry.staged for entry in found.files.values() if entry.staged)]
        sound = expected == _checksum(content) and all(map(_is_inside, names)) and all(map(_is_sound, files.values()))
    except (KeyError, TypeError, AttributeError):
        sound = False
    if not sound:
        raise DamagedFileError(
            f"{path} is damaged, so that the files beside it cannot be checked. Restore it from a copy; or remove it, and "
            "they are taken as they are"
        )
    return found


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts and not set(name) & {"\\", ":", "\0"}


def _is_sound(entry: Entry) -> bool:
    return isinstance(entry.sha256, str) and isinstance(entry.size, int) and isinstance(entry.made_from, dict)


class Stored:
    """The state of a folder, by the manifest that it has when this is made."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self.manifest = read_manifest(self.folder)

    def __contains__(self, name: str) -> bool:
        if self.manifest is None:
            return (self.folder / name).is_file()
        entry = self.manifest.files.get(name)
        return entry is not None and all(
            source in self.manifest.files and self.manifest.files[source].sha256 == digest
            for source, digest in entry.made_from.items()
        )

    @property
    def facts(self) -> dict[str, Any]:
        """What else is true of it; nothing in a folder of version 0.1."""
        return {} if self.manifest is None else self.manifest.facts

    def path(self, name: str) -> Path:
        """Where a file is now."""
        entry = None if self.manifest is None else self.manifest.files.get(name)
        if entry is not None and entry.staged:
            staged = self.folder / entry.staged
            if staged.exists():
                return staged
        return self.folder / name

    def read(self, name: str) -> bytes:
        """The content of a file, checked.

        Raises:
            FileNotFoundError: there is no such file.
            DamagedFileError: it is not what was saved, or has gone.
        """
        if name not in self:
            raise FileNotFoundError(f"no {name} in {self.folder}")
        entry = None if self.manifest is None else self.manifest.files[name]
        try:
            path = self.path(name)
            if entry is not None and not entry.grows and path.stat().st_size > entry.size:
                raise DamagedFileError(  # unread, however large it is
                    f"{self.folder / name} is damaged, or not the file that was saved there: expected {entry.size:,} "
                    f"bytes, got {path.stat().st_size:,}. {_ADVICE}"
                )
            check_bytes(path.stat().st_size, str(path))
            content = path.read_bytes()
        except FileNotFoundError:
            if entry is None:
                raise
            raise DamagedFileError(f"{self.folder / name} is missing, though it was saved there. {_ADVICE}") from None
        if entry is not None:
            entry.check(content, self.folder / name)
        return content


def consistently(folder: str | Path, work: Callable[[Stored], T]) -> T:
    """What work reads of one state of a folder; it is repeated where another process has saved meanwhile."""
    for attempt in range(_ATTEMPTS):
        stored = Stored(folder)
        try:
            return work(stored)
        except (DamagedFileError, FileNotFoundError):
            if attempt == _ATTEMPTS - 1 or read_manifest(Path(folder)) == stored.manifest:
                raise
    raise AssertionError


def read_files(folder: str | Path, names: Iterable[str]) -> dict[str, bytes]:
    """The content of those of the files that are there, all of one state, checked."""
    wanted = list(names)
    return consistently(folder, lambda stored: {name: stored.read(name) for name in wanted if name in stored})


def commit(
    folder: Path,
    files: Mapping[str, bytes],
    *,
    copies: Mapping[str, str] | None = None,
    grown: Mapping[str, bytes] | None = None,
    growing: Collection[str] = (),
    made_from: Collection[str] = (),
    drop: Collection[str] = (),
    remove: Iterable[str] = (),
    facts: Mapping[str, Any] | None = None,
    fresh: bool = False,
) -> None:
    """Make files part of the state of a folder, all of them or none.

    Args:
        folder: which exists.
        files: name → content.
        copies: name → the file of the state before whose content it has.
        grown: name → content of files that are there already, and to which lines are added.
        growing: new files to which lines will be added.
        made_from: files of the state that the new ones belong to.
        drop: files that are part of the state no more.
        remove: other files of ours to remove.
        facts: of the new state, beside those of the old one.
        fresh: nothing of the old state stays.

    Raises:
        FileExistsError: the manifest there is not ours.
        InUseError: another process writes to the folder.
    """
    with locked(folder):
        before = read_manifest(folder)
        if before is None:
            if (folder / MANIFEST).exists():
                raise FileExistsError(f"{folder / MANIFEST} is in the way, and not ours. Choose another folder")
            before = Manifest({name: Entry.of((folder / name).read_bytes()) for name in old_files(folder)})
        settle(folder, before)
        gone = {name for name in before.files if fresh or name in drop}
        entries = {name: replace(entry, staged="") for name, entry in before.files.items() if name not in gone}
        kept = {name: old for name, old in (copies or {}).items() if old in entries and (folder / old).is_file()}
        entries |= _stage(folder, files, {name: (folder / old, before.files[old]) for name, old in kept.items()})
        for name, content in (grown or {}).items():
            sync(folder / name)
            entries[name] = Entry.of(content, grows=True)
        entries |= {name: replace(entries[name], grows=True) for name in growing}
        for name in files if made_from else ():
            sources = {source: entries[source].sha256 for source in made_from if source in entries}
            entries[name] = replace(entries[name], made_from=sources)
        old = [name for name, entry in entries.items() if _out_of_date(entry, entries)]
        entries = {name: entry for name, entry in entries.items() if name not in old}
        remove = tuple(dict.fromkeys(name for name in (*gone, *old, *remove) if name not in entries))
        after = Manifest(entries, remove, {**({} if fresh else before.facts), **(facts or {})})
        check_lock(folder)
        write_atomically(folder / MANIFEST, after.text())
        settle(folder, after)
        if remove:
            write_atomically(folder / MANIFEST, replace(after, remove=()).text())


def _stage(folder: Path, files: Mapping[str, bytes], copies: Mapping[str, tuple[Path, Entry]]) -> dict[str, Entry]:
    """Write files under names of their own; their entries. Nothing stays of them if that fails."""
    made: dict[str, Path] = {}
    try:
        for name in (*files, *copies):
            path = folder / name
            if not path.parent.is_dir():
                path.parent.mkdir(parents=True, exist_ok=True)
            made[name] = path.with_name(f".{path.name}.{secrets.token_hex(4)}{_STAGED}")
            if name in files:
                write_synced(made[name], files[name])
            else:
                _link(copies[name][0], made[name])
        for place in dict.fromkeys(path.parent for path in made.values()):
            sync(place)
    except BaseException:
        for path in made.values():
            with suppress(OSError):
                os.unlink(path)
        raise
    entries = {name: Entry.of(content) for name, content in files.items()}
    entries |= {name: replace(entry, made_from={}) for name, (_, entry) in copies.items()}
    return {name: replace(entry, staged=made[name].relative_to(folder).as_posix()) for name, entry in entries.items()}


def _out_of_date(entry: Entry, entries: Mapping[str, Entry]) -> bool:
    return any(name not in entries or entries[name].sha256 != digest for name, digest in entry.made_from.items())


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without links
        shutil.copyfile(source, target)
        sync(target)


def settle(folder: Path, manifest: Manifest) -> None:
    """Finish what a save has begun: move files to their names, remove those that are not part of the state any more."""
    moved = {}
    for name, entry in manifest.files.items():
        if entry.staged and (folder / entry.staged).exists():
            os.replace(folder / entry.staged, folder / name)
            moved[(folder / name).parent] = True
    for place in moved:
        sync(place)
    for name in manifest.remove:
        path = folder / name
        if path.parent.resolve().is_relative_to(folder.resolve()):  # and not elsewhere, by a link
            with suppress(FileNotFoundError, IsADirectoryError):
                os.unlink(path)
            while (path := path.parent) != folder:
                with suppress(OSError):  # not empty
                    path.rmdir()


def recover(folder: Path) -> None:
    """Finish or undo what a crash interrupted; for a process that has the lock."""
    manifest = read_manifest(folder)
    if manifest is not None:
        settle(folder, manifest)
    for place in (folder, *(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())):
        remove_leftovers(place)
        for path in filter(is_leftover, place.glob(f".*{_STAGED}")):
            with suppress(FileNotFoundError):
                os.unlink(path)


def is_leftover(path: Path) -> bool:
    """Whether a file was staged for a save that never was."""
    return _STAGED_NAME.fullmatch(path.name) is not None
