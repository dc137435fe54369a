"""A table with columns that are angles, from fit to report."""

import csv
import re

import numpy as np
import pytest
import torch

from rectangular_flows.runs.saved import SavedRun
from rectangular_flows.settings import FitSettings, read_preset
from tests.cli.command import resumed_alike, run

FAST = ["--layers", "1", "--hidden", "8", "--batch-size", "100", "--time", "none", "--latent-components", "2"]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Hours around midnight, a wind around north that follows them, a temperature, and something else."""
    random = np.random.default_rng(0)
    hour = random.normal(0, 3, 160) % 24
    wind = (hour * 15 + random.normal(0, 8, 160)) % 360
    warm = 10 + 5 * np.cos((hour - 14) * np.pi / 12) + random.normal(0, 0.3, 160)
    rows = np.stack([wind, warm, hour, random.normal(size=160)], axis=1)
    path = tmp_path_factory.mktemp("periodic") / "weather.csv"
    np.savetxt(path, rows, delimiter=",", header="wind,warm,hour,else", comments="")
    return path


@pytest.fixture(scope="module")
def trained(table):
    out = table.parent / "run"
    done = run("fit", table, "--periodic", "wind,hour:24", "--latent-dim", "2", "--epochs", "6", "--out", out, *FAST)
    assert done.returncode == 0, done.stderr
    text = re.sub(r"\s+", " ", done.stdout + done.stderr)
    assert "degrees guessed from the values of 'wind'" in text
    return out


def scores(trained, path, *more):
    out = path.with_suffix(".scores.csv")
    done = run("score", trained, path, "-o", out, *more)
    assert done.returncode == 0, done.stderr
    with out.open() as file:
        rows = list(csv.DictReader(file))
    return {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}


def test_settings_keep_what_was_guessed(trained):
    saved = SavedRun(trained)
    assert saved.settings.data.periodic == ("wind:360", "hour:24")
    assert str(saved.flow.latent.space) == "torus:2"
    assert saved.columns == ("wind", "warm", "hour", "else")
    assert saved.flow.periodic.columns == [0, 2]


def test_a_row_and_the_same_row_a_turn_later_score_the_same(trained, table):
    rows = np.loadtxt(table, delimiter=",", skiprows=1)
    later = table.parent / "later.csv"  # with its columns in another order
    moved = rows + np.array([360, 0, -24, 0])
    np.savetxt(later, moved[:, [3, 2, 1, 0]], delimiter=",", header="else,hour,warm,wind", comments="")
    here, there = scores(trained, table, "--explain"), scores(trained, later, "--explain")
    for name in ("log_density", "log_density_ambient", "reconstruction_error", "outlier_score", "p_value"):
        assert np.isfinite(here[name]).all()
        np.testing.assert_allclose(there[name], here[name], rtol=1e-3, atol=2e-3)
    columns = ("wind", "warm", "hour", "else")
    total = sum(here[f"why_{name}"] for name in columns)
    np.testing.assert_allclose(total, here["outlier_score"], rtol=1e-6, atol=1e-9)
    assert ((here["nearest_hour"] >= 0) & (here["nearest_hour"] < 24)).all()


def test_an_impossible_hour_for_its_wind_is_what_is_unusual(trained, table):
    odd = table.parent / "odd.csv"
    odd.write_text("wind,warm,hour,else\n180,5.7,0.5,0\n")
    found = scores(trained, odd, "--explain")
    assert found["why_wind"][0] == max(found[f"why_{name}"][0] for name in ("wind", "warm", "hour", "else"))
    assert found["p_value"][0] < 0.02


def test_samples_are_in_the_range_of_the_columns(trained, table):
    for scatter in ("--scatter", "--no-scatter"):
        done = run("sample", trained, "-n", 300, scatter, "-o", table.parent / "samples.csv")
        assert done.returncode == 0, done.stderr
        samples = np.loadtxt(table.parent / "samples.csv", delimiter=",", skiprows=1)
        assert ((samples[:, 0] >= 0) & (samples[:, 0] < 360)).all()
        assert ((samples[:, 2] >= 0) & (samples[:, 2] < 24)).all()
        off = (samples[:, 0] - 15 * samples[:, 2] + 180) % 360 - 180
        assert np.median(np.abs(off)) < 30
        assert 0.2 < (samples[:, 2] > 12).mean() < 0.8  # both sides of midnight


@pytest.mark.parametrize("command", ["show", "plot", pytest.param("report", marks=pytest.mark.slow), "evaluate"])
def test_it_is_shown(trained, command):
    done = run(command, trained)
    assert done.returncode == 0, done.stderr
    if command == "show":
        assert "periodic columns, with their periods: wind (360), hour (24)" in done.stdout


def test_a_finished_run_is_resumed_to_the_same_model(trained, table):
    assert resumed_alike(trained, table.parent / "again")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--periodic", "hours:24"], "no column 'hours' to be periodic"),
        (["--periodic", "hour"], "Cannot tell the period of column 'hour'"),
        (["--periodic", "hour:24", "--latent-dim", "5"], "from 1 to 4"),
        (["--periodic", "hour:24", "--latent-space", "torus:2"], "at most 1 circles, 3 lines and no sphere"),
        (["--periodic", "hour:24", "--latent-space", "sphere"], "no sphere"),
        (["--periodic", "hour:24", "--latent", "realnvp"], "no latent density 'realnvp' on the latent space"),
        (["--periodic", "hour:24", "--ambient", "principal"], "periodic columns need --ambient realnvp"),
        (["--periodic", "hour:24", "--actnorm"], "without pca_tail and actnorm"),
        (["--periodic", "hour:24", "--sphere"], "leave out periodic"),
    ],
)
def test_mistakes(table, arguments, message):
    more = [] if any(a in ("--latent-dim", "--latent-space", "--sphere") for a in arguments) else ["--latent-dim", "2"]
    done = run("fit", table, *arguments, *more, "--out", table.parent / "none")
    assert done.returncode == 2
    assert message in re.sub(r"\s+", " ", done.stderr)
    assert "Traceback" not in done.stderr
    assert not (table.parent / "none").exists()


def test_angles_too_large_for_the_type_are_refused(table):
    rows = np.loadtxt(table, delimiter=",", skiprows=1)
    rows[:, 2] += 24e15
    path = table.parent / "large.csv"
    np.savetxt(path, rows, delimiter=",", header="wind,warm,hour,else", comments="")
    done = run("fit", path, "--periodic", "hour:24", "--latent-dim", "2", "--out", table.parent / "none")
    assert done.returncode == 2
    assert "float64 cannot tell angles of period 24 apart" in done.stderr


def test_all_columns_may_be_coordinates_and_one_may_be_all(tmp_path):
    angle = np.random.default_rng(0).normal(0, 40, 120) % 360
    np.savetxt(tmp_path / "one.csv", angle, delimiter=",", header="wind", comments="")
    done = run("fit", tmp_path / "one.csv", "--periodic", "all", "--epochs", "3", "--out", tmp_path / "run", *FAST)
    assert done.returncode == 0, done.stderr
    flow = SavedRun(tmp_path / "run").flow
    assert flow.latent_dim == 1
    grid = torch.arange(0.0, 360)[:, None]
    assert float(flow.log_prob(grid).detach().exp().sum()) == pytest.approx(1, abs=1e-3)
    assert float(flow.reconstruction_error(grid).detach().max()) < 1e-6
    assert run("evaluate", tmp_path / "run").returncode == 0


def test_the_latent_density_is_one_for_circles():
    values = {"data": None, "periodic": "hour:24"}
    assert FitSettings.from_flat(values, read_preset("table")).model.latent.name == "auto"
    assert FitSettings.from_flat(values, {"latent": "affine"}).model.latent.name == "auto"
    assert FitSettings.from_flat(values, {"latent": "spline"}).model.latent.name == "spline"
