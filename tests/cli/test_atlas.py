"""A run of several charts from the command line: fitted, resumed, scored, sampled, drawn, judged."""

import json

import numpy as np
import pytest
import torch

from rectangular_flows import Atlas, SavedRun
from rectangular_flows.settings import FitSettings, read_preset
from tests.cli.command import run as command


def rnf(*arguments):
    done = command(*arguments)
    assert done.returncode == 0, done.stderr
    return done


def blobs(path, count=240):
    random = np.random.default_rng(0)
    piece = np.arange(count) % 2
    values = random.normal(size=(count, 1)) * np.where(piece, 0.3, 0.2)[:, None] * [[1.0, 0.3]] + 4 * piece[:, None]
    values += 0.02 * random.normal(size=values.shape)
    np.savetxt(path, values, delimiter=",", header="a,b", comments="")
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("atlas")
    data = blobs(folder / "blobs.csv")
    fast = ["--layers", "2", "--hidden", "8", "--latent", "mixture", "--epochs", "6", "--seed", "1"]
    rnf("fit", data, "--latent-dim", "1", "--charts", "2", *fast, "--out", folder / "run")
    return folder


def test_the_run_is_an_atlas_that_parts_the_pieces(run):
    saved = SavedRun(run / "run")
    assert isinstance(saved.flow, Atlas)
    assert saved.settings.model.charts == 2
    chart = saved.flow.chart_of(saved.rows(run / "blobs.csv"))
    assert (
        sorted({(int(c), int(k)) for k, c in enumerate(chart[:2])}) == [(0, 0), (1, 1)]
        or len({*chart[:2].tolist()}) == 2
    )
    assert bool((chart[::2] == chart[0]).all())
    assert bool((chart[1::2] == chart[1]).all())
    samples = saved.flow.sample(500)[:, 0]
    assert float(((samples > 1.3) & (samples < 2.7)).float().mean()) == 0


def test_scores_with_the_chart(run):
    rnf("score", run / "run", run / "blobs.csv", "-o", run / "scores.csv", "--coordinates", "--explain")
    found = np.genfromtxt(run / "scores.csv", delimiter=",", names=True)
    assert {"chart", "z1", "log_density", "log_density_ambient", "outlier_score", "why_a"} <= set(found.dtype.names)
    assert set(np.unique(found["chart"])) == {0.0, 1.0}
    assert np.isfinite(found["log_density"]).all()


def test_samples_and_verdict(run):
    rnf("sample", run / "run", "-n", "50", "-o", run / "samples.csv")
    assert np.loadtxt(run / "samples.csv", delimiter=",", skiprows=1).shape == (50, 2)
    assert "of 2 charts" in rnf("show", run / "run").stdout
    assert json.loads((run / "run" / "verdict.json").read_text())["charts"] == 2


@pytest.mark.slow
def test_figures_and_report(run):
    rnf("plot", run / "run")
    assert list((run / "run").rglob("charts.png"))
    rnf("report", run / "run")
    assert json.loads((run / "run" / "evaluation.json").read_text())["reconstruction_error"] < 0.01


def test_resumed_where_it_was(run):
    before = SavedRun(run / "run").flow
    rnf("fit", "--resume", run / "run")
    after = SavedRun(run / "run").flow
    rows = SavedRun(run / "run").rows(run / "blobs.csv")
    assert torch.equal(before.log_prob(rows), after.log_prob(rows))


def test_a_number_that_makes_no_sense_is_refused():
    for value in (0, 51, -3):
        with pytest.raises(ValueError, match="expected charts from 1 to 50"):
            FitSettings.from_flat({"charts": value})
    assert FitSettings.from_flat({}, read_preset("table")).model.charts == 1
