"""``rnf reproduce ood`` on the runs of ``rnf reproduce images``."""

import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from rectangular_flows.cli import main
from rectangular_flows.evaluation.ood import judge_run
from rectangular_flows.metrics.out_of_distribution import Detection, detect, stump_accuracy
from rectangular_flows.paper import ood
from rectangular_flows.paper.experiment import Cell, Group
from rectangular_flows.paper.ood import PAIRS, SQUARE, Direction, OutOfDistribution, panels, table_rows
from rectangular_flows.paper.options import Request
from rectangular_flows.paper.square_flow import SquareScores
from rectangular_flows.plots.detection import Histogram
from rectangular_flows.runs.jobs import Job
from rectangular_flows.runs.saved import SavedRun

SCORES = (
    *("log_density", "log_density_model", "reconstruction_error", "reconstruction_error_model"),
    *("log_density_ambient", "outlier_score", "p_value", "typicality", "pca"),
)


@pytest.mark.slow
def test_both_directions_with_the_runs_of_images(pictures, monkeypatch, capsys):
    models = {path: path.stat().st_mtime_ns for path in pictures.out.rglob("model.safetensors")}
    command = ["reproduce", "ood", "--methods", "exact", "--epochs", "1", "-n", "40", "-o", str(pictures.out)]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in pictures.out.rglob("model.safetensors")} == models
    assert "92%" in said
    assert said.count("reached") + said.count("missed") == 2 * 4
    folder = pictures.out / "ood"
    found = json.loads((folder / "results.json").read_text())["directions"]
    sets = [(each["inside"], each["outside"], each["method"]) for each in found]
    assert sets == [(a, b, method) for a, b in PAIRS.items() for method in ("exact", SQUARE)]
    # the numbers of 'rnf ood', and those of the square flow by the values of its images
    judged = judge_run(SavedRun(pictures.run("fashion-mnist")), "mnist", 40)
    for name in SCORES:
        expected, got = judged.scores[name].found, found[2]["scores"][name]
        assert got["auroc"] == pytest.approx(expected.auroc, abs=1e-9)
        assert got["accuracy"] == pytest.approx(expected.accuracy, abs=1e-9)
    page = (folder / "report.html").read_text()
    assert f"{found[0]['scores']['outlier_score']['auroc']:.4f}" in page
    assert "Nalisnick" in page
    # a second time nothing is trained or judged
    monkeypatch.setattr(ood, "judge_run", lambda *_, **__: pytest.fail("judged again"))
    monkeypatch.setattr(ood, "log_likelihood_of_square_flow", lambda *_, **__: pytest.fail("trained again"))
    assert main(command) == 0
    assert json.loads((folder / "results.json").read_text())["directions"] == found


def test_the_square_flow_is_judged_by_its_likelihoods(pictures, monkeypatch):
    given = {}

    def likelihoods(flow, train, config, sets, **_):
        random = np.random.default_rng(0)
        given.update({name: random.normal(size=len(rows)) + ("out" in name) for name, rows in sets.items()})
        given["inside_test"][3] = np.nan  # overflowed
        return {name: SquareScores(-values, values) for name, values in given.items()}

    monkeypatch.setattr(ood, "log_likelihood_of_square_flow", likelihoods)
    todo = OutOfDistribution(Request(pictures.out, tuple(PAIRS), more={"samples": 33}), Console(quiet=True))
    todo.check()
    found = todo.judge(Cell("mnist", SQUARE, 0, Job("", {}, pictures.run())), 1.0)
    given = {name: np.nan_to_num(values, nan=-np.inf) for name, values in given.items()}
    score = found.found["log_density_model"]
    assert score.auroc == detect(given["inside_test"], given["outside_test"]).auroc
    assert score.auroc < 0.5  # those from elsewhere are the likelier ones
    names = ("inside_train", "outside_train", "inside_test", "outside_test")
    assert score.accuracy == stump_accuracy(*(given[name] for name in names))
    np.testing.assert_array_equal(found.histograms["log_density_model"].outside_test, given["outside_test"])
    assert found.found["log_density"].auroc > 0.5  # the other units, minus the same
    assert [histogram.unit for histogram in found.histograms.values()] == [
        "nats, data units",
        "nats, model units",
    ]


def test_both_sets_are_needed(here, tmp_path, monkeypatch, capsys):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mnist").symlink_to(here.data / "mnist")
    monkeypatch.setenv("RNF_DATA", str(tmp_path / "data"))
    assert main(["reproduce", "ood", "-o", str(tmp_path / "out")]) == 2
    assert "expected mnist and fashion-mnist to be at hand" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_too_few_rows_are_told_before_anything_is_trained(here, tmp_path, capsys):
    assert main(["reproduce", "ood", "-n", "1", "-o", str(tmp_path / "out")]) == 2
    assert "expected at least two rows of each set; got -n 1" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_square_flow_is_a_contrast_to_the_first_run_of_each_set():
    todo = OutOfDistribution(Request(Path("out"), tuple(PAIRS), ("exact", "two-step"), (0, 1)))
    todo.check()
    cells = todo.cells("mnist")
    assert [(cell.method, cell.seed) for cell in cells] == [
        ("exact", 0),
        (SQUARE, 0),
        ("exact", 1),
        ("two-step", 0),
        ("two-step", 1),
    ]
    assert cells[1].job is cells[0].job
    assert cells[0].job.folder == Path("out/images/mnist/exact/seed-0")
    alone = OutOfDistribution(Request(Path("out"), tuple(PAIRS), ("exact",), more={"no_square": True}))
    alone.check()
    assert [cell.method for cell in alone.cells("mnist")] == ["exact"]
    assert "square" not in alone.meaning


def group(inside, *found, method="exact", scores=SCORES):
    """A group with accuracy and AUROC of each seed, the same for all scores."""
    values, runs = np.linspace(0, 1, 30), []
    for seed, (accuracy, area) in enumerate(found):
        detection = Detection(area, 0.9, 0.04, accuracy)
        histogram = Histogram(values + seed, values, values + 0.5, detection)
        names = {score: score.replace("_", " ") for score in scores}
        direction = Direction(dict.fromkeys(scores, detection), dict.fromkeys(scores, histogram), names)
        runs.append((Cell(inside, method, seed, None), direction))
    return Group(inside, method, runs=runs)


def verdicts(*groups):
    return OutOfDistribution(Request(Path("out"), tuple(PAIRS))).verdicts(groups)


def test_verdicts_go_both_ways():
    good = verdicts(group("mnist", (0.981, 0.995)), group("fashion-mnist", (0.971, 0.995)))
    assert [passed for _, passed in good] == [True] * 8
    assert "stump on log-density (model units) 97.10% ≥ 91%" in good[5][0]
    bad = verdicts(group("mnist", (0.919, 0.98)), group("fashion-mnist", (0.909, 0.98)))
    assert [passed for _, passed in bad] == [False] * 8
    close = verdicts(group("mnist", (0.975, 0.995)), group("fashion-mnist", (0.965, 0.995)))
    assert [passed for _, passed in close] == [True, True, False, True] * 2
    assert verdicts(group("mnist", (0.9, 0.9), method="two-step"), group("mnist", (0.9, 0.9), method=SQUARE)) == []


def test_rows_of_the_table_are_means_over_seeds():
    rows = table_rows([group("mnist", (0.9, 0.5), (1.0, 0.75), method="K = 1")])
    assert len(rows) == len(SCORES)
    assert rows[0] == ["mnist", "fashion-mnist", "K = 1", "log density", "97%", "95.0%", "0.6250", "4.0%"]
    assert [row[4] for row in rows] == ["97%", "97%", *[""] * (len(SCORES) - 2)]
    both = table_rows([group("mnist", (0.9, 0.5)), group("mnist", (0.9, 0.5), method="two-step")])
    assert [row[2] for row in both if row[3] == "pca"] == ["no flow"]  # knows nothing of the method
    assert len(both) == 2 * len(SCORES) - 1
    failed = table_rows([Group("mnist", "exact", failed=1)])
    assert failed == [["mnist", "fashion-mnist", "exact", "", "", "failed"]]


def test_the_figure_shows_the_first_method_and_the_square_flow():
    rows = panels(
        [
            group("mnist", (0.9, 0.8), (0.1, 0.2)),
            group("mnist", (0.5, 0.3), method=SQUARE, scores=("log_density", "log_density_model")),
            group("mnist", (0.7, 0.7), method="two-step"),
            group("fashion-mnist", (0.6, 0.6)),
        ]
    )
    assert list(rows) == [f"Trained on {a} (inside), against {b} (outside)" for a, b in PAIRS.items()]
    first, second = rows.values()
    assert list(first) == [
        "log density",
        "log density model",
        "reconstruction error model",
        "square flow: log density",
    ]
    assert [histogram.found.auroc for histogram in first.values()] == [0.8, 0.8, 0.8, 0.3]
    assert [histogram.found.auroc for histogram in second.values()] == [0.6] * 3
