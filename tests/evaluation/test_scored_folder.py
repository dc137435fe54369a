"""A folder of tables becomes a folder of scores, one part a table; what is finished is not done again."""

import json

import numpy as np
import pytest

import rectangular_flows as rnf
from rectangular_flows.data.tables import DataError, read_table, write_table
from rectangular_flows.evaluation.scored import open_scoring, write_scores
from rectangular_flows.evaluation.scored_folder import LIST, tables_in, write_folder
from rectangular_flows.storage.spool import UnfinishedError
from tests.cli.command import complaint, run
from tests.evaluation.test_scored import SETTINGS, helix

NAMES = ["a.csv", "year=1/b.csv", "year=2/c.npz"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("folder")
    for seed, name in ((0, "model"), (1, "other")):
        rnf.RectangularFlowOutlierDetector(**{**SETTINGS, "random_state": seed}).fit(helix(300)).save(folder / name)
    return folder


@pytest.fixture
def source(tmp_path):
    for i, name in enumerate(NAMES):
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_table(path, ["x1", "x2", "x3"], helix(5 + i, i))
    for name in ("_SUCCESS", ".hidden.csv", "readme.md", "year=1/_metadata.csv"):
        (tmp_path / "data" / name).write_text("no table")
    return tmp_path / "data"


class Killed(BaseException):
    pass


def written(model, source, out, name="model", stop_at=None, **options):
    done = []

    def score(scoring, path, **unfinished):
        if path.name == stop_at:
            raise Killed
        done.append(path.name)
        return write_scores(scoring, path, **unfinished)

    found = write_folder(
        lambda path: open_scoring(rnf.SavedRun(model / name), str(path)), source, out, score, **options
    )
    return found, done


def test_a_part_a_table(model, source, tmp_path):
    assert [name.as_posix() for name in tables_in(source)] == NAMES
    found, done = written(model, source, tmp_path / "out")
    assert (found.rows, done) == (18, ["a.csv", "b.csv", "c.npz"])
    every = [read_table(tmp_path / "out" / name) for name in NAMES]
    mean = np.concatenate([table.values[:, table.columns.index("log_density")] for table in every]).mean()
    assert found.means["log_density"] == pytest.approx(mean)
    assert every[1].values[:, 0].tolist() == [1, 2, 3, 4, 5, 6]
    listed = json.loads((tmp_path / "out" / LIST).read_text())
    assert (listed["finished"], list(listed["parts"])) == (True, NAMES)


def test_what_is_finished_is_not_done_again(model, source, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(Killed):
        written(model, source, out, stop_at="c.npz")
    assert not json.loads((out / LIST).read_text())["finished"]
    with pytest.raises(UnfinishedError, match="scores of 2 tables already: continue with --resume"):
        written(model, source, out)
    (out / "year=1" / "b.csv").write_text("damaged")
    found, done = written(model, source, out, resume=True)
    assert (found.rows, done) == (18, ["b.csv", "c.npz"])
    whole, _ = written(model, source, tmp_path / "whole")
    assert found == whole
    for name in (*NAMES, LIST):
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert written(model, source, out, resume=True)[1] == []
    assert len(written(model, source, out, restart=True)[1]) == 3


def test_changes_are_refused(model, source, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(Killed):
        written(model, source, out, stop_at="c.npz")
    with pytest.raises(UnfinishedError, match="the model changed"):
        written(model, source, out, "other", resume=True)
    write_table(source / "a.csv", ["x1", "x2", "x3"], helix(5, 9))
    with pytest.raises(UnfinishedError, match=r"a\.csv changed"):
        written(model, source, out, resume=True)
    with pytest.raises(DataError, match="another folder"):
        written(model, source, source)
    with pytest.raises(DataError, match="Use -o scores"):
        written(model, source, tmp_path / "scores.csv")


def test_the_command(model, source, tmp_path):
    done = run("score", model / "model", source, "-o", tmp_path / "out")
    assert (done.returncode, f"18 rows in {tmp_path / 'out'}" in done.stdout) == (0, True)
    assert "--resume" in complaint("score", model / "model", source, "-o", tmp_path / "out")
    assert run("score", model / "model", source, "-o", tmp_path / "out", "--resume").returncode == 0
    (tmp_path / "empty").mkdir()
    assert "Expected tables" in complaint("score", model / "model", tmp_path / "empty")
    assert "are for --engine ray" in complaint("score", model / "model", source, "--workers", 3)
