"""What training and long work show where there is no terminal."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from rectangular_flows import TrainingConfig
from rectangular_flows.runs import display
from rectangular_flows.runs.display import (
    PlainConsole,
    TrainingDisplay,
    WorkDisplay,
    duration,
    say,
    say_outcome,
    say_where,
    wide_console,
)


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
    progress = SimpleNamespace(epoch=epoch, step=step, steps=100, latent_from=latent_from, choice=None)
    config = TrainingConfig(epochs=10, latent_epochs=2, anneal=(5, 6), patience=waits)
    given = {"config": config, "column_steps": 150, "flow": SimpleNamespace(ambient_dim=10)}
    return SimpleNamespace(history=[line], progress=progress, best_epoch=best, **given)


def test_lines_of_a_run(clock):
    where = console()
    with TrainingDisplay(where, "mine") as shown:
        shown.on_step(training(0, 10))
        clock.seconds += 5
        shown.on_epoch(training(1, 20))
        shown.on_epoch(training(1, 20))  # not the next one to be shown
        clock.seconds += 5
        shown.on_epoch(training(4, 30, best=2, latent_from=3, waits=7))
    # 12 epochs cost 42 + 2 · 42 + 0.3 · 17 steps, the density of ten columns 0.6 · 150: 220, of which 10 took 5 s
    first, second = where.file.getvalue().splitlines()
    values = "objective 1.5, nll 1.25, reconstruction 0.005, mine 3"
    assert first == f"mine: epoch 2/12 · {values} · 2 steps/s · 1 min 40 s left"
    assert (
        second
        == f"mine: epoch 5/5, latent density alone · {values} · 2 steps/s · 1 min 6 s left · best at 2, stops after 5 more"
    )


def test_what_follows_counts(clock):
    where = console()
    with TrainingDisplay(where, "mine", between=3.0, afterwards=4.0) as shown:
        shown.on_step(training(0, 10))
        clock.seconds += 5
        shown.on_epoch(training(1, 20))
    assert where.file.getvalue().endswith("· 1 min 47 s left\n")


def test_lines_of_the_density_of_the_columns(clock):
    where = console()
    with TrainingDisplay(where, "mine", afterwards=3.0) as shown:
        for step in range(1, 101):
            shown.on_scatter(step, 100)
            clock.seconds += 0.3
    of = "mine: density of the columns, step"
    assert where.file.getvalue().splitlines() == [
        f"{of} 8 of at most 100 · 31 s left",  # after two seconds, then every ten: 0.3 s for each of 92, and 3 s
        f"{of} 42 of at most 100 · 20 s left",
        f"{of} 76 of at most 100 · 10 s left",
    ]


def test_the_bar_of_the_density_of_the_columns(clock):
    where = console(force_terminal=True)
    with TrainingDisplay(where, "mine") as shown:
        for step in range(1, 61):
            shown.on_scatter(step, 100)
            clock.seconds += 0.2
        (task,) = shown._progress.tasks
        assert (task.completed, task.fields["now"]) == (
            0.6,
            "density of the columns, step 60 of at most 100 · 8 s left",
        )


def test_quiet_is_quiet(clock):
    where = console()
    with TrainingDisplay(where, "mine", quiet=True) as shown:
        shown.on_epoch(training(1, 20))
        shown.on_scatter(1, 10)
        clock.seconds += 60
        shown.on_scatter(2, 10)
    assert where.file.getvalue() == ""


def test_a_terminal_has_a_bar(clock):
    where = console(force_terminal=True)
    with TrainingDisplay(where, "[red]mine") as shown:
        (task,) = shown._progress.tasks
        assert (task.completed, task.total, task.fields["now"]) == (0, 1, "starting")
        clock.seconds += 0.05
        shown.on_step(training(2, 20))  # too soon
        assert task.completed == 0
        clock.seconds += 0.07
        shown.on_step(training(3, 50))
        assert task.completed == 0.5
        assert task.fields["now"].startswith("epoch 4/12 · objective 1.5")
        assert " steps/s · " in task.fields["now"]
        shown.on_epoch(training(3, 50))  # which adds nothing there
        clock.seconds += 0.05
        shown.on_step(training(3, 51))
        assert task.completed == 0.5
        clock.seconds += 0.06
        shown.on_step(training(3, 60))
        assert task.completed == 0.6
    assert shown._progress.finished is False
    said = where.file.getvalue()
    assert "epoch 4/12" in said
    assert "[red]mine" in said
    assert "mine: epoch" not in said
    assert said.endswith("\x1b[2K")  # the bar is gone


def test_no_bar_where_there_is_no_terminal(clock):
    where = console()
    with TrainingDisplay(where, "mine") as shown:
        clock.seconds += 1
        shown.on_step(training(3, 50))
    assert where.file.getvalue() == ""


def test_the_bar_of_long_work(clock):
    where = console(force_terminal=True)
    with WorkDisplay(where, "scoring", total=8) as shown:
        (task,) = shown._progress.tasks
        clock.seconds += 1.9
        shown.advance(1)
        assert task.completed == 0
        clock.seconds += 2.1
        shown.advance(1)
        assert (task.completed, task.fields["now"]) == (0.25, "12 s left")
        shown.at(4, 16)
        assert task.completed == 0.25
        shown.at(8, 16)
        assert (task.completed, task.fields["now"]) == (0.5, "4 s left")
        shown.at(16, 16)
        assert task.completed == 0.5
    assert "scoring:" not in where.file.getvalue()


def test_a_line_now_and_then(clock):
    """At least eight for a run, and one every ten seconds."""
    where = console()
    with TrainingDisplay(where, "mine") as shown:
        shown.on_step(training(0, 0))
        for epoch in range(1, 10):
            run = training(epoch, epoch)
            run.config = TrainingConfig(epochs=30, latent_epochs=2)
            clock.seconds += 2
            shown.on_epoch(run)
    # 32 // 8 = 4 epochs from one to the next: 1, 5 and 9
    assert [line.split()[2] for line in where.file.getvalue().splitlines()] == ["2/32", "6/32", "10/32"]
    with TrainingDisplay(where, "slow") as shown:
        for epoch in (1, 2, 3):
            run = training(epoch, epoch)
            run.config = TrainingConfig(epochs=30, latent_epochs=2)
            shown.on_epoch(run)
            clock.seconds += 10
    assert [line.split()[2] for line in where.file.getvalue().splitlines()[3:]] == ["2/32", "3/32", "4/32"]


def test_the_last_epoch_has_a_line(clock):
    where = console()
    with TrainingDisplay(where, "mine") as shown:
        for epoch in (11, 12):
            shown.on_epoch(training(epoch, epoch))
    assert [line.split()[2] for line in where.file.getvalue().splitlines()] == ["12/12", "12/12"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-3, "0 s"), (59.4, "59 s"), (59.6, "1 min"), (61, "1 min 1 s"), (3599, "59 min 59 s"), (3600, "1 h 0 min")],
)
def test_times_in_words(seconds, words):
    assert duration(seconds) == words


def test_a_console_shows_text_as_it_stands(monkeypatch):
    where = PlainConsole(file=io.StringIO(), width=80)
    where.print("[red]:smile: 12\x1b[31m")
    assert where.file.getvalue() == "[red]:smile: 12\\x1b[31m\n"
    for terminal, width in ((False, 130), (True, 77)):
        monkeypatch.setattr("sys.stdout", SimpleNamespace(isatty=lambda terminal=terminal: terminal, write=None))
        monkeypatch.setenv("COLUMNS", "77")
        assert wide_console().width == width


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


def test_how_the_volume_is_computed_is_said_once(clock):
    choice = SimpleNamespace(text=lambda rows: f"exact on all of {rows}")
    for quiet, lines in ((False, ["mine: log-volume: exact on all of 100"]), (True, [])):
        where = console()
        with TrainingDisplay(where, "mine", quiet=quiet) as shown:
            shown.on_step(training(0, 1))
            for step in (2, 3):
                run = training(0, step)
                run.config, run.progress.choice = TrainingConfig(epochs=10, batch_size=100), choice
                shown.on_step(run)
        assert where.file.getvalue().splitlines() == lines


def test_a_run_that_has_just_begun(clock):
    """Without a validation there are no values, without a step no rate, and without patience it stops by itself."""
    where = console()
    with TrainingDisplay(where, "mine") as shown:
        run = training(2, 20, best=1)
        shown.on_epoch(run)
        run.history = []
        assert shown._text(run, 200.0).startswith("epoch 3/12 · 0.2 steps/s · ")
        shown.on_step(run)
        assert shown._text(run, 300.0) == "epoch 3/12 · best at 1"
    assert where.file.getvalue().splitlines()[0].endswith(" · best at 1")
    run = training(9, 20, best=1, waits=3)
    assert shown._text(run, 300.0).endswith("best at 1, stops after 0 more")


def test_work_that_goes_on_counts_what_is_done_now(clock):
    """From two seconds on; nothing is said of what was done before, nor at the end; a line every ten seconds."""
    where = console()
    with WorkDisplay(where, "scoring", total=10) as shown:
        shown.resume_at(5)
        clock.seconds += 2
        shown.at(5, 10)
        shown.advance(1)  # one of five took two seconds: four more take eight
        clock.seconds += 10
        shown.advance(1)  # ten seconds after the last line, and not more
        clock.seconds += 0.5
        shown.advance(1)  # three of five took 12.5 s
        clock.seconds += 20
        shown.advance(2)
    assert where.file.getvalue().splitlines() == ["scoring: 60%, 8 s left", "scoring: 80%, 8 s left"]


def test_lines_go_to_standard_output(capsys):
    say("[red]one", "two")
    assert capsys.readouterr().out == "[red]one\ntwo\n"


def test_a_target_and_its_outcome():
    plain, colour = PlainConsole(file=io.StringIO(), width=30), console(force_terminal=True, color_system="standard")
    for where in (plain, colour):
        say_outcome(where, "a mean of [red] below 3", True)
        say_outcome(where, "another one", False)
    assert plain.file.getvalue() == "a mean of [red] below 3: reached\nanother one: missed\n"
    assert "\x1b[32mreached" in colour.file.getvalue()
    assert "\x1b[31mmissed" in colour.file.getvalue()
