"""Folders as a person meets them: of others, in use, damaged."""

import json
import os
import shutil
from pathlib import Path

import pytest

from rectangular_flows.storage.lock import LOCK
from rectangular_flows.storage.processes import host, started
from tests.cli.command import complaint, helix, run

SAVED = Path(__file__).parents[1] / "fixtures" / "manifest-1"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    shutil.copytree(SAVED, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    return tmp_path / "copy"


@pytest.mark.parametrize("option", ["--out", "--resume"])
def test_an_empty_name_is_refused(tmp_path, option):
    data = [] if option == "--resume" else [helix(tmp_path / "helix.csv")]
    assert f"expected a folder after {option}" in complaint("fit", *data, option, "", cwd=tmp_path)
    assert not (tmp_path / "runs").exists()


def test_a_folder_of_others_is_refused(folder):
    (folder / "site").mkdir()
    (folder / "site" / "config.toml").write_text("title = 'mine'\n")
    options = ("--latent-dim", 1, "--epochs", 1, "--layers", 1, "--out", "site")
    for more in ((), ("--overwrite",)):
        assert "site is not empty, and holds no run" in complaint("fit", "table.csv", *options, *more)
    assert "nothing was written" in complaint("fit", "table.csv", *options)
    assert "no model in site" in complaint("fit", "--resume", "site")
    assert [path.name for path in (folder / "site").iterdir()] == ["config.toml"]


def test_a_run_in_use_is_refused_and_may_be_read(folder):
    parent = os.getppid()
    owner = {"pid": parent, "host": host(), "started": started(parent), "since": "now", "token": "x"}
    (folder / "stopped-run" / LOCK).write_text(json.dumps(owner))
    before = {path: path.read_bytes() for path in (folder / "stopped-run").rglob("*") if path.is_file()}
    assert f"stopped-run is in use: process {parent}" in complaint("fit", "--resume", "stopped-run")
    again = ("table.csv", "--latent-dim", 1, "--epochs", 1, "--layers", 1, "--out", "stopped-run", "--overwrite")
    assert f"stopped-run is in use: process {parent}" in complaint("fit", *again)
    assert run("score", "stopped-run", "table.csv", "-o", "new.csv").returncode == 0
    assert {path: path.read_bytes() for path in (folder / "stopped-run").rglob("*") if path.is_file()} == before


def test_a_renamed_header_is_refused(folder):
    text = (folder / "table.csv").read_text()
    (folder / "table.csv").write_text(text.replace("weight", "mass", 1))
    assert "'weight'" in complaint("fit", "--resume", "stopped-run")
    lines = [line.split(",") for line in text.split()]
    (folder / "table.csv").write_text("\n".join(",".join(reversed(line)) for line in lines) + "\n")
    assert run("fit", "--resume", "stopped-run", "--quiet").returncode == 0


@pytest.mark.parametrize("name", ["model.safetensors", "model.json", "calibration.safetensors"])
def test_a_damaged_run_is_refused_and_resuming_repairs_it(folder, name):
    whole = (folder / "run" / name).read_bytes()
    content = bytearray(whole)
    content[-40] ^= 1
    (folder / "run" / name).write_bytes(content)
    assert f"{name} is damaged" in complaint("score", "run", "table.csv", "-o", "new.csv")
    assert not (folder / "new.csv").exists()
    assert run("fit", "--resume", "run", "--quiet").returncode == 0
    assert run("score", "run", "table.csv", "-o", "new.csv").returncode == 0
