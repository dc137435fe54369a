"""From settings to a run: what is recorded, and what the settings leave to the data."""

import io
import json
import sys
from types import ModuleType

import numpy as np
import pytest
import torch
from rich.console import Console

from rectangular_flows import SavedRun
from rectangular_flows.data.periodic import PeriodicColumn
from rectangular_flows.runs import charts, dimension
from rectangular_flows.runs import launch as launch_module
from rectangular_flows.runs.launch import run_settings
from rectangular_flows.runs.prepared import Prepared
from rectangular_flows.settings import FitSettings, read_preset
from tests.cli.command import helix, run

SMALL = {"latent_dim": 1, "epochs": 2, "layers": 1, "hidden": [4], "batch_size": 60, "latent": "affine"}


def settings(path, **changes):
    return FitSettings.from_flat({"data": str(path), **SMALL, **changes}, read_preset("table"))


def launch(path, out, tensorboard=False, **changes):
    return run_settings(
        settings(path, **changes), out, console=Console(quiet=True), quiet=True, tensorboard=tensorboard
    )


def test_columns_and_whole_paths_are_recorded(tmp_path, monkeypatch):
    helix(tmp_path / "helix.csv", rows=60)
    monkeypatch.chdir(tmp_path)
    done, data = launch("helix.csv", tmp_path / "run", validation_data="helix.csv")
    assert [line.epoch for line in done.history] == [1, 2]
    assert len(data.validation) == 60
    facts = json.loads((tmp_path / "run" / "model.json").read_text())["facts"]
    assert facts["columns"] == ["east", "north", "up"]
    assert facts["note"] == data.note == ""
    assert "sphere" not in facts
    saved = SavedRun("run").settings.data
    assert saved.data == saved.validation_data == str(tmp_path / "helix.csv")


def test_the_dimension_may_be_left_to_the_data(tmp_path):
    done = run(
        "fit",
        helix(tmp_path / "helix.csv"),
        "--latent-dim",
        "auto",
        "--epochs",
        1,
        "--layers",
        1,
        "--out",
        "run",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "latent dimension 1: a curved manifold of 1 dimensions keeps" in done.stdout
    assert SavedRun(tmp_path / "run").settings.model.latent_dim == 1


def test_text_columns_that_the_model_does_not_use(tmp_path):
    lines = helix(tmp_path / "helix.csv", rows=60).read_text().splitlines()
    text = "\n".join([f"name,{lines[0]}", *(f"row {i},{line}" for i, line in enumerate(lines[1:]))])
    (tmp_path / "named.csv").write_text(text)
    _, data = launch(tmp_path / "named.csv", tmp_path / "run", exclude=["name"])
    assert data.columns == ("east", "north", "up")
    again = SavedRun(tmp_path / "run")
    np.testing.assert_array_equal(again.data.train, data.train)
    assert again.rows(tmp_path / "named.csv").shape == (60, 3)


def test_tensorboard_gets_every_value_of_every_epoch(tmp_path, monkeypatch):
    written = []

    class SummaryWriter:
        def __init__(self, folder):
            written.append(folder)

        def add_scalar(self, name, value, epoch):
            written.append((name, value, epoch))

        def close(self):
            written.append("closed")

    module = ModuleType("tensorboard")
    module.SummaryWriter = SummaryWriter
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    done, _ = launch(helix(tmp_path / "helix.csv", rows=60), tmp_path / "run", tensorboard=True)
    assert written[0] == str(tmp_path / "run" / "tensorboard")
    assert written[-1] == "closed"
    for line in done.history:
        assert ("reconstruction", line.reconstruction, line.epoch) in written
        assert ("learning_rate", line.learning_rate, line.epoch) in written
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ValueError, match="TensorBoard is not installed: pip install"):
        launch(tmp_path / "helix.csv", tmp_path / "other", tensorboard=True)


@pytest.mark.parametrize("dtype", [None, "float64"])
def test_what_is_left_to_the_data_is_chosen_with_all_that_is_known(monkeypatch, dtype):
    """The rows, the seed, the type and the angles; the settings then hold what was chosen."""
    seen, kind = {}, getattr(torch, dtype or "float32")
    hour = PeriodicColumn(0, "hour", 24.0, 0.0, 23.0)
    rows = np.random.default_rng(0).uniform(0, 24, (40, 3))
    data = Prepared(rows, rows[:5], rows[:5], ("hour", "a", "b"), periodic=(hour,))

    def choose_dimension(*given):
        seen["dimension"] = given
        return dimension.Dimension(2, "so it is")

    def choose_charts(*given):
        seen["charts"] = given
        return charts.Charts(1, "angles are one chart")

    def build_flow(*given, **more):
        seen["flow"] = given, more
        return "a flow"

    monkeypatch.setattr(dimension, "choose_dimension", choose_dimension)
    monkeypatch.setattr(charts, "choose_charts", choose_charts)
    monkeypatch.setattr(launch_module, "build_flow", build_flow)
    open_settings = settings("a.csv", latent_dim="auto", charts="auto", latent="auto", seed=7, dtype=dtype)
    said = Console(file=io.StringIO(), width=100)
    chosen, flow = launch_module._model(open_settings, data, said)
    assert said.file.getvalue().splitlines() == ["latent dimension 2: so it is", "1 chart: angles are one chart"]
    assert (flow, chosen.model.latent_dim, chosen.model.charts) == ("a flow", 2, 1)
    model, *rest = seen["dimension"]
    assert model == open_settings.model
    assert rest[0] is rows
    assert rest[1:] == [7, kind, (hour,)]
    given, train, *rest = seen["charts"]
    assert (given.model.latent_dim, train is rows, rest) == (2, True, [7, (hour,)])
    (model, train, seed), more = seen["flow"]
    assert (model, train is rows, seed) == (chosen.model, True, 7)
    start = not chosen.training.start_latent
    assert more == {"start_latent": start, "dtype": kind, "columns": ("hour", "a", "b"), "periodic": (hour,)}
    assert launch_module._model(open_settings, data, None)[0] == chosen
