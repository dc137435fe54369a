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


def memory_in_child(name: str, probes: int | None, published: bool, device: str) -> float | None:
    """Extra peak in MiB, or None if the child did not survive."""
    task = {"name": name, "probes": probes, "published": published, "device": device}
    command = [
        sys.executable,
        "-m",
        "rectangular_flows.paper.bench.memory",
        json.dumps(task),
        str(torch.get_num_threads()),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return float(done.stdout) if done.returncode == 0 else None


def child(name: str, probes: int | None, published: bool, device: str) -> float:
    """What the child does: one step, and the extra peak in MiB."""
    case = CASES[name]
    torch.manual_seed(0)
    flow, x = case.flow().to(device), case.data(probes).to(device)
    make_step(flow, x[:2], published, probes)()  # what libraries set up, gradients, Adam's state: not counted
    step = make_step(flow, x, published, probes)
    before = _peak(device, reset=True)
    step()
    return _peak(device) - before


def _peak(device: str, reset: bool = False) -> float:
    """Largest memory so far in MiB; on Linux and CUDA, since the last reset."""
    if torch.device(device).type == "cuda":
        if reset:
            torch.cuda.reset_peak_memory_stats(device)
        return torch.cuda.max_memory_allocated(device) / 2**20
    status = Path("/proc/self/status")
    if status.exists():
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 2**10
    unit = 1 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


__all__ = ["memory_in_child"]

if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[2]))
    sys.stdout.write(f"{child(**json.loads(sys.argv[1]))}\n")
