"""A run folder opened once, its columns matched by name."""

import csv
import json
import shutil
import warnings

import numpy as np
import pytest
import torch

import rectangular_flows as rnf
from rectangular_flows.cli import main
from rectangular_flows.data.tables import ByPositionWarning, DataError
from rectangular_flows.runs import prepared, saved
from rectangular_flows.runs.saved import ChangedDataWarning

COLUMNS = ("east", "north", "up")


def write(path, values, columns):
    with path.open("w") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(values.tolist())
    return path


def helix(rows=200, seed=0):
    random = np.random.default_rng(seed)
    angle = random.normal(size=rows)
    return np.stack([np.cos(angle), np.sin(angle), 0.2 * angle], 1) + 0.02 * random.normal(size=(rows, 3))


def reordered(path, values):
    """The same numbers with the columns in another order, and one more."""
    more = np.arange(len(values)) * 1.0
    write(path, np.stack([values[:, 2], more, values[:, 0], values[:, 1]], 1), ("up", "more", "east", "north"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    write(folder / "helix.csv", helix(), COLUMNS)
    write(folder / "other.csv", helix(60, seed=1) + 0.3, COLUMNS)
    options = ["--latent-dim", "1", "--epochs", "3", "--layers", "2", "--batch-size", "50", "--quiet"]
    assert main(["fit", str(folder / "helix.csv"), *options, "--out", str(folder / "run")]) == 0
    return folder


@pytest.fixture
def moved(trained, tmp_path):
    """A copy of that run whose own file may be changed."""
    for name in ("run", "helix.csv", "other.csv"):
        source = trained / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, tmp_path / name)
    config = tmp_path / "run" / "config.toml"
    config.write_text(config.read_text().replace(str(trained / "helix.csv"), str(tmp_path / "helix.csv")))
    return tmp_path


def test_every_part_is_there(trained):
    run = rnf.SavedRun(trained / "run")
    assert run.columns == COLUMNS
    assert run.sphere is None
    assert run.settings.training.epochs == 3
    assert run.record["train_rows"] == len(run.data.train) == 160
    assert [len(run.data.validation), len(run.data.test)] == [20, 20]
    assert [line.epoch for line in run.history] == [1, 2, 3]
    assert run.evaluation is None
    assert run.flow is run.flow
    assert run.data is run.data
    with pytest.raises(FileNotFoundError, match="no model in nowhere"):
        rnf.SavedRun("nowhere")


def test_rows_are_matched_by_name(trained, tmp_path):
    run, values = rnf.SavedRun(trained / "run"), helix(30, seed=5)
    reordered(tmp_path / "new.csv", values)
    torch.testing.assert_close(run.rows(tmp_path / "new.csv"), torch.tensor(values, dtype=torch.float32))
    write(tmp_path / "less.csv", values[:, :2], COLUMNS[:2])
    with pytest.raises(DataError, match="lacks 'up'"):
        run.rows(tmp_path / "less.csv")
    with pytest.raises(ValueError, match=r"expected 3 columns, .* circle has 2"):
        run.rows("circle")


def test_a_reordered_file_of_its_own_gives_the_same_rows(moved):
    before = rnf.SavedRun(moved / "run").data
    reordered(moved / "helix.csv", helix())
    after = rnf.SavedRun(moved / "run").data  # and no warning: the values are the same
    for part in ("train", "validation", "test"):
        np.testing.assert_array_equal(getattr(after, part), getattr(before, part))
    values = helix()
    values[0, 0] += 1
    reordered(moved / "helix.csv", values)
    with pytest.warns(ChangedDataWarning, match=r"helix\.csv' has changed since"):
        assert rnf.SavedRun(moved / "run").data


def numbers(folder):
    """Of everything that the commands leave."""
    found = json.loads((folder / "run" / "evaluation.json").read_text())
    for name in ("evaluation.json", "ood-other/ood.json"):
        found[name] = json.loads((folder / "run" / name).read_text())
    found["scores"] = (folder / "scores.csv").read_text()
    for name in ("pairs.png", "manifold.png"):
        found[name] = (folder / "run" / "figures" / name).read_bytes()
    return found


def commands(folder):
    run = str(folder / "run")
    return [
        ["score", run, str(folder / "helix.csv"), "-o", str(folder / "scores.csv")],
        ["evaluate", run, "-n", "100"],
        ["ood", run, "--against", str(folder / "other.csv")],
        ["plot", run],
        ["report", run],
    ]


def test_every_command_matches_columns_by_name(moved, capsys):
    for command in commands(moved):
        assert main(command) == 0
    before = numbers(moved)
    reordered(moved / "helix.csv", helix())
    for command in commands(moved):
        assert main(command) == 0, capsys.readouterr().err
    assert numbers(moved) == before
    assert "has changed" not in capsys.readouterr().err


def test_a_reordered_file_can_be_resumed(moved):
    reordered(moved / "helix.csv", helix())
    before = (moved / "run" / "model.safetensors").read_bytes()
    assert main(["fit", "--resume", str(moved / "run"), "--quiet"]) == 0
    assert (moved / "run" / "model.safetensors").read_bytes() == before


def test_a_file_that_lost_its_header_is_taken_by_position(moved):
    lines = (moved / "helix.csv").read_text().splitlines(keepends=True)
    (moved / "helix.csv").write_text("".join(lines[1:]))
    with pytest.warns(ByPositionWarning, match="it has no header"):
        data = rnf.SavedRun(moved / "run").data
    assert data.columns == COLUMNS


@pytest.mark.parametrize("command", ["report", "evaluate", "plot"])
def test_everything_is_opened_once(trained, monkeypatch, command):
    opened = []

    def counted(module, name):
        function = getattr(module, name)

        def call(*arguments, **options):
            opened.append(name)
            return function(*arguments, **options)

        monkeypatch.setattr(module, name, call)

    for module, name in (
        (prepared, "read_table"),
        (saved, "build_model"),
        (saved, "read_config"),
        (saved, "read_history"),
    ):
        counted(module, name)
    assert main([command, str(trained / "run")]) == 0
    once = ["build_model", "read_config", *(["read_history"] if command == "report" else []), "read_table"]
    assert sorted(opened) == once


def test_a_saved_estimator_is_a_run_too(tmp_path):
    X = helix()
    estimator = rnf.RectangularFlowEstimator(latent_dim=1, epochs=1, layers=2, random_state=0).fit(X)
    estimator.feature_names_in_ = np.array(["b", "a", "c"], dtype=object)  # as a frame would have set them
    estimator.save(tmp_path / "model")
    run = rnf.SavedRun(tmp_path / "model")
    assert run.columns == ("b", "a", "c")
    write(tmp_path / "x.csv", X[:, [1, 0, 2]], ("a", "b", "c"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(run.rows(tmp_path / "x.csv"), torch.tensor(X, dtype=torch.float32))
    with pytest.raises(FileNotFoundError, match="no run in"):
        _ = run.settings
