"""Runs to try the commands on: those that version 0.1 saved need no training."""

import shutil
from pathlib import Path

import pytest

from rectangular_flows.cli import main

FIXTURES = Path(__file__).parents[1] / "fixtures" / "before-house"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A copy of the fixtures, as the working folder: the runs name their data by relative paths."""
    shutil.copytree(FIXTURES, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    monkeypatch.setenv("COLUMNS", "150")
    return tmp_path / "copy"


@pytest.fixture
def rnf(capsys):
    """Runs a command; what it printed."""

    def run(*words, code=0):
        assert main(list(map(str, words))) == code
        said = capsys.readouterr()
        return said.err if code else said.out

    return run


@pytest.fixture
def check_layout():
    """Checks that a printed table has no frame, its first column on the left and all others on the right."""

    def check(text, *headings):
        lines = text.splitlines()
        first = next(i for i, line in enumerate(lines) if all(heading in line for heading in headings))
        edges = [lines[first].index(heading) + len(heading) for heading in headings]
        rows = [line for line in lines[first + 2 :] if line.strip()]
        last = next((i for i, line in enumerate(rows) if not line.startswith("  ")), len(rows))
        assert last > 1
        for line in rows[:last]:
            padded = line.ljust(max(edges) + 1)
            assert padded[2] != " ", line
            assert all(padded[edge] == " " for edge in edges), line
        assert any(all(line.ljust(max(edges))[edge - 1] != " " for edge in edges) for line in rows[:last])
        assert not set("│┃|") & set(text)

    return check


@pytest.fixture
def rows_of():
    """The cells of the lines of a printed table, by the first cell."""

    def parse(text):
        cells = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in text.splitlines()]
        return {line[0]: line[1:] for line in cells if len(line) > 1}

    return parse
