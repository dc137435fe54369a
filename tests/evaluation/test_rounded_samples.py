"""Columns with few distinct values: samples have these values, from a run and from an estimator, saved or not."""

import json

import numpy as np
import pytest

import rectangular_flows as rnf
from rectangular_flows.cli import main
from rectangular_flows.data.tables import read_table
from rectangular_flows.plots.samples import write_samples

ROWS = 500


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A column of three values, one that varies, one that holds a value, an angle of 24 values."""
    random = np.random.default_rng(0)
    t = random.uniform(-1, 1, ROWS)
    grade, size = np.round(t + 1) * 0.1 + 5, np.exp(t) + 0.05 * random.normal(size=ROWS)
    x = np.stack([grade, size, np.full(ROWS, 7.0), random.integers(0, 24, ROWS)], axis=1)
    folder = tmp_path_factory.mktemp("table")
    np.savetxt(folder / "a.csv", x, delimiter=",", header="grade,size,kind,hour", comments="", fmt="%.17g")
    return folder, x


@pytest.fixture(scope="module")
def run(table):
    folder, _ = table
    words = ["--latent-dim", "1", "--epochs", "2", "--layers", "1", "--hidden", "8", "--exclude", "hour", "--quiet"]
    assert main(["fit", str(folder / "a.csv"), "--out", str(folder / "run"), *words]) == 0
    return rnf.SavedRun(folder / "run")


def drawn(run, folder, **options):
    names = write_samples(run, folder / "samples.csv", 60, 1, **options)
    return names, read_table(folder / "samples.csv").values


def test_samples_of_a_run(table, run, tmp_path):
    _, x = table
    names, values = drawn(run, tmp_path)
    assert names == ("grade",)
    known = np.unique(x[:, 0])
    assert np.isin(values[:, 0], known).all()  # to the last bit, though tenths are not in float32
    assert len(np.unique(values[:, 0])) > 1
    plain_names, plain = drawn(run, tmp_path, rounded=False)
    assert plain_names == ()
    nearest = known[np.abs(plain[:, :1] - known).argmin(axis=1)]
    np.testing.assert_array_equal(values[:, 0], nearest)
    np.testing.assert_array_equal(values[:, 1:].astype(np.float32), plain[:, 1:].astype(np.float32))
    assert drawn(run, tmp_path, scatter=False)[0] == ()  # they lie on the manifold
    assert drawn(run, tmp_path, scatter=False, rounded=True)[0] == ("grade",)


def test_the_command_says_so(table, run, capsys, tmp_path):
    out = str(tmp_path / "a.csv")
    assert main(["sample", str(run.path), "-n", "9", "-o", out]) == 0
    assert "rounded to values that the data have: grade (--no-round" in capsys.readouterr().out
    assert main(["sample", str(run.path), "-n", "9", "-o", out, "--no-round"]) == 0
    assert "rounded" not in capsys.readouterr().out


def test_a_damaged_list_is_refused(table, run, tmp_path):
    description = json.loads((run.path / "model.json").read_text())
    assert description["facts"]["levels"].keys() == {"0"}
    run.facts["levels"] = {"9": [1.0]}
    try:
        with pytest.raises(ValueError, match=r"model\.json is damaged: column 9 of 2"):
            _ = run.levels
    finally:
        run.facts["levels"] = description["facts"]["levels"]


def test_samples_of_an_estimator(table, tmp_path):
    _, x = table
    settings = {"latent_dim": 1, "epochs": 2, "hidden": (8,), "layers": 1, "random_state": 0}
    fitted = rnf.RectangularFlowEstimator(**settings).fit(x[:, :2])
    rows = fitted.sample(60)
    assert np.isin(rows[:, 0], np.unique(x[:, 0])).all()
    plain = fitted.sample(60, rounded=False)
    assert not np.isin(plain[:, 0], np.unique(x[:, 0])).any()
    np.testing.assert_array_equal(rows[:, 1], plain[:, 1])
    on_manifold = fitted.sample(60, scatter=False)
    assert len(np.unique(on_manifold[:, 0])) == 60
    fitted.save(tmp_path / "model")
    again = rnf.RectangularFlowEstimator.load(tmp_path / "model")
    np.testing.assert_array_equal(again.sample(60), rows)
    assert drawn(rnf.SavedRun(tmp_path / "model"), tmp_path)[0] == ("x1",)
    del fitted._levels  # as pickled by a version before
    np.testing.assert_array_equal(fitted.sample(60), plain)
    fitted.save(tmp_path / "older")


def test_angles_are_not_rounded(table):
    """The nearest value of a column that closes up is no matter of its numbers."""
    _, x = table
    settings = {"latent_dim": 1, "epochs": 2, "hidden": (8,), "layers": 1, "random_state": 0}
    fitted = rnf.RectangularFlowEstimator(**settings, periodic=("2:24",)).fit(x[:, [1, 3]])
    assert fitted._levels.columns == ()
