"""What a job knows of its folder: how far it is, whether it may resume, and what it hands to the training."""

import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console
from safetensors.torch import save_file

from rectangular_flows.errors import NonFiniteError
from rectangular_flows.runs import jobs
from rectangular_flows.runs.jobs import Job, Outcome, run_jobs, train_job
from rectangular_flows.settings import FitSettings, read_preset
from rectangular_flows.training.checkpoint import CHECKPOINT


def job(folder="run", **changes):
    return Job("mine", {**read_preset("table"), "latent_dim": 1, "data": "x.csv", **changes}, Path(folder))


def line(epoch, seconds=0.0):
    values = {"objective": 1.5, "negative_log_likelihood": 1.25, "reconstruction": 0.005, "metrics": {}}
    return SimpleNamespace(epoch=epoch, seconds=seconds, **values)


@pytest.mark.parametrize("finished", [True, False])
def test_whether_a_run_of_version_0_1_is_complete(tmp_path, finished):
    """It has no manifest: its state says so."""
    assert (job(tmp_path).begun, job(tmp_path).complete) == (False, False)
    (tmp_path / CHECKPOINT).parent.mkdir(exist_ok=True)
    save_file({"x": torch.zeros(1)}, tmp_path / CHECKPOINT, {"progress": json.dumps({"finished": finished})})
    assert (job(tmp_path).begun, job(tmp_path).complete) == (True, finished)


def test_how_far_a_job_is(monkeypatch):
    monkeypatch.setattr(jobs, "last_epoch", lambda folder: None if folder.name == "new" else line(3))
    assert job(epochs=8, latent_epochs=4).epochs == 12
    assert (job(epochs=8, latent_epochs=4).done(3), job(epochs=8, latent_epochs=4).share) == (0.25, 0.25)
    assert (job(epochs="auto").epochs, job(epochs="auto").done(3), job(epochs="auto").share) == (None, 0.0, 0.0)
    assert job("new", epochs=8).share == 0.0
    monkeypatch.setattr(Job, "complete", True)
    assert job("new", epochs=8).share == job(epochs=8).share == 1.0


@pytest.mark.parametrize(
    ("there", "wanted", "differs"),
    [
        ({"latent_dim": 3}, {"latent_dim": "auto"}, None),  # which the run decided
        ({"latent_dim": "auto"}, {"latent_dim": 3}, "latent_dim = auto, not 3"),
        ({"epochs": 7, "patience": 2}, {"time": 60.0, "epochs": 9}, "time = None, not 60.0"),
        ({"time": 60.0, "epochs": 7, "patience": 2}, {"time": 60.0, "epochs": 9}, None),  # which the time decides
        ({"epochs": 7}, {"epochs": 9}, "epochs = 7, not 9"),
        ({"periodic": ("hour:24", "wind:360")}, {"periodic": ("hour", "wind:360")}, None),  # guessed
        ({"periodic": ("day:24",)}, {"periodic": ("hour",)}, "periodic = ('day:24',), not ('hour',)"),
        ({"periodic": ("hour:12",)}, {"periodic": ("hour:24",)}, "periodic = ('hour:12',), not ('hour:24',)"),
        ({"periodic": ("hour:24",)}, {}, "periodic = ('hour:24',), not None"),
        ({"periodic": ("a:1", "b:1")}, {"periodic": ("a",)}, "periodic = ('a:1', 'b:1'), not ('a',)"),
    ],
)
def test_whether_a_folder_holds_this_run(monkeypatch, there, wanted, differs):
    stored = FitSettings.from_flat(job(**there).settings)
    monkeypatch.setattr(jobs, "has_checkpoint", lambda _: True)
    monkeypatch.setattr(jobs, "SavedRun", lambda folder: SimpleNamespace(settings=stored))
    if differs is None:
        jobs._check_settings(job(**wanted))
        return
    with pytest.raises(ValueError, match="other settings") as said:
        jobs._check_settings(job(**wanted))
    told = f"run holds a run with other settings ({differs}). Choose another --out, or remove that folder"
    assert str(said.value) == told


def test_three_settings_that_differ_are_named(monkeypatch):
    stored = FitSettings.from_flat(job(layers=1, beta=1.0, epochs=1, batch_size=10, seed=1).settings)
    monkeypatch.setattr(jobs, "has_checkpoint", lambda _: True)
    monkeypatch.setattr(jobs, "SavedRun", lambda folder: SimpleNamespace(settings=stored))
    changes = {"layers": 2, "beta": 2.0, "epochs": 2, "batch_size": 20, "seed": 2}
    with pytest.raises(ValueError, match=r"and 2 more\)\. Choose") as said:
        jobs._check_settings(job(**changes))
    assert str(said.value).count(", not ") == 3
    with pytest.raises(ValueError, match="other settings") as said:
        jobs._check_settings(job(**{**changes, "seed": 1, "batch_size": 10}))
    assert " more" not in str(said.value)


@pytest.mark.parametrize(
    ("begun", "fresh", "resume"),
    [(False, False, False), (True, False, True), (True, True, False), (False, True, False)],
)
def test_a_job_resumes_where_there_is_something_to_resume(monkeypatch, begun, fresh, resume):
    asked = []
    monkeypatch.setattr(jobs, "has_checkpoint", lambda _: begun)
    monkeypatch.setattr(jobs, "last_epoch", lambda _: line(2, 7.5))
    monkeypatch.setattr(jobs, "run_settings", lambda *given, console, **more: asked.append((given, more)))
    assert train_job(job(beta=7.0), fresh) == Outcome(7.5)
    given = FitSettings.from_flat(job(beta=7.0).settings), Path("run")
    assert asked == [(given, {"resume": resume, "overwrite": not resume, "quiet": True})]
    monkeypatch.setattr(jobs, "last_epoch", lambda _: None)
    assert train_job(job(), fresh) == Outcome(0.0, "")


@pytest.mark.parametrize("model", [True, False])
def test_a_run_that_breaks_down(monkeypatch, tmp_path, model):
    """It has failed only where it left no model; why is written down either way."""

    def fails(*_, **__):
        raise NonFiniteError("the loss is not finite")

    monkeypatch.setattr(jobs, "run_settings", fails)
    if model:
        (tmp_path / "model.safetensors").write_bytes(b"")
    assert train_job(job(tmp_path)) == Outcome(failure="" if model else "the loss is not finite")
    assert (tmp_path / "failure.txt").read_text() == "the loss is not finite\n"


class Told(jobs.Worker):
    """Ends when it starts, and says whether it was to begin anew."""

    running = False

    def start(self):
        self.outcome = Outcome(99.0 if self.fresh else 1.0)

    def stop(self):
        pytest.fail("nothing to stop")


def test_fresh_runs_are_neither_checked_nor_left_as_they_are(monkeypatch):
    waits = []
    monkeypatch.setattr(jobs.time, "sleep", waits.append)
    monkeypatch.setattr(jobs, "last_epoch", lambda _: line(8, 5.0))
    monkeypatch.setattr(Job, "complete", True)
    checked = []
    monkeypatch.setattr(jobs, "_check_settings", lambda job: checked.append(job.title))
    assert run_jobs([job()], Console(quiet=True), 1, launcher=Told) == [Outcome(5.0)]
    assert (checked, waits) == (["mine"], [])
    assert run_jobs([job()], Console(quiet=True), 1, fresh=True, launcher=Told) == [Outcome(99.0)]
    assert (checked, len(waits)) == (["mine"], 1)


def shown(monkeypatch, workers, **options):
    """A display of workers, its clock, what it prints and the lines in place."""
    now, lines, printed = [0.0], [], io.StringIO()
    monkeypatch.setattr(jobs.time, "perf_counter", lambda: now[0])
    display = jobs._Display(workers, Console(file=printed, width=200, **options))
    monkeypatch.setattr(display._status, "update", lines.append)
    return display, now, lines, printed


class Pretended(SimpleNamespace):
    """A worker that runs."""

    __hash__ = object.__hash__

    def __init__(self, job, fresh=False):
        super().__init__(job=job, fresh=fresh, running=True, outcome=None, stopping=False)


def test_time_left_counts_what_was_done_now(monkeypatch):
    """A run that resumes at half and is at three quarters after 30 s needs 30 s more; a fresh one began at nothing."""
    epochs = {"old": 4, "new": 4}
    monkeypatch.setattr(jobs, "last_epoch", lambda folder: line(epochs[folder.name]))
    workers = [Pretended(job("old", epochs=8))]
    display, now, lines, _ = shown(monkeypatch, workers)
    now[0] = 10.0
    display.update()
    assert lines[-1].splitlines()[0] == "0 of 1 runs done, … left"
    epochs["old"], now[0] = 6, 30.0
    display.update()
    assert lines[-1].splitlines()[0] == "0 of 1 runs done, 30 s left"
    workers = [Pretended(job("new", epochs=8), fresh=True)]
    display, now, lines, _ = shown(monkeypatch, workers)
    now[0] = 30.0
    display.update()
    assert lines[-1].splitlines()[0] == "0 of 1 runs done, 30 s left"


def test_lines_change_in_place_on_a_terminal(monkeypatch):
    """Titles are no markup; where the number of epochs is open, it is not shown; the end is shown at once."""
    monkeypatch.setattr(jobs, "last_epoch", lambda _: line(4, 3.0))
    one = Pretended(Job("[red]", job(epochs="auto").settings, Path("run")))
    display, now, lines, printed = shown(monkeypatch, [one], force_terminal=True)
    monkeypatch.setattr(display._status, "start", lambda: lines.append("start"))
    monkeypatch.setattr(display._status, "stop", lambda: lines.append("stop"))
    with display:
        now[0] = 50.0
        display.update()
        assert lines[0] == "start"
        assert lines[1].splitlines()[1] == r"\[red] epoch 4: objective 1.5, nll 1.25, reconstruction 0.005"
        assert printed.getvalue() == ""
        one.running, one.outcome = False, Outcome(3.0)
    assert lines[2:] == ["1 of 1 runs done, 0 s left", "stop"]
    assert printed.getvalue() == "[red]: done in 3 s\n"
