"""Whatever is put in, no traceback comes out, nothing half-written, and no NaN in a file."""

import shutil
import time
from pathlib import Path

import pytest
import tomli_w
from hypothesis import HealthCheck, given
from hypothesis import settings as profile

from rectangular_flows.data.tables import read_table
from rectangular_flows.runs import launch
from tests.cli.command import run
from tests.fuzz import cases
from tests.tally import tally

FIXTURES = Path(__file__).parents[1] / "fixtures" / "before-house"
SHORT, LONG = 12, 600  # cases of each kind
_LIMIT = 20.0  # seconds of the processor, the first imports among them


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("fuzz") / "work"
    shutil.copytree(FIXTURES, place)
    return place


def campaign(name, strategy, count, check):
    """Try that many cases, and count them; hypothesis prints the least one that fails."""
    counted = tally(f"fuzzing: {name}")
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

    @profile(max_examples=count, deadline=None, database=None, derandomize=count == SHORT, suppress_health_check=checks)
    @given(strategy)
    def tries(case):
        counted.tried += 1
        check(case)
        counted.held += 1

    tries()


def behaves(folder, *words, codes=(0, 1, 2)):
    """Run a command and check what every command must keep to; the exit code."""
    before, began = snapshot(folder), time.process_time()
    done = run(*words, cwd=folder)
    said = done.stdout + done.stderr
    assert done.returncode in codes, said
    assert time.process_time() - began < _LIMIT
    assert "Traceback" not in said
    assert not any(ord(char) < 32 and char not in "\n\t" for char in said), repr(said)
    lines = done.stderr.splitlines()
    assert all(line.startswith("rnf: ") for line in lines), lines
    if done.returncode == 2:
        assert [line for line in lines if not line.startswith("rnf: note: ")], said
        assert snapshot(folder) == before, "a command that was refused left something behind"
    assert not list(folder.rglob("*.rnf-tmp"))
    return done.returncode


def snapshot(folder):
    return {path.relative_to(folder): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def scores_of(folder, case):
    """A file with such a name and content is scored, or refused."""
    name, data = case
    (folder / name).write_bytes(data)
    try:
        out = folder / "scores.csv"
        out.unlink(missing_ok=True)
        code = behaves(folder, "score", "table-run", name, "-o", out)
        assert out.exists() == (code == 0)
        if code == 0:
            text = out.read_text()
            assert "nan" not in text
            table = read_table(out, columns=["row", "p_value"])
            assert ((table.values[:, 1] > 0) & (table.values[:, 1] <= 1)).all()
    finally:
        (folder / name).unlink()


class Stopped(KeyboardInterrupt):
    """Where training would begin."""


def settings_are_read(folder, case, monkeypatch):
    """Settings lead to a model or to a message; nothing is left in the run's folder."""
    values, in_file = case
    out = folder / "new-run"

    def stop(*_, **__):
        raise Stopped

    monkeypatch.setattr(launch, "fit", stop)
    words = ["fit", "table.csv", "--latent-dim", "1", "--out", out]
    if in_file:
        (folder / "settings.toml").write_text(tomli_w.dumps(values))
        words += ["--config", "settings.toml"]
    else:
        words += [f"--{name.replace('_', '-')}={value}" for name, value in values.items()]
    behaves(folder, *words, codes=(2, 130))
    assert not out.exists()


def words_are_read(folder, words):
    for name in ("out.csv", "out.npy", "out", "samples.csv", "scores.csv", "dimension.png"):
        (folder / name).unlink(missing_ok=True)
    behaves(folder, *words)


@pytest.mark.parametrize("count", [SHORT, pytest.param(LONG, marks=pytest.mark.reliability)])
class TestFuzz:
    def test_text(self, folder, count):
        campaign("tables as text", cases.texts(), count, lambda case: scores_of(folder, case))

    def test_arrays(self, folder, count):
        campaign("tables as arrays", cases.arrays(), count, lambda case: scores_of(folder, case))

    def test_settings(self, folder, count, monkeypatch):
        campaign("settings", cases.settings(), count, lambda case: settings_are_read(folder, case, monkeypatch))

    def test_command_lines(self, folder, count):
        campaign("command lines", cases.command_lines(), count, lambda words: words_are_read(folder, words))
