"""Several runs side by side: finished, stopped, killed, broken down."""

import io
import multiprocessing
import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

import rectangular_flows as rnf
from rectangular_flows.runs import jobs
from rectangular_flows.runs.jobs import Job, Outcome, preset_job, run_jobs, train_job
from rectangular_flows.settings import read_preset
from rectangular_flows.training.history import last_epoch, read_history
from tests.cli.command import start

CHILDREN = Path(f"/proc/self/task/{os.getpid()}/children")


def wait_for(condition, seconds=100):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def job(folder, **changes):
    return Job(folder.name, {**read_preset("circle-ml"), "epochs": 1, **changes}, folder)


def test_a_killed_worker_is_reported_and_the_rest_goes_on(tmp_path):
    long, lost, short = (
        job(tmp_path / "long", epochs=500),
        job(tmp_path / "lost", data=str(tmp_path / "no.csv")),
        job(tmp_path / "short"),
    )

    def kill():
        wait_for(lambda: (long.folder / "metrics.jsonl").exists())
        (child,) = multiprocessing.active_children()
        os.kill(child.pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    printed = io.StringIO()
    outcomes = run_jobs([long, lost, short], Console(file=printed, width=200), processes=1)
    killer.join()
    assert outcomes[0].failure == "its process was killed by SIGKILL (perhaps for lack of memory)"
    assert "no.csv" in outcomes[1].failure
    assert outcomes[2] == Outcome(last_epoch(short.folder).seconds)
    assert [long.complete, lost.begun, short.complete] == [False, False, True]
    said = [line.split(":")[:2] for line in printed.getvalue().splitlines() if "runs done" not in line]
    assert said[0] == ["long", " failed"]
    assert said[1] == ["lost", " failed"]
    assert said[2][1].startswith(" done in")


def test_a_complete_run_is_left_as_it_is(tmp_path, monkeypatch):
    done = job(tmp_path / "done")
    train_job(done)
    monkeypatch.setattr(jobs._Worker, "start", lambda _: pytest.fail("started"))
    assert run_jobs([done], Console(quiet=True)) == [Outcome(last_epoch(done.folder).seconds)]
    assert done.share == 1.0


def test_a_stopped_run_resumes_and_a_fresh_one_begins_anew(tmp_path):
    two = job(tmp_path / "two", epochs=2)
    train_job(two)
    first = (two.folder / "config.toml").read_text()
    train_job(two)  # resumes at its end: nothing is left to do
    assert [line.epoch for line in read_history(two.folder)] == [1, 2]
    assert (two.folder / "config.toml").read_text() == first
    train_job(job(two.folder, epochs=1), fresh=True)
    assert [line.epoch for line in read_history(two.folder)] == [1]


@pytest.mark.slow
def test_a_signal_stops_the_runs_that_train_and_those_that_wait(tmp_path):
    process = start("reproduce", "circle", "--seeds", 2, "--jobs", 1, "--out", tmp_path)
    first = tmp_path / "circle" / "circle" / "seed-0"
    wait_for(lambda: (first / "metrics.jsonl").exists())
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=60)  # a run takes longer than that
    assert process.returncode == 128 + signal.SIGTERM, error
    assert "stopped; everything is saved" in error
    assert {path.parent for path in tmp_path.rglob("config.toml")} == {first}
    stopped = preset_job("one", "circle", first, 0, None)
    assert (stopped.begun, stopped.complete) == (True, False)
    assert 0 < stopped.share < 1


@pytest.mark.slow
@pytest.mark.skipif(not CHILDREN.exists(), reason="reads /proc")
def test_a_worker_whose_parent_is_killed_saves_its_state_and_stops(tmp_path):
    process = start("reproduce", "circle", "--seeds", 1, "--jobs", 1, "--out", tmp_path)
    first = tmp_path / "circle" / "circle" / "seed-0"
    wait_for(lambda: (first / "metrics.jsonl").exists())
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.kill()
    process.communicate()
    wait_for(lambda: not any(_runs(child) for child in children), 60)
    assert (first / "checkpoint" / "state.safetensors").exists()


def _runs(child):
    status = Path(f"/proc/{child}/stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_run_with_other_settings_is_not_lost(tmp_path):
    one = job(tmp_path / "one")
    train_job(one)
    model = (one.folder / "model.safetensors").read_bytes()
    others = [job(tmp_path / "new"), job(one.folder, epochs=2, beta=7.0)]
    with pytest.raises(ValueError, match=r"other settings \(.*beta = 50.0, not 7.0.*another --out"):
        run_jobs(others, Console(quiet=True))
    assert (one.folder / "model.safetensors").read_bytes() == model
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("processes", [0, -1])
def test_no_job_at_a_time_is_refused(tmp_path, processes):
    with pytest.raises(ValueError, match=f"at least one job at a time; got {processes}"):
        run_jobs([job(tmp_path)], Console(quiet=True), processes)


def test_a_run_that_breaks_down_keeps_its_best_model(tmp_path):
    bad = job(tmp_path / "bad", epochs=2, learning_rate=1e4, batch_size=100)
    assert train_job(bad).failure == ""
    assert (bad.folder / "failure.txt").read_text().startswith("training stopped")
    assert rnf.load(bad.folder).latent_dim == 1


def test_epochs_are_a_limit(tmp_path):
    whole = preset_job("a", "miniboone", tmp_path, 3, None)
    short = preset_job("a", "miniboone", tmp_path, 3, 2, {"beta": 7.0})
    assert (short.settings["epochs"], short.settings["seed"], short.settings["beta"]) == (2, 3, 7.0)
    assert short.settings["latent_epochs"] == min(2, whole.settings.get("latent_epochs", 0))
    assert preset_job("a", "miniboone", tmp_path, 3, 10**6).settings == {"latent_epochs": 0, **whole.settings}
    with pytest.raises(ValueError, match="at least one epoch; got 0"):
        preset_job("a", "circle", tmp_path, 0, 0)


@dataclass(eq=False)
class Pretended:
    """A worker that shows what it is given."""

    job: Job
    outcome: Outcome | None = None
    running: bool = False
    fresh: bool = False
    stopping: bool = False


def test_the_display_says_how_each_run_ended_and_how_long_the_rest_takes(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(jobs.time, "perf_counter", lambda: now[0])
    workers = [Pretended(job(tmp_path / name)) for name in ("a", "b", "c", "d", "e")]
    broken = workers[1].job.folder
    broken.mkdir()
    (broken / "failure.txt").write_text("overflow")
    printed = io.StringIO()
    display = jobs._Display(workers, Console(file=printed, width=200))
    now[0] = 30.0
    workers[0].outcome, workers[1].outcome = Outcome(5.0), Outcome(70.0)
    workers[2].outcome = Outcome(failure="no such file")
    workers[3].outcome, workers[3].stopping = Outcome(failure="it was stopped"), True
    display.update()
    display.update()
    assert printed.getvalue().splitlines() == [
        "a: done in 5 s",
        "b: done in 1 min 10 s (training broke down; the best model before that is kept)",
        "c: failed: no such file",
        "d: stopped",
        "4 of 5 runs done, 8 s left",
    ]


def test_a_worker_dies_with_its_parent_and_is_asked_to_stop_once(tmp_path, monkeypatch):
    made, stopped = [], []

    def process(**given):
        made.append(given)
        return SimpleNamespace(start=lambda: None, terminate=lambda: stopped.append(1))

    ends = SimpleNamespace(close=lambda: None)
    monkeypatch.setattr(jobs, "_CONTEXT", SimpleNamespace(Process=process, Pipe=lambda duplex: (duplex, ends)))
    before = signal.getsignal(signal.SIGINT)
    worker = jobs._Worker(job(tmp_path / "run"), True)
    worker.stop()  # nothing runs yet
    worker.start()
    assert made == [{"target": jobs._work, "args": (worker.job, True, ends), "daemon": True}]
    assert worker._receiver is False  # only the process sends
    assert signal.getsignal(signal.SIGINT) is before
    worker.stop()
    worker.stop()
    assert stopped == [1]
