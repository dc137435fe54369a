"""The n-th call that changes the disk fails, or the process dies there.

Wraps what Python writes with (open, write, fsync, replace, rename, link, unlink, mkdir, rmdir) for paths below a folder.
"""

import errno
import io
import os
from contextlib import contextmanager
from pathlib import Path

import pytest

BY_PATH = ("replace", "rename", "link", "unlink", "mkdir", "rmdir")
FAULTS = ("ENOSPC", "EIO", "killed", "exit")
"""Exit ends the process at once; killed does the same to the code, within the process: it is faster."""


class Killed(BaseException):
    """The process would be dead now: nothing that it does from here on reaches the disk."""


class Disk:
    """Counts the calls, and lets one of them go wrong.

    Args:
        root: only calls about paths below it count.
        at: the number of the call to go wrong, from 1; 0: none.
        fault: one of FAULTS. A write that goes wrong writes half of what it should.
        after: called with the name of the call and its path when it is done.
    """

    def __init__(self, root, at=0, fault="EIO", after=None):
        self.root, self.at, self.fault, self.after = Path(root).resolve(), at, fault, after
        self.count, self.dead, self.calls = 0, False, []
        self._descriptors = {}
        self._real = {name: getattr(os, name) for name in (*BY_PATH, "open", "write", "fsync")} | {"io": io.open}

    @contextmanager
    def watched(self):
        with pytest.MonkeyPatch.context() as patch:
            for name in BY_PATH:
                patch.setattr(os, name, self._by_path(name))
            patch.setattr(os, "open", self._open)
            patch.setattr(os, "write", self._write)
            patch.setattr(os, "fsync", self._fsync)
            patch.setattr(io, "open", self._io_open)
            yield self

    def _counts(self, path):
        if isinstance(path, int):
            return False
        return self.root in (whole := Path(path).absolute()).parents or whole == self.root

    def _call(self, name, path, work, half=None):
        if self.dead:
            raise Killed
        self.count += 1
        self.calls.append((name, Path(path).name))
        if self.count == self.at:
            if half is not None:
                half()
            if self.fault == "exit":
                os._exit(9)
            if self.fault == "killed":
                self.dead = True
                raise Killed
            raise OSError(getattr(errno, self.fault), os.strerror(getattr(errno, self.fault)), str(path))
        found = work()
        if self.after is not None:
            self.after(name, path)
        return found

    def _by_path(self, name):
        real = self._real[name]

        def call(path, *others, **options):
            last = others[0] if name in ("replace", "rename", "link") else path
            if not self._counts(last):
                return real(path, *others, **options)
            return self._call(name, last, lambda: real(path, *others, **options))

        return call

    def _open(self, path, flags, *others, **options):
        real = self._real["open"]
        if not self._counts(path) or not flags & (os.O_WRONLY | os.O_RDWR):
            descriptor = real(path, flags, *others, **options)
        else:
            descriptor = self._call("open", path, lambda: real(path, flags, *others, **options))
        self._descriptors[descriptor] = path if self._counts(path) else None
        return descriptor

    def _write(self, descriptor, content):
        real, path = self._real["write"], self._descriptors.get(descriptor)
        if path is None:
            return real(descriptor, content)
        half = lambda: real(descriptor, bytes(content)[: len(content) // 2])  # noqa: E731
        return self._call("write", path, lambda: real(descriptor, content), half)

    def _fsync(self, descriptor):
        path = self._descriptors.get(descriptor)
        if path is None:
            return self._real["fsync"](descriptor)
        return self._call("fsync", path, lambda: None)  # the disk itself does not fail here: waiting for it takes long

    def _io_open(self, path, mode="r", *others, **options):
        real = self._real["io"]
        if not self._counts(path) or not set(mode) & set("wax+"):
            return real(path, mode, *others, **options)
        return _File(self._call("open", path, lambda: real(path, mode, *others, **options)), path, self)


class _File:
    """A file opened by Python's own open, whose writes count."""

    def __init__(self, file, path, disk):
        self.file, self.path, self.disk = file, path, disk

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()

    def write(self, content):
        def half():
            self.file.write(content[: len(content) // 2])
            self.file.flush()

        return self.disk._call("write", self.path, lambda: self.file.write(content), half)
