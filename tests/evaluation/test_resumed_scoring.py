"""Scoring that is cut short and resumed: the same output, bit for bit, of the same data and model, or a refusal."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import rectangular_flows as rnf
from rectangular_flows.data.tables import write_table
from rectangular_flows.evaluation import scored as module
from rectangular_flows.evaluation.scored import open_scoring, write_scores
from rectangular_flows.storage import spool
from rectangular_flows.storage.spool import UnfinishedError
from tests.cli.command import complaint, run, run_apart
from tests.evaluation.test_scored import SETTINGS, helix

ROWS = 47


class Killed(BaseException):
    """What ends a process without asking."""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("resumed")
    for seed, name in ((0, "model"), (1, "other")):
        rnf.RectangularFlowOutlierDetector(**{**SETTINGS, "random_state": seed}).fit(helix(300)).save(folder / name)
    X = helix(ROWS, 1)
    X[3, 2], X[30, 0], X[12, 1] = 3000, np.nan, 1e39
    write_table(folder / "new.csv", ["x1", "x2", "x3"], X, text={"name": [f"s, {i}" for i in range(ROWS)]})
    np.save(folder / "new.npy", np.delete(X, 30, axis=0))
    return folder


OPTIONS = {"drop_invalid": True, "ids": ["name"], "coordinates": True}


def scoring(folder, model="model", data="new.csv", **options):
    return open_scoring(rnf.SavedRun(folder / model), str(folder / data), **{**OPTIONS, **options})


@pytest.fixture
def killed_after(monkeypatch):
    """Begins to score, and is killed after so many parts of five rows."""
    monkeypatch.setattr(module, "AT_ONCE", 5)
    monkeypatch.setattr(spool, "_SECONDS", 0.0)

    def begin(scoring, path, parts, **options):
        whole, count = type(scoring)._part, 0

        def part(self, *given):
            nonlocal count
            if given[0].numbers.size > 1 and (count := count + 1) > parts:
                raise Killed
            return whole(self, *given)

        with monkeypatch.context() as patch:
            patch.setattr(type(scoring), "_part", part)
            with pytest.raises(Killed):
                write_scores(scoring, path, **options)

    return begin


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "npy", "npz", "parquet"])
def test_resumed_scores_are_the_same_bit_for_bit(made, tmp_path, killed_after, suffix):
    pytest.importorskip("pyarrow")
    path, ticks, before, options = tmp_path / f"a.{suffix}", [], [], {"reasons": suffix == "csv"}
    whole = write_scores(scoring(made, **options), tmp_path / f"whole.{suffix}")
    for parts in (2, 0, 1, 4):  # once without having done anything new
        killed_after(scoring(made, **options), path, parts, resume=True)
        assert not path.exists()
    written = write_scores(scoring(made, **options), path, ticks.append, resume=True, resumed=before.append)
    assert path.read_bytes() == (tmp_path / f"whole.{suffix}").read_bytes()
    assert written == whole
    assert (before, sum(ticks)) == ([35], 46 - 35)
    assert sorted(os.listdir(tmp_path)) == sorted([path.name, f"whole.{suffix}"])


def test_the_format_of_the_rows_changes_no_bit(made, tmp_path, killed_after, monkeypatch):
    """Nor do the parts in which a reader gives them, nor where a resumed scoring begins."""
    pytest.importorskip("pyarrow")
    X = np.load(made / "new.npy")
    write_table(tmp_path / "x.parquet", ["x1", "x2", "x3"], X)
    np.save(tmp_path / "fortran.npy", np.asfortranarray(X))
    found = []
    for size, name in ((2**16, made / "new.npy"), (7, "x.parquet"), (7, "fortran.npy"), (3, made / "new.npy")):
        monkeypatch.setattr("rectangular_flows.data._arrays._BATCH_ROWS", size)
        opened = open_scoring(rnf.SavedRun(made / "model"), str(tmp_path / name), coordinates=True)
        if size == 7:
            killed_after(opened, tmp_path / "a.npy", 3)
        write_scores(opened, tmp_path / "a.npy", resume=True)
        found.append((tmp_path / "a.npy").read_bytes())
        part = next(opened.rows.parts(5))
        assert part.rows.flags.c_contiguous
    assert len(set(found)) == 1


def test_what_changed_is_not_resumed(made, tmp_path, killed_after):
    path = tmp_path / "a.csv"
    path.write_text("before")
    killed_after(scoring(made), path, 3)
    assert path.read_text() == "before"
    data = tmp_path / "new.csv"
    data.write_text((made / "new.csv").read_text().replace("s, 40", "s, 41"))
    for other, what in (
        (scoring(made, model="other"), "the model changed"),
        (open_scoring(rnf.SavedRun(made / "model"), str(data), **OPTIONS), "the data changed"),
        (scoring(made, coordinates=False), "--coordinates, --explain, --id or --drop-invalid and width changed"),
        (scoring(made, ids=[]), "--coordinates, --explain, --id or --drop-invalid changed"),
    ):
        with pytest.raises(UnfinishedError, match=what):
            write_scores(other, path, resume=True)
    with pytest.raises(UnfinishedError, match="15 rows of it are done: continue with --resume"):
        write_scores(scoring(made), path)
    assert path.read_text() == "before"
    write_scores(scoring(made), path, restart=True)
    write_scores(scoring(made), tmp_path / "b.csv", resume=True)  # there is nothing to resume
    assert path.read_bytes() == (tmp_path / "b.csv").read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["a.csv", "b.csv", "new.csv"]


def test_the_command_resumes(made, tmp_path, killed_after):
    path = tmp_path / "a.csv"
    words = ["score", made / "model", made / "new.csv", "-o", path, "--drop-invalid"]
    killed_after(scoring(made, ids=[], coordinates=False), path, 3)
    assert "15 rows of it are done" in complaint(*words)
    assert "not allowed with" in complaint(*words, "--resume", "--restart")
    done = run(*words, "--resume")
    assert (done.returncode, f"46 rows in {path}" in done.stdout) == (0, True)
    assert run(*words[:3], "--drop-invalid", "-o", tmp_path / "b.csv").returncode == 0
    assert path.read_bytes() == (tmp_path / "b.csv").read_bytes()


LARGE = 400_000


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    folder = tmp_path_factory.mktemp("large")
    rnf.RectangularFlowEstimator(**SETTINGS).fit(helix(300)).save(folder / "model")
    np.save(folder / "new.npy", helix(LARGE, 1))
    return folder


@pytest.mark.slow
def test_killed_for_good_and_resumed(large, tmp_path):
    """SIGKILL at a random moment, as often as there is something left to do."""
    out, random, kills = tmp_path / "a.npy", np.random.default_rng(int(time.time())), 0
    code = "import sys; from rectangular_flows.storage import spool; spool._SECONDS = 0.2; "
    code += "from rectangular_flows.cli import main; sys.exit(main(sys.argv[1:]))"
    words = [sys.executable, "-c", code, "score", large / "model", large / "new.npy", "-o", out, "--resume"]
    while True:
        process = subprocess.Popen(list(map(str, words)))
        try:
            assert process.wait(random.uniform(1, 3) + 1.5 * kills) == 0
            break
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
            if out.exists():  # then it is whole, and the process was about to end
                break
    assert run_apart("score", large / "model", large / "new.npy", "-o", tmp_path / "b.npy").returncode == 0
    assert kills
    assert out.read_bytes() == (tmp_path / "b.npy").read_bytes()
    assert {"a.npy", "b.npy"} <= set(os.listdir(tmp_path)) <= {"a.npy", "b.npy", "a.npy.partial"}


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="the peak is read from /proc")
@pytest.mark.parametrize("suffix", ["npy", "csv", "parquet"])
def test_memory_is_bounded(large, tmp_path, suffix):
    """More than six times the rows take at most 48 MiB more; all of them with their scores would take 150 and more."""
    pytest.importorskip("pyarrow")
    write = "import sys; from rectangular_flows.cli import main; code = main(sys.argv[1:]); "
    # not ru_maxrss, which begins at the peak of the process that started this one
    write += "print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0], file=sys.stderr); sys.exit(code)"
    X, peaks = np.tile(np.load(large / "new.npy"), (4, 1)), []
    for rows in (250_000, len(X)):
        data = tmp_path / f"{rows}.{suffix}"
        write_table(data, ["x1", "x2", "x3"], X[:rows])
        words = [sys.executable, "-c", write, "score", large / "model", data, "-o", tmp_path / "out.npy"]
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=True)
        peaks.append(int(done.stderr.split()[-1]) * 1024)
    assert peaks[1] - peaks[0] < 48 * 2**20, peaks
