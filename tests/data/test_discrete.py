"""Columns with few distinct values."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rectangular_flows.data.discrete import Levels, dequantised, discrete_steps, in_double


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


def test_single_precision_gets_the_values_themselves():
    """Codes and tenths that float32 has not; what was not rounded keeps its bits."""
    codes, tenths = np.array([123456789.0, 123456792.0, 20200131.0]), np.array([0.1, 0.2, 0.3])
    x = np.stack([np.tile(codes, 100), np.tile(tenths, 100), np.random.default_rng(0).normal(size=300)], axis=1)
    drawn = (x + 0.001).astype(np.float32)
    rounded = Levels.of(x).nearest(drawn)
    assert np.isin(rounded[:, 0], codes).all()
    np.testing.assert_array_equal(rounded[:, 1], x[:, 1])
    np.testing.assert_array_equal(rounded[:, 2], drawn[:, 2])
    assert Levels.of(x[:, 2:]).nearest(drawn[:, 2:]).dtype == np.float32


def test_what_is_not_finite_stays_so():
    drawn = np.array([[np.nan], [np.inf], [-np.inf], [1.2]])
    np.testing.assert_array_equal(Levels.of(table()[:, 2:]).nearest(drawn), [*drawn[:3], [7.0]])


def test_parts_count_rare_values_wherever_they_are():
    x = np.zeros((2_000, 2))
    x[:, 1] = np.arange(2_000)
    x[1_999, 0] = 9
    levels = Levels.of_parts([x[:700], x[700:701], x[701:]])
    assert levels.columns == (0,)
    assert levels.values[0].tolist() == [0, 9]
    assert Levels.of_parts(iter([])).columns == ()
    y = np.arange(30_000) % 1_001  # one too many
    assert [Levels.of_parts([np.stack([c], 1) for c in (z[:10_000], z[10_000:])]).columns for z in (y, y % 1_000)] == [
        (),
        (0,),
    ]


def test_digits_stay_those_of_single_precision():
    values = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    wide = in_double(values)
    assert [str(v) for v in wide.ravel()] == [str(v) for v in values.ravel()]
    np.testing.assert_array_equal(wide.astype(np.float32), values)


def test_kept_as_plain_data():
    x = table(8_000)
    levels = Levels.of(x, without={2})
    assert levels.columns == (0,)
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
