"""The circle: its runs, their numbers, and which run is shown where."""

import json

import pytest
import torch

import rectangular_flows as rnf
from rectangular_flows.cli import main
from rectangular_flows.metrics import circle_fit
from rectangular_flows.paper import circle, experiment
from rectangular_flows.paper.circle import CLOSED, ML, PRESETS, TWO_STEP, Circle, CircleRun, Demo, Grid, summary
from rectangular_flows.paper.experiment import Group
from rectangular_flows.paper.options import Request
from rectangular_flows.runs.jobs import train_job
from rectangular_flows.settings import read_preset


def fit(kl=0.01, **values):
    whole = dict.fromkeys(
        ("sector_kl", "total_variation", "mean_distance", "max_distance", "speed_spread", "gap"), 0.01
    )
    return CircleRun(**{**whole, "kl": kl, "mass": 1.0, "seconds": 60.0, **values})


def groups(todo, fits):
    """Groups of the runs of an experiment, with results by method."""
    found = {}
    for cell in todo.cells("circle"):
        found.setdefault(cell.method, []).append((cell, fits[cell.method]))
    return [Group("circle", method, runs=runs) for method, runs in found.items()]


def test_a_run_for_each_preset_and_seed(tmp_path):
    cells = Circle(Request(tmp_path, ("circle",), seeds=(0, 1), epochs=3)).cells("circle")
    assert [(cell.method, cell.seed) for cell in cells] == [(method, seed) for method in PRESETS for seed in (0, 1)]
    assert cells[1].job.title == "Maximum likelihood, seed 1"
    assert cells[1].job.folder == tmp_path / "circle" / "circle" / "seed-1"
    assert cells[-1].job.folder == tmp_path / "circle" / "circle-mflow" / "seed-1"
    assert all(cell.job.settings["seed"] == cell.seed and cell.job.settings["epochs"] == 3 for cell in cells)
    methods = [cell.job.settings["method"] for cell in cells[::2]]
    assert methods == ["ml", "two-step", "ml", "two-step", "two-step"]


def test_a_row_is_median_and_worst():
    runs = [fit(0.1, mass=0.9), fit(0.3, mass=1.01, seconds=20.0), fit(0.2, mass=1.05, seconds=30.0)]
    assert summary(runs) == ["0.2000 (0.3000)", *["0.0100 (0.0100)"] * 3, "1.0100 (0.9000)", "30 s"]
    assert summary(runs[:1]) == ["0.1000", *["0.0100"] * 3, "0.9000", "1 min"]


def test_rows_of_the_table(tmp_path):
    todo = Circle(Request(tmp_path, ("circle",)))
    found = groups(todo, {method: fit(0.1 * i) for i, method in enumerate(PRESETS)})
    (table,) = todo.tables([*found[:2], Group("circle", "lost", failed=1)])
    assert [row[:2] for row in table.rows] == [[ML, "0.0000"], [TWO_STEP, "0.1000"], ["lost", "failed"]]


@pytest.mark.parametrize(
    ("ml", "two_step", "passed"),
    [
        (fit(), fit(0.1), [True] * 4),
        (fit(0.021), fit(0.1), [False, True, True, True]),
        (fit(max_distance=0.051), fit(0.1), [True, False, True, True]),
        (fit(mass=0.989), fit(0.1), [True, True, False, True]),
        (fit(mass=1.011), fit(0.1), [True, True, False, True]),
        (fit(), fit(0.009), [True, True, True, False]),
    ],
)
def test_verdicts_go_both_ways(tmp_path, ml, two_step, passed):
    todo = Circle(Request(tmp_path, ("circle",), seeds=(0, 1)))
    found = groups(todo, {**dict.fromkeys(PRESETS, fit(9.0)), ML: ml, TWO_STEP: two_step})
    verdicts = todo.verdicts(found)
    assert [ok for _, ok in verdicts] == passed
    assert [text.split(": ")[1] for text, _ in verdicts] == ["2 of 2 seeds" if ok else "0 of 2 seeds" for ok in passed]
    assert len(todo.verdicts(found[:1])) == 3  # without two-step runs nothing is compared with them
    assert todo.verdicts(found[1:]) == []


def test_the_figure_shows_each_run_in_its_row_and_column(tmp_path, monkeypatch):
    monkeypatch.setattr(circle, "load_model", lambda folder: folder)
    todo = Circle(Request(tmp_path, ("circle",), seeds=(0, 1)))
    panels = todo.panels(groups(todo, {method: fit(i) for i, method in enumerate(PRESETS)}))
    rows, columns = todo.labels()
    assert len(panels) == 10
    for (row, column), shown in panels.items():
        assert shown.name == rows[row]
        assert shown.fit.kl == list(PRESETS).index(shown.name)
        assert shown.flow == tmp_path / "circle" / PRESETS[shown.name] / columns[column].replace(" ", "-")


def test_the_grid_shows_each_setting_in_its_row_and_column(tmp_path, monkeypatch):
    monkeypatch.setattr(circle, "load_model", lambda folder: folder)
    todo = Grid(Request(tmp_path, ("circle",), epochs=1))
    cells = {cell.job.folder: cell for cell in todo.cells("circle")}
    assert len(cells) == 36
    found = groups(todo, {"Maximum likelihood, 12 settings": fit(), "Two-step, 24 settings": fit()})
    assert [len(group.runs) for group in found] == [12, 24]
    rows, columns = todo.labels()
    panels = todo.panels(found)
    assert set(panels) == {(i, j) for i in range(4) for j in range(9)}
    for (row, column), shown in panels.items():
        settings = cells[shown.flow].job.settings
        assert f"rate {settings['learning_rate']:g}" == rows[row].split(",")[0]
        assert (settings["anneal"] == [500.0, 1000.0]) == ("warm-up" in rows[row])
        name = "ML" if settings["method"] == "ml" else "Two-step"
        assert columns[column] == f"{name}, β {settings['beta']:,.0f}"
    assert todo.verdicts(found) == []
    assert [run["name"] for run in todo.numbers(found)] == [cell.job.title for cell in cells.values()]


def test_a_failed_setting_leaves_its_place_empty(tmp_path, monkeypatch):
    monkeypatch.setattr(circle, "load_model", lambda folder: folder)
    todo = Grid(Request(tmp_path, ("circle",)))
    cells = todo.cells("circle")
    runs = [(cell, fit()) for cell in cells if cell is not cells[5]]
    assert set(todo.panels([Group("circle", "all", runs=runs)])) == {cell.place for cell in cells} - {(1, 1)}


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """The folder of a short demo, with all runs trained in this process."""
    monkeypatch.setattr(experiment, "run_jobs", lambda jobs, *_: [train_job(job, fresh=True) for job in jobs])
    assert main(["demo", "--epochs", "1", "--seed", "3", "--out", str(tmp_path / "demo")]) == 0
    return tmp_path / "demo"


def test_the_demo_judges_both_methods_and_shows_each_under_its_name(trained):
    folders = {ML: "maximum-likelihood", TWO_STEP: "two-step", CLOSED: "closed-latent-space"}
    folders = {method: trained / name for method, name in folders.items()}
    numbers = json.loads((trained / "results.json").read_text())
    for method, folder in folders.items():
        kept = json.loads((folder / "circle.json").read_text())
        assert kept == numbers[method][0]
        assert kept["kl"] == pytest.approx(circle_fit(rnf.load(folder)).kl)
        assert kept["name"] == method
    page = (trained / "report.html").read_text()
    assert f"{numbers[ML][0]['kl']:.3f}" in page
    assert f"two-step: {numbers[TWO_STEP][0]['kl']:.3f}" in page
    todo = Demo(Request(trained, ("circle",), epochs=1, more={"seed": 3}))
    cells = reversed(todo.cells("circle"))  # whatever the order
    runs = [(cell, CircleRun(**{k: v for k, v in numbers[cell.method][0].items() if k != "name"})) for cell in cells]
    found = [Group("circle", cell.method, runs=[(cell, run)]) for cell, run in runs]
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    for shown, method, kind in zip(todo.results(found), folders, ("ml", "two-step", "ml"), strict=True):
        assert shown.name == method
        assert shown.fit.kl == pytest.approx(numbers[method][0]["kl"])
        torch.testing.assert_close(shown.flow.encode(x), rnf.load(folders[method]).encode(x))
        assert f'method = "{kind}"' in (folders[method] / "config.toml").read_text()
        assert "seed = 3" in (folders[method] / "config.toml").read_text()


def test_the_presets_of_both_methods_differ_in_the_method_only_where_they_should():
    ours, baseline = read_preset(PRESETS[ML]), read_preset(PRESETS[TWO_STEP])
    assert (ours["method"], baseline["method"]) == ("ml", "two-step")
    assert {key: ours.get(key) for key in ("layers", "hidden", "batch_size")} == {
        key: baseline.get(key) for key in ("layers", "hidden", "batch_size")
    }
