"""The memory of one step, in a process of its own."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import torch

from .cases import CASES
from .steps import make_step


def memory_in_child(name: str, probes: int | None, published: bool) -> float | None:
    """Extra peak in MiB, or None if the child did not survive."""
    task = json.dumps([name, probes, published, torch.get_num_threads()])
    command = [sys.executable, "-m", __name__, task]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return float(done.stdout) if done.returncode == 0 else None


def child(name: str, probes: int | None, published: bool, threads: int) -> float:
    """What the child does: one step, and the extra peak in MiB."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    flow, x = CASES[name].flow(), CASES[name].data(probes)
    make_step(flow, x[:2], published, probes)()  # what libraries set up, gradients, Adam's state: not counted
    step = make_step(flow, x, published, probes)
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
    sys.stdout.write(f"{child(*json.loads(sys.argv[1]))}\n")
