"""What training and long work show where there is no terminal."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from rectangular_flows import TrainingConfig
from rectangular_flows.runs import display
from rectangular_flows.runs.display import TrainingDisplay, WorkDisplay, say, say_where


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(seconds=100.0)
    monkeypatch.setattr(display.time, "perf_counter", lambda: now.seconds)
    return now


def console(**options):
    return Console(file=io.StringIO(), width=200, **options)


def training(epoch, step, best=0, latent_from=None, waits=None):
    line = SimpleNamespace(
        epoch=epoch, objective=1.5, negative_log_likelihood=1.25, reconstruction=0.005, metrics={"mine": 3.0}
    )
    progress = SimpleNamespace(epoch=epoch, step=step, steps=100, latent_from=latent_from)
    config = TrainingConfig(epochs=10, latent_epochs=2, anneal=(5, 6), patience=waits)
    flow = SimpleNamespace(kind="table")
    return SimpleNamespace(history=[line], progress=progress, config=config, best_epoch=best, flow=flow)


def test_lines_of_a_run(clock):
    where = console()
    with TrainingDisplay(where, "mine") as shown:
        shown.on_step(training(0, 10))
        clock.seconds += 5
        shown.on_epoch(training(1, 20))
        shown.on_epoch(training(1, 20))  # not the next one to be shown
        clock.seconds += 5
        shown.on_epoch(training(4, 30, best=2, latent_from=3, waits=7))
    # 12 epochs cost 42 + 2 · 42 + 0.3 · 17 steps, the density in all columns 70: 200, of which 10 took 5 s
    first, second = where.file.getvalue().splitlines()
    values = "objective 1.5, nll 1.25, reconstruction 0.005, mine 3"
    assert first == f"mine: epoch 2/12 · {values} · 2 steps/s · 1 min 30 s left"
    assert (
        second
        == f"mine: epoch 5/5, latent density alone · {values} · 2 steps/s · 56 s left · best at 2, stops after 5 more"
    )


def test_quiet_is_quiet(clock):
    where = console()
    with TrainingDisplay(where, "mine", quiet=True) as shown:
        shown.on_epoch(training(1, 20))
    assert where.file.getvalue() == ""


def test_a_terminal_has_a_bar(clock):
    where = console(force_terminal=True)
    with TrainingDisplay(where, "mine") as shown:
        clock.seconds += 1
        shown.on_step(training(3, 50))
        shown.on_epoch(training(3, 50))  # which adds nothing there
    assert "epoch 4/12" in where.file.getvalue()


def test_long_work_says_how_long_it_takes(clock):
    where = console()
    with WorkDisplay(where, "scoring", total=10) as shown:
        shown.advance(1)  # too soon to say
        clock.seconds += 6
        shown.advance(2)
        clock.seconds += 6
        shown.advance(2)  # too soon for another line
        clock.seconds += 6
        shown.advance(1)
        shown.advance(4)  # done
    assert where.file.getvalue().splitlines() == ["scoring: 30%, 14 s left", "scoring: 60%, 12 s left"]


def test_text_is_printed_as_it_is():
    where = console()
    say("[bold]1", "x" * 300, console=where)
    say_where(where, {"a": "b.csv", "long": "c.csv"})
    assert where.file.getvalue().splitlines() == ["[bold]1", "x" * 300, "a:    b.csv", "long: c.csv"]
