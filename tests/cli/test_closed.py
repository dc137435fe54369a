"""A run whose latent space closes up, from fit to report."""

import csv
import json
import re

import numpy as np
import pytest

from rectangular_flows.runs.saved import SavedRun
from rectangular_flows.settings import FitSettings, read_preset
from tests.cli.command import resumed_alike, run

FAST = [
    "--layers",
    "1",
    "--hidden",
    "8",
    "--batch-size",
    "100",
    "--time",
    "none",
    "--latent-components",
    "2",
    "--quiet",
]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """An ellipse with some scatter, whose angle is densest across the seam, and a third column that follows it."""
    random = np.random.default_rng(0)
    angle = random.vonmises(np.pi, 1.0, 150)
    radius = 1 + 0.02 * random.normal(size=150)
    rows = np.stack([5 + 2 * radius * np.cos(angle), radius * np.sin(angle), 0.5 * np.cos(angle)], axis=1)
    path = tmp_path_factory.mktemp("closed") / "ring.csv"
    np.savetxt(path, rows, delimiter=",", header="a,b,c", comments="")
    return path


@pytest.fixture(scope="module")
def trained(table):
    out = table.parent / "run"
    done = run("fit", table, "--latent-space", "circle", "--epochs", "6", "--out", out, *FAST)
    assert done.returncode == 0, done.stderr
    return out


def test_settings_and_model_have_the_space(trained):
    saved = SavedRun(trained)
    assert saved.settings.model.latent_space == "circle"
    assert saved.settings.model.latent_dim == saved.flow.latent_dim == 1
    assert str(saved.flow.latent.space) == "circle"
    assert json.loads((trained / "model.json").read_text())["model"]["arguments"]["latent_space"] == "circle"
    assert saved.flow.scatter is not None


def test_score_and_sample(trained, table):
    done = run("score", trained, table, "--coordinates", "-o", table.parent / "scores.csv")
    assert done.returncode == 0, done.stderr
    with (table.parent / "scores.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 150
    z = np.array([float(row["z1"]) for row in rows])
    assert np.abs(z).max() <= np.pi + 1e-6
    assert np.isfinite([float(row["log_density"]) for row in rows]).all()
    assert np.isfinite([float(row["log_density_ambient"]) for row in rows]).all()
    for scatter in ("--scatter", "--no-scatter"):
        done = run("sample", trained, "-n", 200, scatter, "-o", table.parent / "samples.csv")
        assert done.returncode == 0, done.stderr
        samples = np.loadtxt(table.parent / "samples.csv", delimiter=",", skiprows=1)
        ring = np.hypot((samples[:, 0] - 5) / 2, samples[:, 1])
        assert np.abs(ring - 1).max() < (0.2 if scatter == "--scatter" else 0.05)


@pytest.mark.parametrize("command", ["show", "plot", pytest.param("report", marks=pytest.mark.slow), "evaluate"])
def test_it_is_shown(trained, command):
    done = run(command, trained)
    assert done.returncode == 0, done.stderr


def test_a_finished_run_is_resumed_to_the_same_model(trained, table):
    assert resumed_alike(trained, table.parent / "again")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--latent-space", "ball"], "expected a latent space such as 'circle', 'torus:2'"),
        (["--latent-space", "torus:2", "--latent-dim", "1"], "torus:2 has dimension 2; got latent_dim 1. Leave one"),
        (["--latent-space", "torus:4"], "from 1 to 2"),
        (["--latent-space", "line*sphere"], "from 1 to 2"),
        (["--latent-space", "line*circle*line"], "from 1 to 2"),
        (["--latent-space", "circle", "--latent", "realnvp"], "no latent density 'realnvp' on the latent space circle"),
        (["--latent-space", "sphere", "--latent", "spline"], "there are mixture, auto, kernels, identity"),
    ],
)
def test_mistakes(table, arguments, message):
    done = run("fit", table, *arguments, "--out", table.parent / "none")
    assert done.returncode == 2
    assert message in re.sub(r"\s+", " ", done.stderr)
    assert "Traceback" not in done.stderr


def test_the_latent_density_is_chosen_for_the_space():
    table = read_preset("table")
    assert FitSettings.from_flat({"latent_space": "circle"}, table).model.latent.name == "auto"
    assert FitSettings.from_flat({"latent_space": "circle"}).model.latent.name == "auto"  # not realnvp, the default
    assert FitSettings.from_flat({"latent_space": "sphere"}, {"latent": "spline"}).model.latent.name == "auto"
    assert FitSettings.from_flat({"latent_space": "circle"}, {"latent": "spline"}).model.latent.name == "spline"
    assert FitSettings.from_flat({"latent_space": "none"}, {}).model.latent.name == "realnvp"
    settings = FitSettings.from_flat({"latent_space": "circle*circle"}, table)
    assert settings.flat()["latent_space"] == "torus:2"
    assert FitSettings.from_flat({}, settings.flat()) == settings
