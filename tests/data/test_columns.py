"""Columns that tell no rows apart."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rectangular_flows.data.columns import UsedColumns, WholeTable
from rectangular_flows.data.tables import Table, used_columns
from rectangular_flows.storage import files


@pytest.mark.parametrize("chunk", [files.CHUNK_BYTES, 100])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_what_is_left_out(monkeypatch, chunk, kind):
    monkeypatch.setattr(files, "CHUNK_BYTES", chunk)
    a, b = np.random.default_rng(0).normal(size=(2, 50)).astype(kind)
    b[3] = 0.0
    signed, almost = b.copy(), b.copy()
    signed[3], almost[-1] = -0.0, almost[-1] + 1e-3
    rows = np.stack([np.full(50, 2.5, kind), a, b, a, signed, almost, np.full(50, 2.5, kind)], axis=1)
    used = UsedColumns.of(rows)
    assert (used.kept, used.constant, used.copies) == ([1, 2, 5], {0: 2.5, 6: 2.5}, {3: 1, 4: 2})
    names = list("stuvwxy")
    assert used.reasons(names) == "'s', 'y' hold one value; 'v' equals 't', 'w' equals 'u' in every row"
    np.testing.assert_array_equal(used.restore(used.pick(rows)), rows)
    np.testing.assert_array_equal(used.spread(used.pick(rows)), rows * [0, 1, 1, 0, 0, 1, 0])
    assert used.left_out == [0, 6, 3, 4]
    assert not used.off(rows).any()
    other = rows.copy()
    other[:4, 6] += 1.5
    other[0, 3] += 0.5
    np.testing.assert_allclose(used.off(other)[:5], [[0, 1.5, 0.5, 0], *[[0, 1.5, 0, 0]] * 3, [0] * 4], atol=1e-6)
    assert UsedColumns.from_list(json.loads(json.dumps(used.listed()))) == used


@given(st.lists(st.sampled_from(["a", "b", "c", "one"]), min_size=1, max_size=6), st.integers(2, 9))
@settings(max_examples=30, deadline=None)
def test_nothing_is_lost(kinds, rows):
    made = dict(zip("abc", np.random.default_rng(rows).normal(size=(3, rows)), strict=True)) | {"one": np.ones(rows)}
    table = np.stack([made[kind] for kind in kinds], axis=1)
    used = UsedColumns.of(table)
    assert len(used.kept) == len(set(kinds) - {"one"})
    assert used.all == (len(used.kept) == len(kinds))
    np.testing.assert_array_equal(used.restore(used.pick(table)), table)


def test_a_table_without_them():
    values = np.random.default_rng(0).normal(size=(30, 3)) * [1, 0, 1] + 4
    table, whole = used_columns(Table(values, ("a", "b", "c"), "f"), np.arange(30))
    assert (table.columns, whole) == (("a", "c"), WholeTable(("a", "b", "c"), UsedColumns(3, {1: 4.0}, {}), 30))
    np.testing.assert_array_equal(table.values, values[:, [0, 2]])
    same = Table(values[:, [0, 2]], ("a", "c"), "f")
    assert used_columns(same, np.arange(30)) == (same, None)
    values[7, 1] = 1.0  # where no row is trained on
    train = np.random.default_rng(0).permutation(np.delete(np.arange(30), 7))
    assert used_columns(Table(values, ("a", "b", "c"), "f"), train)[0].columns == ("a", "c")
    assert used_columns(Table(values, ("a", "b", "c"), "f"), np.arange(9))[1] is None


def test_a_number_is_compared_in_the_precision_of_the_rows():
    used = UsedColumns(4, {1: 0.1, 2: 20240131.0}, {3: 0})
    rows = used.restore(np.array([[0.3], [0.7]], dtype=np.float32))
    assert rows.dtype == np.float64
    assert rows[:, 1:3].tolist() == [[0.1, 20240131.0]] * 2
    assert not used.off(rows).any()
    assert not used.off(rows.astype(np.float32)).any()
    other = rows + np.array([[0, 1e-12, 1, 0], [0, 0, 0, 1e-12]])
    assert (used.off(other) != 0).tolist() == [[True, True, False], [False, False, True]]
    coarse = UsedColumns(3, {1: 0.5}, {2: 0})
    assert coarse.restore(np.ones((2, 1), dtype=np.float32)).dtype == np.float32  # it has all of these values


def test_all_columns_of_rows_by_name():
    whole = WholeTable(("a", "b", "c", "d"), UsedColumns(4, {3: 5.0}, {1: 0}), 40)
    assert (whole.seen, whole.others) == (("a", "c"), ("d", "b"))
    seen = np.array([[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_array_equal(whole.values(seen, {}), [[1, 1, 2, 5], [3, 3, 4, 5]])
    np.testing.assert_array_equal(whole.values(seen, {"b": np.array([7.0, 8.0])}), [[1, 7, 2, 5], [3, 8, 4, 5]])
    assert WholeTable.from_list(json.loads(json.dumps(whole.listed()))) == whole


@pytest.mark.parametrize("chunk", [files.CHUNK_BYTES, 500])
def test_columns_in_other_units(monkeypatch, chunk):
    monkeypatch.setattr(files, "CHUNK_BYTES", chunk)
    a, b, c = np.random.default_rng(0).normal(size=(3, 200)).round(3)
    almost = 1000 * a
    almost[77] += 1e-3
    rows = np.stack([a, b, 1000 * a, 32 + 1.8 * b, -2 * c, c, almost, 1000 * a, a * 1e-30, -a], axis=1)
    used = UsedColumns.of(rows)
    assert used.kept == [0, 1, 3, 4, 6]
    assert used.copies == {7: 2}
    assert {i: (rule.other, f"{rule.factor:.9g}") for i, rule in used.in_units.items()} == {
        2: (0, "1000"),
        5: (4, "-0.5"),
        8: (0, "1e-30"),
        9: (0, "-1"),
    }
    assert used.left_out == [7, 2, 5, 8, 9]
    reasons = "'h' equals 'c', 'c' is 1000 × 'a', 'f' is -0.5 × 'e', 'i' is 1e-30 × 'a' and 1 more in every row"
    assert used.reasons(list("abcdefghij")) == reasons.replace(" and 1 more", ", 'j' is -1 × 'a'")
    np.testing.assert_allclose(used.restore(used.pick(rows)), rows, rtol=1e-12, atol=0)
    assert used.restore(used.pick(rows).astype(np.float32)).dtype == np.float64  # float32 has no 1e-30 times a
    assert not used.off(rows).any()
    rounded = np.stack([column.round(3) for column in rows.T[:8]], axis=1) + 1e-5
    assert not UsedColumns.of(rows[:, :7]).off(rounded[:, :7]).any()
    assert not UsedColumns.of(rows[:, :7]).off(rows[:, :7].astype(np.float32)).any()
    other = rows.copy()
    other[5, 2] += 3.0
    other[5, 7] += 3.0
    other[6, 8] *= 1.1
    assert np.argwhere(used.off(other)).tolist() == [[5, 1], [6, 3]]
    assert UsedColumns.from_list(json.loads(json.dumps(used.listed()))) == used
    assert UsedColumns.of(rows[:, :7], units=False).all
    assert UsedColumns.of(rows[:19, :6]).all  # of few rows that may be chance


@pytest.mark.parametrize("written", [lambda x: float(f"{x:.6g}"), np.float16, np.float32])
def test_rounded_heavy_tails_keep_the_rule(written):
    a = np.exp(2 * np.random.default_rng(0).normal(size=1000))
    table = np.c_[a, np.random.default_rng(1).normal(size=1000), 1.609344 * a]
    used = UsedColumns.of(table)
    assert used.kept == [0, 1]
    kind = np.dtype(written) if isinstance(written, type) else np.float64
    assert not used.off(np.vectorize(written)(table).astype(kind)).any()


def test_unrelated_columns_that_share_a_fill_value_are_not_each_other_in_units():
    rows = np.random.default_rng(0).normal(size=(300, 3))
    rows[7, :2] = 9.96921e36
    assert UsedColumns.of(rows).all
    close = np.cumsum(np.random.default_rng(1).uniform(0, 1e5, size=300)) + 1.7e9
    assert UsedColumns.of(np.stack([close, close + np.random.default_rng(2).uniform(0, 0.03, 300)], axis=1)).all
    sparse = np.zeros((300, 2))
    sparse[[3, 200]] = [[1.0, 2.0], [1.0, 3.0]]
    assert UsedColumns.of(sparse).all


@given(st.floats(1e-12, 1e12), st.booleans())
@settings(max_examples=50, deadline=None)
def test_a_copy_in_any_unit_is_a_copy(factor, down):
    rows = np.random.default_rng(0).normal(size=(50, 2))
    table = np.c_[rows, rows[:, 0] * factor * (-1 if down else 1)]
    used = UsedColumns.of(table)
    assert used.kept == [0, 1]
    np.testing.assert_allclose(used.restore(rows), table, rtol=1e-12)
