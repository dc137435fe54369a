"""``rnf reproduce ood`` on the runs of ``rnf reproduce images``."""

import json

import numpy as np
import pytest
from rectangular_flows.paper.ood_reproduction import PAIRS, judge, panels, table_rows
from rectangular_flows.paper.ood_runs import SQUARE, Direction

from rectangular_flows.cli import main
from rectangular_flows.evaluation.ood import judge_run
from rectangular_flows.metrics.out_of_distribution import Detection, auroc, stump_accuracy
from rectangular_flows.paper import ood_runs
from rectangular_flows.paper.ood_figure import draw_directions
from rectangular_flows.paper.square_flow import SquareScores
from rectangular_flows.plots.detection import Histogram
from rectangular_flows.runs.saved import SavedRun

SCORES = (
    *("log_density", "log_density_model", "reconstruction_error", "reconstruction_error_model"),
    *("outlier_score", "typicality", "pca"),
)


def test_both_directions_with_the_runs_of_images(pictures, monkeypatch, capsys):
    models = {path: path.stat().st_mtime_ns for path in pictures.out.rglob("model.safetensors")}
    command = ["reproduce", "ood", "--methods", "exact", "--epochs", "1", "-n", "40", "-o", str(pictures.out)]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in pictures.out.rglob("model.safetensors")} == models
    assert "92%" in said
    assert said.count("reached") + said.count("missed") == 2 * 4
    folder = pictures.out / "ood"
    assert (folder / "ood.png").stat().st_size > 10_000
    assert (folder / "report.html").stat().st_size > 10_000
    found = json.loads((folder / "results.json").read_text())["directions"]
    sets = [(each["inside"], each["outside"], each["method"]) for each in found]
    assert sets == [(a, b, method) for a, b in PAIRS.items() for method in ("exact", SQUARE)]
    # the numbers of 'rnf ood', and those of the square flow by the values of its images
    judged = judge_run(SavedRun(pictures.run("fashion-mnist")), "mnist", 40)
    for name in SCORES:
        expected, got = judged.scores[name].found, found[2]["scores"][name]
        assert got["auroc"] == pytest.approx(expected.auroc, abs=1e-9)
        assert got["accuracy"] == pytest.approx(expected.accuracy, abs=1e-9)
    # a second time nothing is trained or judged
    monkeypatch.setattr(ood_runs, "judge_run", lambda *_, **__: pytest.fail("judged again"))
    monkeypatch.setattr(ood_runs, "log_likelihood_of_square_flow", lambda *_, **__: pytest.fail("trained again"))
    assert main(command) == 0
    assert json.loads((folder / "results.json").read_text())["directions"] == found


def test_the_square_flow_is_judged_by_its_likelihoods(pictures, monkeypatch):
    from rectangular_flows.paper.image_runs import ImageRun
    from rich.console import Console

    given = {}

    def likelihoods(flow, train, config, sets, **_):
        random = np.random.default_rng(0)
        given.update({name: random.normal(size=len(rows)) + ("out" in name) for name, rows in sets.items()})
        given["inside_test"][3] = np.nan  # overflowed
        return {name: SquareScores(-values, values) for name, values in given.items()}

    monkeypatch.setattr(ood_runs, "log_likelihood_of_square_flow", likelihoods)
    run = ImageRun("mnist", "exact", 0, pictures.run(), 1.0)
    found = ood_runs.judge_square(run, "fashion-mnist", 33, Console(quiet=True))
    given = {name: np.nan_to_num(values, nan=-np.inf) for name, values in given.items()}
    score = found.found["log_density_model"]
    assert score.auroc == auroc(given["inside_test"], given["outside_test"])
    assert score.auroc < 0.5  # those from elsewhere are the likelier ones
    names = ("inside_train", "outside_train", "inside_test", "outside_test")
    assert score.accuracy == stump_accuracy(*(given[name] for name in names))
    np.testing.assert_array_equal(found.histograms["log_density_model"].outside_test, given["outside_test"])
    assert found.found["log_density"].auroc > 0.5  # the other units, minus the same
    assert [histogram.unit for histogram in found.histograms.values()] == [
        "nats, data units",
        "nats, model units",
    ]
    assert found.method == SQUARE


def test_both_sets_are_needed(here, tmp_path, monkeypatch, capsys):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mnist").symlink_to(here.data / "mnist")
    monkeypatch.setenv("RNF_DATA", str(tmp_path / "data"))
    assert main(["reproduce", "ood", "-o", str(tmp_path / "out")]) == 2
    assert "mnist and fashion-mnist, to be at hand" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_too_few_rows_are_told_before_anything_is_trained(here, tmp_path, capsys):
    assert main(["reproduce", "ood", "-n", "1", "-o", str(tmp_path / "out")]) == 2
    assert "expected at least two rows of each set; got -n 1" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def direction(inside, accuracy, area, method="exact", seed=0, scores=SCORES):
    found = Detection(area, 0.9, 0.04, accuracy)
    values = np.linspace(0, 1, 30)
    histogram = Histogram(values, values, values + 0.5, found)
    names = {score: score.replace("_", " ") for score in scores}
    both = dict.fromkeys(scores, found), dict.fromkeys(scores, histogram)
    return Direction(inside, PAIRS[inside], method, seed, *both, names)


def test_verdicts_can_go_both_ways():
    good = judge([direction("mnist", 0.981, 0.995), direction("fashion-mnist", 0.971, 0.995)])
    assert [passed for _, passed in good] == [True] * 8
    assert "stump on log-density (model units) 97.10% ≥ 91%" in good[5][0]
    bad = judge([direction("mnist", 0.919, 0.98), direction("fashion-mnist", 0.909, 0.98)])
    assert [passed for _, passed in bad] == [False] * 8
    close = judge([direction("mnist", 0.975, 0.995), direction("fashion-mnist", 0.965, 0.995)])
    assert [passed for _, passed in close] == [True, True, False, True] * 2
    assert judge([direction("mnist", 0.9, 0.9, "two-step")]) == []


def test_rows_of_the_table_are_means_over_seeds():
    rows = table_rows([direction("mnist", 0.9, 0.5, "K = 1", 0), direction("mnist", 1.0, 0.75, "K = 1", 1)])
    assert len(rows) == len(SCORES)
    assert rows[0] == ["mnist", "fashion-mnist", "K = 1", "log density", "97%", "95.0%", "0.6250", "4.0%"]
    assert [row[4] for row in rows] == ["97%", "97%", "", "", "", "", ""]
    both = table_rows([direction("mnist", 0.9, 0.5), direction("mnist", 0.9, 0.5, "two-step")])
    assert [row[2] for row in both if row[3] == "pca"] == ["no flow"]  # knows nothing of the method
    assert len(both) == 2 * len(SCORES) - 1


def test_the_figure_has_a_row_for_each_direction():
    found = [
        direction("mnist", 0.9, 0.8),
        direction("mnist", 0.9, 0.8, SQUARE, scores=("log_density", "log_density_model")),
        direction("mnist", 0.9, 0.8, "two-step"),
        direction("mnist", 0.9, 0.8, seed=1),
        direction("fashion-mnist", 0.9, 0.8),
    ]
    rows = panels(found, "exact")
    assert [len(panel) for panel in rows.values()] == [4, 3]
    assert list(next(iter(rows.values())))[3] == "square flow: log density"
    figure = draw_directions(rows)
    parts = figure.subfigs
    assert [part.get_suptitle() for part in parts] == list(rows)
    shown = [[axis for axis in part.axes if axis.get_visible()] for part in parts]
    assert [len(axes) for axes in shown] == [4, 3]
    texts = {text.get_text() for text in shown[0][0].texts}
    assert "AUROC 0.800 · stump 90.0%" in texts
