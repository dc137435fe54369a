"""The groups of the benchmark: what is counted, what takes turns, what is written."""

import json

import pytest
import torch

from rectangular_flows.paper.bench import groups, rounds
from rectangular_flows.paper.bench.baselines import Bench, naive, structured
from rectangular_flows.paper.bench.cases import CASES, Case
from rectangular_flows.paper.bench.counting import count, counting
from rectangular_flows.paper.bench.groups import GROUPS
from rectangular_flows.paper.bench.run import bench, draw, page
from rectangular_flows.paper.published import published_exact
from rectangular_flows.volume import Exact, Stochastic

TINY = Case(6, 3, 12, hidden=(8, 8), layers=2, latent_hidden=(4,), warm=1)


@pytest.fixture(autouse=True)
def _tiny(monkeypatch):
    monkeypatch.setitem(CASES, "power", TINY)


@pytest.mark.parametrize(
    ("volume", "expected"),
    [
        (Exact(codimension="never"), {"primal": 1, "tangents": 3, "tangents, backward": 3}),
        (Stochastic(1), {"primal": 1, "tangents": 4, "tangents, backward": 1}),
        (Stochastic(2), {"primal": 1, "tangents": 5, "tangents, backward": 2}),
        (published_exact, {"primal": 3, "tangents": 3, "tangents, backward": 3}),
    ],
)
def test_products_are_counted(volume, expected):
    flow = counting(TINY.flow())
    z = torch.randn(5, 3)
    assert count(lambda: volume(flow, z)[1].sum().backward(), 5) == expected


def test_iterations_are_counted():
    flow, z = counting(TINY.flow()), torch.randn(5, 3)
    counted = count(lambda: Stochastic(1, solver="cg")(flow, z)[1].sum().backward(), 5)
    pulled = counted["tangents, backward"] - 1  # one of the surrogate, the others of JᵀJ
    assert 1 <= pulled <= 6 + 1  # 2d iterations at most, and the true residual
    assert counted["tangents"] == 1 + pulled + 1 + 1  # the surrogate's, JᵀJ's, Ju, and that of reverse mode


def test_the_naive_volume_is_the_exact_one():
    flow, z = TINY.flow().double(), torch.randn(4, 3, dtype=torch.float64)
    for mine, other in zip(Exact()(flow, z), naive(flow, z), strict=True):
        torch.testing.assert_close(mine, other)


def test_steps_take_turns(monkeypatch):
    now, order = [0.0], []

    def step(name, seconds):
        return lambda: order.append(name) or now.__setitem__(0, now[0] + seconds.pop(0))

    monkeypatch.setattr(rounds.time, "process_time", lambda: now[0])
    monkeypatch.setattr(rounds.time, "perf_counter", lambda: 2 * now[0])
    found = rounds.in_turns({"a": step("a", [9, 2, 4, 3]), "b": step("b", [9, 1, 1, 3])}, 3)
    assert order == ["a", "b"] * 4  # the first of each warms up
    assert found["a"].numbers() == {"cpu_seconds": 3, "cpu_least": 2, "cpu_most": 4, "wall_seconds": 6}
    assert found["a"].over(found["b"]) == 2


def test_every_step_runs_and_changes_no_weights():
    it = Bench(TINY, steps=1)
    before = [p.clone() for p in it.flow.parameters()]
    names = [
        *groups._OURS,
        *groups._PUBLISHED,
        *groups._OTHERS,
        "K = 1, pcg",
        "exact, whole batch",
        "K = 2",
        "published, K = 2",
    ]
    for step in it.steps(names).values():
        step()
    assert all(torch.equal(a, b) for a, b in zip(before, it.flow.parameters(), strict=True))


def test_a_group_is_measured_shown_drawn_and_written(tmp_path, capsys):
    result = bench(["density"], ["power"], 1, tmp_path)
    rows = result["density"]["rows"]
    assert [row["method"] for row in rows] == ["ours", "published", "jacfwd and slogdet"]
    assert rows[0]["over_ours"] == 1.0
    assert json.loads((tmp_path / "density.json").read_text())["rows"] == rows
    assert (tmp_path / "density.png").stat().st_size > 5_000
    assert "jacfwd and slogdet" in capsys.readouterr().out
    text = page(tmp_path)
    assert "| power | 6 | 3 | 12 | ours |" in text
    assert "(`rnf bench step`)" not in text  # what was not measured is not there
    assert "![Exact log-volumes](figures/density.png)" in page(tmp_path, "figures/")
    with pytest.raises(ValueError, match="rounds ≥ 1; got 0"):
        bench(["density"], None, 0, None)


def test_the_variance_falls_with_probes():
    rows = GROUPS["variance"].measure(["power"], 6)
    noise = {(row["distribution"], row["K"]): row["noise"] for row in rows if "noise" in row}
    assert noise["orthonormal", 3] < 1e-6  # exact at K = d
    assert noise["gaussian", 1] > noise["gaussian", 3] > 0
    assert {row["products"] for row in rows if "products" in row} >= {"exact", "K = 1, pcg"}
    figure = draw(GROUPS["variance"], rows)
    assert len(figure.axes[0].lines) == 3


def test_targets_are_reached_or_missed(tmp_path):
    """By the bound of each case; what has none, or was not measured, is left out."""

    def row(case, method, **values):
        return {"case": case, "method": method, **values}

    step = [
        row("hepmass", "auto", over_reconstruction=1.21, published_exact_over_this=7.0, variance_ratio=1.05),
        row("hepmass", "exact", over_reconstruction=9.0),
        row("power", "auto", over_reconstruction=1.2, published_exact_over_this=2.99),
        row("circle", "auto", over_reconstruction=9.0),
    ]
    memory = [row("gas", "exact", of_published=0.151, time_over_whole=None)]
    for name, rows in (("step", step), ("memory", memory)):
        (tmp_path / f"{name}.json").write_text(json.dumps({"facts": {"rounds": 1}, "rows": rows}))
    lines = [line.split(" | ")[1:] for line in page(tmp_path).split("##")[1].splitlines() if "ed" in line[-12:]]
    assert lines == [
        ["hepmass", "≤ 1.2", "1.21", "**missed** |"],
        ["power", "≤ 1.2", "1.2", "reached |"],
        ["hepmass", "≥ 7", "7", "reached |"],
        ["power", "≥ 3", "2.99", "**missed** |"],
        ["hepmass", "≤ 1.05", "1.05", "reached |"],
        ["gas", "≤ 0.15", "0.151", "**missed** |"],
    ]


def test_long_curves_are_no_tables(tmp_path):
    points = [{"case": "power", "method": "a", "cpu": float(i), "fid_like": 1.0} for i in range(121)]
    reached = [{"case": "power", "level": 0.5, "of": "a", "seconds": 9.0}]
    (tmp_path / "quality.json").write_text(json.dumps({"facts": {"rounds": 1}, "rows": points + reached}))
    text = page(tmp_path)
    assert "The 121 points of the curves are in quality.json." in text
    assert "| power | 0.5 | a | 9 |" in text
    assert "| power | a |" not in text


def test_memory_against_probes(monkeypatch):
    asked = []
    monkeypatch.setattr(groups, "memory_of", lambda case, step: asked.append(step) or 7.0)
    rows = GROUPS["probes"].measure(["power"], 1)
    assert asked[:3] == ["K = 1, whole batch", "K = 1", "published, K = 1"]
    assert {row["K"] for row in rows} == {1, 2}  # d is 3
    figure = draw(GROUPS["probes"], rows)
    assert len(figure.axes[0].lines) == 3


def test_rounding_does_not_flatten_the_figure():
    rows = [
        {"case": "a", "distribution": "orthonormal", "K": K, "noise": noise}
        for K, noise in ((1, 0.5), (2, 0.1), (3, 1e-14))
    ]
    assert draw(GROUPS["variance"], rows).axes[0].get_ylim()[0] == pytest.approx(0.025)
    assert draw(GROUPS["variance"], rows[:2]).axes[0].get_ylim()[0] > 0.05


def test_rows_lie_near_a_manifold():
    x = structured(Case(20, 2, 400), 400)
    assert x.shape == (400, 20)
    assert float(torch.linalg.svdvals(x)[-1]) > 0.5
    assert torch.equal(x, structured(Case(20, 2, 400), 400))


def test_the_figure_shows_the_numbers():
    """A panel a case, a row a method; where a value is missing, there is no dot."""
    rows = [
        {"case": case, "method": method, "over_reconstruction": value}
        for case, method, value in (("a", "auto", 1.25), ("a", "exact", 7.0), ("b", "auto", 3.0), ("b", "exact", None))
    ]
    figure = draw(GROUPS["step"], rows)
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["a", "b"]
    dots = [
        {figure.axes[0].get_yticklabels()[int(line.get_ydata()[0])].get_text(): float(line.get_xdata()[0])}
        for axis in figure.axes
        for line in axis.lines
        if len(line.get_xdata()) == 1
    ]
    assert dots == [{"auto": 1.25}, {"exact": 7.0}, {"auto": 3.0}]
    assert [text.get_text() for axis in figure.axes for text in axis.texts if text.get_text()] == ["1.2", "7", "3"]


def test_the_page_in_the_docs_is_made_of_the_numbers_beside_it():
    from tools.benchmarks import DOCS

    assert (DOCS / "benchmarks.md").read_text() == page(DOCS / "benchmarks", "benchmarks/"), (
        "python tools/benchmarks.py"
    )
