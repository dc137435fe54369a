"""What a run is, in a few lines: every line of it, by a run whose facts are given."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from rectangular_flows.data.columns import UsedColumns, WholeTable
from rectangular_flows.flows.spaces import Space
from rectangular_flows.runs.described import changed_settings, describe_run
from rectangular_flows.settings import DEFAULT_PRESET, FitSettings, read_preset


def described(shape=(3,), space="line", charts=1, periodic=None, **changes):
    """A run of version 0.2 on a file, but for the changes."""
    chart = SimpleNamespace(latent=SimpleNamespace(space=Space.of(space)))
    flow = SimpleNamespace(
        kind="image" if len(shape) == 3 else "table",
        data_shape=shape,
        ambient_dim=shape[0],
        latent_dim=2,
        dtype="torch.float64",
        charts=[chart] * charts,
        periodic=periodic,
    )
    facts = {
        "flow": flow,
        "path": Path("runs/mine"),
        "trained": True,
        "facts": {"source": "file"},
        "settings": FitSettings.from_flat({"data": "x.csv"}, read_preset(DEFAULT_PRESET)),
        "record": {"train_rows": 12345, "rectangular_flows": "0.9.1", "version": "0.1.0"},
        "history": [SimpleNamespace(epoch=1, seconds=3.0), SimpleNamespace(epoch=7, seconds=200.0)],
        "columns": ("a", "b", "c"),
        "whole": None,
    }
    return SimpleNamespace(**{**facts, **changes})


def test_columns_that_are_left_out():
    whole = WholeTable(("a", "k", "b", "c", "again"), UsedColumns(5, {1: 2.0}, {4: 0}), 10)
    assert "columns: a, b, c; left out: k, again" in describe_run(described(whole=whole))


def test_a_run_on_a_table():
    assert describe_run(described()) == [
        "runs/mine: a manifold of dimension 2 in 3 columns, float64",
        "trained on x.csv, 12,345 rows; 7 epochs in 3 min 20 s; rectangular-flows 0.9.1",
        "columns: a, b, c",
        "settings: the defaults",
    ]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"facts": {"source": "data set"}},
            "the data set x.csv, 12,345 rows; 7 epochs in 3 min 20 s; rectangular-flows 0.9.1",
        ),
        ({"record": {"version": "0.1.0"}}, "x.csv; 7 epochs in 3 min 20 s; rectangular-flows 0.1.0"),
        ({"record": {"train_rows": 0}, "history": []}, "x.csv, 0 rows"),
        ({"settings": FitSettings.from_flat({}), "record": {}, "history": []}, "rows given in Python"),
    ],
)
def test_what_it_was_trained_on(changes, line):
    assert describe_run(described(**changes))[1] == f"trained on {line}"


@pytest.mark.parametrize(
    ("given", "model"),
    [
        ({"space": "circle"}, "of dimension 2 (latent space circle) in 3 columns"),
        ({"charts": 2}, "of dimension 2, of 2 charts, in 3 columns"),
        ({"shape": (1, 28, 20)}, "of dimension 2 in images of 1×28×20"),
    ],
)
def test_what_the_model_is(given, model):
    assert describe_run(described(**given))[0] == f"runs/mine: a manifold {model}, float64"


def test_images_have_no_columns():
    lines = describe_run(described(shape=(1, 28, 20)))
    assert [line.partition(" ")[0] for line in lines] == ["runs/mine:", "trained", "settings:"]
    assert describe_run(described(shape=(1, 28, 20), trained=False))[1:] == ["a model saved by itself"]


def test_a_model_and_an_estimator_have_no_settings():
    assert describe_run(described(trained=False))[1:] == ["a model saved by itself", "columns: a, b, c"]
    assert describe_run(described(trained=False, facts={"estimator": {}}))[1] == "a saved estimator"


def test_angles_have_periods_and_many_columns_are_cut_short():
    names = tuple(f"x{i}" for i in range(12))
    turns = SimpleNamespace(columns=[2, 0], periods=[24.0, 6.28318530718])
    lines = describe_run(described(columns=names, periodic=turns))
    assert lines[2] == f"columns: {', '.join(names)}"
    assert lines[3] == "periodic columns, with their periods: x2 (24), x0 (6.28319)"
    assert describe_run(described(columns=(*names, "y", "z")))[2] == f"columns: {', '.join(names)} and 2 more"


def test_settings_that_are_not_the_defaults():
    """Without the names of files, nor those that are not set; lists and switches as a user writes them."""
    changes = {
        "data": "x.csv",
        "validation_data": "v.csv",
        "test_data": "t.csv",
        "hidden": (8, 4),
        "pca": False,
        "beta": 7.0,
    }
    run = described(settings=FitSettings.from_flat(changes, read_preset(DEFAULT_PRESET)))
    found = changed_settings(run)
    assert {name: list(value) if name == "hidden" else value for name, value in found.items()} == {
        "hidden": [8, 4],
        "pca": False,
        "beta": 7.0,
    }
    line = describe_run(run)[-1]
    assert line.startswith("settings: ")
    assert line.endswith(" (the rest: defaults)")
    assert set(line.removeprefix("settings: ").removesuffix(" (the rest: defaults)").split(", ")) == {
        "hidden = 8,4",
        "pca = false",
        "beta = 7.0",
    }
