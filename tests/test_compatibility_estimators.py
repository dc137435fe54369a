"""Estimators, runs and scores that version 0.1 saved: still read, and with the same numbers."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import rectangular_flows as rnf
from rectangular_flows.cli import main
from rectangular_flows.data.tables import read_table

FIXTURES = Path(__file__).parent / "fixtures" / "before-house"
EXPECTED = np.load(FIXTURES / "expected-estimators.npz")
X = read_table(FIXTURES / "table.csv").values
CLOSE = {"rtol": 1e-3, "atol": 1e-4}  # of float32 on another machine


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A copy of everything, where the relative paths of the runs' data lead."""
    shutil.copytree(FIXTURES, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    return tmp_path / "copy"


def test_a_detector():
    detector = rnf.RectangularFlowOutlierDetector.load(FIXTURES / "detector")
    np.testing.assert_allclose(detector.score_samples(X), EXPECTED["detector"], **CLOSE)
    np.testing.assert_allclose(detector.log_density(X), EXPECTED["log_density"], **CLOSE)
    np.testing.assert_array_equal(detector.predict(X), EXPECTED["predict"])
    assert detector.offset_ == EXPECTED["offset"]


def test_an_estimator():
    estimator = rnf.RectangularFlowEstimator.load(FIXTURES / "estimator")
    np.testing.assert_allclose(estimator.score_samples(X), EXPECTED["estimator"], **CLOSE)
    np.testing.assert_allclose(estimator.reconstruction_error(X), EXPECTED["error"], rtol=1e-3)
    np.testing.assert_allclose(estimator.transform(X), EXPECTED["z"], **CLOSE)
    assert "outlier_score" not in estimator.scores(X)


def test_a_detector_saved_again_keeps_its_scores(tmp_path):
    detector = rnf.RectangularFlowOutlierDetector.load(FIXTURES / "detector")
    detector.save(tmp_path)
    again = rnf.RectangularFlowOutlierDetector.load(tmp_path)
    np.testing.assert_array_equal(again.score_samples(X), detector.score_samples(X))


@pytest.mark.parametrize(
    ("run", "data", "expected"),
    [("table-run", "table.csv", "table-scores.csv"), ("image-run", "images.npy", "image-scores.csv")],
)
def test_scores_of_a_run(here, run, data, expected):
    assert main(["score", run, data, "--coordinates"]) == 0
    expected = read_table(expected)
    assert set(read_table("scores.csv").columns) - set(expected.columns) == {"row", "p_value"}
    found = read_table("scores.csv", columns=expected.columns)
    for i, name in enumerate(found.columns):
        np.testing.assert_allclose(found.values[:, i], expected.values[:, i], rtol=1e-3, atol=1e-4, err_msg=name)


def test_a_model_is_loaded_in_a_process_that_has_used_no_other():
    """Layers and densities are imported at first use."""
    code = f"import rectangular_flows; print(rectangular_flows.load({str(FIXTURES / 'image-run')!r}).kind)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "image\n", done.stderr


@pytest.mark.filterwarnings("default::rectangular_flows.data.tables.ByPositionWarning")  # it was fitted on an array
def test_scores_of_a_detector_by_the_command(here):
    assert main(["score", "detector", "table.csv"]) == 0
    table = read_table("scores.csv")
    np.testing.assert_allclose(table.values[:, table.columns.index("outlier_score")], -EXPECTED["detector"], **CLOSE)


_OF_ALL_ROWS = ("fid_like", "fid_like_floor")  # version 0.1 compared as many samples as there are test rows


def test_an_evaluation_of_a_run(here):
    before = json.loads((here / "table-run" / "evaluation.json").read_text())
    assert rnf.SavedRun("table-run").evaluation == before
    assert main(["evaluate", "table-run", "-n", str(before["samples"])]) == 0
    after = json.loads((here / "table-run" / "evaluation.json").read_text())
    assert after.keys() - before.keys() == {"verdict"}
    for name, value in before.items():
        if name not in _OF_ALL_ROWS:
            assert after[name] == pytest.approx(value, rel=1e-3), name


def test_a_stopped_run_is_resumed(here):
    before = rnf.SavedRun("stopped-run").history
    assert main(["fit", "--resume", "stopped-run", "--quiet"]) == 0
    after = rnf.SavedRun("stopped-run")
    assert len(after.history) > len(before)
    assert [line.objective for line in after.history[: len(before)]] == [line.objective for line in before]
    assert all(np.isfinite([line.objective, line.reconstruction]).all() for line in after.history)
    assert after.calibration is not None
    assert after.calibration.model_units
