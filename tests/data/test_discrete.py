"""Columns with few distinct values."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rectangular_flows.data.discrete import Levels, dequantised, discrete_steps


def table(rows=400):
    random = np.random.default_rng(0)
    return np.stack([random.integers(0, 4, rows) * 0.1, random.normal(size=rows), np.full(rows, 7.0)], axis=1)


def test_few_means_one_for_twenty_rows():
    for values, rows, few in ((5, 100, True), (5, 99, False), (6, 100, False), (20, 400, True), (21, 400, False)):
        column = np.arange(rows) % values
        assert (Levels.of(column[:, None]).columns == (0,)) == few


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30))
def test_nearest_is_the_nearest(values):
    x = table()
    levels = Levels.of(x)
    rows = np.repeat(np.array(values)[:, None], 3, axis=1)
    rounded = levels.nearest(rows)
    known = np.array([0, 0.1, 0.2, 0.3])
    expected = np.abs(rows[:, :1] - known).min(axis=1)
    np.testing.assert_allclose(np.abs(rows[:, 0] - rounded[:, 0]), expected, atol=1e-12)
    assert (rounded[:, 1] == rows[:, 1]).all()
    assert (rounded[:, 2] == 7).all()
    assert np.isin(rounded[:, 0], np.unique(x[:, 0])).all()


def test_kept_as_plain_data():
    x = table(8_000)
    x[:, 1] = np.arange(8_000) % 400  # few for so many rows, but many to keep
    levels = Levels.of(x, without={2})
    assert levels.columns == (0, 1)
    again = Levels.from_list(json.loads(json.dumps(levels.listed())), 3)
    assert again.columns == (0,)
    np.testing.assert_array_equal(again.values[0], levels.values[0])  # to the last bit
    assert Levels.from_list({}, 3).columns == ()


@pytest.mark.parametrize(
    "bad", [{"3": [1]}, {"-1": [1]}, {"0": []}, {"0": [2, 1]}, {"0": [float("nan")]}, {"0": [[1]]}]
)
def test_damage_is_refused(bad):
    with pytest.raises(ValueError, match=r"list of rising values|inhomogeneous"):
        Levels.from_list(bad, 3)


def test_steps_and_noise():
    x = torch.from_numpy(table())
    steps = discrete_steps(x)
    torch.testing.assert_close(steps, torch.tensor([0.1, 0.0, 0.0], dtype=torch.float64))
    noisy = dequantised(x, steps)
    assert noisy[:, 1:].equal(x[:, 1:])
    off = (noisy - x)[:, 0].abs()
    assert 0.04 < off.max() <= 0.05
    assert dequantised(x, steps).equal(noisy)
