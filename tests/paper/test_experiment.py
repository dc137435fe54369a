"""The driver of all experiments, on one that is made up."""

import io
import json
import math
from dataclasses import dataclass

import numpy as np
import pytest
from matplotlib.figure import Figure

from rectangular_flows.data.tables import DataError, MissingFileError
from rectangular_flows.paper import experiment
from rectangular_flows.paper.experiment import Cell, Experiment, Group, Table, mean_and_error, mean_cell
from rectangular_flows.paper.options import Request
from rectangular_flows.runs.display import PlainConsole
from rectangular_flows.runs.jobs import Job, Outcome


@dataclass(frozen=True)
class Number:
    value: float
    seconds: float


class Made(Experiment[Number]):
    name = "made"
    title = "Made up"
    subtitle = "Of nothing."
    meaning = "The *value* is 10 × the seed."
    picture = ("made.png", "nothing", "")

    def load(self, data):
        if data == "absent":
            raise MissingFileError("no file")

    def cells(self, data):
        folder = self.folder / data
        return [
            Cell(data, method, seed, Job(f"{data}, {method}, {seed}", {}, folder / method / str(seed)))
            for method in self.request.methods
            for seed in self.request.seeds
        ]

    def judge(self, cell, seconds):
        return Number(10.0 * cell.seed, seconds)

    def tables(self, groups):
        rows = [[g.data, g.label, *([mean_cell(g.values("value"), 1)] if g.runs else [g.missing])] for g in groups]
        return [Table("Values", ("data", "method", "value", "never"), rows, "What was found.", left=2)]

    def verdicts(self, groups):
        return [(f"{g.data}, {g.method}, value {g.mean('value'):g} ≤ 5", g.mean("value") <= 5) for g in groups]

    def numbers(self, groups):
        return {f"{g.data} {g.method}": g.values("value") for g in groups}

    def figure(self, groups):
        assert all(group.runs for group in groups)
        return Figure(figsize=(1, 1))


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Runs an experiment whose jobs end as given: (exit code, what was printed, its folder)."""

    def run(failures=(), kind=Made, seeds=2, **request):
        asked = []

        def pretend(jobs, console, processes, fresh):
            asked.extend((processes, fresh, job.title) for job in jobs)
            return [Outcome(failure="[boom]") if job.title in failures else Outcome(7.0) for job in jobs]

        monkeypatch.setattr(experiment, "run_jobs", pretend)
        printed = io.StringIO()
        options = {"sets": ("here", "absent"), "methods": ("a", "b"), **request}
        todo = kind(Request(tmp_path, seeds=tuple(range(seeds)), **options), PlainConsole(file=printed, width=120))
        code = todo.run()
        run.asked = asked
        return code, printed.getvalue(), todo.folder

    return run


def test_it_trains_judges_and_shows(made):
    code, said, folder = made(jobs=3, epochs=1)
    assert code == 0
    assert made.asked == [(3, False, f"here, {method}, {seed}") for method in "ab" for seed in range(2)]
    lines = [line.split() for line in said.splitlines()]
    assert ["here", "a", "5.0", "±", "5.0"] in lines
    assert ["absent", "b", "data", "not", "at", "hand"] in lines
    assert ["data", "method", "value"] in lines  # a column without any entry is left out
    assert "absent: data not at hand (rnf data get absent)" in said
    assert "here, a, value 5 ≤ 5: reached" in said
    assert "Shortened: at most 1 epoch a run." in said
    assert json.loads((folder / "results.json").read_text())["here a"] == [0.0, 10.0]
    page = (folder / "report.html").read_text()
    for text in ("Made up", "5.0 ± 5.0", "What was found.", "10 × the seed", "Shortened", "here, b, value 5 ≤ 5"):
        assert text in page


def test_verdicts_are_missed_too(made):
    _, said, folder = made(seeds=3)
    assert "here, a, value 10 ≤ 5: missed" in said
    assert "missed" in (folder / "report.html").read_text()


def test_a_failed_run_is_named_and_does_not_count(made):
    code, said, folder = made(failures=("here, a, 1", "here, b, 0", "here, b, 1"))
    assert code == 1
    lines = [line.split() for line in said.splitlines()]
    assert ["here", "a", "(1", "of", "2", "failed)", "0.0"] in lines
    assert ["here", "b", "failed"] in lines
    assert "failed: here, a, 1: [boom]" in said
    assert "3 of 4 runs failed. Run the same command again" in said
    assert "≤ 5" not in said  # nothing is claimed of groups that are not complete
    assert json.loads((folder / "results.json").read_text())["here a"] == [0.0]


def test_without_data_there_are_tables_only(made):
    code, said, folder = made(sets=("absent",))
    assert code == 0
    assert said.count("data not at hand") == 3
    assert sorted(path.name for path in folder.iterdir()) == ["results.json"]


def test_an_experiment_that_needs_all_sets_begins_nothing_without(made, tmp_path):
    class Picky(Made):
        every_set = True

    with pytest.raises(DataError, match="expected here and absent to be at hand"):
        made(kind=Picky)
    assert list(tmp_path.iterdir()) == []


def test_a_figure_of_all_runs_is_not_drawn_of_some(made):
    class Whole(Made):
        every_run = True

    assert made(failures=("here, a, 0",), sets=("here",), seeds=1, kind=Whole)[0] == 1
    _, _, folder = made(failures=("here, a, 0",), sets=("here",), seeds=1, kind=Whole)
    assert not (folder / "made.png").exists()


def test_runs_that_cells_share_are_trained_once(made):
    class Shared(Made):
        def cells(self, data):
            cells = super().cells(data)
            return [*cells, Cell(data, "as a", 0, cells[0].job)]

    _, said, _ = made(kind=Shared, sets=("here",), methods=("a",), seeds=1)
    assert made.asked == [(None, False, "here, a, 0")]
    assert ["here", "as", "a", "0.0"] in [line.split() for line in said.splitlines()]


def test_mean_and_standard_error():
    values = [0.3, 0.1, 0.7, 0.2]
    mean, error = mean_and_error(values)
    assert mean == pytest.approx(np.mean(values))
    assert error == pytest.approx(np.std(values, ddof=1) / 2)
    assert math.isnan(mean_and_error([1.0])[1])
    assert mean_cell(values, 2) == "0.33 ± 0.13"
    assert mean_cell([0.5]) == "0.5000"


def test_a_group_knows_its_results_and_failures():
    runs = [(Cell("x", "m", seed, None), Number(seed, 1.0)) for seed in (1, 5)]
    assert Group("x", "m", runs=runs).values("value") == [1, 5]
    assert Group("x", "m", runs=runs).mean("value") == 3
    assert Group("x", "m", runs=runs, failed=1).label == "m (1 of 3 failed)"
    assert Group("x", "m", failed=2).label == "m"
    assert [Group("x", "m", failed=2).missing, Group("x", "m", at_hand=False).missing] == ["failed", "data not at hand"]
