"""The share of planted faults that the tests find, measured on a random sample.

``python -m benchmarks.mutation --rooms evaluation cli runs --mutants 60 --seed 0`` draws as many small changes of the code
of each room (:mod:`benchmarks.mutants`) and runs tests against each, in a copy of the tree: those that reach the changed
statement (:mod:`benchmarks.reached`), the quick ones first, until one fails. They are chosen from the files of ``--tests``,
and stop at ``--budget`` seconds, so that the whole suite finds at least as many. A change that no test notices has survived.
One that keeps the tests from ending counts as found, and is marked.

Everything is imported once; each run is a fork of the process that did so, with the changed function put in the place of the
one that is loaded. Only a change outside functions needs the package to be imported again.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from math import sqrt
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read by what is imported below

import pytest

from .mutants import PACKAGE, ROOT, Mutant, mutants
from .reached import Reach, enter, reach_of

ROOMS = ("evaluation", "cli", "runs")
TESTS = (
    *("tests/evaluation", "tests/cli", "tests/runs", "tests/settings", "tests/data/test_download.py"),
    *("tests/test_compatibility.py", "tests/paper/test_experiment.py", "tests/paper/test_options.py"),
)
IMPORTS = ("torch", "scipy.stats", "sklearn.mixture", "sklearn.ensemble", "matplotlib.pyplot", "zuko")


def functions(code: CodeType) -> Iterator[CodeType]:
    """The functions that a module defines and those of its classes, in the order of the file."""
    for part in code.co_consts:
        if isinstance(part, CodeType):
            if part.co_flags & 0x2:  # CO_NEWLOCALS: a function, not the body of a class
                yield part
            else:
                yield from functions(part)


def put_in_place(file: Path, before: bytes, after: bytes) -> None:
    """Give every loaded function of a file the code of its changed source.

    Raises:
        ValueError: that cannot be done.
    """
    loaded: dict[tuple[str, int], list[FunctionType]] = {}
    for found in gc.get_objects():
        if type(found) is FunctionType and found.__code__.co_filename == str(file):
            loaded.setdefault((found.__code__.co_qualname, found.__code__.co_firstlineno), []).append(found)
    old, new = (list(functions(compile(source, str(file), "exec"))) for source in (before, after))
    keys = [(code.co_qualname, code.co_firstlineno) for code in old]
    if [code.co_qualname for code in old] != [code.co_qualname for code in new] or len(set(keys)) < len(keys):
        raise ValueError("the functions before and after do not go together")
    for key, code in zip(keys, new, strict=True):
        for function in loaded.get(key, ()):
            function.__code__ = code


def chosen(mutant: Mutant, reach: dict[str, Reach], budget: float) -> tuple[list[str], float]:
    """The tests that reach a change, quick files and tests first, and the seconds they take."""
    room = f"{mutant.path.parent.name}/{mutant.path.name}"
    files = []
    for found in reach.values():
        if mutant.live:
            tests = set(found.lines.get(f"{room}:{mutant.statement}", ()))
        else:
            tests = {test for line, tests in found.lines.items() if line.startswith(f"{room}:") for test in tests}
        tests = set(found.seconds) if "" in tests else tests
        if tests := tests - {""}:
            ordered = sorted(tests, key=lambda test: found.seconds[test])
            files.append((found.seconds.get("", 0.0), [(found.seconds[test], test) for test in ordered]))
    total = 0.0
    names: list[str] = []
    for fixtures, ordered_tests in sorted(files, key=lambda file: file[0] + file[1][0][0]):
        total += fixtures
        for seconds, test in ordered_tests:
            if names and total + seconds > budget:
                break
            total, names = total + seconds, [*names, test]
    return names, total


@dataclass(frozen=True)
class Outcome:
    """What the tests made of a change: 'found', 'SURVIVED', or 'no end' where they take far longer than they should."""

    word: str
    test: str = ""  # that failed


class _First:
    """A plugin of pytest that writes down the test that fails."""

    def __init__(self, file: Path):
        self.file = file

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.file.write_text(report.nodeid)


def outcome(folder: Path, mutant: Mutant | None, tests: list[str], seconds: float) -> Outcome:
    """Run the tests against a change, or against none."""
    note = folder / "failed.txt"
    note.unlink(missing_ok=True)
    if mutant is not None:
        (folder / mutant.path).write_bytes(mutant.source)  # for processes that the tests start
    child = os.fork()
    if not child:
        code = 1
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (int(4 * seconds + 40), int(4 * seconds + 60)))
            enter(folder, fresh=not (mutant is None or _put_in_place(folder, mutant)))
            code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests], plugins=[_First(note)]))
        finally:
            os._exit(code)
    end, status = time.monotonic() + 30 * seconds + 200, None
    while time.monotonic() < end and status is None:
        done, value = os.waitpid(child, os.WNOHANG)
        status = os.waitstatus_to_exitcode(value) if done else None
        time.sleep(0.02)
    if status is None:
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if mutant is not None:
        shutil.copy(ROOT / mutant.path, folder / mutant.path)
    if status == 0:
        return Outcome("SURVIVED")
    if status in (None, -signal.SIGXCPU, -signal.SIGKILL):
        return Outcome("no end")
    return Outcome("found", note.read_text() if note.exists() else "")


def _put_in_place(folder: Path, mutant: Mutant) -> bool:
    """Whether that could be done; if not, the package has to be imported again."""
    if not mutant.live:
        return False
    try:
        put_in_place(folder / mutant.path, (ROOT / mutant.path).read_bytes(), mutant.source)
    except ValueError:
        return False
    return True


def interval(found: int, tried: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share."""
    share, z = found / tried, 1.96
    middle, half = share + z * z / (2 * tried), z * sqrt(share * (1 - share) / tried + z * z / (4 * tried * tried))
    return (middle - half) / (1 + z * z / tried), (middle + half) / (1 + z * z / tried)


def measure(folder: Path, reach: dict[str, Reach], options: argparse.Namespace) -> None:
    """Plant faults in all rooms by turns, with a line for each; then the share found in each room."""
    drawn, possible = [], {}
    for room in options.rooms:
        paths = sorted((ROOT / PACKAGE / room).glob("*.py"))
        everything = [m for path in paths for m in mutants(path.relative_to(ROOT))]
        possible[room] = len(everything)
        drawn.append(random.Random(options.seed).sample(everything, min(options.mutants, len(everything))))
    found: dict[str, list[bool]] = {room: [] for room in options.rooms}
    failed: set[str] = set()
    for number, mutant in enumerate(one for some in zip_longest(*drawn) for one in some if one is not None):
        start = time.monotonic()
        tests, seconds = chosen(mutant, reach, options.budget)
        result = outcome(folder, mutant, tests, seconds) if tests else Outcome("SURVIVED")
        found[mutant.path.parent.name].append(result.word != "SURVIVED")
        failed |= {result.test} - {""}
        print(
            f"{number:3} {result.word:8} {len(tests):3} tests {time.monotonic() - start:5.1f} s  {mutant}", flush=True
        )
    control = outcome(folder, None, sorted(failed), 600)
    print(f"without a change, the {len(failed)} tests that failed {'pass' if control.word == 'SURVIVED' else 'FAIL'}")
    print(control.test)
    for room, values in found.items():
        low, high = interval(sum(values), len(values))
        share = f"{sum(values) / len(values):.0%} ({low:.0%} to {high:.0%})"
        print(f"{room}: {sum(values)} of {len(values)} found, {share}; {possible[room]:,} are possible")


def main() -> None:
    """Measure each of the rooms that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rooms", nargs="+", default=list(ROOMS))
    parser.add_argument("--mutants", type=int, default=60, help="of each room")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budget", type=float, default=30.0, help="seconds of tests for each change")
    parser.add_argument("--tests", nargs="+", default=list(TESTS), help="files and folders to choose tests from")
    parser.add_argument(
        "--reach", type=Path, default=Path("reach.json"), help="keeps which tests reach which statement"
    )
    options = parser.parse_args()
    kept = options.reach.resolve()
    for name in IMPORTS:
        importlib.import_module(name)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary).resolve()
        for part in ("src", "tests", "benchmarks", "docs"):
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        for file in ROOT.glob("*.*"):
            if file.is_file():
                shutil.copy(file, folder)
        os.environ["PYTHONPATH"] = f"{folder / 'src'}:{folder}"  # for processes that the tests start
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # a file changed twice within a second looks the same
        sys.dont_write_bytecode = True
        sys.path[:0] = [str(folder / "src"), str(folder)]
        files = [str(f.relative_to(ROOT)) for name in options.tests for f in _files(ROOT / name)]
        reach = reach_of(folder, files, list(ROOMS), kept)
        for room in ROOMS:  # a process that forks has all of the package and its tests
            for path in (folder / PACKAGE / room).glob("[!_]*.py"):
                importlib.import_module(f"rectangular_flows.{room}.{path.stem}")
        os.chdir(folder)
        if pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider", *files]):
            sys.exit("the tests cannot be collected: run them to see why")
        measure(folder, reach, options)


def _files(place: Path) -> list[Path]:
    return sorted(place.glob("test_*.py")) if place.is_dir() else [place]


if __name__ == "__main__":
    main()
