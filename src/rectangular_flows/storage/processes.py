"""Which process is which: whether the one that left a file behind still runs."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from functools import cache
from pathlib import Path

_ALL_PROCESSES = "pid:[4026531836]"  # the name space of Linux outside of containers


@cache
def host() -> str:
    """The name of this machine; of a container, with what tells its process numbers from those of others."""
    try:
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        space = ""
    return platform.node() if space in ("", _ALL_PROCESSES) else f"{platform.node()} {space}"


@cache
def host_digits() -> str:
    """Eight digits that stand for this machine in the name of a file."""
    return hashlib.sha256(host().encode()).hexdigest()[:8]


def started(pid: int) -> str | None:
    """When a process of this machine was started; None if there is no such process, or it has ended.

    Two processes that have had the same number one after the other differ in it. Where the system does not say when, it is
    empty.
    """
    if Path("/proc/self/stat").exists():
        try:
            state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return (
            None if state in "ZX" else f"{_boot()} {fields[18]}"
        )  # field 22 of proc(5): ticks since the machine started
    if os.name == "nt":
        return _started_on_windows(pid)
    found = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return found.stdout.strip() or None


@cache
def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _started_on_windows(pid: int) -> str | None:
    import ctypes

    kernel = ctypes.WinDLL("kernel32")  # type: ignore[attr-defined,unused-ignore]
    query, still_active = 0x1000, 259
    handle = kernel.OpenProcess(query, False, pid)
    if not handle:
        return None
    try:
        code = ctypes.c_ulong()
        times = [ctypes.c_ulonglong() for _ in range(4)]
        kernel.GetExitCodeProcess(handle, ctypes.byref(code))
        kernel.GetProcessTimes(handle, *map(ctypes.byref, times))
        return str(times[0].value) if code.value == still_active else None
    finally:
        kernel.CloseHandle(handle)
