"""Time to quality: whose curve reaches which level when."""

from itertools import pairwise

import pytest

from rectangular_flows.paper.bench import quality as module
from rectangular_flows.paper.bench.groups import GROUPS
from rectangular_flows.paper.bench.quality import _curve, _until, quality
from rectangular_flows.paper.bench.run import _by_columns, draw


def line(cpu, score):
    return {"cpu": cpu, "fid_like": score, "error": 1.0}


CURVES = {
    "volume=exact": [line(10, 3.0), line(20, 1.0), line(30, 1.2)],
    "volume=auto": [line(4, 3.0), line(8, 1.04), line(12, 0.9)],
    "published": [line(29, 9.0)],
}


@pytest.fixture
def asked(monkeypatch):
    seen = []

    def curve(preset, change, seed, most=None):
        seen.append((preset, seed, most))
        return CURVES["published" if most else f"volume={change['volume']}"]

    monkeypatch.setattr(module, "_curve", curve)
    return seen


def test_seconds_to_the_level_of_exact(asked):
    rows = quality(["power"], 2)
    # the published settings have as long as exact took
    assert asked == [("power", 0, None)] * 2 + [("power-published", 0, 30)] + [("power", 1, None)] * 2 + [
        ("power-published", 1, 30)
    ]
    curves, levels = _by_columns(rows)
    assert [row["method"] for row in curves] == ["ours, exact"] * 3 + ["ours, auto"] * 3 + ["published settings"]
    found = {(row["of"], row["seed"]): (row["level"], row["seconds"], row["best"]) for row in levels}
    assert found["ours, exact", 0] == (1.05, 20, 1.0)
    assert found["ours, auto", 1] == (1.05, 8, 0.9)
    assert found["published settings", 1] == (1.05, None, 9.0)
    assert len(draw(GROUPS["quality"], rows).axes[0].lines) == 3
    assert _until(CURVES["volume=auto"], 0.9) == 12  # the level itself counts


def test_a_curve_has_a_line_for_every_validation(monkeypatch):
    monkeypatch.setattr(module, "_STEPS", 1)
    plain = {"epochs": 3, "latent_epochs": 0, "epoch_rows": 500, "evaluate_every": 1, "validation_rows": 300}
    curve = _curve("circle", plain, 0)
    assert len(curve) == 3
    assert all(a["cpu"] < b["cpu"] for a, b in pairwise(curve))
    assert all(row["fid_like"] > 0 for row in curve)
    spent = curve[0]["cpu"] / 2
    short = _curve("circle-ml", {}, 0, spent)  # which would take 10,000 epochs
    assert short
    assert len(short) < 50
