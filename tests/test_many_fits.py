"""Many fits in one process: nothing piles up."""

import gc
import os
from pathlib import Path

import pytest

from tests.cli.command import helix, run
from tests.tally import measured, tally
from tests.training.test_memory import tensors

WORDS = ("--latent-dim=1", "--epochs=2", "--layers=1", "--hidden=4", "--latent=affine", "--quiet", "--overwrite")
ITSELF = Path("/proc/self")

pytestmark = pytest.mark.skipif(not ITSELF.exists(), reason="counts by /proc")


def taken():
    """Resident memory in MiB, descriptors and threads of this process."""
    gc.collect()
    pages = int((ITSELF / "statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20, len(os.listdir(ITSELF / "fd")), len(os.listdir(ITSELF / "task"))


def fits(folder, count):
    """So many, the first and every fiftieth with the density in all columns, which takes longer than all the rest."""
    helix(folder / "table.csv", rows=80)
    for number in range(count):
        words = [
            *WORDS,
            "--seed",
            number,
            "--out",
            f"run{number % 3}",
            *([] if number % 50 == 0 else ["--no-scatter"]),
        ]
        done = run("fit", "table.csv", *words, cwd=folder)
        assert done.returncode == 0, done.stderr


def test_a_few_fits_leave_no_descriptor_no_thread_and_no_tensor(tmp_path):
    fits(tmp_path, 2)
    _, *before = *taken(), tensors()
    fits(tmp_path, 4)
    _, *after = *taken(), tensors()
    assert after == before


@pytest.mark.reliability
def test_200_fits(tmp_path):
    counted = tally("fits in one process, after 10 to warm up")
    fits(tmp_path, 10)
    memory, *before = taken()
    fits(tmp_path, 200)
    counted.tried += 200
    grown, *after = taken()
    text = f"{memory:.0f} MiB after 10, {grown:.0f} MiB after 210 ({grown / memory - 1:+.1%})"
    measured(
        "Fits in one process", f"{text}; descriptors {before[0]} and {after[0]}, threads {before[1]} and {after[1]}"
    )
    assert after == before
    assert grown < 1.05 * memory
    counted.held += 200
