"""Small changes of code that a test should notice: see :mod:`benchmarks.mutation`.

A comparison turned, a sign, a constant, a condition negated, an argument dropped, a statement left out, None returned. The
words of messages are not changed, nor annotations.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = Path("src/rectangular_flows")

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
    """One change of one file.

    Attributes:
        path: of the file, from the root of the repository.
        line: of the change.
        statement: the line where the statement begins that was changed.
        live: whether it lies within a function, so that functions that are loaded already can be changed in place.
        before: what was there.
        after: what stands in its place.
        source: of the whole file.
    """

    path: Path
    line: int
    statement: int
    live: bool
    before: str
    after: str
    source: bytes

    def __str__(self) -> str:
        return f"{self.path.relative_to(PACKAGE)}:{self.line}: {self.before}  →  {self.after}"


@dataclass(frozen=True)
class Place:
    """A node, the statement it is part of, and whether a function holds it."""

    node: ast.AST
    statement: int
    live: bool


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


def places(node: ast.AST, statement: int = 1, live: bool = False) -> Iterator[Place]:
    """The nodes under one whose changes would do something, in the order of the file."""
    function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        within = live or (function and name == "body")  # defaults of arguments are computed outside
        for child in value if isinstance(value, list) else [value]:
            # before Python 3.12, what is within an f-string has no position
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr):
                line = child.lineno if isinstance(child, ast.stmt) else statement
                yield Place(child, line, within)
                yield from places(child, line, within)


def mutants(path: Path) -> Iterator[Mutant]:
    """Every change of a file that there is."""
    source = (ROOT / path).read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def span(node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset

    for place in places(ast.parse(source)):
        node = place.node
        if not isinstance(node, ast.expr | ast.stmt):
            continue
        begin, end = span(node)
        for change in changes(node):
            if isinstance(node, ast.If | ast.While):  # the condition alone, for the rest may be long
                begin, end = span(node.test)
                change = change.test  # type: ignore[attr-defined]
            text = ast.unparse(change)
            text = f"({text})" if isinstance(change, ast.expr) else text
            before, new = " ".join(source[begin:end].decode().split()), source[:begin] + text.encode() + source[end:]
            yield Mutant(path, node.lineno, place.statement, place.live, before, text, new)
