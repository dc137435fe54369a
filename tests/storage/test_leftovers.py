"""Temporary files that a crash left: ours, and only those whose process has ended. What was made from a model."""

import os
import subprocess
import sys

import pytest

from rectangular_flows.storage.derived import NOTED, derived_files
from rectangular_flows.storage.files import remove_leftovers, replacing, temporary_beside, write_atomically
from rectangular_flows.storage.manifest import commit
from rectangular_flows.storage.processes import host_digits

DEAD = 2**22 + 1


@pytest.fixture
def here(tmp_path):
    """What a killed process left, and what else may be there."""
    names = {
        f".a.csv.{DEAD}-{host_digits()}-0123abcd.rnf-tmp": "left",
        f".b.csv.{DEAD}-{host_digits()}-0123abcd.rnf-tmp": "left",
        ".a.csv.0123abcd.rnf-tmp": "left",  # by version 0.1
        f".a.csv.{os.getppid()}-{host_digits()}-0123abcd.rnf-tmp": "stays",  # that process runs
        f".a.csv.{DEAD}-00000000-0123abcd.rnf-tmp": "stays",  # of another machine
        "a.csv": "stays",
        ".a.csv.swp": "stays",
        "notes.rnf-tmp": "stays",
    }
    for name, text in names.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def texts(folder):
    return sorted(path.read_text() for path in folder.iterdir())


def test_leftovers_are_removed_and_nothing_else(here):
    with replacing(here / "c.csv") as mine:
        mine.write_text("stays")
        remove_leftovers(here)
        assert mine.exists()
    assert texts(here) == ["stays"] * 6


def test_writing_a_file_removes_what_is_left_of_it(here):
    write_atomically(here / "a.csv", "stays")
    assert texts(here) == ["left", *["stays"] * 5]  # that of b.csv


@pytest.mark.slow
def test_a_killed_command_leaves_nothing_once_it_is_repeated(tmp_path):
    code = f"""
import os
from pathlib import Path
from rectangular_flows.storage.files import replacing
with replacing(Path({str(tmp_path / "samples.csv")!r})) as temporary:
    temporary.write_text("half")
    os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", code], check=False)
    assert len(list(tmp_path.iterdir())) == 1
    write_atomically(tmp_path / "samples.csv", "whole")
    assert [path.name for path in tmp_path.iterdir()] == ["samples.csv"]


def test_long_names_are_possible(tmp_path):
    path = tmp_path / ("a" * 240 + ".csv")
    assert len(temporary_beside(path).name) < 255
    write_atomically(path, "whole")
    assert path.read_text() == "whole"


def test_only_what_we_wrote_counts_as_made_from_a_model(tmp_path):
    commit(tmp_path, {"config.toml": b""})
    ours = ("report.html", "figures/pairs.png", "ood-mnist/ood.json", "evaluation.json")
    strangers = ("figures/mine.png", "ood-mnist/notes.txt", "tabular.json", "scores.csv")
    for name in (*ours, *strangers):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        if name in ours:
            write_atomically(tmp_path / name, "ours")
            write_atomically(tmp_path / name, "ours again")
        else:
            (tmp_path / name).write_text("mine")
    write_atomically(tmp_path / "scores.csv", "ours, but not made to be removed")
    assert sorted(derived_files(tmp_path)) == sorted((*ours, NOTED))


def test_of_old_runs_the_names_count(tmp_path):
    for name in ("report.html", "figures/pairs.png", "figures/mine.png", "ood-a/ood.png", "ood-a/mine.txt", "mine.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    assert sorted(derived_files(tmp_path)) == ["figures/pairs.png", "ood-a/ood.png", "report.html"]
