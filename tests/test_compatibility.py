"""Models that the version before the re-housing saved still load, and give the same scores."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import rectangular_flows as rnf
from rectangular_flows.data.pixels import dequantise

BEFORE = Path(__file__).parent / "fixtures" / "before-house"


def table():
    return np.loadtxt(BEFORE / "table.csv", delimiter=",", skiprows=1)


def images():
    return dequantise(np.load(BEFORE / "images.npy")[:, None], seed=0)


@pytest.mark.parametrize(("name", "rows"), [("table", table), ("image", images)])
def test_a_run_from_before_gives_the_same_scores(name, rows):
    flow = rnf.load(BEFORE / f"{name}-run")
    found = flow.score(torch.from_numpy(rows()).to(flow.dtype))
    expected = np.genfromtxt(BEFORE / f"{name}-scores.csv", delimiter=",", names=True)
    # in float32, processors with other matrix products differ by more than the rounding of one operation
    np.testing.assert_allclose(found.log_prob, expected["log_density"], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found.squared_distance, expected["reconstruction_error"], rtol=1e-4, atol=1e-6)
    assert found.z.shape[1] == sum(column.startswith("z") for column in expected.dtype.names)
    for i, column in enumerate(found.z.T):
        np.testing.assert_allclose(column, expected[f"z{i + 1}"], rtol=1e-4, atol=1e-5)


def test_samples_of_a_run_from_before_are_the_same():
    flow = rnf.load(BEFORE / "table-run")
    expected = np.loadtxt(BEFORE / "table-samples.csv", delimiter=",", skiprows=1)
    found = flow.sample(len(expected), generator=torch.Generator().manual_seed(0))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.slow
def test_a_fresh_process_knows_every_class_that_a_model_names():
    """One process for each model, forked from one that has imported what takes long and nothing of ours."""
    code = """
import os, sys
import scipy.stats, sklearn.mixture, torch, zuko
for folder in sys.argv[1:]:
    if not os.fork():
        import rectangular_flows as rnf
        rnf.load(folder)
        print(folder)
        break
    os.wait()
"""
    folders = [str(BEFORE / run) for run in ("table-run", "image-run", "stopped-run", "detector", "estimator")]
    command = [sys.executable, "-W", "ignore", "-c", code, *folders]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == folders, done.stderr
