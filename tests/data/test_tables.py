import csv
import gzip
import os
import sys
from decimal import Decimal

import numpy as np
import pytest

from rectangular_flows.data import _npy
from rectangular_flows.data.tables import (
    ByPositionWarning,
    DataError,
    Table,
    check_table,
    match_columns,
    read_table,
    read_text_columns,
    split_rows,
    write_table,
)
from rectangular_flows.storage import files


@pytest.fixture
def put(tmp_path):
    def put(content, name="t.csv"):
        path = tmp_path / name
        if isinstance(content, str):
            content = content.encode()
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return path

    return put


WANTED = np.array([[1.0, 2.5], [-3e-7, 4.0]])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", "a,b\n1,2.5\n-3e-7,4\n"),
        ("t.csv", "\ufeffa,b\r\n1,2.5\r\n-3e-7,4"),  # BOM, Windows, no last line end
        ("t.csv", '# by hand\n\n"a" , "b"\n1,2.5\n\n# so far\n"-3e-7","4"\n'),
        ("t.csv", "a;b\n1;2.5\n-3e-7;4\n"),
        ("t.csv", "a,b,\n1,2.5,\n-3e-7,4,\n"),  # trailing delimiter everywhere
        ("t.csv", "a,b\n1,2.5,\n-3e-7,4,\n"),  # only in the rows
        ("t.csv", " a, b\n 1, 2.5\n -3e-7 , 4\n"),
        ("t.tsv", "a\tb\n1\t2.5\n-3e-7\t4\n"),
        ("t.txt", "a b\n1   2.5\n -3e-7 4 \n"),
        ("t.dat", "a\tb\n1\t2.5\n-3e-7\t4\n"),
        ("t.TXT", "a,b\n1,2.5\n-3e-7,4\n"),
        ("t.csv.gz", "a,b\n1,2.5\n-3e-7,4\n"),
        ("t.tsv.gz", "a\tb\n1\t2.5\n-3e-7\t4\n"),
    ],
)
def test_text_formats_read_alike(put, name, content):
    table = read_table(put(content, name))
    np.testing.assert_array_equal(table.values, WANTED)
    assert table.columns == ("a", "b")
    assert table.named
    assert table.source.endswith(name)


def test_no_header(put):
    table = read_table(put("1,2\n3,4\n"))
    assert table.columns == ("x1", "x2")
    assert not table.named
    np.testing.assert_array_equal(read_table(put("1,2,\n3,4,\n")).values, table.values)


def test_nan_in_the_first_row_is_no_header(put):
    table = read_table(put("nan,inf\n1,2\n"), drop_invalid=True)
    np.testing.assert_array_equal(table.values, [[1, 2]])
    assert not table.named
    assert table.dropped == 1


def test_missing_cells(put):
    path = put("# c\na,b,c\n1,2,3\n\n4,,6\n7,8,-inf\n1,NA,2\n5,6,7\n")
    with pytest.raises(DataError) as error:
        read_table(path)
    assert "3 of 5 rows" in str(error.value)
    assert "line 5, column 'b' is missing" in str(error.value)
    assert "line 6, column 'c' is infinite" in str(error.value)
    assert "--drop-invalid" in str(error.value)
    table = read_table(path, drop_invalid=True)
    np.testing.assert_array_equal(table.values, [[1, 2, 3], [5, 6, 7]])
    assert table.dropped == 3
    assert read_table(path, exclude=["b", "c"]).dropped == 0
    with pytest.raises(DataError, match="all 1 of"):
        read_table(put("a,b\n1,\n"), drop_invalid=True)


def test_lines_named_by_the_fast_parser_skip_comments_too(put):
    with pytest.raises(DataError, match=r"1 of 2 rows .*line 5, column 'x2' is missing or NaN"):
        read_table(put("# c\n1,2\n\n# d\n3,nan\n"))


@pytest.mark.parametrize("options", [{}, {"columns": ["a"]}])
def test_ragged_rows_are_named(put, options):
    with pytest.raises(DataError, match="line 4: expected 2 cells, as in line 2; got 3"):
        read_table(put("# x\na,b\n1,2\n3,4,5\n"), **options)
    with pytest.raises(DataError, match="line 3: expected 2 cells, as in line 1; got 1"):
        read_table(put("a,b\n1,2\n3\n"), **options)
    with pytest.raises(DataError, match="line 2: expected 3 cells, as in line 1; got 2"):
        read_table(put("a b c\n1 2\n3 4\n", "t.txt"), **options)


def test_text_is_named_and_can_be_excluded(put):
    path = put('who,"a, b",when\nAnn,1,2020-01-02\n"Bob, jr",2,2021-01-01\n')
    with pytest.raises(DataError) as error:
        read_table(path)
    assert "column 'who' has text in 2 of 2 rows (first: 'Ann' in line 2)" in str(error.value)
    assert "--exclude 'who,when'" in str(error.value)
    table = read_table(path, exclude=["who", "3"])
    assert table.columns == ("a, b",)
    np.testing.assert_array_equal(table.values, [[1], [2]])


def test_one_bad_cell_far_down(put):
    lines = [f"{i},{i / 7}" for i in range(50_000)]
    lines[43_210] = "12,1_000"
    with pytest.raises(DataError, match=r"'x2' has text in 1 of 50000 rows \(first: '1_000' in line 43211\)"):
        read_table(put("\n".join(lines)))


def test_decimal_commas_are_explained(put):
    with pytest.raises(DataError, match="decimal points"):
        read_table(put("a;b\n1,5;2\n2,5;3\n"))


def test_columns_by_name_and_position(put):
    path = put("width,height,3\n1,2,30\n4,5,60\n")
    assert read_table(path, columns=["height", "1"]).columns == ("height", "width")
    np.testing.assert_array_equal(read_table(path, columns=["height", "1"]).values, [[2, 1], [5, 4]])
    assert read_table(path, columns=["3"]).columns == ("3",)  # a name comes before a position
    assert read_table(path, exclude=["2"]).columns == ("width", "3")
    with pytest.raises(DataError, match=r"no column 'Heigth'.*Did you mean 'height'"):
        read_table(path, columns=["Heigth"])
    with pytest.raises(DataError, match="no column '4'"):
        read_table(path, exclude=["4"])
    with pytest.raises(DataError, match="each column once"):
        read_table(path, columns=["1", "width"])
    with pytest.raises(DataError, match="at least one column"):
        read_table(path, exclude=["1", "2", "3"])


def test_files_that_are_not_there(tmp_path, put):
    put("1,2\n", "measurements.csv")
    with pytest.raises(FileNotFoundError, match=r"There is no file .*Did you mean 'measurements.csv'\?"):
        read_table(tmp_path / "mesurements.csv")
    with pytest.raises(DataError, match=r"folder .* does not exist"):
        read_table(tmp_path / "no" / "a.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DataError, match="got the folder"):
        read_table(tmp_path / "folder.csv")
    with pytest.raises(DataError, match=r"ends in \.csv.*got '\.xlsx'"):
        read_table(put("1,2\n", "measurements.xlsx"))
    with pytest.raises(DataError, match="no suffix"):
        read_table(put("1,2\n", "a"))
    with pytest.raises(FileNotFoundError, match="There is no file"):
        read_table(tmp_path / "b")


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root may read everything")
def test_unreadable(put):
    path = put("1,2\n")
    path.chmod(0)
    with pytest.raises(DataError, match="permissions"):
        read_table(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "empty file"),
        ("# only\n\n", "only blank lines"),
        ("a,b\n", "no rows"),
        ("a,b,a\n1,2,3\n", "repeats 'a'"),
        (b"\xff\xfea\x00,\x00b\x00", "not UTF-8"),
        (b"a,b\n1,\x002\n", "zero bytes"),
        (b"a,b\n" + b"1,2\n" * 5000 + b"\xe9,1\n", "not UTF-8"),
    ],
)
def test_what_is_no_table(put, content, message):
    with pytest.raises(DataError, match=message):
        read_table(put(content))


def test_broken_gzip(put):
    path = put("a,b\n" + "1,2\n" * 9999, "t.csv.gz")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match="gzip"):
        read_table(path)
    path.write_bytes(b"a,b\n1,2\n")
    with pytest.raises(DataError, match="gzip"):
        read_table(path)


def test_npy(tmp_path, monkeypatch):
    path = tmp_path / "t.npy"
    for kind, wanted in [("f8", "f8"), ("f4", "f4"), (">f8", "f8"), ("f2", "f4"), ("i8", "f8"), ("?", "f8")]:
        np.save(path, np.array([[0, 1], [1, 1]], dtype=kind))
        table = read_table(path)
        assert table.values.dtype == np.dtype(wanted)
        assert not table.named
        np.testing.assert_array_equal(table.values, [[0, 1], [1, 1]])
    monkeypatch.setattr(_npy, "MMAP_BYTES", 10)
    np.save(path, WANTED)
    assert isinstance(read_table(path).values, np.memmap)
    np.testing.assert_array_equal(read_table(path, columns=["x2"]).values, WANTED[:, 1:])
    np.save(path, np.array([[1, np.nan], [1, 2]]))
    with pytest.raises(DataError, match="row 1, column 'x2'"):
        read_table(path)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.ones(3), "2-D"),
        (np.ones((2, 2, 2)), "2-D"),
        (np.ones((2, 2), dtype=complex), "type complex"),
        (np.array([["a"]]), "type <U1"),
        (np.array([[object()]], dtype=object), "never read"),  # a pickle, which is never opened
        (np.ones((0, 2)), "no rows"),
    ],
)
def test_npy_of_something_else(tmp_path, array, message):
    np.save(tmp_path / "t.npy", array, allow_pickle=True)
    with pytest.raises(DataError, match=message):
        read_table(tmp_path / "t.npy")


def test_npz(tmp_path):
    path = tmp_path / "t.npz"
    np.savez(path, labels=np.ones(2), features=WANTED)
    np.testing.assert_array_equal(read_table(path).values, WANTED)
    np.savez(path, other=np.ones((2, 2)), X=WANTED)
    np.testing.assert_array_equal(read_table(path).values, WANTED)
    np.savez(path, data=WANTED, columns=np.array(["b", "a"]))
    assert read_table(path, columns=["a"]).values.tolist() == [[2.5], [4.0]]
    np.savez(path, data=WANTED, columns=np.array(["a", "a"]))
    with pytest.raises(DataError, match=r"Expected different column names; 'columns' of '.*t\.npz' repeats 'a'"):
        read_table(path)
    np.savez(path, one=np.ones((2, 2)), two=WANTED)
    with pytest.raises(DataError, match=r"'one \(2, 2\)', 'two \(2, 2\)'"):
        read_table(path)
    path.write_bytes(b"PK\x03\x04 no")
    with pytest.raises(DataError, match="cannot read"):
        read_table(path)


@pytest.mark.parametrize("kind", ["f8", "f4"])
@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.csv.gz", "t.npy", "t.npz", "t.parquet"])
def test_written_tables_read_back_exactly(tmp_path, name, kind):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    values = (np.random.default_rng(0).standard_normal((50, 3)) * 10.0 ** np.arange(-20, 25, 20)).astype(kind)
    write_table(tmp_path / name, ["a, b", 'c"', "d"], values)
    table = read_table(tmp_path / name)
    np.testing.assert_array_equal(table.values.astype(kind), values)
    assert table.columns == (("x1", "x2", "x3") if name.endswith("npy") else ("a, b", 'c"', "d"))
    assert os.listdir(tmp_path) == [name]


def test_writing_fails_whole(tmp_path, monkeypatch):
    path = tmp_path / "t.csv"
    path.write_text("before")
    with pytest.raises(DataError, match=r"\(N, 1\)"):
        write_table(path, ["a"], WANTED)
    monkeypatch.setattr(files, "CHUNK_BYTES", 1)
    with pytest.raises(TypeError):
        write_table(path, ["a"], np.array([[1.0], [None]], dtype=object).view(_Breaks))
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == ["t.csv"]
    with pytest.raises(DataError, match="Cannot write"):
        write_table(tmp_path / "no" / "t.csv", ["a"], np.ones((2, 1)))


class _Breaks(np.ndarray):
    def __getitem__(self, index):
        raise TypeError("disk full")


def test_parquet_without_pyarrow(put, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match=r"pip install 'rectangular-flows\[parquet\]'"):
        read_table(put("PAR1", "t.parquet"))


def test_parquet(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "t.parquet"
    parquet.write_table(arrow.table({"a": [1, 2, 3], "b": [0.5, None, 2.0], "who": ["x", "y", "z"]}), path)
    with pytest.raises(DataError, match=r"who \(string\).*--exclude 'who'"):
        read_table(path)
    table = read_table(path, exclude=["who"], drop_invalid=True)
    np.testing.assert_array_equal(table.values, [[1, 0.5], [3, 2]])
    path.write_bytes(b"PAR1 no")
    with pytest.raises(DataError, match="cannot read"):
        read_table(path)


def test_parquet_types(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path, large = tmp_path / "t.parquet", 2**60 + 1
    columns = {
        "flag": arrow.array([True, None, False]),
        "price": arrow.array([Decimal("1.25"), Decimal("-3"), Decimal("0")]),
        "half": arrow.array(np.array([0.5, 1, 2], dtype=np.float16)),
        "large": arrow.array([large, -large, None]),
        "coded": arrow.array([7.5, 8.5, 7.5]).dictionary_encode(),
    }
    parquet.write_table(arrow.table(columns), path)
    table = read_table(path, exclude=["flag", "large"])
    np.testing.assert_array_equal(table.values, [[1.25, 0.5, 7.5], [-3, 1, 8.5], [0, 2, 7.5]])
    table = read_table(path, columns=["large", "flag"], drop_invalid=True)
    np.testing.assert_array_equal(table.values, [[float(large), 1]])  # rounded, as in the other formats
    assert table.kept.tolist() == [1]
    assert read_text_columns(path, ["large"]) == {"large": [str(large), str(-large), ""]}
    parquet.write_table(arrow.table({"x": np.arange(3, dtype=np.float32), "y": np.ones(3, dtype=np.float32)}), path)
    assert read_table(path).values.dtype == np.float32
    parquet.write_table(arrow.table({"when": arrow.array([0, 1], arrow.timestamp("s")), "y": [1.0, 2.0]}), path)
    with pytest.raises(DataError, match=r"when \(timestamp.*--exclude 'when'"):
        read_table(path)
    parquet.write_table(arrow.table({"x": arrow.array([], arrow.float64())}), path)
    with pytest.raises(DataError, match="no rows"):
        read_table(path)


def test_hashes_in_cells_are_no_comments(put):
    path = put("id,a,b\n#1,1,2\ns2,3,4\n# a remark\n#3,5,6\n")
    np.testing.assert_array_equal(read_table(path, exclude=["id"]).values, [[1, 2], [3, 4], [5, 6]])
    path = put("id,a,b\nsample #1,1,2\nsample #2,3,4\n")
    np.testing.assert_array_equal(read_table(path, exclude=["id"]).values, [[1, 2], [3, 4]])
    assert read_table(put("n,#events\n1,2\n3,4\n")).columns == ("n", "#events")
    with pytest.raises(DataError, match=r"column 'a' has text in 1 of 2 rows \(first: '#3' in line 3\)"):
        read_table(put("a,b\n1,2\n#3,4\n"))  # a row that is commented out, or is it?
    path = put("1 2 # good\n# no\n3 4\n# 5\n", "t.txt")
    np.testing.assert_array_equal(read_table(path).values, [[1, 2], [3, 4]])
    np.testing.assert_array_equal(read_table(path, columns=["2"]).values, [[2], [4]])


def test_a_line_of_tabs_is_a_row_inside_the_table_only(put):
    path = put("\t\na\tb\n1\t2\n\t\n3\t4\n", "t.tsv")
    with pytest.raises(DataError, match=r"1 of 3 rows .*line 4, column 'a' is missing"):
        read_table(path)
    np.testing.assert_array_equal(read_table(path, drop_invalid=True).values, [[1, 2], [3, 4]])


def test_names_with_commas_can_be_left_out(put):
    with pytest.raises(DataError, match=r"""--exclude '\["who, when"\]'"""):
        read_table(put('"who, when",b\nme,2\nyou,3\n'))


def test_match_columns():
    table = Table(np.array([[1.0, 2.0, 3.0]]), ("b", "extra", "a"), "new.csv")
    np.testing.assert_array_equal(match_columns(table, ("a", "b")).values, [[3, 1]])
    assert match_columns(table, ("a", "b")).columns == ("a", "b")
    with pytest.raises(DataError, match=r"lacks 'extras'.*other columns: 'extra'.*Did you mean 'extra'"):
        match_columns(table, ("b", "extras", "a"))
    # names that we made up ourselves carry no order
    with pytest.warns(ByPositionWarning, match="the model's data had no names"):
        assert match_columns(table, ("x1", "x2", "x3")).columns == ("x1", "x2", "x3")
    bare = Table(np.array([[1.0, 2.0]]), ("x1", "x2"), "new.csv", named=False)
    with pytest.warns(ByPositionWarning, match=r"'new\.csv' are taken by position, since it has no header"):
        assert match_columns(bare, ("a", "b")).columns == ("a", "b")
    np.testing.assert_array_equal(match_columns(bare, ("x2",)).values, [[2]])
    with pytest.raises(DataError, match=r"Expected 3 columns .* has 2 and no header"):
        match_columns(bare, ("a", "b", "c"))


def test_split_rows():
    parts = split_rows(1003, validation=0.2, test=0.1, seed=4)
    assert [len(part) for part in parts] == [703, 200, 100]
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(1003))
    again = split_rows(1003, validation=0.2, test=0.1, seed=4)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))
    assert not np.array_equal(parts[0], split_rows(1003, validation=0.2, test=0.1, seed=5)[0])
    assert not np.array_equal(parts[0], np.sort(parts[0]))
    assert [len(part) for part in split_rows(5)] == [3, 1, 1]
    assert [len(part) for part in split_rows(5, validation=0, test=0)] == [5, 0, 0]
    with pytest.raises(DataError, match="leave 0"):
        split_rows(2)
    with pytest.raises(DataError, match="fraction"):
        split_rows(10, test=1.5)


def test_check_table(monkeypatch):
    values = np.random.default_rng(0).standard_normal((40, 4))
    names = ("a", "b", "c", "d")

    def check(values, latent_dim=2):
        check_table(Table(values, names[: values.shape[1]], "t.csv"), latent_dim)

    for chunk in (files.CHUNK_BYTES, 100):
        monkeypatch.setattr(files, "CHUNK_BYTES", chunk)
        check(values)
        check(values.astype(np.float32), None)
        with pytest.raises(DataError, match=r"'t.csv' 'c', 'd' hold one value\. Leave.*--exclude 'c,d'"):
            check(values * [1, 1, 0, 0] + 3)
        with pytest.raises(DataError, match=r"'d' equals 'b' in every row.*--exclude 'd'"):
            check(np.where(np.abs(values[:, [0, 1, 2, 1]]) < 0.5, 0.0, values[:, [0, 1, 2, 1]]) * [1, 1, 1, 1])
        almost = values[:, [0, 1, 2, 1]]
        almost[-1, 3] += 1e-12
        check(almost)
        signed = values[:, [0, 1, 2, 1]]
        signed[3, 1], signed[3, 3] = 0.0, -0.0
        with pytest.raises(DataError, match="'d' equals 'b'"):
            check(signed)
    for latent_dim in (0, -1, 4, 7):
        with pytest.raises(DataError, match=f"from 1 to 3 .* got {latent_dim}"):
            check(values, latent_dim)
    with pytest.raises(DataError, match=r"at least 20 rows for 4 columns; 't.csv' has 19"):
        check(values[:19])
    with pytest.raises(DataError, match="at least 2 columns"):
        check(values[:, :1], 1)


@pytest.mark.parametrize("suffix", ["csv", "tsv", "csv.gz", "npz", "parquet"])
def test_a_column_of_text(tmp_path, suffix):
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    path, names = tmp_path / f"scores.{suffix}", ['a, "b".png', "é/c.png"]
    write_table(path, ["x", "y"], np.array([[1.5, 2.0], [3.0, 4.25]]), text={"file": names})
    if suffix == "npz":
        with np.load(path) as file:
            assert file["text"].tolist() == names
            assert file["data"].tolist() == [[1.5, 2.0], [3.0, 4.25]]
    elif suffix == "parquet":
        table = pytest.importorskip("pyarrow.parquet").read_table(path)
        assert table.to_pydict() == {"file": names, "x": [1.5, 3.0], "y": [2.0, 4.25]}
    else:
        opener = gzip.open if suffix.endswith("gz") else open
        with opener(path, "rt", encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file, delimiter="\t" if suffix == "tsv" else ","))
        assert rows == [["file", "x", "y"], [names[0], "1.5", "2"], [names[1], "3", "4.25"]]
    with pytest.raises(DataError, match="Expected a text for each of 2 rows; got 1"):
        write_table(path, ["x"], np.zeros((2, 1)), text={"file": ["a"]})


@pytest.mark.parametrize("suffix", [".csv", ".tsv.gz", ".npz", ".npy", ".parquet"])
def test_columns_as_they_stand(tmp_path, suffix):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"a{suffix}"
    text = {"who": ["Ann, B.", "#7"], "where": ["", "x"]}
    write_table(path, ["x", "y"], np.array([[1.5, 2.0], [3.0, 4.25]]), text=text)
    if suffix in (".npz", ".npy"):  # which hold numbers alone
        assert read_text_columns(path, ["2"]).popitem()[1] == ["2", "4.25"]
        return
    assert read_text_columns(path, ["where", "who", "x"]) == {"where": ["", "x"], "who": ["Ann, B.", "#7"]} | {
        "x": ["1.5", "3" if suffix != ".parquet" else "3.0"]
    }
    with pytest.raises(DataError, match="has no column 'whom'"):
        read_text_columns(path, ["whom"])
