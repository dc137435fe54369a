"""The benchmark: what it counts, what it measures, what it says."""

import itertools
import json

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from rectangular_flows.flows import tangents
from rectangular_flows.paper import bench
from rectangular_flows.paper.bench.cases import CASES, TARGETS, Case, Row
from rectangular_flows.paper.bench.memory import child
from rectangular_flows.paper.bench.show import cells
from rectangular_flows.paper.bench.steps import make_products, make_step

SIZES = [
    Case(6, 3, 20, hidden=(8, 8), layers=4, latent_hidden=(4, 4)),
    Case(4, 2, 30, hidden=(8,), layers=2, latent_hidden=None),
    Case(43, 21, 10, hidden=(16,) * 4, layers=3),
]


def operations(step):
    with FlopCounterMode(display=False) as counter:
        step()
    return counter.get_total_flops()


@pytest.mark.parametrize("case", SIZES)
def test_the_products_are_those_of_a_step(case, monkeypatch):
    monkeypatch.setattr(tangents, "_SMALL", 10**9)  # the path whose products the counter sees
    flow = case.flow()
    step = make_step(flow, case.data(), published=False, probes=None)
    step()
    products = operations(make_products(flow, case.batch))
    assert products == operations(step)
    # of these the bundle of B·d tangents has d times as many as one pass of the batch; with one tangent there are fewer
    monkeypatch.setattr(type(flow), "latent_dim", 1)
    assert operations(make_products(flow, case.batch)) < products


def test_both_sides_take_the_same_step():
    case = SIZES[0]
    flow, x = case.flow().double(), case.data().double()
    before = {name: value.clone() for name, value in flow.state_dict().items()}
    moved = []
    for published in (True, False):
        flow.load_state_dict(before)
        make_step(flow, x, published, None)()
        moved.append(torch.cat([(value - before[name]).flatten() for name, value in flow.state_dict().items()]))
    assert moved[0].abs().max() > 1e-5
    torch.testing.assert_close(moved[0], moved[1], rtol=1e-6, atol=1e-9)


def test_it_measures_prints_and_writes(tmp_path, capsys, monkeypatch):
    now = [0.0]

    def takes(*seconds):
        """A step that takes these times in turn."""
        turns = itertools.cycle(seconds)
        return lambda: now.__setitem__(0, now[0] + next(turns))

    monkeypatch.setattr(bench.time, "perf_counter", lambda: now[0])
    steps = lambda _, __, published, ___: takes(9.0, 8.0, 10.0, 6.0) if published else takes(2.0)  # noqa: E731
    monkeypatch.setattr(bench, "make_step", steps)
    monkeypatch.setattr(bench, "make_products", lambda *_: takes(1.6))
    monkeypatch.setattr(bench, "memory_in_child", lambda _, __, published: 40.0 if published else 10.0)
    rows = bench.bench_volume(["circle"], repeats=3, output=tmp_path / "bench.json")
    assert [row.method for row in rows] == ["exact", "K = 1", "K = 10"]
    for row in rows:  # the first, of 9 s, warms up
        assert (row.published_seconds, row.ours_seconds) == pytest.approx((8.0, 2.0))
        assert (row.ratio, row.ratio_min, row.ratio_max) == pytest.approx((4.0, 3.0, 5.0))
        assert (row.published_mib, row.ours_mib, row.memory_ratio) == (40.0, 10.0, 0.25)
    assert rows[0].step_over_products == pytest.approx(1.25)
    assert rows[1].step_over_products is None
    written = json.loads((tmp_path / "bench.json").read_text())
    assert [row["ratio"] for row in written["rows"]] == pytest.approx([4.0] * 3)
    assert [target["measured"] for target in written["targets"]] == [None] * len(TARGETS)  # those are of MINIBOONE
    said = capsys.readouterr().out
    assert "4.00  3.0–5.0" in said
    assert "rounds 3" in said


def test_a_real_step_is_timed(capsys):
    rows = bench.bench_volume(["circle"], repeats=1, memory=False)
    assert all(row.ours_seconds > 0 and row.published_seconds > 0 for row in rows)
    assert "K = 10" in capsys.readouterr().out


def test_memory_of_a_step_grows_with_its_rows(monkeypatch):
    for name, batch in (("few", 10), ("many", 20_000)):
        monkeypatch.setitem(CASES, name, Case(6, 3, batch, hidden=(64,) * 2, layers=4))
    few, many = (child(name, None, False, 1) for name in ("few", "many"))
    assert many > few + 10


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="got imagenet"):
        bench.bench_volume(["imagenet"])
    with pytest.raises(ValueError, match="repeats ≥ 1; got 0"):
        bench.bench_volume(["circle"], repeats=0)


def row(**values):
    whole = {"case": "miniboone", "D": 43, "d": 21, "batch": 400, "method": "exact", "published_seconds": 3.0}
    return Row(**{**whole, "ours_seconds": 1.0, "ratio": 3.0, "ratio_min": 2.0, "ratio_max": 4.04, **values})


def test_cells_of_the_table():
    plain = ["miniboone", "43", "21", "400", "exact", "3.000", "1.000", "3.00", "2.0–4.0", "–", "–", "–", "–"]
    assert cells(row()) == plain
    measured = cells(row(published_mib=99.6, ours_mib=50.0, memory_ratio=0.502, step_over_products=1.25))
    assert measured[-4:] == ["100", "50", "0.50", "1.25"]


def test_targets_go_both_ways():
    rows = [row(ratio=2.4, memory_ratio=0.5), row(method="K = 1", ratio=3.1)]
    faster, memory, one, ten, products = TARGETS
    assert (faster.measured(rows), faster.reached(2.4), faster.reached(2.5)) == (2.4, False, True)
    assert (memory.measured(rows), memory.reached(0.5), memory.reached(0.7)) == (0.5, True, False)
    assert one.measured(rows) == 3.1
    assert (ten.measured(rows), products.measured(rows)) == (None, None)


def test_the_published_copies_are_kept_to_ten_thousand_rows():
    power = CASES["power"]
    assert [power.rows(probes) for probes in (None, 1, 10)] == [5000, 5000, 1000]
