"""Columns that a model does not see, in the commands: put back into samples, looked at in scores."""

import shutil

import numpy as np
import pytest

import rectangular_flows as rnf
from rectangular_flows import SavedRun
from rectangular_flows.data.tables import ByPositionWarning, read_table, write_table
from rectangular_flows.evaluation.scored import open_scoring, write_scores
from rectangular_flows.plots.samples import write_samples
from rectangular_flows.training.folder import ChangedSettingsWarning
from tests.cli.command import run

NAMES = ("east", "site", "north", "again", "up")
SEEN, SITE = [0, 2, 4], 20240131.0  # not a number of float32


def table(path, rows=120, seed=0):
    """A helix with a column of one value and a copy."""
    random = np.random.default_rng(seed)
    t = random.normal(size=rows)
    east, north = np.cos(t) + 0.05 * random.normal(size=rows), np.sin(t)
    write_table(path, NAMES, np.stack([east, np.full(rows, SITE), north, east, 0.3 * t], axis=1))
    return read_table(path).values


def broken(path):
    """Of five rows the second has another site, the third no copy, the fourth neither."""
    rows = table(path, 5, seed=1)
    rows[[1, 3], 1] += 0.1, -3.1
    rows[[2, 3], 3] += 1, 2
    write_table(path, NAMES, rows)
    return rows


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run on the whole table, and one on the columns that vary."""
    here = tmp_path_factory.mktemp("left-out")
    rows = table(here / "whole.csv")
    write_table(here / "plain.csv", [NAMES[i] for i in SEEN], rows[:, SEEN])
    for name in ("whole", "plain"):
        done = run("fit", here / f"{name}.csv", "--latent-dim", 1, "--epochs", 2, "--out", here / name)
        assert done.returncode == 0, done.stderr
        first = done.stdout.splitlines()[0]
        assert (
            first == "note: columns left out of the model: 'site' holds one value; 'again' equals 'east' in every row"
        ) == (name == "whole")
    return here


def scored(run, source, out, **options):
    write_scores(open_scoring(run, str(source), **options), out)
    found = read_table(out)
    return dict(zip(found.columns, found.values.T, strict=True))


def test_rows_that_break_a_rule_are_that_much_more_unusual(trained, tmp_path):
    rows = broken(tmp_path / "broken.csv")
    write_table(tmp_path / "plain.csv", [NAMES[i] for i in SEEN], rows[:, SEEN])
    found = scored(SavedRun(trained / "whole"), tmp_path / "broken.csv", tmp_path / "a.csv", reasons=True)
    plain = scored(SavedRun(trained / "plain"), tmp_path / "plain.csv", tmp_path / "b.csv", reasons=True)
    trained_on = 96  # of 120: a tenth validates, a tenth tests
    nats = np.log(trained_on + 2) * np.array([0, 1, 1, 2, 0])
    np.testing.assert_allclose(found["outlier_score"], plain["outlier_score"] + nats)
    np.testing.assert_allclose(found["log_density_ambient"], plain["log_density_ambient"] - nats)
    errors = plain["reconstruction_error"] + [0, 0.01, 1, 3.1**2 + 4, 0]
    np.testing.assert_allclose(found["reconstruction_error"], errors)
    np.testing.assert_array_equal(found["log_density"], plain["log_density"])
    assert (found["p_value"][1:4] < plain["p_value"][1:4]).all()
    np.testing.assert_array_equal(found["p_value"][[0, 4]], plain["p_value"][[0, 4]])
    one = np.log(trained_on + 2)
    np.testing.assert_allclose(found["why_site"], [0, one, 0, one, 0])
    np.testing.assert_allclose(found["why_again"], [0, 0, one, one, 0])
    np.testing.assert_array_equal(found["why_up"], plain["why_up"])


def test_a_file_without_these_columns_is_scored_and_says_so(trained, tmp_path):
    scoring = open_scoring(SavedRun(trained / "whole"), str(trained / "plain.csv"))
    note = "not looked at, since they are not in the file or have cells that are no numbers: 'site', 'again'"
    assert scoring.notes == [note]
    found = scored(scoring.run, trained / "plain.csv", tmp_path / "a.csv")
    whole = scored(scoring.run, trained / "whole.csv", tmp_path / "b.csv")
    assert all((found[name] == whole[name]).all() for name in whole)


def test_samples_have_all_columns(trained, tmp_path):
    saved = SavedRun(trained / "whole")
    assert saved.columns == ("east", "north", "up")
    write_samples(saved, tmp_path / "samples.csv", 30, 0)
    write_samples(SavedRun(trained / "plain"), tmp_path / "plain.csv", 30, 0)
    samples, plain = read_table(tmp_path / "samples.csv"), read_table(tmp_path / "plain.csv").values
    assert samples.columns == NAMES
    np.testing.assert_array_equal(samples.values[:, SEEN].astype(np.float32), plain.astype(np.float32))
    write_samples(saved, tmp_path / "samples.npy", 30, 0)
    np.testing.assert_array_equal(np.load(tmp_path / "samples.npy"), samples.values)
    assert (samples.values[:, 1] == SITE).all()
    np.testing.assert_array_equal(samples.values[:, 3], samples.values[:, 0])
    found = scored(saved, tmp_path / "samples.csv", tmp_path / "scores.csv", reasons=True)
    assert not found["why_site"].any()
    assert not found["why_again"].any()


@pytest.mark.parametrize("cell", ["", "unknown"])
def test_cells_that_are_no_numbers_are_not_looked_at(trained, tmp_path, cell):
    lines = (trained / "whole.csv").read_text().splitlines()
    first = lines[1].split(",")
    (tmp_path / "odd.csv").write_text("\n".join([lines[0], ",".join([first[0], cell, *first[2:]]), *lines[2:]]))
    saved = SavedRun(trained / "whole")
    for drop_invalid in (False, True):
        scoring = open_scoring(saved, str(tmp_path / "odd.csv"), drop_invalid=drop_invalid, ids=["site"])
        assert len(scoring.rows) == 120
        assert scoring.notes[0].endswith("no numbers: 'site', 'again'")


def test_columns_without_names_are_taken_by_position(trained, tmp_path):
    rows, saved = broken(tmp_path / "broken.csv"), SavedRun(trained / "whole")
    expected = scored(saved, tmp_path / "broken.csv", tmp_path / "a.csv")["outlier_score"]
    seen = scored(SavedRun(trained / "plain"), tmp_path / "broken.csv", tmp_path / "b.csv")["outlier_score"]
    np.save(tmp_path / "whole.npy", rows)
    np.save(tmp_path / "seen.npy", rows[:, SEEN])
    for name, wanted in (("whole", expected), ("seen", seen)):
        with pytest.warns(ByPositionWarning):
            found = scored(saved, tmp_path / f"{name}.npy", tmp_path / "c.csv")
        np.testing.assert_allclose(found["outlier_score"], wanted)


def test_generated_names_are_no_names(tmp_path):
    rows = np.roll(table(tmp_path / "whole.csv"), -1, axis=1)[:, [0, 1, 3, 2]]  # the first holds one value
    np.save(tmp_path / "whole.npy", rows)
    np.save(tmp_path / "seen.npy", rows[:, 1:])
    with pytest.warns(rnf.errors.LeftOutWarning):
        rnf.RectangularFlowEstimator(latent_dim=1, epochs=2, random_state=0).fit(rows).save(tmp_path / "model")
    saved = SavedRun(tmp_path / "model")
    whole = scored(saved, tmp_path / "whole.npy", tmp_path / "a.csv")
    with pytest.warns(ByPositionWarning):
        seen = scored(saved, tmp_path / "seen.npy", tmp_path / "b.csv")
    np.testing.assert_array_equal(seen["outlier_score"], whole["outlier_score"])


def test_a_resumed_run_knows_them_as_well(trained, tmp_path):
    shutil.copytree(trained / "whole", tmp_path / "run")
    before = SavedRun(tmp_path / "run").whole
    text = (tmp_path / "run" / "config.toml").read_text().replace("epochs = 2", "epochs = 3")
    (tmp_path / "run" / "config.toml").write_text(text)
    assert run("fit", "--resume", tmp_path / "run").returncode == 0
    saved = SavedRun(tmp_path / "run")
    with pytest.warns(ChangedSettingsWarning):
        assert saved.whole == before == saved.data.whole
    assert saved.data.note.startswith("columns left out of the model: 'site' holds one value")
    (tmp_path / "run" / "config.toml").write_text(text.replace("names = ", "titles = "))
    with (
        pytest.warns(ChangedSettingsWarning),
        pytest.raises(ValueError, match="does not say which columns were left out"),
    ):
        _ = SavedRun(tmp_path / "run").known


@pytest.mark.parametrize("named", [True, False])
def test_a_saved_estimator_does_as_the_estimator(tmp_path, named):
    pandas = pytest.importorskip("pandas")
    rows, others = table(tmp_path / "whole.csv"), broken(tmp_path / "broken.csv")
    X, new = (pandas.DataFrame(x, columns=NAMES) if named else x for x in (rows, others))
    with pytest.warns(rnf.errors.LeftOutWarning):
        fitted = rnf.RectangularFlowEstimator(latent_dim=1, epochs=2, random_state=0).fit(X)
    fitted.save(tmp_path / "model")
    saved = SavedRun(tmp_path / "model")
    assert saved.columns == (("east", "north", "up") if named else ("x1", "x3", "x5"))
    source = tmp_path / "broken.csv"
    if not named:
        np.save(source := tmp_path / "broken.npy", others)
    found = scored(saved, source, tmp_path / "scores.csv")
    expected = fitted.scores(new, "outlier_score", "p_value")
    np.testing.assert_allclose(found["outlier_score"], expected["outlier_score"])
    np.testing.assert_allclose(found["p_value"], expected["p_value"])
