"""Runs of every format load, give the scores that they gave, and go on. See also test_compatibility.py."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from rectangular_flows import RectangularFlowEstimator, SavedRun, load
from rectangular_flows.cli import main
from rectangular_flows.storage.manifest import read_files, read_manifest
from rectangular_flows.training.history import read_history

FIXTURES = Path(__file__).parent / "fixtures"
FORMATS = {"before-house": ("table-run", "table-scores.csv"), "manifest-1": ("run", "scores.csv")}
"""Folder → a finished run in it, and its scores. Each also has a run that was stopped, and their data."""


def test_every_format_has_a_fixture():
    assert {path.name for path in FIXTURES.iterdir()} == set(FORMATS)


@pytest.mark.parametrize("name", FORMATS)
def test_a_run_gives_the_same_scores(name):
    run, scores = FORMATS[name]
    saved, expected = (
        SavedRun(FIXTURES / name / run),
        np.genfromtxt(FIXTURES / name / scores, delimiter=",", names=True),
    )
    found = saved.flow.score(saved.rows(FIXTURES / name / "table.csv"))
    # in float32, processors with other matrix products differ by more than the rounding of one operation
    np.testing.assert_allclose(found.log_prob, expected["log_density"], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found.squared_distance, expected["reconstruction_error"], rtol=1e-4, atol=1e-6)
    assert saved.calibration is not None


@pytest.mark.parametrize("name", FORMATS)
def test_a_stopped_run_goes_on(tmp_path, monkeypatch, name):
    shutil.copytree(FIXTURES / name, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    before = read_history("stopped-run")
    assert main(["fit", "--resume", "stopped-run", "--quiet"]) == 0
    after = read_history("stopped-run")
    assert [line for line in after if line.epoch <= before[-1].epoch][-len(before) :] == before
    assert len(after) > len(before)
    assert SavedRun("stopped-run").calibration is not None
    if (
        name == "manifest-1"
    ):  # nothing was measured by time, so that the end is the same, but for another processor's bits
        whole, resumed = (SavedRun(run).flow.state_dict() for run in ("run", "stopped-run"))
        for key, value in whole.items():
            np.testing.assert_allclose(resumed[key], value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("run", ["run", "stopped-run"])
def test_every_file_is_as_its_manifest_says(run):
    folder = FIXTURES / "manifest-1" / run
    names = set(read_manifest(folder).files)
    assert set(read_files(folder, names)) == names
    assert names == {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()} - {"manifest.json"}


def test_an_estimator_gives_the_same_scores():
    place = FIXTURES / "manifest-1"
    expected = np.load(place / "expected.npz")
    rows = np.loadtxt(place / "table.csv", delimiter=",", skiprows=1)
    found = RectangularFlowEstimator.load(place / "estimator")
    np.testing.assert_allclose(found.score_samples(rows), expected["estimator"], rtol=1e-4, atol=1e-4)
    ambient = found.flow_.ambient_log_prob(torch.from_numpy(rows).to(found.flow_.dtype)).detach()
    np.testing.assert_allclose(ambient, expected["ambient"], rtol=1e-4, atol=1e-4)


def test_a_model_on_a_closed_space_gives_the_same_scores():
    expected = np.load(FIXTURES / "manifest-1" / "expected.npz")
    flow = load(FIXTURES / "manifest-1" / "closed-model")
    points = torch.from_numpy(expected["circle"]).to(flow.dtype)
    np.testing.assert_allclose(flow.log_prob(points).detach(), expected["closed"], rtol=1e-4, atol=1e-4)
    off = np.abs(flow.ambient_log_prob(points).detach().numpy() - expected["closed_ambient"])
    # the circle has no noise: in float32, rounding decides the density in R² of some points
    assert np.quantile(off, 0.7) < 1e-4
