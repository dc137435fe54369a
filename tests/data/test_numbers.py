"""Numbers as text: the same number back, and the same text with pyarrow and without."""

import numpy as np
import pytest

from rectangular_flows.data import _numbers, tables
from rectangular_flows.data._numbers import lines_of, texts_of

ROWS = 5_000
SPECIAL = [
    0.0,
    -0.0,
    np.nan,
    np.inf,
    -np.inf,
    5e-324,
    1e-5,
    9.999e-5,
    1e-4,
    0.1,
    1e9,
    1e10,
    1e14 + 0.5,
    1e15,
    1e16,
    1e300,
]


@pytest.fixture
def columns():
    """Of every size, of float32's digits, whole, of any bits, and special ones: (ROWS, 5)."""
    random = np.random.default_rng(0)
    sizes = random.normal(size=ROWS) * 10.0 ** random.integers(-9, 18, ROWS)
    bits = random.integers(0, 2**63, ROWS).view(np.float64)
    bits[np.isnan(bits)] = np.nan  # a signalling one makes numpy warn
    special = np.resize(SPECIAL, ROWS)
    return np.stack([sizes, np.float32(sizes).astype(np.float64), np.arange(1.0, ROWS + 1), bits, special], axis=1)


@pytest.fixture(params=["pyarrow", "python"])
def _by(request, monkeypatch):
    monkeypatch.setattr(_numbers, "_installed", lambda: request.param == "pyarrow")


@pytest.mark.usefixtures("_by")
def test_texts_are_those_of_python_and_give_the_numbers_back(columns):
    for column in columns.T:
        texts = texts_of(column)
        assert texts == ["" if np.isnan(x) else repr(x).removesuffix(".0") for x in column.tolist()]
        back = np.array([float(text or "nan") for text in texts])
        np.testing.assert_array_equal(back.view(np.int64)[~np.isnan(column)], column.view(np.int64)[~np.isnan(column)])


@pytest.mark.usefixtures("_by")
@pytest.mark.parametrize("rows", [0, 1, 2_047, 2_048, ROWS])
def test_lines(columns, rows):
    for some in (columns[:rows], columns[:rows, :1], np.asfortranarray(columns[:rows])):
        texts = [texts_of(column) for column in some.T]
        assert b"".join(lines_of(some, ";")).decode() == "".join(
            ";".join(row) + "\n" for row in zip(*texts, strict=True)
        )


@pytest.mark.usefixtures("_by")
@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.csv.gz"])
def test_tables_of_many_rows_come_back(columns, tmp_path, name):
    columns = columns[:, [0, 1, 2]]
    tables.write_table(tmp_path / name, ["a", "b, c", "d"], columns)
    read = tables.read_table(tmp_path / name)
    assert read.columns == ("a", "b, c", "d")
    np.testing.assert_array_equal(read.values, columns)


def test_other_kinds_stay_with_python():
    many = np.arange(3_000)
    assert texts_of(many.astype(bool))[:2] == ["0", "1"]
    assert texts_of(many)[2_999] == "2999"
    assert texts_of(np.full(3_000, 0.1, np.float32))[0] == "0.100000001"
