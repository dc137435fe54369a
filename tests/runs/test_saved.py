"""A run folder opened once, its columns matched by name."""

import csv
import hashlib
import json
import shutil
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import rectangular_flows as rnf
from rectangular_flows.cli import main
from rectangular_flows.data.tables import ByPositionWarning, DataError
from rectangular_flows.runs import prepared, saved
from rectangular_flows.runs.saved import ChangedDataWarning
from rectangular_flows.settings import FitSettings
from rectangular_flows.storage.files import pack_tensors

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
    torch.testing.assert_close(run.rows(tmp_path / "new.csv"), torch.tensor(values, dtype=torch.float64))
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
        torch.testing.assert_close(run.rows(tmp_path / "x.csv"), torch.tensor(X, dtype=torch.float64))
    with pytest.raises(FileNotFoundError, match="no run in"):
        _ = run.settings


# --- a run whose parts are given


def opened(path, shape=(3,), kind="table", **parts):
    """A run with a model of that shape, and these parts instead of files."""
    run = rnf.SavedRun.__new__(rnf.SavedRun)
    flow = SimpleNamespace(kind=kind, data_shape=shape, ambient_dim=shape[0], row_dtype=torch.float64)
    vars(run).update({"path": path, "flow": flow, "facts": {}, "config": {}, **parts})
    return run


def test_the_names_of_the_columns(tmp_path):
    """Those of a run, of an estimator, or numbers; as many as the model has."""
    assert opened(tmp_path, facts={"columns": ["b", "a", "c"]}).columns == ("b", "a", "c")
    fitted = {"columns": [], "estimator": {"feature_names_in": ["u", "v", "w"]}}
    assert opened(tmp_path, facts=fitted).columns == ("u", "v", "w")
    assert opened(tmp_path).columns == ("x1", "x2", "x3")
    with pytest.raises(ValueError, match=r"model\.json is damaged: it has 2 names of columns for a model of 3"):
        _ = opened(tmp_path, facts={"columns": ["a", "b"]}).columns
    assert (opened(tmp_path).sphere, opened(tmp_path, facts={"sphere": []}).sphere) == (None, ())
    assert opened(tmp_path, facts={"sphere": ["lat", "lon"]}).sphere == ("lat", "lon")


@pytest.mark.parametrize(
    ("record", "facts", "known"),
    [
        ({"columns": ["a", "b", "c"]}, {}, (("a", "b", "c"), None)),
        ({"columns": ["x", "y", "z"], "sphere": ["lat", "lon"]}, {}, (("x", "y", "z"), ("lat", "lon"))),
        ({"columns": ["x", "y", "z"], "sphere": []}, {}, (("x", "y", "z"), ())),
        ({"columns": []}, {"columns": ["a", "b", "c"]}, None),
        ({}, {"columns": ["x", "y", "z"], "sphere": ["lat", "lon"]}, (("x", "y", "z"), ("lat", "lon"))),
        ({}, {"image": [1, 4, 4]}, None),
    ],
)
def test_the_columns_by_which_files_are_matched(tmp_path, record, facts, known):
    """Those of the record; of version 0.1, which has none there, those of the model; images have none."""
    expected = None if known is None else prepared.Known(*known)
    run = opened(tmp_path, facts=facts, config={"record": record})
    assert run.known == (expected if record else None)  # without a model yet
    (tmp_path / "model.json").write_text("{}")
    assert run.known == expected


def test_the_fingerprint_is_that_of_all_files_of_the_model(tmp_path):
    files = {"model.safetensors": b"weights", "model.json": b"{}"}
    expected = hashlib.sha256(b"model.json 2 {}model.safetensors 7 weights").hexdigest()
    assert opened(tmp_path, _files=files).fingerprint == expected
    assert opened(tmp_path, _files=dict(reversed(files.items()))).fingerprint == expected
    assert repr(opened("runs/mine")) == "SavedRun('runs/mine')"


def test_a_known_data_set_is_matched_by_name_where_names_agree(tmp_path):
    run, rows = opened(tmp_path, facts={"columns": ["a", "b", "c"]}), np.arange(6.0).reshape(2, 3)
    assert run.match(rows, ("c", "a", "b"), "it").tolist() == [[1, 2, 0], [4, 5, 3]]
    assert run.match(rows, ("c", "a", "d"), "it").tolist() == rows.tolist()


@pytest.mark.parametrize("kind", ["table", "image"])
def test_rows_of_another_shape_are_refused(kind):
    shape, other = ((3,), (5,)) if kind == "table" else ((1, 4, 6), (1, 4, 5))
    run = opened("runs/mine", shape, kind)
    run.check_shape(np.zeros((7, *shape)), "it")
    with pytest.raises(ValueError, match="as runs/mine was trained on") as said:
        run.check_shape(np.zeros((7, *other)), "it")
    table = "expected 3 columns, as runs/mine was trained on; it has 5"
    image = "expected images of 1×4×6, as runs/mine was trained on; those of it are 1×4×5. Bring them to that shape"
    assert str(said.value).startswith(table if kind == "table" else image)


def test_rows_with_missing_values_are_left_out_if_asked(tmp_path):
    run = opened(tmp_path, (2,), facts={"columns": ["a", "b"]})
    (tmp_path / "x.csv").write_text("a,b\n1,2\nnan,4\n5,6\n")
    with pytest.raises(DataError, match="missing"):
        run.rows(tmp_path / "x.csv")
    assert run.rows(tmp_path / "x.csv", drop_invalid=True).tolist() == [[1, 2], [5, 6]]
    assert run.table(tmp_path / "x.csv", True).dropped == 1
    assert run.rows(tmp_path / "x.csv", True).dtype == torch.float64


def test_the_sphere_of_new_rows_is_that_of_the_run(tmp_path):
    """Its file has degrees, by the names that the run knows; the model has three columns."""
    run = opened(tmp_path, facts={"columns": ["x", "y", "z"], "sphere": ["lat", "lon"]})
    (tmp_path / "x.csv").write_text("lon,lat,other\n90,0,7\n0,90,7\n")
    torch.testing.assert_close(run.rows(tmp_path / "x.csv"), torch.tensor([[0.0, 1, 0], [0, 0, 1]]).double())


def test_images_of_another_source(tmp_path):
    images = np.arange(24, dtype=np.uint8).reshape(2, 1, 3, 4)
    np.save(tmp_path / "images.npy", images)
    found = opened(tmp_path, (1, 3, 4), "image").rows(tmp_path / "images.npy")
    assert found.dtype == torch.float64
    np.testing.assert_array_equal(np.floor(256 * found.numpy()), images)


@pytest.mark.parametrize(
    ("source", "before", "warned"), [("x.csv", "no", True), ("x.csv", None, False), ("circle", "no", False)]
)
def test_data_that_have_changed_are_told_of_files_alone(tmp_path, monkeypatch, source, before, warned):
    rows, seen = np.zeros((4, 3)), []
    settings = FitSettings.from_flat({"data": source, "latent_dim": 2, "seed": 5})
    record = {"columns": ["a", "b", "c"], **({} if before is None else {"train_sha256": before})}
    run = opened(tmp_path, config={"record": record}, settings=settings)

    def prepare(*given, known):
        seen.append((*given, known))
        return prepared.Prepared(rows, rows, rows, ("a", "b", "c"))

    monkeypatch.setattr(saved, "prepare", prepare)
    with pytest.warns(ChangedDataWarning, match="train again") if warned else warnings.catch_warnings(action="error"):
        assert run.data.train is rows
    assert seen == [(settings.data, 2, 5, prepared.Known(("a", "b", "c")))]


def test_a_run_made_in_python_does_not_know_its_data(tmp_path):
    with pytest.raises(ValueError, match=rf"does not say what it was trained on.*rnf score {tmp_path} DATA"):
        _ = opened(tmp_path, settings=FitSettings.from_flat({"latent_dim": 1})).data


def test_what_was_found_last(tmp_path):
    assert opened(tmp_path).evaluation is None
    (tmp_path / "evaluation.json").write_text('{"nll": 2.5}')
    assert opened(tmp_path).evaluation == {"nll": 2.5}
    (tmp_path / "evaluation.json").write_text("{")
    with pytest.raises(ValueError, match=f"rnf evaluate {tmp_path}"):
        _ = opened(tmp_path).evaluation


def test_what_is_usual_comes_from_the_estimator_or_the_file(tmp_path):
    kept = {"model_log_prob": [1.0, 2.0], "model_squared_distance": [3.0, 4.0]}
    run = opened(tmp_path, facts={"estimator": {"calibration": kept}}, _files={})
    assert run.calibration.log_density.tolist() == [1, 2]
    file = pack_tensors({name: torch.tensor(values).flip(0) for name, values in kept.items()})
    assert opened(tmp_path, _files={"calibration.safetensors": file}).calibration.log_density.tolist() == [2, 1]
    assert opened(tmp_path, _files={}).calibration is None
