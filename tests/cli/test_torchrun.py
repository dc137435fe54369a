"""``torchrun -m rectangular_flows fit``: as one process does it, with one voice."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

import rectangular_flows as rnf

FIT = [
    "fit",
    "data.csv",
    "--latent-dim",
    "2",
    "--epochs",
    "3",
    "--batch-size",
    "97",
    "--dtype",
    "float64",
    "--volume",
    "stochastic",
]


def run(folder, *arguments, processes=0):
    several = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes)] if processes else []
    command = [sys.executable, *several, "-m", "rectangular_flows", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(folder)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900)


@pytest.fixture
def folder(tmp_path):
    u = np.random.default_rng(0).normal(size=(400, 2))
    x = np.c_[u, u[:, :1] * u[:, 1:], u[:, 0] ** 2]
    np.savetxt(tmp_path / "data.csv", x, delimiter=",", header="a,b,c,d", comments="")
    return tmp_path


@pytest.mark.slow
def test_two_processes_fit_a_table_as_one_does(folder):
    one = run(folder, *FIT, "--out", "one")
    two = run(folder, *FIT, "--out", "two", processes=2)
    assert (one.returncode, two.returncode) == (0, 0), two.stderr
    assert not list(folder.glob("rnf-rows-*"))
    expected, found = (rnf.load(folder / name).state_dict() for name in ("one", "two"))  # with the scatter
    assert expected.keys() == found.keys()
    assert any("scatter" in key for key in found)
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value, rtol=1e-5, atol=1e-6)
    kinds = [[line.partition(":")[0].replace("two", "one") for line in said.stdout.splitlines()] for said in (one, two)]
    assert len(kinds[0]) == len(kinds[1])  # nothing is said twice
    assert sorted(path.name for path in (folder / "one").iterdir()) == sorted(
        p.name for p in (folder / "two").iterdir()
    )


@pytest.mark.slow
def test_a_mistake_is_reported_once(folder):
    ended = run(folder, "fit", "absent.csv", "--out", "none", processes=2)
    assert ended.returncode == 1  # torchrun's own
    assert ended.stderr.count("rnf: ") == 1
    assert "There is no file 'absent.csv'" in ended.stderr
    assert not (folder / "none").exists()
