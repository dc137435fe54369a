"""``rnf fit``: a whole run, stopped, resumed, refused."""

import re
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import rectangular_flows as rnf
from rectangular_flows.cli.fit import _name, _summary
from rectangular_flows.runs.saved import SavedRun
from rectangular_flows.settings import FitSettings
from tests.cli.command import complaint, helix, refused, run, run_apart, start


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    options = ["--latent-dim", 1, "--epochs", 4, "--layers", 2, "--learning-rate", 0.01, "--optimiser", "adam"]
    options += ["--out", folder / "run"]
    done = run("fit", helix(folder / "helix.csv"), *options)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def test_it_says_how_it_went_and_what_to_do_next(trained):
    folder, said = trained
    assert "epoch 4/4" in said
    best = SavedRun(folder / "run").history[-1]
    assert "all epochs done, in" in said
    assert f"the best weights are those of epoch {best.epoch}:" in said
    assert "note: only 4 steps, since there are few rows" in said
    assert f"  rnf sample {folder / 'run'} -n 1000 -o samples.csv\n" in said


def test_a_run_keeps_what_applies_and_nothing_else(trained):
    folder, _ = trained
    config = SavedRun(folder / "run").config
    assert config["latent_layers"] == 3
    assert {"probes", "margin", "channels", "weight_decay", "radius_noise"}.isdisjoint(config)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{data}", "--latent-dim", "1", "--beta", "-3"], "positive beta; got -3"),
        (["{data}", "--latent-dim", "3"], "latent"),
        ([], "no data"),
        (["nowhere.csv", "--latent-dim", "1"], "nowhere.csv"),
        (["{data}", "--latent-dim", "1", "--columns", "east,nroth"], "north"),
        (["{data}", "--latent-dim", "1", "--device", "abacus"], "abacus"),
        (["--resume", "nowhere"], "nowhere"),
        (["{data}", "--latent-dim", "1", "--seed", "-1"], "seed from 0"),
        (
            ["{data}", "--latent-dim", "1", "--latent", "identity", "--latent-layers", "2"],
            "latent_layers is for latent =",
        ),
        (["{data}", "--latent-dim", "1", "--out", "{run}"], "holds a run already"),
    ],
)
def test_mistakes(trained, tmp_path, arguments, message):
    places = {"data": trained[0] / "helix.csv", "run": trained[0] / "run"}
    before = (trained[0] / "run" / "model.safetensors").read_bytes()
    assert message in complaint("fit", *(a.format(**places) for a in arguments), cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []  # nothing half-written
    assert (trained[0] / "run" / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize(
    ("preset", "values", "name"),
    [
        (None, {"data": "here/iris.v2.csv", "latent_dim": 2}, "iris-d2"),
        ("circle", {"data": "circle"}, "circle"),
        ("image-fast", {"data": "mnist"}, "mnist-image-fast"),
        ("power", {"data": "gas"}, "gas-power"),
    ],
)
def test_names_of_runs(preset, values, name):
    assert _name(preset, FitSettings.from_flat(values)) == name


def test_bad_data(tmp_path):
    lines = helix(tmp_path / "good.csv").read_text().splitlines()
    (tmp_path / "nan.csv").write_text("\n".join([*lines[:5], "1,nan,2", *lines[5:]]))
    message = complaint("fit", "nan.csv", "--latent-dim", 1, cwd=tmp_path)
    assert "north" in message
    assert "--drop-invalid" in message
    (tmp_path / "ragged.csv").write_text("\n".join([*lines[:5], "1,2", *lines[5:]]))
    assert re.search(r"line 6.*3.*2", complaint("fit", "ragged.csv", "--latent-dim", 1, cwd=tmp_path))
    (tmp_path / "text.csv").write_text("\n".join([*lines[:5], "1,far,2", *lines[5:]]))
    assert "far" in complaint("fit", "text.csv", "--latent-dim", 1, cwd=tmp_path)
    assert not (tmp_path / "runs").exists()
    done = run("fit", "nan.csv", "--latent-dim", 1, "--drop-invalid", "--epochs", 1, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "1 rows with missing or infinite values were dropped" in done.stdout
    assert (tmp_path / "runs" / "nan-d1" / "model.json").exists()
    done = run("score", "runs/nan-d1", "nan.csv", "--drop-invalid", cwd=tmp_path)
    assert "1 of 301 rows have missing" in done.stdout
    assert "the column 'row' says which" in done.stdout
    rows = [line.split(",")[0] for line in (tmp_path / "scores.csv").read_text().splitlines()]
    assert rows[1:6] == ["1", "2", "3", "4", "6"]
    assert rows[0] == "row"


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """A run that nothing disturbs, and the arguments that made it."""
    folder = tmp_path_factory.mktemp("straight")
    options = ["--latent-dim", 1, "--epochs", 12, "--layers", 2, "--volume", "stochastic"]
    arguments = ["fit", helix(folder / "helix.csv", rows=1000), *options]
    done = run(*arguments, "--out", folder / "run", "--quiet")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    return folder / "run", arguments


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_stopped_and_resumed_is_as_if_never_stopped(straight, tmp_path, number):
    undisturbed, arguments = straight
    process = start(*arguments, "--out", tmp_path / "stopped", cwd=tmp_path)
    history = tmp_path / "stopped" / "metrics.jsonl"
    for _ in range(600):
        if history.exists() and len(history.read_text().splitlines()) > 2:
            break
        time.sleep(0.1)
    sent = time.perf_counter()
    process.send_signal(number)
    _, error = process.communicate(timeout=30)
    assert time.perf_counter() - sent < 10
    assert process.returncode == 128 + number, error
    assert "Traceback" not in error
    how = re.search(r"rnf (fit --resume \S+)", error)
    assert how, error
    assert SavedRun(tmp_path / "stopped").unfinished
    shown = run("show", tmp_path / "stopped")
    assert "this run is not finished: what is saved is its best model so far, perhaps its start" in flat(shown.stderr)
    assert "\nNot finished: training was stopped before its end" in shown.stdout
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    resumed = run(*how[1].split(), cwd=elsewhere)  # from another folder, with no other argument
    assert resumed.returncode == 0, resumed.stderr
    assert not SavedRun(tmp_path / "stopped").unfinished
    shown = run("show", tmp_path / "stopped")
    assert "finished" not in shown.stdout + shown.stderr
    for name in ("model.safetensors", "model.json"):
        same = (tmp_path / "stopped" / name).read_bytes() == (undisturbed / name).read_bytes()
        assert same, name  # bytes themselves would take minutes to be shown


def test_a_run_that_breaks_down_says_what_to_try(trained, tmp_path):
    arguments = ["fit", trained[0] / "helix.csv", "--latent-dim", 1, "--learning-rate", 1e4, "--scale", "exp"]
    message = refused(*arguments, "--target-error", 0.1, cwd=tmp_path, code=1)
    assert "learning_rate" in message
    assert rnf.load(tmp_path / "runs" / "helix-d1").latent_dim == 1


def test_a_run_that_adapts_ends_with_what_it_has(trained, tmp_path):
    arguments = ["fit", trained[0] / "helix.csv", "--latent-dim", 1, "--learning-rate", 1e4, "--scale", "exp"]
    done = run_apart(*arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "training ended early: numerical trouble 4 times" in " ".join(done.stderr.split())
    assert "nothing was better than the weights that it started with" in " ".join(done.stdout.split())
    assert rnf.load(tmp_path / "runs" / "helix-d1").latent_dim == 1


def test_a_runs_own_configuration_can_be_used_again(trained, tmp_path):
    arguments = ["fit", "--config", trained[0] / "run" / "config.toml", "--epochs", 2, "--out", tmp_path / "again"]
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    assert rnf.load(tmp_path / "again").ambient_dim == 3


def flat(text):
    return " ".join(text.split())


def summary(best=2, target=None, steps=500, kind="table", start=None):
    """What is said after a run of three epochs, of which the second has the error 0.02."""
    lines = [
        SimpleNamespace(epoch=e, objective=e, negative_log_likelihood=-e, reconstruction=e / 100, metrics={})
        for e in (1, 2, 3)
    ]
    done = SimpleNamespace(
        history=lines,
        best_epoch=best,
        finished="all epochs done",
        seconds=61,
        flow=SimpleNamespace(kind=kind),
        progress=SimpleNamespace(target=target, step=steps, start=start),
        config=SimpleNamespace(whole_epochs=3),
    )
    return _summary(done, Path("my runs/one")).splitlines()


def test_the_summary_is_that_of_the_best_epoch():
    assert summary() == [
        "all epochs done, in 1 min 1 s; the best weights are those of epoch 2:",
        "  objective 2, nll -2, reconstruction 0.02  (validation rows, units of the model)",
        "everything is in my runs/one. Next:",
        "  rnf report 'my runs/one'",
        "  rnf sample 'my runs/one' -n 1000 -o samples.csv",
        "  rnf score 'my runs/one' DATA -o scores.csv",
    ]
    first, numbers, *_ = summary(best=0)
    assert first.endswith("no epoch was judged; the last weights:")
    assert "objective 3, nll -3" in numbers
    first, numbers, note, *_ = summary(best=0, start=(-7.5, 0.3), target=0.2)
    assert first.endswith("nothing was better than the weights that it started with:")
    assert numbers.startswith("  nll -7.5, reconstruction 0.3  (")
    assert "error 0.3, target 0.2" in note
    assert "epoch 2" in summary(start=(-7.5, 0.3))[0]
    assert "-n 100 -o samples.png" in summary(kind="image")[4]


def test_the_summary_says_what_to_heed():
    assert summary(target=0.02 / 1.05, steps=100)[2].startswith("everything")
    notes = summary(target=0.019, steps=99)[2:4]
    assert notes[0].startswith("  note: target_error was not met: error 0.02, target 0.019.")
    assert notes[1].startswith("  note: only 99 steps")
