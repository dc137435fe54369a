"""Runs in all sorts of circumstances: made in Python, of few rows, of models that the data were not meant for."""

import json

import numpy as np
import pytest
import torch

import rectangular_flows as rnf
from rectangular_flows.runs.prepared import prepare
from rectangular_flows.settings import DataSettings
from tests.cli.command import helix, refused, run


def test_a_validation_file_of_one_row_is_named(tmp_path):
    one = helix(tmp_path / "one.csv", rows=1)
    settings = DataSettings(str(helix(tmp_path / "good.csv")), validation_data=str(one))
    with pytest.raises(ValueError, match=r"at least two rows to validate with; '.*one\.csv' has 1"):
        prepare(settings, 1, 0)


def test_a_run_made_in_python_says_that_it_does_not_know_its_data(tmp_path):
    flow = rnf.RectangularFlow(rnf.flows.RealNVP(2, layers=1), rnf.flows.Identity(1))
    rnf.fit(flow, torch.randn(40, 2), rnf.TrainingConfig(epochs=1, batch_size=20), out=tmp_path / "mine")
    for command in ("evaluate", "report"):
        done = run(command, "mine", cwd=tmp_path)
        assert done.returncode == 2
        assert "mine does not say what it was trained on" in done.stderr
        assert "rnf score mine DATA" in done.stderr


def test_a_model_of_the_circle_that_is_no_curve_is_judged_without_the_truth(tmp_path):
    command = ["fit", "circle", "--latent-dim", 2, "--epochs", 1, "--layers", 2, "--out", "run"]
    assert run(*command, cwd=tmp_path).returncode == 0
    for command in ("evaluate", "report"):
        assert run(command, "run", cwd=tmp_path).returncode == 0
    assert "circle_kl" not in json.loads((tmp_path / "run" / "evaluation.json").read_text())


def test_a_saved_estimator_keeps_the_names_of_its_columns(tmp_path):
    X = np.random.default_rng(0).normal(size=(200, 2))
    estimator = rnf.RectangularFlowEstimator(latent_dim=1, epochs=1, layers=2, random_state=0).fit(X)
    expected = estimator.score_samples(X)
    estimator.feature_names_in_ = np.array(["b", "a"], dtype=object)  # as a frame would have set them
    estimator.save(tmp_path / "model")
    np.savetxt(tmp_path / "x.csv", X[:, ::-1], delimiter=",", header="a,b", comments="")
    assert run("score", "model", "x.csv", cwd=tmp_path).returncode == 0
    found = np.loadtxt(tmp_path / "scores.csv", delimiter=",", skiprows=1)
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-4, atol=1e-4)


def test_few_rows_give_a_report_without_figures(tmp_path):
    helix(tmp_path / "few.csv", rows=30)
    assert run("fit", "few.csv", "--latent-dim", 1, "--epochs", 1, "--layers", 2, cwd=tmp_path).returncode == 0
    done = run("report", "runs/few-d1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "runs" / "few-d1" / "report.html").read_text()
    assert "No numbers: expected at least 10 test rows" in page
    assert "--test-fraction" in refused("evaluate", "runs/few-d1", cwd=tmp_path)
