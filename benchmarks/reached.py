"""Which tests reach which statement: see :mod:`benchmarks.mutation`.

Every statement of a function is preceded by a call that notes it. What a fixture reaches counts for all tests of its file.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from .mutants import PACKAGE

_HITS: set[tuple[str, int]] = set()
_NOTE = "_note_a_statement"


def instrumented(source: str, name: str) -> str:
    """The source with a note before every statement of its functions; processes of their own note nothing."""
    tree = ast.parse(source)
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                for part in ("body", "orelse", "finalbody"):
                    body = getattr(node, part, None)
                    if isinstance(body, list) and not isinstance(node, ast.ClassDef):
                        setattr(node, part, [line for statement in body for line in _noted(statement, name)])
    ahead = ast.parse(f"import builtins\n{_NOTE} = getattr(builtins, '{_NOTE}', set().add)").body
    first = next(i for i, line in enumerate(tree.body) if i and not _is_future(line)) if len(tree.body) > 1 else 0
    tree.body[first:first] = ahead
    return ast.unparse(ast.fix_missing_locations(tree))


def _is_future(line: ast.stmt) -> bool:
    return isinstance(line, ast.ImportFrom) and line.module == "__future__"


def _noted(statement: ast.stmt, name: str) -> Iterator[ast.stmt]:
    docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    if not docstring and not getattr(statement, "noted", False):
        note = ast.parse(f"{_NOTE}(({name!r}, {statement.lineno}))").body[0]
        statement.noted = note.noted = True  # type: ignore[attr-defined]
        yield note
    yield statement


@dataclass
class Reach:
    """What the tests of one file reach.

    Attributes:
        lines: the statements, as 'room/module.py:line', and the tests that reach each; '' stands for all of the file.
        seconds: of CPU that each test takes; '' for fixtures.
    """

    lines: dict[str, list[str]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


class _Noting:
    """A plugin of pytest that fills a :class:`Reach`."""

    def __init__(self) -> None:
        self.lines: dict[str, set[str]] = defaultdict(set)
        self.seconds: dict[str, float] = defaultdict(float)
        self.unfit: set[str] = set()

    def _take(self, test: str) -> None:
        for name, line in _HITS:
            self.lines[f"{name}:{line}"].add(test)
        _HITS.clear()

    def _phase(self, test: str) -> Iterator[None]:
        start = time.process_time()
        yield
        self.seconds[test] += time.process_time() - start
        self._take(test)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_setup(self, item: Any) -> Iterator[None]:
        yield from self._phase("")

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: Any) -> Iterator[None]:
        yield from self._phase(item.nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if not report.passed:  # skipped, or it fails without any change
            self.unfit.add(report.nodeid)

    def found(self) -> dict[str, Any]:
        """As :class:`Reach` has it."""
        lines = {line: sorted(tests - self.unfit) for line, tests in self.lines.items()}
        return {"lines": lines, "seconds": {k: v for k, v in self.seconds.items() if k not in self.unfit}}


def reach_of(folder: Path, tests: list[str], rooms: list[str], kept: Path) -> dict[str, Reach]:
    """What each of the test files reaches; from the file of an earlier run, where it has not changed since.

    Args:
        folder: a copy of the tree, whose rooms are changed for this and then put back.
        tests: files, from the root of the repository.
        rooms: whose statements count.
        kept: where what was found is kept.
    """
    before = json.loads(kept.read_text()) if kept.exists() else {}
    code = "".join(_outline(path) for room in rooms for path in sorted((folder / PACKAGE / room).glob("*.py")))
    keys = {test: hashlib.sha256(code.encode() + (folder / test).read_bytes()).hexdigest() for test in tests}
    missing = [test for test in tests if keys[test] not in before]
    if missing:
        originals = {path: path.read_bytes() for room in rooms for path in (folder / PACKAGE / room).glob("*.py")}
        for path, source in originals.items():
            path.write_text(instrumented(source.decode(), f"{path.parent.name}/{path.name}"), encoding="utf-8")
        for test in missing:
            before[keys[test]] = _traced(folder, test)
            kept.write_text(json.dumps(before))
            print(f"{sum(before[keys[test]]['seconds'].values()):6.1f} s  {test}", flush=True)
        for path, source in originals.items():
            path.write_bytes(source)
    return {test: Reach(**before[keys[test]]) for test in tests}


def _outline(path: Path) -> str:
    """Where the statements of a file are; a change within one leaves it as it is."""
    nodes = ast.walk(ast.parse(path.read_bytes()))
    return f"{path.name} {sorted(node.lineno for node in nodes if isinstance(node, ast.stmt))}\n"


def _traced(folder: Path, test: str) -> dict[str, Any]:
    """What one file reaches, in a process of its own."""
    out = folder / "reached.json"
    child = os.fork()
    if not child:
        try:
            enter(folder)
            setattr(builtins, _NOTE, _HITS.add)
            noting = _Noting()
            pytest.main(["-q", "-p", "no:cacheprovider", test], plugins=[noting])
            out.write_text(json.dumps(noting.found()))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    found: dict[str, Any] = json.loads(out.read_text())
    out.unlink()
    return found


def enter(folder: Path, fresh: bool = True) -> None:
    """In a forked process: work in that copy of the tree, silently.

    Args:
        folder: the copy.
        fresh: whether to import the package and its tests again.
    """
    os.setpgid(0, 0)
    os.chdir(folder)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    if fresh:
        own = ("tests", "rectangular_flows")
        for name in [name for name in sys.modules if name.split(".")[0] in own]:
            del sys.modules[name]
