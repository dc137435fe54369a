"""Rows of a file, part by part: the same as when it is read whole, in memory that does not grow with it."""

import itertools
import tracemalloc

import numpy as np
import pytest

from rectangular_flows.data import _delimited, _npy
from rectangular_flows.data.streams import FileRows, HeldRows
from rectangular_flows.data.tables import DataError, match_columns, open_table, read_table, write_table

COLUMNS, RANDOM = ("a", "b", "c"), np.random.default_rng(0)
FORMATS = ("csv", "tsv.gz", "npz", "parquet")


def made(path, rows=23, bad=(), text=True):
    values = np.random.default_rng(rows).normal(size=(rows, 3))
    values[list(bad), 1] = np.nan
    names = {"who, and": [f"r {i}" for i in range(rows)]} if text else None
    write_table(path, COLUMNS, values, text=names)
    return path


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("bad", [(), (0, 4, 5, 6, 22)])
def test_parts_are_the_whole(tmp_path, monkeypatch, suffix, bad):
    pytest.importorskip("pyarrow")
    monkeypatch.setattr(_delimited, "_AT_ONCE", 4)
    path = made(tmp_path / f"t.{suffix}", bad=bad, text=suffix != "npz")
    table = match_columns(read_table(path, columns=("c", "a", "b"), drop_invalid=True), ("c", "a", "b"))
    numbers = np.arange(1, 24) if table.kept is None else table.kept
    rows = FileRows(path, ("c", "a", "b"), drop_invalid=True, texts=("who, and",) if suffix != "npz" else ("a",))
    assert (len(rows), rows.dropped) == (len(table.values), len(bad))
    for at_once, start in itertools.product((1, 3, 10, 100), (0, 3, 10, 17)):
        parts = list(rows.parts(at_once, start))
        assert [len(part.rows) for part in parts[:-1]] == [at_once] * (len(parts) - 1)
        np.testing.assert_array_equal(np.concatenate([part.rows for part in parts]), table.values[start:])
        np.testing.assert_array_equal(np.concatenate([part.numbers for part in parts]), numbers[start:])
        cells = rows.cells()
        texts = [text for part in parts for text in next(iter(cells.at(part.numbers).values()))]
        if suffix != "npz":
            assert texts == [f"r {i - 1}" for i in numbers[start:]]
        else:
            np.testing.assert_array_equal(np.array(texts, float), table.values[start:, 1])


def test_invalid_rows_are_refused_before_anything_is_done(tmp_path):
    path = made(tmp_path / "t.csv", bad=(4, 6, 9, 12))
    with pytest.raises(DataError, match=r"4 of 23 rows .*\(line 6, column 'b' is missing or NaN; line 8.*; …\)"):
        FileRows(path, COLUMNS)
    with pytest.raises(DataError, match="lacks 'd'"):
        FileRows(path, ("a", "d"))
    with pytest.raises(DataError, match="has no column 'whom'"):
        FileRows(path, COLUMNS, texts=("whom",))


def test_a_changed_file_has_another_digest(tmp_path):
    path = made(tmp_path / "t.csv")
    before = FileRows(path, COLUMNS).digest()
    assert FileRows(path, COLUMNS).digest() == before
    path.write_text(path.read_text().replace("r 3", "r 4"))
    assert FileRows(path, COLUMNS).digest() != before
    values = np.ones((3, 2))
    assert HeldRows(values).digest() == HeldRows(values.copy()).digest() != HeldRows(values, np.arange(3) + 2).digest()


CELLS = [
    "1",
    "-2.5",
    "3e-300",
    ".5",
    "5.",
    "1e400",
    "NA",
    "",
    "nan",
    "-inf",
    '"7.25"',
    " 8",
    "0.1",
    "123456789012345678901",
]


def test_all_readers_of_text_agree(tmp_path, monkeypatch):
    """pyarrow may refuse what the others read, but never reads another number."""
    pytest.importorskip("pyarrow")
    taken = 0
    for seed in range(60):
        random = np.random.default_rng(seed)
        usual, odd = random.normal(size=12).tolist(), random.choice(CELLS, 3).tolist()
        cells = random.permutation([*map(repr, usual), *odd])
        lines = [",".join(row) for row in cells.reshape(5, 3)]
        path = tmp_path / "t.csv"
        path.write_text("\n".join(["a,b,c", *lines]) + "\n")
        layout = open_table(path)._layout
        careful = np.concatenate(list(_delimited._careful(path, layout, [2, 0])))
        for reader in (_delimited._plain, _delimited._by_arrow):
            try:
                found = np.concatenate(list(reader(path, layout, [2, 0])))
            except _delimited._UnusualError:
                continue
            taken += reader is _delimited._by_arrow
            np.testing.assert_array_equal(found, careful)
    assert taken > 20


def test_a_reader_that_gives_up_is_followed_by_another(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    monkeypatch.setattr(_delimited, "_SMALL_BYTES", 0)
    monkeypatch.setattr(_delimited, "_BLOCK_BYTES", 64)
    monkeypatch.setattr(_delimited, "_AT_ONCE", 5)
    values = RANDOM.normal(size=(40, 3))
    lines = [",".join(map(repr, row)) for row in values.tolist()]
    lines[20] = "+1.5," + lines[20].split(",", 1)[1]  # pyarrow takes no +
    lines[31] = f"# a remark\n{lines[31]}"  # numpy gives up here
    values[20, 0] = 1.5
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["a,b,c", *lines]))
    file = open_table(path)
    assert [reader.__name__ for reader in file._readers] == ["_by_arrow", "_plain", "_careful"]
    np.testing.assert_array_equal(np.concatenate(list(file.parts([0, 1, 2]))), values)
    assert [reader.__name__ for reader in file._readers] == ["_careful"]
    np.testing.assert_array_equal(read_table(path).values, values)


@pytest.mark.parametrize("suffix", ["csv", "npy", "parquet"])
def test_memory_does_not_grow_with_the_file(tmp_path, monkeypatch, suffix):
    pytest.importorskip("pyarrow.csv")
    pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(_npy, "MMAP_BYTES", 2**20)
    monkeypatch.setattr("rectangular_flows.storage.files.CHUNK_BYTES", 2**18)
    monkeypatch.setattr(_delimited, "_BLOCK_BYTES", 2**14)  # pyarrow reads many ahead
    monkeypatch.setattr("rectangular_flows.data._arrays._BATCH_ROWS", 2**12)
    rows, path = 120_000, tmp_path / f"t.{suffix}"
    values = np.random.default_rng(0).integers(0, 1000, size=(rows, 8)).astype(float)  # 7.3 MiB
    write_table(path, list("abcdefgh"), values)
    tracemalloc.start()
    try:
        stream = FileRows(path, tuple("abcdefgh") if suffix != "npy" else tuple(f"x{i}" for i in range(1, 9)))
        total = sum(float(part.rows.sum()) for part in stream.parts(10_000))
        assert total == values.sum()
        assert tracemalloc.get_traced_memory()[1] < 4 * 2**20
        tracemalloc.reset_peak()
        assert read_table(path).values.shape == values.shape  # on disk, for it is larger than MMAP_BYTES
        assert tracemalloc.get_traced_memory()[1] < 4 * 2**20
    finally:
        tracemalloc.stop()
