"""The latent dimension that is chosen where none is given, on data whose dimension is known."""

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
    assert "2 of 6 principal components keep 95 %" in found.reason


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
