"""Rows that repeat others are noticed where they are half of all."""

import warnings

import numpy as np
import pytest

from rectangular_flows.data.repeats import RepeatedRowsWarning, warn_of_repeats


def test_half_of_the_rows():
    rows = np.random.default_rng(0).normal(size=(50, 3))
    with pytest.warns(RepeatedRowsWarning, match="^50 of 100 rows repeat others"):
        warn_of_repeats(np.concatenate([rows, rows]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_repeats(np.concatenate([rows, rows[:49]]))
        warn_of_repeats(rows[:, :1].repeat(3, axis=1))  # columns that repeat are another matter


def test_zero_has_one_sign():
    with pytest.warns(RepeatedRowsWarning, match="^19 of 20 rows"):
        warn_of_repeats(np.tile([[0.0, 1.0], [-0.0, 1.0]], (10, 1)))


def test_columns_in_any_order_of_memory():
    rows = np.asfortranarray(np.tile(np.arange(20.0).reshape(10, 2), (2, 1)))
    with pytest.warns(RepeatedRowsWarning, match="^10 of 20 rows"):
        warn_of_repeats(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_repeats(rows[:19])  # 9 of them, and few rows
        warn_of_repeats(np.zeros((3, 2)))
