"""Seconds of ``rnf fit`` with defaults on tables of three sizes, and how right the time left was that it showed.

``python -m benchmarks.times --out times.json`` makes tables of rows near a curved manifold, fits each in a process of its
own on one thread, imports, calibration and verdict included, and compares the time left in its lines with what then came.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from .kept import keep, markdown, read_kept

SIZES = {"1,000 × 10": (1_000, 10, 15), "10,000 × 10": (10_000, 10, 60), "100,000 × 20": (100_000, 20, 240)}
_LEFT = re.compile(r"(?:(\d+) min )?(?:(\d+) s )?left")
_SHORT = 3.0  # seconds left, below which nobody looks


def table(rows: int, columns: int, seed: int) -> np.ndarray[Any, Any]:
    """Rows near a curved manifold of three dimensions, with noise of 5 %."""
    random = np.random.default_rng(seed)
    z = random.normal(size=(rows, 3))
    x = np.sin(z @ random.normal(size=(3, columns))) + z @ random.normal(size=(3, columns))
    found: np.ndarray[Any, Any] = (x / x.std(axis=0) + 0.05 * random.normal(size=x.shape)).astype(np.float32)
    return found


def left(line: str) -> float | None:
    """The seconds left that a line speaks of.

    Example:
        >>> [left(text) for text in ("epoch 3/9, 1 min 5 s left", "2 min left", "40 s left", "done")]
        [65.0, 120.0, 40.0, None]
    """
    found = _LEFT.search(line)
    if found is None or not any(found.groups()):
        return None
    minutes, seconds = (float(part or 0) for part in found.groups())
    return 60 * minutes + seconds


def timed(rows: int, columns: int, seed: int) -> dict[str, Any]:
    """Wall and CPU seconds of one fit; each time left that was shown, with what then came."""
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "table.npy"
        np.save(file, table(rows, columns, seed))
        command = [sys.executable, "-m", "rectangular_flows", "fit", str(file), "--out", str(Path(name) / "run")]
        spent, start = os.times(), time.perf_counter()
        shown = []
        one = os.environ | {"OMP_NUM_THREADS": "1"}
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=one) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if (seconds := left(line)) is not None:
                    shown.append((time.perf_counter() - start, seconds))
        if process.returncode:
            raise RuntimeError(f"rnf fit ended with {process.returncode}")
        wall, after = time.perf_counter() - start, os.times()
    cpu = after.children_user + after.children_system - spent.children_user - spent.children_system
    return {"seconds": wall, "cpu": cpu, "left": [[at, said, wall - at] for at, said in shown]}


def report(kept: dict[str, Any]) -> str:
    """A row a size: the times, the target, and the median and the range of said over actual time left."""
    rows = []
    for size, (_, _, target) in SIZES.items():
        found = [value for key, value in kept.items() if key.startswith(f"{size}/")]
        if not found:
            continue
        ratios = [said / then for one in found for _, said, then in one["left"] if then > _SHORT]
        right = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})" if ratios else "none shown"
        rows.append([size, ", ".join(f"{one['seconds']:.1f}" for one in found), target, len(ratios), right])
    return markdown(("table", "seconds", "target", "times left shown", "said over actual"), rows)


def main() -> None:
    """Every size and seed that is not kept yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("times.json"))
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--only", nargs="*", choices=list(SIZES), default=list(SIZES))
    arguments = parser.parse_args()
    for seed in arguments.seeds:
        for size in arguments.only:
            key = f"{size}/{seed}"
            if key not in read_kept(arguments.out):
                rows, columns, _ = SIZES[size]
                keep(arguments.out, key, timed(rows, columns, seed))
                print(key, read_kept(arguments.out)[key], flush=True)
    print(report(read_kept(arguments.out)))


if __name__ == "__main__":
    main()
