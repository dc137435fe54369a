"""Several runs side by side: going on, stopping, breaking down."""

import json
import pickle
import shutil
import signal
import time

import pytest
from rich.console import Console

import rectangular_flows as rnf
from rectangular_flows.runs.jobs import Job, _run, run_jobs
from rectangular_flows.settings import read_preset
from rectangular_flows.training.signals import Interrupted
from tests.cli.command import run, start


@pytest.mark.slow
def test_reproduce_goes_on_where_it_was(tmp_path):
    arguments = ["reproduce", "circle", "--seeds", 1, "--epochs", 2, "--out", tmp_path]
    first = run(*arguments)
    assert first.returncode == 0, first.stderr
    assert "smaller KL than two-step" in first.stdout
    model = tmp_path / "circle" / "circle-ml" / "seed-0" / "model.safetensors"
    before = model.stat().st_mtime_ns
    shutil.rmtree(tmp_path / "circle" / "circle-mflow")
    assert run(*arguments).returncode == 0
    assert len(json.loads((tmp_path / "circle" / "results.json").read_text())) == 5
    history = (tmp_path / "circle" / "circle-ml" / "seed-0" / "metrics.jsonl").read_text().splitlines()
    assert len(history) == 2
    assert model.stat().st_mtime_ns == before  # a complete run is left as it is


@pytest.mark.parametrize("at_once", [1, 2])
def test_a_signal_stops_the_runs_that_wait_as_well(tmp_path, at_once):
    process = start("reproduce", "circle", "--seeds", 2, "--jobs", at_once, "--out", tmp_path)
    first = tmp_path / "circle" / "circle" / "seed-0" / "metrics.jsonl"
    for _ in range(600):
        if first.exists() and first.read_text():
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=60)  # a run takes longer than that
    assert process.returncode == 128 + signal.SIGTERM, error
    assert "stopped, everything is saved" in error
    begun = {path.parent for path in tmp_path.rglob("config.toml")}
    assert first.parent in begun
    assert len(begun) <= at_once


def test_an_interruption_goes_from_process_to_process():
    there = pickle.loads(pickle.dumps(Interrupted("stopped", signal.SIGTERM)))  # noqa: S301
    assert (str(there), there.exit_code) == ("stopped", 128 + signal.SIGTERM)


def test_a_run_with_other_settings_is_not_lost(tmp_path):
    settings = {**read_preset("circle-ml"), "epochs": 1}
    job = Job("one", settings, tmp_path / "one")
    _run(job, fresh=False)
    model = (tmp_path / "one" / "model.safetensors").read_bytes()
    others = [Job("new", settings, tmp_path / "new"), Job("one", {**settings, "epochs": 2, "beta": 7.0}, job.folder)]
    with pytest.raises(ValueError, match=r"other settings \(beta = 50.0, not 7.0, epochs = 1, not 2\).*another --out"):
        run_jobs(others, Console(quiet=True))
    assert (tmp_path / "one" / "model.safetensors").read_bytes() == model
    assert not (tmp_path / "new").exists()


def test_a_run_that_breaks_down_does_not_stop_the_others(tmp_path, capsys):
    settings = {**read_preset("circle-ml"), "epochs": 2}
    bad = {**settings, "learning_rate": 1e4, "batch_size": 100}
    jobs = [Job("bad", bad, tmp_path / "bad"), Job("good", settings, tmp_path / "good")]
    assert len(run_jobs(jobs, Console())) == 2
    assert "broke down" in capsys.readouterr().out
    assert (tmp_path / "bad" / "failure.txt").read_text().startswith("training stopped")
    assert rnf.load(tmp_path / "bad").latent_dim == rnf.load(tmp_path / "good").latent_dim == 1
