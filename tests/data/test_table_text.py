"""Tables with a column of text."""

import csv
import gzip

import numpy as np
import pytest

from rectangular_flows.data.tables import DataError, write_table


@pytest.mark.parametrize("suffix", ["csv", "tsv", "csv.gz", "npz", "parquet"])
def test_a_column_of_text(tmp_path, suffix):
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    path, names = tmp_path / f"scores.{suffix}", ['a, "b".png', "é/c.png"]
    write_table(path, ["x", "y"], np.array([[1.5, 2.0], [3.0, 4.25]]), text=("file", names))
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
        write_table(path, ["x"], np.zeros((2, 1)), text=("file", ["a"]))
