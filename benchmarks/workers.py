"""``rnf score --engine ray`` with one worker and with two, on this machine: seconds of the same rows.

``python -m benchmarks.workers`` trains a default model on 2,000 rows of 6 columns, then scores ``--rows`` rows of the same
law into an .npy file, with one worker and with two in turns, each time by a process of its own. The start of Ray, of workers
and their imports count in *wall*; *work* is the time between the first rows that come back and the last. Needs the extra
``ray``, and two cores that are free.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from .kept import markdown
from .stream import COLUMNS, make_table

_CHILD = """
import sys, time
from pathlib import Path
from rectangular_flows.runs.saved import SavedRun
from rectangular_flows.evaluation.ray_engine import ray_engine
from rectangular_flows.evaluation.scored import open_scoring, write_scores
run, table, out, workers = sys.argv[1:]
ticks, start = [], time.perf_counter()
engine = ray_engine(table, {}, int(workers))
scoring = open_scoring(SavedRun(run), table)
write_scores(scoring, Path(out), lambda rows: ticks.append((time.perf_counter(), rows)), engine=engine)
first, last = ticks[0][0], ticks[-1][0]
print(time.perf_counter() - start, last - first, sum(rows for _, rows in ticks[1:]))
"""


def scored(run: Path, table: Path, workers: int) -> tuple[float, float]:
    """Seconds in all, and microseconds of a row once rows come back."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-c", _CHILD, str(run), str(table), str(Path(folder) / "scores.npy"), str(workers)]
        done = subprocess.run(words, check=True, capture_output=True, text=True)
    wall, work, rows = (float(value) for value in done.stdout.split()[-3:])
    return wall, 1e6 * work / rows


def main() -> None:
    """One and two workers in turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_table(folder / "train.npy", 2_000)
        make_table(folder / "rows.npy", arguments.rows)
        fit = [sys.executable, "-m", "rectangular_flows", "fit", str(folder / "train.npy"), "--latent-dim", "3"]
        start = time.perf_counter()
        subprocess.run([*fit, "--out", str(folder / "run"), "--quiet"], check=True)
        print(f"trained in {time.perf_counter() - start:.0f} s on 2,000 rows of {COLUMNS} columns", flush=True)
        found: dict[int, list[tuple[float, float]]] = {1: [], 2: []}
        for _ in range(arguments.rounds):
            for workers, times in found.items():
                times.append(scored(folder / "run", folder / "rows.npy", workers))
                print(workers, times[-1], flush=True)
    rows = [[workers, *(f"{value:.1f}" for value in np.median(times, axis=0))] for workers, times in found.items()]
    print(markdown(("workers", "wall, s", "work, µs a row"), rows))
    for i, what in enumerate(("wall", "work")):
        ratios = [one[i] / two[i] for one, two in zip(found[1], found[2], strict=True)]
        print(f"{what}: two workers {statistics.median(ratios):.2f} × one ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
