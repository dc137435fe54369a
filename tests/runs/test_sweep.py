"""What came of a grid of runs, in numbers."""

import csv
import json
import math
from pathlib import Path

import pytest

from rectangular_flows.runs.sweep import Result, groups_of, write_results


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
