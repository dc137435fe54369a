"""The share of planted faults that the tests find, measured on a random sample.

``python -m benchmarks.mutation --rooms evaluation cli runs --mutants 40 --seed 0`` draws as many small changes of the code
of each room (a comparison turned, a sign, a constant, a condition negated, an argument dropped, a statement left out, None
returned) and runs the tests of the changed module against each, in a copy of the tree. Those of the module's name come
first, then a few that import it, so that the whole suite finds more. A change that none of them notices has survived; so
has one whose tests take too long.

What is imported from elsewhere is imported once; each run is a fork of the process that did so. The words of messages
are not changed, nor annotations.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read by what is imported below

ROOT = Path(__file__).parents[1]
PACKAGE = Path("src/rectangular_flows")
ELSEWHERE = {  # modules that no test file names
    "evaluation/verdict_text": "evaluation/test_verdict",
    "cli/arguments": "evaluation/test_ood",
    "cli/bench": "paper/test_bench",
    "cli/reproduce": "paper/test_options",
    "runs/described": "cli/test_show",
}
CONTROL = "tests/test_kinds.py"  # passes where the copy and the fork do what they should
FILES = 4  # of tests for a module, at most
IMPORTS = ("torch", "scipy.stats", "sklearn.mixture", "sklearn.ensemble", "matplotlib.pyplot", "zuko")

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Add,
    ast.Pow: ast.Mult,
}


@dataclass(frozen=True)
class Mutant:
    """One change of one file."""

    path: Path
    line: int
    before: str
    after: str
    source: bytes

    def __str__(self) -> str:
        return f"{self.path.relative_to(PACKAGE)}:{self.line}: {self.before}  →  {self.after}"


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in the place of a node."""
    new = copy.deepcopy(node)
    match new:
        case ast.Compare(ops=[op]) if type(op) in COMPARISONS:
            new.ops = [COMPARISONS[type(op)]()]
            yield new
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in ARITHMETIC:
            new.op = ARITHMETIC[type(op)]()
            yield new
        case ast.BoolOp(op=joint):
            new.op = ast.Or() if isinstance(joint, ast.And) else ast.And()
            yield new
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield new.operand
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield ast.Constant(value + 1)
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test) if not isinstance(test, ast.Compare):
            new.test = ast.UnaryOp(ast.Not(), test)
            yield new
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            new.value = ast.Constant(None)
            yield new
        case ast.Expr(value=ast.Call()):
            yield ast.Pass()
        case ast.Break():
            yield ast.Continue()
        case ast.Continue():
            yield ast.Break()
        case ast.Call(keywords=[_, *_]):
            for i in range(len(new.keywords)):
                less = copy.deepcopy(new)
                del less.keywords[i]
                yield less
        case ast.Call(args=[_, _, *_]):
            new.args.pop()
            yield new


def inner(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes under one whose changes would do something, in the order of the file."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            # before Python 3.12, what is within an f-string has no position
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr):
                yield child
                yield from inner(child)


def mutants(path: Path) -> Iterator[Mutant]:
    """Every change of a file that there is."""
    source = (ROOT / path).read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in inner(ast.parse(source)):
        if not isinstance(node, ast.expr | ast.stmt) or node.end_lineno is None or node.end_col_offset is None:
            continue
        begin, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        for change in changes(node):
            if isinstance(node, ast.If | ast.While):  # the condition alone, for the rest may be long
                test = node.test
                assert test.end_lineno is not None
                assert test.end_col_offset is not None
                begin, end = (
                    starts[test.lineno - 1] + test.col_offset,
                    starts[test.end_lineno - 1] + test.end_col_offset,
                )
                change = change.test  # type: ignore[attr-defined]
            text = ast.unparse(change)
            text = f"({text})" if isinstance(change, ast.expr) else text
            before = source[begin:end].decode()
            yield Mutant(
                path, node.lineno, " ".join(before.split()), text, source[:begin] + text.encode() + source[end:]
            )


def tests_of(path: Path) -> list[str]:
    """The test file of the module's name and those that import the module, or call it where it is a command: a few."""
    room, module = path.parent.name, path.stem
    mirrored = Path(f"tests/{room}/test_{'main' if module == '__init__' else module}.py")
    if f"{room}/{module}" in ELSEWHERE:
        mirrored = Path(f"tests/{ELSEWHERE[f'{room}/{module}']}.py")
    dotted = rf"rectangular_flows\.{room}" + ("" if module == "__init__" else rf"\.{module}\b")
    named = re.compile(
        rf"(from|import) {dotted} |from rectangular_flows\.{room} import .*\b{module}\b|(run|rnf|complaint)\(\"{module}\""
    )
    others = [
        file.relative_to(ROOT) for file in sorted((ROOT / "tests").rglob("test_*.py")) if named.search(file.read_text())
    ]
    found = [mirrored] * (ROOT / mirrored).exists() + sorted(
        set(others) - {mirrored}, key=lambda file: file.parent.name != room
    )
    whole_room = sorted(file.relative_to(ROOT) for file in (ROOT / "tests" / room).glob("test_*.py"))
    return [str(file) for file in (found or whole_room)[:FILES]]


def passes(folder: Path, tests: list[str], seconds: float) -> bool | None:
    """Whether the tests pass in that copy of the tree; None where they take longer than that."""
    child = os.fork()
    if not child:
        _run(folder, tests)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _run(folder: Path, tests: list[str]) -> None:
    """In the forked process, which ends here."""
    code = 1
    try:
        os.setpgid(0, 0)
        os.chdir(folder)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        sys.path[:0] = [str(folder / "src"), str(folder)]
        os.environ["PYTHONPATH"] = f"{folder / 'src'}:{folder}"  # for processes that the tests start
        for name in [
            name for name in sys.modules if name.split(".")[0] in ("benchmarks", "tests", "rectangular_flows")
        ]:
            del sys.modules[name]
        import pytest

        code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests]))
    finally:
        os._exit(code)


def measure(room: str, folder: Path, count: int, seed: int, seconds: float) -> tuple[int, int]:
    """The numbers of faults found and planted in a room, with a line for each."""
    everything = [m for path in sorted((ROOT / PACKAGE / room).glob("*.py")) for m in mutants(path.relative_to(ROOT))]
    drawn = random.Random(seed).sample(everything, min(count, len(everything)))
    killed = 0
    for mutant in drawn:
        (folder / mutant.path).write_bytes(mutant.source)
        start = time.monotonic()
        found = passes(folder, tests_of(mutant.path), seconds)
        shutil.copy(ROOT / mutant.path, folder / mutant.path)
        killed += found is False
        word = {True: "SURVIVED", False: "killed", None: "TOO LONG"}[found]
        print(f"{word:8} {time.monotonic() - start:5.0f} s  {mutant}", flush=True)
    share = killed / len(drawn)
    error = (share * (1 - share) / len(drawn)) ** 0.5
    print(
        f"{room}: {killed} of {len(drawn)} found ({share:.0%} ± {error:.0%}), of {len(everything)} possible", flush=True
    )
    return killed, len(drawn)


def main() -> None:
    """Measure each of the rooms that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rooms", nargs="+", default=["evaluation", "cli", "runs"])
    parser.add_argument("--mutants", type=int, default=40, help="of each room")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=300.0, help="limit for each run of the tests")
    options = parser.parse_args()
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # a file changed twice within a second looks the same
    sys.dont_write_bytecode = True
    for name in IMPORTS:
        __import__(name)
    with tempfile.TemporaryDirectory() as kept:
        folder = Path(kept).resolve()
        for part in ("src", "tests", "benchmarks", "docs"):
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        for file in ROOT.glob("*.*"):
            if file.is_file():
                shutil.copy(file, folder)
        if not passes(folder, [CONTROL], options.seconds):
            sys.exit(f"{CONTROL} fails without any change: expected it to pass; run it to see why")
        for room in options.rooms:
            measure(room, folder, options.mutants, options.seed, options.seconds)


if __name__ == "__main__":
    main()
