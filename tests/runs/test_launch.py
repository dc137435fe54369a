"""From settings to a run: what is recorded, and what the settings leave to the data."""

import io
import json
import sys
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace

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


def test_images_have_the_dimension_of_their_neighbours(monkeypatch):
    images = np.random.default_rng(0).uniform(size=(30, 1, 2, 3)).astype(np.float32)
    data, seen = Prepared(images, images[:2], images[:2], ()), {}

    def estimated(rows, seed):
        seen["rows"] = rows.shape, seed
        return dimension.Dimension(3, "by neighbours")

    monkeypatch.setattr(dimension, "estimated", estimated)
    monkeypatch.setattr(dimension, "choose_dimension", lambda *_: pytest.fail("these are no tables"))
    monkeypatch.setattr(charts, "choose_charts", lambda *_: pytest.fail("their number is given"))
    monkeypatch.setattr(launch_module, "build_flow", lambda model, *_, **__: model.latent_dim)
    said = Console(file=io.StringIO(), width=100)
    chosen, flow = launch_module._model(settings("a.npy", latent_dim="auto", charts=1, seed=9), data, said)
    assert (chosen.model.latent_dim, flow, seen["rows"]) == (3, 3, ((30, 6), 9))
    assert said.file.getvalue() == "latent dimension 3: by neighbours\n"


@pytest.mark.parametrize(("count", "word"), [(1, "chart"), (2, "charts")])
def test_the_line_about_charts(monkeypatch, count, word):
    rows = np.zeros((9, 2))
    monkeypatch.setattr(charts, "choose_charts", lambda *_: charts.Charts(count, "so it is"))
    monkeypatch.setattr(launch_module, "build_flow", lambda *_, **__: None)
    said = Console(file=io.StringIO(), width=100)
    chosen, _ = launch_module._model(settings("a", charts="auto"), Prepared(rows, rows, rows, ("a", "b")), said)
    first, second = said.file.getvalue().splitlines()  # it takes a while
    assert first == "choosing the number of charts: pieces, loops and closed surfaces of the data"
    assert (second, chosen.model.charts) == (f"{count} {word}: so it is", count)


@pytest.mark.parametrize(("angles", "dim", "whole"), [(1, 2, True), (1, 1, False), (0, 2, False)])
def test_a_density_on_a_whole_torus_has_no_manifold_to_find(monkeypatch, angles, dim, whole):
    """Then the likelihood counts from the first epoch on."""
    monkeypatch.setattr(launch_module, "build_flow", lambda *_, **__: None)
    rows, turn = np.zeros((9, 2)), PeriodicColumn(0, "hour", 24.0, 0.0, 23.0)
    data = Prepared(rows, rows, rows, ("hour", "b"), periodic=(turn,) * angles)
    given = settings("a", latent_dim=dim, charts=1, anneal=(0.5, 0.6), anneal_in="share")
    training = launch_module._model(given, data, None)[0].training
    assert (training.anneal, training.anneal_in) == (((0.0, 0.0), "epochs") if whole else ((0.5, 0.6), "share"))


def test_only_files_that_are_there_get_full_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("a\n")
    found = launch_module.with_full_paths(settings("gone.csv", test_data="t.csv")).data
    assert (found.data, found.validation_data, found.test_data) == ("gone.csv", None, str(tmp_path / "t.csv"))
    assert launch_module.with_full_paths(settings("circle")).data.data == "circle"


def test_periods_that_were_guessed_are_recorded():
    rows, turn = np.zeros((9, 2)), PeriodicColumn(0, "hour", 24.0, 0.0, 23.0, guessed=True)
    given = settings("a", periodic=("hour",))
    with_turn = Prepared(rows, rows, rows, ("hour", "b"), periodic=(turn,))
    assert launch_module._with_periods(given, with_turn).data.periodic == ("hour:24",)
    assert launch_module._with_periods(given, Prepared(rows, rows, rows, ("hour", "b"))) is given


def test_settings_come_from_the_first_of_several_processes():
    given, first = settings("a.csv", latent_dim="auto"), settings("a.csv", latent_dim=4, hidden=[7, 7])
    alone = SimpleNamespace(size=1)
    assert launch_module._same_settings(alone, given) is given
    sent = []
    several = SimpleNamespace(size=2, from_first=lambda own: sent.append(own) or json.dumps(first.flat()).encode())
    assert launch_module._same_settings(several, given) == first
    assert json.loads(sent[0]) == json.loads(json.dumps(given.flat()))


def test_what_is_kept_with_a_model(tmp_path):
    rows, images = np.zeros((9, 2)), np.zeros((9, 1, 4, 5), np.float32)
    (tmp_path / "file.csv").write_text("a\n")
    sphere = Prepared(rows, rows, rows, ("x", "y"), "a note", degrees=("lat", "lon"))
    assert launch_module._facts(settings(tmp_path / "file.csv", sphere=True), sphere) == {
        "columns": ["x", "y"],
        "note": "a note",
        "source": "file",
        "sphere": ["lat", "lon"],
    }
    pictures = launch_module._facts(settings(tmp_path), Prepared(images, images, images, ()))
    assert pictures == {"columns": [], "note": "", "source": "folder", "image": [1, 4, 5]}
    assert launch_module._kind_of("circle") == launch_module._kind_of(None) == "data set"


def test_what_a_run_is_given(tmp_path, monkeypatch):
    """The rows, the folder, whether it resumes or replaces, and what is recorded; a resumed run knows its columns."""
    rows, seen = np.zeros((9, 2)), {}
    data = Prepared(rows, rows[:3], rows[:2], ("a", "b"), "a note")
    given = settings("a.csv", seed=3, charts=1)

    def prepared(*asked, known):
        seen["prepare"] = *asked, known
        return data

    def fit(*asked, **more):
        seen["fit"] = asked, more
        return "a run"

    monkeypatch.setattr(launch_module, "SavedRun", lambda out: SimpleNamespace(known=("columns of", out)))
    monkeypatch.setattr(launch_module, "prepare", prepared)
    monkeypatch.setattr(launch_module, "_model", lambda settings, _, console: (settings, ("flow", console)))
    monkeypatch.setattr(launch_module, "same_model", lambda _, flow: flow)
    monkeypatch.setattr(launch_module, "threads_for", lambda *asked: seen.update(threads=asked) or nullcontext())
    monkeypatch.setattr(launch_module, "fit", fit)
    console = Console(quiet=True)
    for quiet in (False, True):
        shown = None if quiet else console
        assert run_settings(given, tmp_path, console=console, quiet=quiet) == ("a run", data)
        (flow, train, training), more = seen["fit"]
        assert (flow, train is rows, training) == (("flow", shown), True, given.training)
        assert seen["threads"] == (flow, 60)
        assert seen["prepare"] == (given.data, 1, 3, None)
        assert len(more.pop("validation")) == 3
        del more["on_step"], more["on_epoch"], more["on_scatter"]
        facts = {"columns": ["a", "b"], "note": "a note", "source": "file", "levels": {}}
        assert more == {"out": tmp_path, "resume": False, "overwrite": False, "settings": given.flat(), "facts": facts}
    run_settings(given, tmp_path, console=console, resume=True, overwrite=True)
    assert seen["prepare"][-1] == ("columns of", tmp_path)
    assert (seen["fit"][1]["resume"], seen["fit"][1]["overwrite"]) == (True, True)
    run_settings(given, None, console=console, resume=True)
    assert (seen["prepare"][-1], seen["fit"][1]["out"]) == (None, None)
