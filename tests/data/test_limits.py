"""Files that claim, hold or unfold to more than they should are refused before memory is taken."""

import gzip
import io
import lzma
import zipfile

import numpy as np
import pytest

from rectangular_flows.data import _delimited, _npy
from rectangular_flows.data._published import read_idx
from rectangular_flows.data.datasets import SameNameWarning, place_of
from rectangular_flows.data.tables import (
    DataError,
    Table,
    check_table,
    match_columns,
    read_table,
    write_parts,
    write_table,
)

VALUES = np.arange(12.0).reshape(4, 3) / 8


def claiming(shape, kind="<f8"):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": kind, "fortran_order": False, "shape": shape})
    return file.getvalue() + bytes(96)


@pytest.mark.parametrize("shape", [(30 * 2**30, 1), (2**62, 4), (2**40, 2**40), (5, 3)])
def test_a_header_that_claims_more_than_there_is(tmp_path, shape):
    (tmp_path / "a.npy").write_bytes(claiming(shape))
    with pytest.raises(DataError, match=r"'.*a\.npy' is damaged: its header claims shape .* and holds 96 bytes"):
        read_table(tmp_path / "a.npy")
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("data.npy", claiming(shape))
    with pytest.raises(DataError, match=r"'data' in '.*a\.npz' is damaged: its header claims"):
        read_table(tmp_path / "a.npz")


def test_no_rows_and_a_claim_of_many_columns(tmp_path):
    (tmp_path / "a.npy").write_bytes(claiming((0, 2**40)))
    with pytest.raises(DataError, match="no rows"):
        read_table(tmp_path / "a.npy")
    np.save(tmp_path / "b.npy", np.zeros((1, 1_000_001), np.uint8))
    with pytest.raises(DataError, match="at most 1,000,000 columns"):
        read_table(tmp_path / "b.npy")


def test_arrays_that_unfold_to_too_much(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "a.npz", data=np.zeros((10_000, 3)))
    np.save(tmp_path / "b.npy", np.zeros((10_000, 3)))
    with lzma.open(tmp_path / "b.npy.xz", "wb") as file:
        file.write((tmp_path / "b.npy").read_bytes())
    assert len(_npy.load_arrays(tmp_path / "b.npy.xz")[""]) == 10_000
    monkeypatch.setenv("RNF_MAX_BYTES", "100K")
    for name in ("a.npz", "b.npy.xz"):
        with pytest.raises(ValueError, match=rf"{name}' would take 234 KiB; the limit is 100 KiB.*RNF_MAX_BYTES"):
            _npy.load_arrays(tmp_path / name)
    assert len(read_table(tmp_path / "b.npy").values) == 10_000  # which is as large on disk


def test_text_that_unfolds_to_too_much(tmp_path, monkeypatch):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 100_000))
    assert len(read_table(path).values) == 100_000
    monkeypatch.setenv("RNF_MAX_BYTES", "100K")
    with pytest.raises(DataError, match=r"'.*a\.csv\.gz' unpacks to more than 100 KiB"):
        read_table(path)
    (tmp_path / "images.gz").write_bytes(gzip.compress(bytes(10**6)))
    with pytest.raises(DataError, match="unpacks to more than 100 KiB"):
        read_idx(tmp_path / "images.gz")


def test_a_line_that_would_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(_delimited, "_LONGEST_LINE", 1000)
    (tmp_path / "a.csv").write_text("a,b\n1,2\n" + "1" * 2000)
    with pytest.raises(DataError, match=r"'.*a\.csv' is not a text table: it has a line of more than 1,000"):
        read_table(tmp_path / "a.csv")


def test_two_arrays_of_one_name(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, data=VALUES, columns=np.array(["a", "b", "c"]))
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("columns.npy", zipfile.ZipFile(path).read("columns.npy"))
    with pytest.raises(DataError, match=r"Expected different names of arrays; '.*a\.npz' repeats 'columns'"):
        read_table(path)


def test_names_of_columns_in_an_archive(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, data=VALUES, columns=np.array([b"a", b"b", b"c"]))
    assert read_table(path).columns == ("a", "b", "c")
    np.savez(path, data=VALUES, columns=np.array(["a", "b"]))
    with pytest.raises(DataError, match="a name for each of 3 columns"):
        read_table(path)


@pytest.mark.parametrize("factor", [1e200, 1e-200])
def test_columns_that_cannot_be_squared_are_not_called_constant(factor):
    values = np.random.default_rng(0).normal(size=(50, 3)) * [1, factor, 1]
    with pytest.raises(DataError, match=r"in 'f' 'b' varies by .*e[+-](200|199).*other units"):
        check_table(Table(values, ("a", "b", "c"), "f"), 1)


def test_large_tables_stay_on_disk_whatever_is_done_to_them(tmp_path, monkeypatch):
    monkeypatch.setattr(_npy, "MMAP_BYTES", 10)
    values = np.random.default_rng(0).normal(size=(100, 3))
    values[7, 1] = np.nan
    np.save(tmp_path / "a.npy", values)
    table = read_table(tmp_path / "a.npy", drop_invalid=True)
    moved = match_columns(table, ("x3", "x1", "x2"))
    chosen = read_table(tmp_path / "a.npy", columns=["3", "1"])
    for one in (table, moved, chosen):
        assert isinstance(one.values, np.memmap)
    np.testing.assert_array_equal(moved.values, np.delete(values, 7, axis=0)[:, [2, 0, 1]])
    np.testing.assert_array_equal(chosen.values, values[:, [2, 0]])
    np.save(tmp_path / "b.npy", np.arange(6).reshape(2, 3))
    np.testing.assert_array_equal(read_table(tmp_path / "b.npy").values, np.arange(6.0).reshape(2, 3))


# --- writing


@pytest.mark.parametrize("suffix", [".csv", ".tsv.gz", ".npy", ".npz"])
def test_parts_make_the_same_file_as_the_whole(tmp_path, suffix):
    text = {} if suffix == ".npy" else {"id": ["a", "b", "c", "d,e"]}
    whole, parts = tmp_path / f"whole{suffix}", tmp_path / f"parts{suffix}"
    write_table(whole, list("xyz"), VALUES, text=text)
    with write_parts(parts, list("xyz"), 4, VALUES.dtype, tuple(text)) as write:
        for i in range(4):
            write(VALUES[i : i + 1], {name: cells[i : i + 1] for name, cells in text.items()})
    if suffix == ".npz":
        for name in ("data", "columns", "text"):
            np.testing.assert_array_equal(np.load(whole)[name], np.load(parts)[name])
    elif suffix == ".npy":
        assert whole.read_bytes() == parts.read_bytes()
    else:
        contents = [
            gzip.decompress(p.read_bytes()) if suffix.endswith("gz") else p.read_bytes() for p in (whole, parts)
        ]
        assert contents[0] == contents[1]
    columns = ["x", "y", "z"] if suffix != ".npy" else None
    np.testing.assert_array_equal(read_table(parts, columns=columns).values, VALUES)


@pytest.mark.parametrize("suffix", [".csv", ".npy", ".npz"])
def test_a_file_is_there_as_a_whole_or_not_at_all(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"

    def fail(rows, error=None):
        with write_parts(path, list("xyz"), rows, VALUES.dtype) as write:
            write(VALUES, {})
            if error is not None:
                raise error

    with pytest.raises(DataError, match="Expected 5 rows to write"):
        fail(5)
    with pytest.raises(ZeroDivisionError):
        fail(4, ZeroDivisionError())
    assert not list(tmp_path.iterdir())
    with pytest.raises(DataError, match=r"it would take 21\.8 TiB or more, and .* are free"):
        write_table(path, "xyz", np.broadcast_to(np.float64(1), (10**12, 3)))


def test_nan_is_an_empty_cell(tmp_path):
    write_table(tmp_path / "a.csv", "ab", np.array([[1.0, np.nan], [np.inf, 2.0]]))
    assert (tmp_path / "a.csv").read_text() == "a,b\n1,\ninf,2\n"


# --- names


def test_a_bare_name_is_that_of_the_data_set(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert place_of("circle") is None
    (tmp_path / "circle").mkdir()
    with pytest.warns(SameNameWarning, match=r"write \./circle"):
        assert place_of("circle") is None
    assert place_of("./circle").is_dir()
