"""The import rules that docs/design.md states hold: no room knows a room above it, and nothing imports in a circle."""

from __future__ import annotations

import ast
import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "rectangular_flows"
NAME = PACKAGE.name


def rooms() -> list[str]:
    """The rooms in the order that docs/design.md draws, from the ground up."""
    text = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    block = re.search(r"```text\n(.*?)```", text, re.S)
    assert block, "docs/design.md has no drawing of the rooms"
    return [match[1] for match in re.finditer(r"^(\w+)(?:/|\.py)", block[1], re.M)]


def modules() -> dict[str, Path]:
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = (NAME, *path.relative_to(PACKAGE).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(name: str, path: Path, known: set[str], *, lazy: bool) -> set[str]:
    """The modules of the package that a module imports; those inside functions only if ``lazy``."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = list(ast.walk(tree)) if lazy else _top_level(tree.body)
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{source}.{alias.name}"
                found.add(inner if inner in known else source)
    return {module for module in found if module in known} - {name}


def _top_level(body: list[ast.stmt]) -> list[ast.stmt]:
    found: list[ast.stmt] = []
    for node in body:
        if isinstance(node, ast.If):
            typing_only = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
            found += [] if typing_only else _top_level([*node.body, *node.orelse])
        elif isinstance(node, ast.Try):
            found += _top_level([*node.body, *node.orelse, *node.finalbody])
        else:
            found.append(node)
    return found


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def test_every_room_is_drawn():
    there = {room_of(name) for name in modules()} - {"__init__", "_version", "__main__"}
    assert there == set(rooms())


def test_no_room_imports_one_above_it():
    order = {room: i for i, room in enumerate(rooms())}
    known = set(modules())
    wrong = []
    for name, path in modules().items():
        here = order.get(room_of(name))
        if here is None:  # the package itself gives out names of every room
            continue
        for module in imports(name, path, known, lazy=True):
            if order.get(room_of(module), -1) > here:
                wrong.append(f"{name} imports {module}")
    assert not wrong, "\n".join(sorted(wrong))


def test_nothing_imports_in_a_circle():
    known = set(modules())
    graph = {name: imports(name, path, known, lazy=False) for name, path in modules().items()}
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(" → ".join(error.args[1]))


def test_a_wrong_import_would_be_found(tmp_path):
    module = tmp_path / "upward.py"
    module.write_text("def f():\n    from ..cli import main\n", encoding="utf-8")
    known = {*modules(), f"{NAME}.flows.upward"}
    assert imports(f"{NAME}.flows.upward", module, known, lazy=True) == {f"{NAME}.cli"}
    assert imports(f"{NAME}.flows.upward", module, known, lazy=False) == set()
