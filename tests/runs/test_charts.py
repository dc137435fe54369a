import numpy as np
import pytest
import torch

from rectangular_flows.errors import NonFiniteError
from rectangular_flows.runs import charts
from rectangular_flows.runs.charts import choose_charts, is_closed_surface, is_loop
from rectangular_flows.settings import FitSettings, read_preset


def settings(**values):
    return FitSettings.from_flat(
        {"latent_dim": 1, "layers": 2, "hidden": (8,), "charts": "auto", **values}, read_preset("table")
    )


def curve(length, count=600, noise=0.01, seed=0):
    random = np.random.default_rng(seed)
    t = random.uniform(0, length, count)
    return np.stack([np.cos(t), np.sin(t)], axis=1) + noise * random.normal(size=(count, 2))


@pytest.mark.parametrize(("length", "found"), [(2.0, False), (5.0, False), (2 * np.pi, True)])
@pytest.mark.parametrize("seed", range(3))
def test_loops(length, found, seed):
    assert is_loop(curve(length, seed=seed), 1) is found
    assert not is_loop(curve(length, seed=seed), 2)


@pytest.mark.parametrize("seed", range(3))
def test_blobs_are_no_loops(seed):
    assert not is_loop(np.random.default_rng(seed).normal(size=(600, 2)) * [1, 0.4], 1)


def surface(kind, count, seed, noise=0.0):
    """Points of a surface, in deviations of their columns, with noise."""
    random = np.random.default_rng(seed)
    u, v = random.vonmises(0, 0.5, size=(2, count))
    x, y, z = random.normal(size=(3, count))
    points = {
        "sphere": np.stack([x, y, z]) / np.sqrt(x**2 + y**2 + z**2),
        "ring torus": np.stack([(2 + np.cos(u)) * np.cos(v), (2 + np.cos(u)) * np.sin(v), np.sin(u)]),
        "Klein bottle": np.stack(
            [
                *((2 + np.cos(u)) * np.cos(v), (2 + np.cos(u)) * np.sin(v)),
                *(np.sin(u) * np.cos(v / 2), np.sin(u) * np.sin(v / 2)),
            ]
        ),
        "flat torus": np.stack([np.cos(u), np.sin(u), np.cos(v), np.sin(v)]),
        "cylinder": np.stack([np.cos(u), np.sin(u), v]),
        "sheet": np.stack([x, y, np.sin(2 * x)]),
        "roll": np.stack([(4 + v) * np.cos(v + 4), y, (4 + v) * np.sin(v + 4)]),
        "cloud": np.stack([x, y, z]),
        "cap": np.stack([x, y, np.abs(z)]) / np.sqrt(x**2 + y**2 + z**2),
    }[kind].T
    points = points / points.std(axis=0)
    return points + noise * random.normal(size=points.shape)


@pytest.mark.parametrize(("count", "noise"), [(700, 0.0), (1500, 0.05)])
@pytest.mark.parametrize(
    ("kind", "closed"),
    [
        *(("sphere", True), ("ring torus", True), ("flat torus", True), ("Klein bottle", True)),
        *(("sheet", False), ("roll", False), ("cloud", False), ("cap", False), ("cylinder", False)),
    ],
)
def test_closed_surfaces(kind, closed, count, noise):
    found = [is_closed_surface(surface(kind, count, seed, noise), 2) for seed in range(2)]
    assert found == [closed] * 2
    assert not is_closed_surface(surface(kind, count, 0, noise), 1)


def test_where_a_closed_surface_is_not_looked_for():
    ball = surface("sphere", 500, 0)
    assert is_closed_surface(ball, 2)
    assert not is_closed_surface(ball[:499], 2)
    assert not is_closed_surface(ball, 3)
    wide = np.pad(ball, ((0, 0), (0, 30)))  # more columns than neighbours
    assert is_closed_surface(wide, 2)


def test_a_closed_surface_is_given_four_charts(monkeypatch):
    asked = []
    monkeypatch.setattr(charts, "_gain", lambda _, rows, count, seed: asked.append(count) or (0.5, 0.1))
    ball = surface("sphere", 900, 0)
    order, apart = np.random.default_rng(0).permutation(1800), np.array([12.0, 0, 0])
    two, mixed = (np.concatenate([ball, other + apart])[order] for other in (ball, surface("cap", 900, 0)))
    given = [choose_charts(settings(latent_dim=2), torch.from_numpy(rows), 0) for rows in (ball, two, mixed)]
    assert [found.count for found in given] == asked == [4, 8, 5]
    assert given[0].reason == (
        "the data form one piece, a closed surface, which one chart cannot cover; 4 charts give rows held out 0.5 ± 0.1 "
        "nats more than one; --latent-space sphere or torus:2 may do with one"
    )
    assert given[2].reason.startswith("the data form 2 separate pieces, 1 of them a closed surface; 5 charts")
    closed = settings(latent_dim=2, latent_space="sphere")
    assert choose_charts(closed, torch.from_numpy(ball), 0).count == 1


def test_one_piece_without_a_loop_needs_no_training(monkeypatch):
    monkeypatch.setattr(charts, "_gain", lambda *_: pytest.fail("nothing to compare"))
    found = choose_charts(settings(), torch.from_numpy(curve(3.0)), 0)
    assert (found.count, found.reason) == (
        1,
        "the data form one piece, and neither a loop nor a closed surface was found",
    )
    assert choose_charts(settings(), torch.from_numpy(curve(3.0, count=50)), 0).count == 1


@pytest.mark.parametrize(("gain", "count"), [((1.0, 0.1), 4), ((-0.19, 0.1), 4), ((-0.21, 0.1), 1)])
def test_pieces_and_loops_unless_rows_held_out_disagree(monkeypatch, gain, count):
    tried = []
    monkeypatch.setattr(charts, "_gain", lambda _, rows, number, seed: tried.append(number) or gain)
    x = np.concatenate([curve(2 * np.pi, 700), curve(2.0, 500) + 5])
    found = choose_charts(settings(), torch.from_numpy(np.random.default_rng(0).permutation(x)), 0)
    assert tried == [4]
    assert found.count == count
    assert found.reason.startswith("the data form 2 separate pieces, 1 of them loops")


@pytest.mark.slow
def test_more_charts_are_likelier_on_separate_pieces():
    x = np.concatenate([curve(2.0, 200), curve(2.0, 200, seed=1) + 5])
    rows = torch.from_numpy(np.random.default_rng(0).permutation(x)).float()
    gain, error = charts._gain(settings(batch_size=100, latent="mixture"), rows, 2, 0)
    assert gain > 2 * error


def test_one_chart_of_angles_and_of_few_rows(monkeypatch):
    monkeypatch.setattr(charts, "_gain", lambda *_: (1.0, 0.1))
    x = torch.from_numpy(curve(2 * np.pi))
    assert choose_charts(settings(), x, 0, ["an angle"]) == charts.Charts(1, "angles are one chart")
    assert choose_charts(settings(), x[:99], 0) == charts.Charts(1, "there are few rows")
    found = choose_charts(settings(), x, 0)
    assert found.count == 3
    told = "3 charts give rows held out 1 ± 0.1 nats more than one; --latent-space circle closes a loop with one"
    assert found.reason == f"the data form one piece, a loop, which one chart cannot close; {told}"
    assert choose_charts(settings(latent_space="circle"), x, 0).count == 1


@pytest.mark.parametrize("dtype", [None, "float64"])
def test_what_is_compared(monkeypatch, dtype):
    """At most 5,000 rows, in random order, as the table has them."""
    seen = []
    monkeypatch.setattr(charts, "_gain", lambda _, rows, number, seed: seen.append((rows, seed)) or (1.0, 0.1))
    angle = np.linspace(0, 6.28, 6_000)
    x = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    choose_charts(settings(dtype=dtype), torch.from_numpy(x), 7)
    ((rows, seed),) = seen
    assert (len(rows), rows.dtype, seed) == (5_000, torch.float64, 7)
    assert len(np.unique(rows.numpy(), axis=0)) == 5_000
    assert abs(rows[:500].mean()) < 0.1  # not one part of the circle


def test_the_gain_is_that_of_rows_held_out(monkeypatch):
    asked = []

    def densities(_, kept, held_out, count, seed):
        asked.append((kept[:, 0].tolist(), held_out[:, 0].tolist(), count, seed))
        return np.array([1.0, 5.0, 3.0]) if count == 4 else np.array([0.0, 1.0, 5.0])

    monkeypatch.setattr(charts, "_densities", densities)
    gain, error = charts._gain(settings(), torch.arange(15.0)[:, None], 4, 9)
    assert gain == pytest.approx(1.0)  # of 1, 4 and −2
    assert error == pytest.approx(3 / 3**0.5)
    whole = [float(i) for i in range(15)]
    assert asked == [(whole[3:], whole[:3], 4, 9), (whole[3:], whole[:3], 1, 9)]


def short_training(monkeypatch, densities, count=2, **values):
    """The densities of a training that is only recorded, and what it was given."""
    seen = {}

    class Flow:
        device, row_dtype = torch.device("cpu"), torch.float64

        def fit_scatter(self, kept, held_out, seed):
            seen["scatter"] = len(kept), len(held_out), kept.dtype, seed

        def alone(self, part):
            seen["part"] = part
            return self

        def ambient_log_prob(self, rows):
            if isinstance(densities, Exception):
                raise densities
            return torch.tensor(densities)

    def build(model, rows, seed, *, start_latent, dtype):
        seen["build"] = model.charts, len(rows), seed, start_latent, dtype
        return Flow()

    def fit(flow, kept, training, *, validation):
        seen["fit"] = len(kept), len(validation), training

    monkeypatch.setattr(charts, "build_flow", build)
    monkeypatch.setattr(charts, "fit", fit)
    kept, held_out = torch.zeros(100, 2), torch.zeros(4, 2)
    return charts._densities(settings(batch_size=30, time=60, **values), kept, held_out, count, 11), seen


def test_a_short_training(monkeypatch):
    found, seen = short_training(monkeypatch, [1.0, float("nan"), -1e9, -3.0])
    assert found.tolist() == [1.0, -100.0, -100.0, -3.0]
    assert seen["scatter"] == (100, 4, torch.float64, 11)
    assert seen["part"] == "manifold"
    kept, held_out, training = seen["fit"]
    assert seen["build"] == (2, 100, 11, not training.start_latent, torch.float32)
    assert (kept, held_out) == (100, 4)
    # four batches make an epoch: 37 of them are 150 steps or just less
    assert (training.epochs, training.evaluate_every, training.time, training.scatter) == (37, 12, None, False)


def test_charts_that_collapse_are_the_worst(monkeypatch):
    assert short_training(monkeypatch, NonFiniteError("no"))[0].tolist() == [-100.0] * 4


def test_a_loop_has_charts_unless_they_cost_much(monkeypatch):
    """Two standard errors and a tenth of a nat after a training too short for them: one chart would leave a gap."""
    x = torch.from_numpy(curve(2 * np.pi))
    monkeypatch.setattr(charts, "_gain", lambda *_: (-0.61, 0.25))
    found = choose_charts(settings(), x, 0)
    told = "3 charts give rows held out 0.61 ± 0.2 nats fewer than one; --latent-space circle closes a loop with one"
    what = "the data form one piece, a loop, which one chart cannot close"
    assert found == charts.Charts(1, f"{what}, but {told}")
    monkeypatch.setattr(charts, "_gain", lambda *_: (-0.59, 0.25))
    assert choose_charts(settings(), x, 0).count == 3
    monkeypatch.setattr(charts, "_gain", lambda *_: (-0.076, 0.03))
    assert "; 3 charts give rows held out 0.076 ± 0.03 nats fewer than one" in choose_charts(settings(), x, 0).reason
    monkeypatch.setattr(charts, "_gain", lambda *_: (float("nan"), 0.25))
    assert choose_charts(settings(), x, 0).count == 1
    assert choose_charts(settings(), x[:100], 0).reason != "there are few rows"


def test_pieces_that_are_no_loops_and_pieces_that_are(monkeypatch):
    """A space that closes up has no loop left to close, but separate pieces need a chart each."""
    monkeypatch.setattr(charts, "_gain", lambda *_: (1.0, 0.1))
    x = np.concatenate([curve(2 * np.pi, 500), curve(2 * np.pi, 500, seed=1) + 5])
    x = torch.from_numpy(np.random.default_rng(0).permutation(x))
    found = choose_charts(settings(), x, 0)
    assert found.count == 6
    assert found.reason.startswith("the data form 2 separate pieces, 2 of them loops; 6 charts")
    assert found.reason.endswith("; --latent-space circle closes a loop with one")
    closed = choose_charts(settings(latent_space="circle"), x, 0)
    told = "2 charts give rows held out 1 ± 0.1 nats more than one"
    assert closed == charts.Charts(2, f"the data form 2 separate pieces; {told}")


def test_a_loop_needs_thirty_rows():
    t = np.arange(30) * 2 * np.pi / 30
    circle = np.stack([np.cos(t), np.sin(t)], axis=1)
    assert is_loop(circle, 1)
    assert not is_loop(circle[:29], 1)


def test_a_training_of_many_batches_has_two_epochs(monkeypatch):
    monkeypatch.setattr(charts, "_STEPS", 7)  # less than two epochs of four batches
    training = short_training(monkeypatch, [0.0] * 4)[1]["fit"][2]
    assert (training.epochs, training.evaluate_every) == (2, 1)
