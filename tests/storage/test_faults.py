"""Whatever call to the disk goes wrong in the life of a run, the old state or the new one is there, never a third."""

import subprocess
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from unittest.mock import ANY

import pytest

from tests.tally import tally

from .faults import FAULTS, Disk, Killed
from .life import go_on, live, seen

pytestmark = pytest.mark.filterwarnings("ignore::rectangular_flows.runs.saved.UnfinishedRunWarning")

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A life without a fault: its calls, what a reader sees after each save, and how many saves came before each call."""
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    states, saves = [None], []

    def look(name, path):
        if name == "replace" and Path(path).name == "manifest.json":
            states.append(seen(folder))
        saves.append(len(states) - 1)

    with Disk(folder.parent, after=look).watched() as disk:
        states.append(live(folder))
    return disk.calls, states, [0, *saves]


def check(folder, undisturbed, at, fault):
    """One life with a fault, and what follows."""
    calls, states, saves = undisturbed
    folder.parent.mkdir(parents=True)
    disk = Disk(folder.parent, at, fault)
    with disk.watched(), suppress(OSError, Killed):
        live(folder)
    assert disk.calls[: at - 1] == [(name, ANY) for name, _ in calls[: at - 1]]  # the same life up to there
    what = f"{fault} at call {at} of {len(calls)}, {' '.join(calls[at - 1])}"
    before = saves[at - 1]
    assert seen(folder) in states[before : before + 2] or not disk.dead, what
    assert seen(folder) in states, what
    assert go_on(folder).finished == "all epochs done", what
    assert seen(folder) == states[-1], what
    assert sorted(p.name for p in folder.rglob("*") if p.name.startswith(".")) == [], what


def test_a_life_saves_several_times_and_each_save_is_seen(undisturbed):
    calls, states, _ = undisturbed
    assert {name for name, _ in calls} == {"open", "write", "fsync", "replace", "link", "unlink", "mkdir"}
    assert states[0] is states[1] is None  # begun
    different = {state for state in states if state is not None}
    assert len(different) == 3  # stopped, finished, calibrated


@pytest.mark.parametrize("save", range(5))
def test_the_calls_around_every_save(tmp_path, undisturbed, save):
    calls, _, _ = undisturbed
    points = [at for at, call in enumerate(calls, 1) if call == ("replace", "manifest.json")]
    assert len(points) == 6
    for at, fault in (
        (points[save + 1], "killed"),
        (points[save + 1] + 2, "killed"),
        (points[save] + 4 + save, "ENOSPC"),
    ):
        check(tmp_path / str(at) / "run", undisturbed, at, fault)


@pytest.mark.slow
@pytest.mark.reliability
@pytest.mark.parametrize("fault", FAULTS[:3])
def test_every_call(tmp_path, undisturbed, fault):
    calls, _, _ = undisturbed
    counted = tally(f"every call to the disk in the life of a run: {fault}")
    for at in range(1, len(calls) + 1):
        counted.tried += 1
        check(tmp_path / str(at) / "run", undisturbed, at, fault)
        counted.held += 1


@pytest.mark.slow
@pytest.mark.reliability
def test_processes_that_end_at_some_calls(tmp_path, undisturbed):
    calls, states, saves = undisturbed
    code = "import sys; from tests.storage.test_faults import end_at; end_at(sys.argv[1], int(sys.argv[2]))"
    counted = tally("every 23rd call to the disk: the process ends")
    for at in range(5, len(calls) + 1, 23):
        counted.tried += 1
        folder = tmp_path / str(at) / "run"
        folder.parent.mkdir()
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", code, folder, str(at)], cwd=ROOT, check=False)
        assert done.returncode == 9
        assert seen(folder) in states[saves[at - 1] : saves[at - 1] + 2]
        go_on(folder)
        assert seen(folder) == states[-1]
        counted.held += 1


def end_at(folder, at):
    warnings.simplefilter("ignore")
    with Disk(Path(folder).parent, at, "exit").watched():
        live(Path(folder))
