"""``rnf score`` of a large table: its memory, its speed, and whether it continues after SIGKILL.

``python -m benchmarks.stream --rows 20000000`` makes a table of 6 columns in a temporary folder, trains a small model, and
scores the table in processes of their own: once without interruption, once killed by SIGKILL half-way and resumed. For each
format of the scores (``--formats npy csv``) it prints

- *above*: peak of the resident memory less that at the start of the work, when everything is imported and loaded;
- *speed*: CPU time of a row in one call of ``flow.score`` on up to 300,000 rows in memory (the mean of a call before and one
  after the scoring), divided by that of a row in ``rnf score``, which also reads, checks, calibrates and writes;
- *same*: whether both outputs have the same bytes.

It needs /proc (Linux), and room on disk for three times the table; ``--folder`` says where.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

import rectangular_flows as rnf
from rectangular_flows.storage.lock import LOCK

from .kept import markdown

MODEL = ["--latent-dim=3", "--layers=2", "--hidden=16", "--epochs=2", "--latent=affine", "--no-scatter", "--quiet"]
COLUMNS, TRAIN, IN_MEMORY, AT_ONCE = 6, 2_000, 300_000, 1_000_000
HEAD = ["rows", "scores as", "start, MiB", "above", "resumed at row", "above, resumed", "µs a row", "speed", "same"]


def rows(count: int, random: np.random.Generator) -> NDArray[Any]:
    """Near a curved manifold of 3 dimensions, (count, 6)."""
    z = random.normal(size=(count, 3))
    return np.concatenate([z, 0.3 * z**2 + 0.05 * random.normal(size=(count, 3))], axis=1)


def make_table(path: Path, count: int) -> None:
    """So many rows as a .npy file, a million in memory at a time."""
    random = np.random.default_rng(0)
    table = np.lib.format.open_memmap(path, mode="w+", dtype=np.float64, shape=(count, COLUMNS))
    for start in range(0, count, AT_ONCE):
        part = table[start : start + AT_ONCE]
        part[:] = rows(len(part), random)
    table.flush()


class Ended(NamedTuple):
    """Of a process that scored: MiB at the start of the work, most above it, CPU seconds of the work, bytes of its spool."""

    start: float
    above: float
    seconds: float
    spooled: int


def score(run: Path, table: Path, output: Path, *words: str, kill_at: int | None = None) -> Ended:
    """Score in a process of its own, which is killed once its spool has so many bytes.

    Raises:
        RuntimeError: it failed, or was done before it could be killed.
    """
    partial = output.with_name(f"{output.name}.partial")
    command = [sys.executable, "-m", "rectangular_flows", "score", run, table, "-o", output, *words]
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    start = begun = most = seconds = 0.0
    spooled = 0
    while process.poll() is None:
        try:
            seconds, memory, most = _seconds(process.pid), _status(process.pid, "VmRSS"), _status(process.pid, "VmHWM")
            if not start and json.loads((partial / LOCK).read_text())["pid"] == process.pid:
                start, begun = memory, seconds
            spooled = max(spooled, (partial / "rows").stat().st_size)
        except (OSError, LookupError, json.JSONDecodeError):  # not there yet, or there no more
            pass
        if kill_at is not None and spooled >= kill_at:
            process.kill()
        time.sleep(0.01)
    _, errors = process.communicate()
    if (process.returncode != 0) != (kill_at is not None):
        raise RuntimeError(f"rnf score ended with exit code {process.returncode}: {errors}")
    return Ended(start, most - start, seconds - begun, spooled)


def _status(pid: int, name: str) -> float:
    """MiB, by the kernel's account."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return float({line.split(":")[0]: line for line in lines}[name].split()[1]) / 1024


def _seconds(pid: int) -> float:
    """CPU seconds."""
    return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13])) / os.sysconf(
        "SC_CLK_TCK"
    )


def one_call(flow: rnf.RectangularFlow | rnf.Atlas, table: Path) -> float:
    """CPU seconds of a row, all in memory."""
    x = torch.as_tensor(np.array(np.load(table, mmap_mode="r")[:IN_MEMORY]), dtype=flow.dtype)
    begun = time.process_time()
    flow.score(x)
    return (time.process_time() - begun) / len(x)


def measure(folder: Path, run: Path, table: Path, count: int, kind: str) -> list[Any]:
    """A row of the table."""
    flow, whole, resumed = rnf.load(run), folder / f"whole.{kind}", folder / f"resumed.{kind}"
    calls = [one_call(flow, table)]
    alone = score(run, table, whole)
    calls.append(one_call(flow, table))
    score(run, table, resumed, kill_at=alone.spooled // 2)
    note = folder / f"{resumed.name}.partial" / "progress.json"
    before = json.loads(note.read_text())["rows"] if note.exists() else 0
    again = score(run, table, resumed, "--resume")
    same = filecmp.cmp(whole, resumed, shallow=False)
    for path in (whole, resumed):
        path.unlink()
    each = alone.seconds / count
    return [
        f"{count:,}",
        kind,
        f"{alone.start:.0f}",
        f"{alone.above:.0f}",
        f"{before:,}",
        f"{again.above:.0f}",
        f"{1e6 * each:.1f}",
        f"{sum(calls) / len(calls) / each:.2f}",
        "yes" if same else "**no**",
    ]


def main(arguments: list[str] | None = None) -> None:
    """Make the table and the model, score, and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stream", description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--formats", nargs="+", default=["npy", "csv"], choices=["npy", "csv", "parquet"])
    parser.add_argument("--folder", type=Path, help="where to make the temporary folder")
    options = parser.parse_args(arguments)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    with tempfile.TemporaryDirectory(prefix="rnf-stream-", dir=options.folder) as name:
        folder = Path(name)
        table, run, train = folder / "table.npy", folder / "run", folder / "train.npy"
        make_table(table, options.rows)
        make_table(train, TRAIN)
        fit = [sys.executable, "-m", "rectangular_flows", "fit", str(train), *MODEL, "--out", str(run)]
        subprocess.run(fit, check=True, stdout=subprocess.DEVNULL)
        found = [measure(folder, run, table, options.rows, kind) for kind in options.formats]
    print(markdown(HEAD, found))


if __name__ == "__main__":
    main()
