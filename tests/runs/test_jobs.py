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
from rectangular_flows.training.signals import Interrupted
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
    made, stopped, closed = [], [], []

    def process(**given):
        made.append(given)
        return SimpleNamespace(start=lambda: None, terminate=lambda: stopped.append(1))

    ends = SimpleNamespace(close=lambda: closed.append(1))
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
    assert closed == [1]  # or the end of a process that says nothing would never be seen


def test_what_a_process_does(monkeypatch):
    """It ignores Ctrl-C, ends on SIGTERM, watches its parent, and says how its job ended."""
    handlers, threads, sent = {}, [], []

    def thread(**given):
        threads.append(given)
        return SimpleNamespace(start=lambda: threads.append("started"))

    with monkeypatch.context() as patch:
        patch.setattr(jobs.signal, "signal", handlers.__setitem__)
        patch.setattr(jobs.threading, "Thread", thread)
        patch.setattr(jobs, "outcome_of", lambda job, fresh: (job, fresh))
        patch.setattr(jobs.warnings, "showwarning", None)  # and back again
        jobs._work("job", True, SimpleNamespace(send=sent.append))
        assert callable(jobs.warnings.showwarning)
    assert handlers[signal.SIGINT] is signal.SIG_IGN
    with pytest.raises(SystemExit) as stop:
        handlers[signal.SIGTERM](signal.SIGTERM, None)
    assert stop.value.code == 1
    assert threads == [{"target": jobs._stop_with_parent, "daemon": True}, "started"]
    assert sent == [("job", True)]


def test_warnings_of_a_job_are_notes_with_its_title(capsys):
    with jobs.warnings.catch_warnings():
        jobs.warnings.simplefilter("always")
        jobs.warnings.showwarning = jobs.notes_of(SimpleNamespace(title="Exact, seed 3"))
        for text in ("a column\nis gone", "a column\nis gone", "another"):
            jobs.warnings.warn(text, UserWarning, stacklevel=1)
    expected = "rnf: note: Exact, seed 3: a column is gone\nrnf: note: Exact, seed 3: another\n"
    assert capsys.readouterr().err == expected


def test_an_orphan_is_told_to_stop(monkeypatch):
    waited, raised = [], []
    monkeypatch.setattr(jobs.signal, "raise_signal", raised.append)
    monkeypatch.setattr(jobs.multiprocessing, "parent_process", lambda: None)
    jobs._stop_with_parent()
    assert raised == []
    parent = SimpleNamespace(join=lambda: waited.append(len(raised)))
    monkeypatch.setattr(jobs.multiprocessing, "parent_process", lambda: parent)
    jobs._stop_with_parent()
    assert (waited, raised) == ([0], [signal.SIGTERM])


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        (0, "crashed with exit code 0"),
        (3, "crashed with exit code 3"),
        (-9, "was killed by SIGKILL (perhaps for lack of memory)"),
        (-11, "was killed by SIGSEGV"),
    ],
)
def test_a_process_that_dies_without_a_word(tmp_path, code, failure):
    def nothing():
        raise EOFError

    worker = jobs._Worker(job(tmp_path), False)
    assert not worker.running
    worker.process, worker._receiver = SimpleNamespace(is_alive=lambda: True, exitcode=code), None
    assert worker.running
    worker.process.is_alive, worker._receiver = lambda: False, SimpleNamespace(recv=nothing)
    assert not worker.running
    assert worker.outcome == Outcome(failure=f"its process {failure}")
    worker._receiver = None  # not asked again
    assert not worker.running


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (Interrupted("x", 15), "it was stopped"),
        (ValueError("no such column"), "no such column"),
        (OSError("the disk is full"), "the disk is full"),
    ],
)
def test_how_a_job_ended(monkeypatch, tmp_path, error, failure):
    threads = []

    def fails(job, fresh):
        raise error

    monkeypatch.setattr(jobs.torch, "set_num_threads", threads.append)
    monkeypatch.setattr(jobs, "train_job", fails)
    assert jobs.outcome_of(job(tmp_path), False) == Outcome(failure=failure)
    assert threads == [1]


class Counted(jobs.Worker):
    """A job that takes three looks; how many run at a time is counted."""

    now, most, order = 0, 0, ()

    def __init__(self, job, fresh):
        super().__init__(job, fresh)
        self.left = 0

    @property
    def running(self):
        return self.left > 0

    def start(self):
        Counted.now, Counted.order = Counted.now + 1, (*Counted.order, self.job.title)
        Counted.most, self.left = max(Counted.most, Counted.now), 3

    def look(self):
        if self.left:
            self.left -= 1
            if not self.left:
                self.outcome, Counted.now = Outcome(1.0), Counted.now - 1

    def stop(self):
        self.stopping, self.left, self.outcome = True, 0, Outcome(failure="it was stopped")


@pytest.mark.parametrize("at_once", [1, 2, None])
def test_no_more_jobs_at_a_time_than_asked_for(monkeypatch, tmp_path, at_once):
    made = []
    monkeypatch.setattr(jobs.os, "cpu_count", lambda: 3)
    monkeypatch.setattr(jobs.time, "sleep", lambda _: [worker.look() for worker in made])
    Counted.now, Counted.most, Counted.order = 0, 0, ()

    def launcher(job, fresh):
        made.append(Counted(job, fresh))
        return made[-1]

    names = list("abcde")
    found = run_jobs([job(tmp_path / name) for name in names], Console(quiet=True), at_once, launcher=launcher)
    assert found == [Outcome(1.0)] * 5
    assert Counted.most == (at_once or 3)
    assert list(Counted.order) == names


def test_a_signal_stops_what_runs_and_starts_nothing_more(monkeypatch, tmp_path):
    made, looks = [], []

    def look(_):
        looks.append(1)
        if len(looks) == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    def launcher(job, fresh):
        made.append(Counted(job, fresh))
        return made[-1]

    monkeypatch.setattr(jobs.time, "sleep", look)
    with pytest.raises(Interrupted, match="Run the same command again") as stop:
        run_jobs([job(tmp_path / name) for name in "abc"], Console(quiet=True), 2, launcher=launcher)
    assert stop.value.exit_code == 128 + signal.SIGTERM
    assert [(worker.stopping, worker.outcome is None) for worker in made] == [
        (True, False),
        (True, False),
        (False, True),
    ]


def test_the_display_of_runs_that_train(tmp_path, monkeypatch):
    now, lines = [0.0], []
    monkeypatch.setattr(jobs.time, "perf_counter", lambda: now[0])
    line = SimpleNamespace(epoch=5, objective=1.5, negative_log_likelihood=1.25, reconstruction=0.005, metrics={})
    monkeypatch.setattr(jobs, "last_epoch", lambda folder: line if folder.name == "a" else None)
    workers = [Pretended(job(tmp_path / name, epochs=10), running=True) for name in ("a", "b")]
    printed = io.StringIO()
    display = jobs._Display(workers, Console(file=printed, width=200))
    monkeypatch.setattr(display._status, "update", lines.append)
    display._before, display._shares = 0.0, dict.fromkeys(workers, 0.0)
    now[0] = 9.0
    display.update()  # too soon for a line
    assert printed.getvalue() == ""
    now[0] = 20.0
    display.update()
    now[0] = 29.0
    display.update()
    values = "a epoch 5/10: objective 1.5, nll 1.25, reconstruction 0.005"
    # half of one of two runs took 20 s
    assert printed.getvalue().splitlines() == [f"0 of 2 runs done, 1 min left · {values}"]
    assert lines[1] == f"0 of 2 runs done, 1 min left\n{values}"
