import csv
import json
import shutil

import numpy as np
import pytest
import torch

import rectangular_flows as rnf
from rectangular_flows.runs.saved import ChangedDataWarning, SavedRun
from tests.browser import opened_in_a_browser
from tests.cli.command import helix, refused, run


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    data = helix(folder / "helix.csv")
    done = run(
        "fit", data, "--latent-dim", 1, "--epochs", 4, "--layers", 2, "--learning-rate", 0.01, "--out", folder / "run"
    )
    assert done.returncode == 0, done.stderr
    assert "rnf sample" in done.stdout
    assert "epoch 4/4" in done.stdout
    return folder


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sample", "nowhere"], "no model in nowhere"),
        (["score", "{run}", "nowhere.csv"], "nowhere.csv"),
        (["sample", "{run}", "-n", "0"], "at least one sample"),
        (["sample", "{run}", "-o", "samples.doc"], "doc"),
        (["report", "nowhere"], "no model in nowhere"),
        (["reproduce", "circle", "--seeds", "0"], "at least one seed"),
        (["data", "get", "powr"], "Did you mean 'power'"),
        (["evaluate", "{run}", "--rows", "-1"], "positive number of rows; got -1"),
    ],
)
def test_mistakes_are_told(trained, tmp_path, arguments, message):
    places = {"data": trained / "helix.csv", "run": trained / "run"}
    assert message in refused(*(a.format(**places) for a in arguments), cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []  # nothing half-written


def test_a_changed_file_is_told(trained, tmp_path):
    shutil.copytree(trained / "run", tmp_path / "run")
    data = helix(tmp_path / "helix.csv")
    config = tmp_path / "run" / "config.toml"
    config.write_text(config.read_text().replace(str(trained / "helix.csv"), str(data)))
    assert len(SavedRun(tmp_path / "run").data.test) == 30  # the same rows in another place
    helix(data, rows=400)
    with pytest.warns(ChangedDataWarning, match=r"helix\.csv' has changed since .* was trained on it"):
        assert len(SavedRun(tmp_path / "run").data.test) == 40


def test_columns_that_do_not_match_are_told(trained, tmp_path):
    helix(tmp_path / "two.csv")
    text = (tmp_path / "two.csv").read_text().replace("up", "height")
    (tmp_path / "two.csv").write_text(text)
    message = refused("score", trained / "run", "two.csv", cwd=tmp_path)
    assert "up" in message
    assert "height" in message
    assert not (tmp_path / "scores.csv").exists()


def test_samples_and_scores(trained, tmp_path):
    assert run("sample", trained / "run", "-n", 20, "-o", "a.csv", cwd=tmp_path).returncode == 0
    assert run("sample", trained / "run", "-n", 20, "-o", "b.csv", cwd=tmp_path).returncode == 0
    assert (tmp_path / "a.csv").read_text() == (tmp_path / "b.csv").read_text()
    rows = list(csv.DictReader((tmp_path / "a.csv").read_text().splitlines()))
    assert list(rows[0]) == ["east", "north", "up"]
    assert len(rows) == 20
    shuffled = tmp_path / "shuffled.csv"  # columns are found by name
    shuffled.write_text("\n".join(["up,east,north", *(f"{r['up']},{r['east']},{r['north']}" for r in rows)]))
    assert run("score", trained / "run", shuffled, "-o", "scores.csv", "--coordinates", cwd=tmp_path).returncode == 0
    scores = list(csv.DictReader((tmp_path / "scores.csv").read_text().splitlines()))
    assert list(scores[0]) == ["log_density", "reconstruction_error", "outlier_score", "z1"]
    flow = rnf.load(trained / "run")
    x = torch.tensor([[float(v) for v in row.values()] for row in rows])
    expected = flow.log_prob(x).tolist()
    assert [float(row["log_density"]) for row in scores] == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_dimension_and_its_use(trained, tmp_path):
    done = run("dimension", trained / "helix.csv", "-o", "new/picture.png", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "--latent-dim 1 " in done.stdout
    assert (tmp_path / "new" / "picture.png").stat().st_size > 10_000
    options = ["--latent-dim", "auto", "--epochs", 1, "--layers", 2, "--out", "run"]
    done = run("fit", trained / "helix.csv", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "latent dimension 1" in done.stdout
    assert "latent_dim = 1" in (tmp_path / "run" / "config.toml").read_text()
    assert "nroth" in refused("dimension", trained / "helix.csv", "--columns", "east,nroth", cwd=tmp_path)


def test_evaluation_pictures_and_report(trained):
    folder = trained / "run"
    done = run("evaluate", folder, "-n", 200)
    assert done.returncode == 0, done.stderr
    figures = json.loads((folder / "evaluation.json").read_text())
    assert figures["test_rows"] == 30
    assert np.isfinite([v for v in figures.values() if isinstance(v, float)]).all()
    assert run("plot", folder).returncode == 0
    assert {path.name for path in (folder / "figures").iterdir()} == {"pairs.png", "manifold.png"}
    assert run("report", folder).returncode == 0
    text = (folder / "report.html").read_text()
    assert "data:image/png" in text
    assert "latent_dim = 1" in text


def test_text_columns_that_the_model_does_not_use(trained, tmp_path):
    lines = (trained / "helix.csv").read_text().splitlines()
    text = "\n".join([f"name,{lines[0]}", *(f"row {i},{line}" for i, line in enumerate(lines[1:]))])
    (tmp_path / "named.csv").write_text(text)
    options = ["--exclude", "name", "--validation-data", "named.csv", "--epochs", 1, "--layers", 2, "--out", "run"]
    done = run("fit", "named.csv", "--latent-dim", 2, *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert run("score", "run", "named.csv", cwd=tmp_path).returncode == 0
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert run("evaluate", "../run", "-n", 100, cwd=elsewhere).returncode == 0
    calibration = (tmp_path / "run" / "calibration.safetensors").stat().st_mtime_ns
    again = ["fit", "named.csv", "--latent-dim", 1, *options, "--overwrite", "--anneal", "5,9"]
    done = run(*again, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "no epoch was judged" in done.stdout
    assert not (tmp_path / "run" / "evaluation.json").exists()
    assert (tmp_path / "run" / "calibration.safetensors").stat().st_mtime_ns > calibration


def test_demo(tmp_path):
    done = run("demo", "--epochs", 3, "--out", tmp_path / "new" / "demo")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "new" / "demo"
    for name in ("circle.png", "report.html"):
        assert str(folder / name) in done.stdout
        assert (folder / name).stat().st_size > 10_000
    result = json.loads((folder / "maximum-likelihood" / "circle.json").read_text())
    assert result["mass"] == pytest.approx(1, abs=0.01)
    assert rnf.load(folder / "two-step").latent_dim == 1
    assert "A density on a circle" in opened_in_a_browser(folder / "report.html", tmp_path)


def test_demo_where_nothing_can_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    refused("demo", "--out", tmp_path / "file" / "demo")
