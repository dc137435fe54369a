"""What came of a grid of runs, in numbers."""

import csv
import json
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file

from rectangular_flows.runs.jobs import Outcome
from rectangular_flows.runs.sweep import NUMBERS, Result, groups_of, result_of, sweep_jobs, write_results
from rectangular_flows.settings import FitSettings
from rectangular_flows.settings.grid import Point
from rectangular_flows.training.checkpoint import CHECKPOINT
from rectangular_flows.training.history import history_files
from rectangular_flows.training.run import Epoch


def result(seed, dim, nll, failure=""):
    numbers = {} if nll is None else {"objective": 1.0, "nll": nll, "reconstruction": 0.1, "seconds": 5.0}
    return Result({"seed": seed, "latent_dim": dim}, Path(f"run{seed}{dim}"), failure, 3, numbers)


RESULTS = [
    result(0, 2, 1.0),
    result(0, 3, 7.0),
    result(1, 2, 4.0),
    result(1, 3, None, "no such file"),
    result(2, 2, 4.0),
    result(2, 4, None, "it is not finished"),
    result(0, 5, math.inf),
    result(1, 5, 1.0),
]


def test_groups_are_over_seeds():
    two, three, four, five = groups_of(RESULTS)
    assert [group.values for group in (two, three, four, five)] == [{"latent_dim": d} for d in (2, 3, 4, 5)]
    assert [group.runs for group in (two, three, four, five)] == [3, 1, 0, 2]
    assert two.mean["nll"] == pytest.approx(3.0)
    assert two.error["nll"] == pytest.approx(math.sqrt(3) / math.sqrt(3))  # s = √((4 + 1 + 1) / 2), n = 3
    assert (two.mean["seconds"], two.error["seconds"]) == (5.0, 0.0)
    assert (three.mean["nll"], math.isnan(three.error["nll"])) == (7.0, True)
    assert math.isnan(four.mean["nll"])
    assert (five.mean["nll"], math.isnan(five.error["nll"])) == (math.inf, True)


def test_the_table_and_the_numbers(tmp_path):
    write_results(tmp_path, RESULTS)
    with (tmp_path / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == [
        *("seed", "latent_dim", "state", "objective", "nll", "reconstruction", "seconds"),
        *("best_epoch", "folder", "failure"),
    ]
    assert [row["state"] for row in rows] == ["done"] * 3 + ["failed", "done", "failed", "done", "done"]
    assert (rows[3]["nll"], rows[3]["failure"], rows[3]["folder"]) == ("nan", "no such file", "run13")
    kept = json.loads((tmp_path / "results.json").read_text())
    assert [run["best_epoch"] for run in kept["runs"]] == [3] * 8
    assert kept["groups"][0]["mean"]["nll"] == 3.0
    assert kept["groups"][0]["runs"] == 3


def finished(folder, best_epoch):
    """The folder of a run of three epochs whose state says which was the best."""
    lines = [Epoch(i, 10 * i, -i, 2.0 * i, 0.5 * i, 0, 0, 1, 50, 1e-3, 1, 7.0 * i) for i in (1, 2, 3)]
    progress = json.dumps({"best_epoch": best_epoch, "finished": True})
    (folder / "checkpoint").mkdir(parents=True)
    save_file({"x": torch.zeros(1)}, folder / CHECKPOINT, {"progress": progress})
    for name, content in history_files(lines).items():
        (folder / name).write_bytes(content)
    return SimpleNamespace(folder=folder, complete=True)


@pytest.mark.parametrize(("best", "taken"), [(1, 1), (2, 2), (0, 3), (9, 3)])
def test_numbers_are_those_of_the_best_epoch(tmp_path, best, taken):
    """The last one's, where no epoch is the best; but the time is that of the whole run."""
    point = Point({"seed": 4}, None)
    found = result_of(point, finished(tmp_path / "run", best), Outcome(3.0))
    assert (found.values, found.folder, found.failure, found.state) == ({"seed": 4}, tmp_path / "run", "", "done")
    assert found.best_epoch == taken
    assert found.numbers == {"objective": -taken, "nll": 2.0 * taken, "reconstruction": 0.5 * taken, "seconds": 21.0}
    broke = result_of(point, finished(tmp_path / "other", best), Outcome(failure="it broke"))
    assert (broke.failure, broke.state, broke.numbers) == ("it broke", "failed", found.numbers)


def test_a_run_that_is_not_finished_has_no_numbers(tmp_path):
    job = finished(tmp_path, 1)
    job.complete = False
    found = result_of(Point({"seed": 4}, None), job, Outcome())
    assert (found.failure, found.best_epoch, found.numbers) == ("it is not finished", 0, {})
    (tmp_path / "failure.txt").write_text("training stopped: ±\n", encoding="utf-8")
    assert result_of(Point({}, None), job, Outcome()).failure == "training stopped: ±"
    assert result_of(Point({}, None), job, Outcome(failure="no file")).failure == "no file"
    line = found.flat()
    assert list(line) == ["seed", "state", *NUMBERS, "best_epoch", "folder", "failure"]
    assert all(math.isnan(line[name]) for name in NUMBERS)


def test_each_point_has_a_job_in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.csv").write_text("a\n")
    points = [
        Point({"seed": seed, "beta": 2.0}, FitSettings.from_flat({"data": "x.csv", "latent_dim": 1, "seed": seed}))
        for seed in (3, 4)
    ]
    jobs = sweep_jobs(points, tmp_path / "out")
    assert [job.title for job in jobs] == ["seed 3, beta 2.0", "seed 4, beta 2.0"]
    assert [job.folder for job in jobs] == [tmp_path / "out" / f"seed={seed},beta=2.0" for seed in (3, 4)]
    assert [job.settings["seed"] for job in jobs] == [3, 4]
    assert jobs[0].settings == {**points[0].settings.flat(), "data": str(tmp_path / "x.csv")}
