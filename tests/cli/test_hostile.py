"""Hostile and damaged input: one line that says what is wrong, an exit code, and nothing left behind."""

import json
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest

from rectangular_flows.cli import BUG, COMMANDS, Command
from rectangular_flows.storage.texts import as_json
from tests.cli.command import complaint, run


def changed(folder, path, value):
    """Change one entry of model.json, by the names that lead to it."""
    file = folder / "model.json"
    content = json.loads(file.read_text())
    inner = content
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    file.write_text(json.dumps(content))


@pytest.fixture(autouse=True)
def _few_tensors(monkeypatch):
    """So that what makes too many stops soon."""
    monkeypatch.setattr("rectangular_flows.flows.allowance.MOST_TENSORS", 500)


# --- the boundary


def test_any_other_error_is_called_a_bug_and_its_details_are_kept(monkeypatch, tmp_path):
    (tmp_path / "breaks.py").write_text(
        "def add_arguments(parser):\n    pass\n\ndef run(arguments):\n    raise KeyError('a\\x1b[31mb')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(COMMANDS, "breaks", Command("break", "breaks"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    message = complaint("breaks", code=BUG)
    found = re.fullmatch(
        r"rnf: this is a bug in rnf.* \(KeyError: .*\)\. Its details are in (\S+)\. Please report .*", message
    )
    assert found
    details = Path(found[1])
    assert "Traceback" in details.read_text()
    assert "rnf breaks" in details.read_text()
    assert details.stat().st_mode & 0o077 == 0  # nobody else may read it
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    assert "breaks.py, line 5; its details could not be written" in complaint("breaks", code=BUG)


@pytest.mark.parametrize(
    "error",
    ["MemoryError()", 'RuntimeError("DefaultCPUAllocator: can\'t allocate memory: you tried to allocate 9 bytes.")'],
)
def test_too_little_memory_is_no_bug(monkeypatch, tmp_path, error):
    (tmp_path / "grows.py").write_text(
        f"def add_arguments(parser):\n    pass\n\ndef run(arguments):\n    raise {error}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "grows", raising=False)
    monkeypatch.setitem(COMMANDS, "grows", Command("grow", "grows"))
    assert "not enough memory for that" in complaint("grows")


def test_an_arithmetic_error_that_is_not_ours_is_a_bug(monkeypatch, tmp_path):
    (tmp_path / "divides.py").write_text(
        "def add_arguments(parser):\n    pass\n\ndef run(arguments):\n    return 1 // 0\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setitem(COMMANDS, "divides", Command("divide", "divides"))
    assert "ZeroDivisionError" in complaint("divides", code=BUG)


# --- numbers


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fit", "table.csv", "--hidden", 10**30], "hidden: expected whole numbers"),
        (["fit", "table.csv", "--hidden", 10**10], "expected a model that fits this machine"),
        (["fit", "table.csv", "--hidden", "[" * 3000], "hidden: expected whole numbers"),
        (["fit", "table.csv", "--layers", 10**6, "--hidden", 1], "expected a model that fits this machine"),
        (["fit", "table.csv", "--pca-tail", 1e300], "pca_tail of at most 10"),
        (["fit", "table.csv", "--batch-size", 10**30], "batch_size: expected a whole number, below 2⁶³; got 1000"),
        (["fit", "table.csv", "--memory", "1e999"], "expected a positive memory; got inf"),
        (["fit", "table.csv", "--latent", "splin"], "got splin. Did you mean 'spline'?"),
        (["sample", "table-run", "-n", 10**30], "-n/--count: expected a whole number below 2⁶³"),
        (["sample", "table-run", "-n", 10**15], "are free"),
        (["sample", "table-run", "--seed", -1], "expected a seed from 0"),
        (["sample", "table-run", "--seed", 10**30], "expected a whole number below 2⁶³"),
    ],
)
def test_absurd_numbers(here, words, message):
    folders = sorted(here.iterdir())
    words = [*words, "--latent-dim", 1, "--out", "new"] if words[0] == "fit" else words
    assert message in complaint(*words)
    assert sorted(here.iterdir()) == folders


@pytest.mark.parametrize(("memory", "batch"), [("1e306", 500), (2048, 2**62)])
def test_large_numbers_that_make_sense_are_taken(here, memory, batch):
    words = ["--epochs", 1, "--layers", 1, "--hidden", 2, "--latent", "affine", "--no-scatter", "-q"]
    assert run("fit", "table.csv", "--latent-dim", 1, "--memory", memory, "--batch-size", batch, *words).returncode == 0


# --- files


def test_toml_that_is_nested_too_deeply(here):
    (here / "deep.toml").write_text(f"beta = {'[' * 2000}{']' * 2000}")
    assert "deep.toml is not valid TOML: it is nested too deeply" in complaint(
        "fit", "table.csv", "--config", "deep.toml"
    )
    (here / "deep.toml").write_text(f"beta{'.a' * 3000} = 1")
    assert "beta: expected a number" in complaint("fit", "table.csv", "--config", "deep.toml")


def test_an_archive_of_something_else(here):
    with zipfile.ZipFile(here / "t.npz", "w") as archive:
        archive.write("table.csv")
    assert "Expected numpy arrays in 't.npz'; it holds 'table.csv'" in complaint("score", "table-run", "t.npz")
    assert "Expected numpy arrays in 't.npz'" in complaint("fit", "t.npz", "--latent-dim", 1)


@pytest.mark.parametrize("suffix", ["csv", "txt"])
def test_a_cell_of_many_digits(here, suffix):
    (here / f"long.{suffix}").write_text(f"height,weight,age\n1,2,{'1' * 200_000}\n")
    assert f"'long.{suffix}'" in complaint("score", "table-run", f"long.{suffix}")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["dtype"], 3),
        (["dtype"], "save"),
        (["format"], "x"),
        (["format"], True),
        (["model"], 7),
        (["facts"], []),
        (["facts", "columns"], 5),
        (["facts", "columns"], [1, 2, 3]),
        (["facts", "columns"], ["height"]),
        (["facts", "sphere"], "x"),
        (["facts", "estimator"], 3),
        (["model", "class"], []),
        (["model", "class"], "Injection"),
        (["model", "arguments", "ambient"], None),
        (["model", "arguments", "ambient", "arguments", "layers"], "x"),
        (["model", "arguments", "ambient", "arguments", "hidden"], [-4]),
        (["model", "arguments", "ambient", "arguments", "hidden"], [10**6, 10**6]),
        (["model", "arguments", "ambient", "arguments", "hidden"], [2**80]),
        (["model", "arguments", "ambient", "arguments", "layers"], 10**7),
        (["model", "arguments", "pad"], {"tensor": [10**5, 10**5], "dtype": "float32"}),
    ],
)
def test_models_that_are_damaged_or_made_to_exhaust_the_machine(here, path, value):
    changed(here / "table-run", path, value)
    message = complaint("score", "table-run", "table.csv")
    assert "table-run/model.json" in message
    assert not (here / "scores.csv").exists()


def test_a_model_nested_too_deeply(here):
    deep = "[" * 200 + "]" * 200
    changed(here / "table-run", ["model", "arguments", "pad"], json.loads(deep))
    assert "nested more than 50 deep" in complaint("score", "table-run", "table.csv")
    (here / "table-run" / "model.json").write_text("[" * 100_000)
    assert "table-run/model.json is damaged: not valid JSON" in complaint("score", "table-run", "table.csv")


def test_large_descriptions_and_weights_are_refused(here, monkeypatch):
    monkeypatch.setenv("RNF_MAX_BYTES", "2K")
    assert "would take 3.55 KiB; the limit is 2 KiB" in complaint("score", "table-run", "table.csv")
    monkeypatch.setenv("RNF_MAX_BYTES", "x")
    assert "expected RNF_MAX_BYTES as a number of bytes" in complaint("score", "table-run", "table.csv")
    monkeypatch.delenv("RNF_MAX_BYTES")
    monkeypatch.setattr("rectangular_flows.storage.texts.MOST_BYTES", 100)
    assert "model.json is too large" in complaint("score", "table-run", "table.csv")


@pytest.mark.parametrize("text", ["{", "[]", "7", '{"kept": 3}'])
def test_a_damaged_verdict(here, text):
    (here / "table-run" / "verdict.json").write_text(text)
    message = complaint("show", "table-run")
    assert "table-run/verdict.json is damaged" in message
    assert "rnf show table-run --again" in message


@pytest.mark.parametrize("text", ["{", "[]", "7"])
def test_damaged_numbers_of_an_evaluation(here, text):
    (here / "table-run" / "evaluation.json").write_text(text)
    from rectangular_flows import SavedRun

    with pytest.raises(ValueError, match=r"evaluation\.json is damaged: .* rnf evaluate table-run"):
        _ = SavedRun("table-run").evaluation
    (here / "table-run" / "ood-table").mkdir()
    (here / "table-run" / "ood-table" / "ood.json").write_text(text)
    assert "ood.json is damaged" in complaint("ood", "table-run", "--against", "table.csv", "-n", 40).splitlines()[-1]


def test_numbers_that_are_not_finite_are_null():
    assert json.loads(as_json({"a": [np.inf, 1.5], "b": {"c": float("nan")}})) == {"a": [None, 1.5], "b": {"c": None}}


# --- text from elsewhere


def test_neither_markup_nor_escapes_reach_the_terminal(here):
    text = (here / "table.csv").read_text().replace("height", "$\\frac$").replace("weight", "w\x1b[31m")
    place = here / "a[/red]b"
    place.mkdir(parents=True)
    (place / "t.csv").write_text(text)
    said = run("dimension", "a[/red]b/t.csv", "-o", place / "d.png")
    assert said.returncode == 0, said.stderr
    assert "a[/red]b/t.csv: 3 columns" in said.stdout
    message = complaint("score", "table-run", "a[/red]b/t.csv")
    assert "\x1b" not in message
    assert "w\\x1b[31m" in message
    assert "x\\x1b[2J.csv" in complaint("score", "table-run", "x\x1b[2J.csv")


# --- names of data sets


def test_a_folder_does_not_hide_the_data_set_of_its_name(here):
    (here / "circle").mkdir()
    done = run("dimension", "circle", "-o", "d.png")
    assert done.returncode == 0, done.stderr
    assert "rnf: note: 'circle' is taken for the data set of that name" in done.stderr
    assert "write ./circle" in done.stderr
    assert "Expected pictures" in complaint("dimension", "./circle", "-o", "d.png")
