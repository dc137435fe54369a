"""``rnf data list``: a line for each data set; downloading is tests/data/test_download.py's."""

import re

import pytest

from rectangular_flows.cli import main
from rectangular_flows.data.datasets import DATASETS


@pytest.fixture
def listed(monkeypatch, tmp_path, capsys):
    def show(width):
        monkeypatch.setenv("RNF_DATA", str(tmp_path))
        monkeypatch.setenv("COLUMNS", str(width))
        assert main(["data", "list"]) == 0
        return capsys.readouterr().out

    return show


def test_every_data_set_with_its_shape_rows_and_description(listed, tmp_path):
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "train-images-idx3-ubyte.gz").write_bytes(b"")
    lines = {line.split()[0]: line.split() for line in listed(250).splitlines() if line.split()}
    assert lines["name"] == ["name", "kind", "shape", "rows", "at", "hand", "what"]
    for entry in DATASETS.values():
        there = ["in", "part"] if entry.name == "mnist" else ["no"] if entry.files else ["yes"]
        rows, shape = f"{sum(entry.rows):,}", "×".join(map(str, entry.shape))
        assert lines[entry.name] == [entry.name, entry.kind, shape, rows, *there, *entry.description.split()]


def test_a_narrow_terminal_breaks_descriptions_only(listed, tmp_path):
    said = listed(79)
    assert all(re.search(rf"^ *{re.escape(name)} ", said, re.M) for name in DATASETS)
    assert "…" not in said
    numbers = [re.search(r"\s([\d,]+)\s+(?:yes|no)\s", line) for line in said.splitlines()]
    assert len({found.end(1) for found in numbers if found}) == 1  # of a column, to the right
    assert str(tmp_path)[:20] in said


def test_it_wants_to_know_what(capsys):
    assert main(["data"]) == 2
    assert "WHAT" in capsys.readouterr().err
