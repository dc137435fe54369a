"""The memory of one step, in a process of its own."""

from __future__ import annotations

import contextlib
import ctypes
import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from .cases import CASES
from .steps import make_step


def memory_of(name: str, step: str) -> float | None:
    """Extra peak in MiB of a named step of :class:`~.baselines.Bench`, or None if the child did not survive."""
    return _in_child(["step", name, step, torch.get_num_threads()])


def step_child(name: str, step: str, threads: int) -> float:
    """What that child does."""
    from .baselines import Bench

    torch.set_num_threads(threads)
    bench = Bench(CASES[name], steps=1)
    whole, bench.x = bench.x, bench.x[:2]
    bench.step("exact" if step == "auto" else step)()  # what libraries set up: not counted
    bench.x = whole
    run = bench.step(step)
    _give_back()
    before = _peak(reset=True)
    run()
    return _peak() - before


def _give_back() -> None:
    """Freed memory to the system, so that it is not in the baseline; only glibc keeps it."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def memory_in_child(name: str, probes: int | None, published: bool) -> float | None:
    """Extra peak in MiB, or None if the child did not survive."""
    return _in_child(["volume", name, probes, published, torch.get_num_threads()])


def _in_child(task: list[Any]) -> float | None:
    command = [sys.executable, "-m", __name__, json.dumps(task)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return float(done.stdout) if done.returncode == 0 else None


def child(name: str, probes: int | None, published: bool, threads: int) -> float:
    """What the child does: one step, and the extra peak in MiB."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    flow, x = CASES[name].flow(), CASES[name].data(probes)
    make_step(flow, x[:2], published, probes)()  # what libraries set up, gradients, Adam's state: not counted
    step = make_step(flow, x, published, probes)
    _give_back()
    before = _peak(reset=True)
    step()
    return _peak() - before


def _peak(reset: bool = False) -> float:
    """Largest memory so far in MiB; on Linux, since the last reset."""
    status = Path("/proc/self/status")
    if status.exists():
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 2**10
    unit = 1 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


if __name__ == "__main__":
    kind, *task = json.loads(sys.argv[1])
    sys.stdout.write(f"{(step_child if kind == 'step' else child)(*task)}\n")
