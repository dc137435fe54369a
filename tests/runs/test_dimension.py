"""The latent dimension that is chosen where none is given, on data whose dimension is known."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from rectangular_flows.runs import dimension
from rectangular_flows.runs.dimension import choose_dimension
from rectangular_flows.settings import FitSettings, read_preset

MODEL = FitSettings.from_flat({"latent_dim": 1}, read_preset("table")).model


def swiss_roll(count, seed):
    random = np.random.default_rng(seed)
    angle = 1.5 * np.pi * (1 + random.uniform(size=count))
    return np.stack([angle * np.cos(angle), 12 * random.uniform(size=count), angle * np.sin(angle)], axis=1)


def plane(count, seed, noise=0.05):
    random = np.random.default_rng(seed)
    return random.normal(size=(count, 2)) @ random.normal(size=(2, 6)) + noise * random.normal(size=(count, 6))


@pytest.mark.parametrize("seed", range(2))
def test_a_plane_with_noise(seed):
    found = choose_dimension(MODEL, plane(500, seed), seed)
    assert found.value == 2
    kept = re.fullmatch("2 of 6 principal components keep (.*)% of the variance of rows held out", found.reason)
    assert kept
    assert 95 <= int(kept[1]) <= 100


def test_independent_columns_leave_out_one_at_most():
    rows = np.random.default_rng(0).normal(size=(400, 4))
    assert choose_dimension(MODEL, rows, 0).value == 3


def test_a_curved_sheet_is_flat_to_nobody_but_a_flow(monkeypatch):
    """A roll in R³ needs three principal components of three, so that two is what is left to choose."""
    monkeypatch.setattr(dimension, "_STEPS", 25)  # what the training makes of it is no matter here
    assert choose_dimension(MODEL, swiss_roll(600, 0), 0).value == 2


@pytest.mark.slow
def test_a_curve_in_more_columns_than_a_plane_has():
    """A parabola in five columns has two principal components; a short training finds that one is enough."""
    random = np.random.default_rng(0)
    t = random.normal(size=(600, 1)).clip(-2, 2)
    rows = np.concatenate([t, t**2, t + 0.5 * t**2, t - t**2, 2 * t], axis=1) + 1e-3 * random.normal(size=(600, 5))
    found = choose_dimension(MODEL, rows, 0)
    assert found.value == 1
    assert "a curved manifold of 1 dimensions keeps" in found.reason
    assert "PCA needs 2" in found.reason
    assert choose_dimension(MODEL, rows, 0) == found


def test_units_do_not_matter():
    rows = plane(300, 3)
    scaled = rows * [1e6, 1e-6, 1, 1, 1, 1] + [0, 0, 5, 0, 0, 0]
    assert (
        choose_dimension(MODEL, scaled, 0, torch.float64).value == choose_dimension(MODEL, rows, 0, torch.float64).value
    )


@pytest.mark.parametrize("count", [2, 3, 5, 10, 29])
def test_few_rows(count):
    found = choose_dimension(MODEL, plane(count, 0), 0)
    assert 1 <= found.value <= min(3, max(1, count - 2))
    assert "few rows" in found.reason
    assert choose_dimension(MODEL, plane(count, 0), 0) == found


def test_one_and_two_columns():
    rows = np.random.default_rng(0).normal(size=(100, 2))
    assert choose_dimension(MODEL, rows[:, :1], 0).value == 1
    assert choose_dimension(MODEL, rows, 0).value == 1


def test_repeated_rows_and_few_values():
    random = np.random.default_rng(0)
    assert 1 <= choose_dimension(MODEL, np.repeat(random.normal(size=(5, 4)), 40, axis=0), 0).value <= 3
    assert 1 <= choose_dimension(MODEL, random.integers(0, 3, size=(200, 4)).astype(float), 0).value <= 3


# --- how the choice is made


def chosen(monkeypatch, intrinsic, losses, rows=None):
    """The choice where nearest neighbours give that dimension and trainings lose these shares; and what was trained."""
    tried = []

    def lost(settings, kept, held_out, seed, dtype):
        tried.append((settings.latent_dim, len(kept), len(held_out), kept.dtype, seed))
        return losses[settings.latent_dim]

    monkeypatch.setattr(dimension, "_lost", lost)
    monkeypatch.setattr(dimension, "estimate_dimension", lambda _: SimpleNamespace(suggestion=intrinsic))
    rows = np.random.default_rng(0).normal(size=(400, 7)) if rows is None else rows
    return choose_dimension(MODEL, rows, 5, torch.float64), tried


def test_trainings_between_the_intrinsic_dimension_and_pca(monkeypatch):
    found, tried = chosen(monkeypatch, 2, {2: 0.0501, 4: 0.05})
    assert tried == [(2, 320, 80, torch.float64, 5), (4, 320, 80, torch.float64, 5)]
    assert found.value == 4
    assert (
        found.reason
        == "a curved manifold of 4 dimensions keeps 95% of the variance of rows held out; PCA needs more than 6"
    )
    found, tried = chosen(monkeypatch, 2, {2: 0.02})
    assert (found.value, len(tried)) == (2, 1)
    found, tried = chosen(monkeypatch, 2, {2: 0.9, 4: 0.06})
    assert (found.value, len(tried)) == (6, 2)
    assert found.reason == "6 of 7 principal components keep 87% of the variance of rows held out"
    assert chosen(monkeypatch, 5, {5: 0.01})[1][0][0] == 5
    for intrinsic in (6, 7):
        assert chosen(monkeypatch, intrinsic, {}) == (found, [])


def test_rows_that_decide(monkeypatch):
    """From 30 on, at most 5,000 of them, a fifth of which is held out."""
    rows = np.random.default_rng(0).normal(size=(6000, 3))
    _, tried = chosen(monkeypatch, 1, {1: 0.0}, rows)
    assert tried[0][1:3] == (4000, 1000)
    assert len(chosen(monkeypatch, 1, {1: 0.0}, rows[:30])[1]) == 1
    found, tried = chosen(monkeypatch, 1, {}, rows[:29])
    assert tried == []
    assert found.reason == "2 principal components keep 79% of the variance of rows held out; there are few rows"
    assert chosen(monkeypatch, 1, {}, rows[:2])[0] == dimension.Dimension(1, "there are few rows")
    assert chosen(monkeypatch, 1, {}, rows[:, :1])[0] == dimension.Dimension(1, "there is one column")


@pytest.mark.parametrize(("weights", "count"), [((8, 1, 0.4, 0.1), 3), ((8, 1.6, 0.3, 0.1), 2), ((97, 1, 1, 1), 1)])
def test_principal_components_of_standardised_rows(weights, count):
    """Rows whose columns are independent and equally wide; others, with these variances along the components."""
    random = torch.Generator().manual_seed(0)
    train = torch.randn(300, 4, generator=random, dtype=torch.float64) * torch.tensor([3.0, 5.0, 1.0, 2.0]) + 10
    mean, deviation = train.mean(0), train.std(0, correction=0)
    axes = torch.linalg.svd((train - mean) / deviation)[2]
    signs = torch.tensor([[(-1.0) ** (i >> j) for j in range(4)] for i in range(16)], dtype=torch.float64)
    other = (signs * torch.tensor(weights, dtype=torch.float64).sqrt()) @ axes * deviation + mean
    assert dimension._linear(train, other) == count
    assert dimension._linear(train[:2], other) == 1  # fewer than there are rows
    assert dimension._linear(train, signs @ axes * deviation + mean) == 3  # and columns


def test_what_a_manifold_loses_before_it_trains(monkeypatch):
    """With a rate of zero it is that of PCA, in standardised units, whatever the units of the rows are."""
    monkeypatch.setattr(dimension, "_RATE", 0.0)
    monkeypatch.setattr(dimension, "_STEPS", 25)
    rows = torch.from_numpy(plane(250, 0, noise=0.5) * [1, 10, 0.1, 1, 1, 1] + [5, 0, 0, 0, 0, 0])
    kept, held_out = rows[:200], rows[200:]
    found = dimension._lost(replace(MODEL, latent_dim=1), kept, held_out, 0, kept.dtype)
    mean, deviation = kept.mean(0), kept.std(0, correction=0)
    fitted, judged = (kept - mean) / deviation, (held_out - mean) / deviation
    main = torch.linalg.svd(fitted)[2][:1]
    left = (judged - judged @ main.T @ main).square().sum()
    assert found == pytest.approx(float(left / judged.square().sum()), rel=1e-6)


def test_a_short_training_lowers_what_is_lost(monkeypatch):
    rows = torch.from_numpy(swiss_roll(250, 0)).float()
    lost = {}
    for steps in (25, 50):
        monkeypatch.setattr(dimension, "_STEPS", steps)
        lost[steps] = dimension._lost(replace(MODEL, latent_dim=2), rows[:200], rows[200:], 0, rows.dtype)
    monkeypatch.setattr(dimension, "_RATE", 0.0)
    plain = dimension._lost(replace(MODEL, latent_dim=2), rows[:200], rows[200:], 0, rows.dtype)
    assert lost[50] < lost[25] < plain


# --- angles, images, and what a training is given


def angle(column):
    return SimpleNamespace(column=column)


@pytest.mark.parametrize(
    ("angles", "value", "reason"),
    [
        ([0], 3, "one for each of 1 periodic column, and 2 of 5 principal components of the others, which keep 95 %"),
        ([0, 3], 4, "one for each of 2 periodic columns, and 2 of 4 principal components of the others, which keep"),
        (range(5), 6, "one for each of 5 periodic columns, and 1 of 1 principal components of the others, which keep"),
        (range(6), 6, "one for each of 6 periodic columns"),
    ],
)
def test_every_angle_takes_a_dimension(angles, value, reason):
    """Of the other columns, which lie in a plane, the principal components count."""
    found = choose_dimension(MODEL, plane(300, 1), 0, periodic=[angle(i) for i in angles])
    assert found.value == value
    assert found.reason.startswith(reason)


@pytest.mark.parametrize(("usual", "other"), [(0.0, 1.0), (0.1, 1e6), (0.0, 0.0)])
def test_a_column_that_varies_in_rows_held_out_alone(monkeypatch, usual, other):
    """What never varies in the rows to fit, such as a rare flag, has no unit there: it must not decide for all."""
    monkeypatch.setattr(dimension, "_STEPS", 25)
    rows = np.insert(plane(300, 0), 2, usual, axis=1)
    rows[int(dimension.shuffled(300, 0)[3]), 2] = other
    for intrinsic in (1, 2):  # with a training and without one
        monkeypatch.setattr(dimension, "estimate_dimension", lambda _, dim=intrinsic: SimpleNamespace(suggestion=dim))
        assert choose_dimension(MODEL, rows, 0).value == 2
    assert choose_dimension(MODEL, rows, 0, periodic=[angle(0)]).value == 3
    assert choose_dimension(MODEL, np.full((50, 4), usual), 0).value == 1


def test_few_rows_beside_angles():
    assert choose_dimension(MODEL, plane(2, 1), 0, periodic=[angle(0)]).value == 2


def test_images_take_the_estimate(monkeypatch):
    asked = []

    def estimate(rows, seed):
        asked.append((rows, seed))
        return SimpleNamespace(suggestion=4)

    monkeypatch.setattr(dimension, "estimate_dimension", estimate)
    assert dimension.estimated("rows", 8) == dimension.Dimension(4, "by the distances of nearest neighbours")
    assert asked == [("rows", 8)]


def test_charts_of_the_trainings():
    """As many as are asked for; three for each separate piece, in whatever units, where that is open."""
    random = np.random.default_rng(0)
    one = np.concatenate([random.normal(size=(200, 2)), np.ones((200, 1))], axis=1)
    two = np.concatenate([one, one + np.array([30.0, 30.0, 0.0])]) * [1e-6, 1e6, 1]
    for rows, count in ((one, 1), (two, 6)):
        assert dimension._charts(replace(MODEL, charts="auto"), random.permutation(rows)) == count
        assert dimension._charts(replace(MODEL, charts=2), rows) == 2


def test_rows_that_have_no_estimate_have_that_of_pca(monkeypatch):
    def fails(_):
        raise ValueError("too few distinct rows")

    monkeypatch.setattr(dimension, "_lost", lambda *_: pytest.fail("nothing to try"))
    monkeypatch.setattr(dimension, "estimate_dimension", fails)
    assert choose_dimension(MODEL, plane(100, 0), 0).value == 2


@pytest.mark.parametrize(("layers", "fewer"), [(2, 2), (3, 3), (9, 3)])
def test_what_a_short_training_builds(monkeypatch, layers, fewer):
    """At most three layers and no latent density, by the seed and the type of the rows."""
    built = []

    def build(settings, rows, seed, dtype):
        built.append((settings.ambient.name, settings.ambient.settings.layers, settings.latent.name, seed, dtype))
        raise ValueError("enough")

    monkeypatch.setattr(dimension, "build_flow", build)
    model = FitSettings.from_flat({"latent_dim": 1, "layers": layers}, read_preset("table")).model
    with pytest.raises(ValueError, match="enough"):
        dimension._lost(model, torch.zeros(9, 3, dtype=torch.float64), torch.zeros(3, 3), 7, torch.float64)
    assert built == [("realnvp", fewer, "identity", 7, torch.float64)]
