"""Groups of the benchmark run, shown, drawn and written down."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from rich import box
from rich.console import Console
from rich.table import Table

from ...plots.curves import _COLOURS
from ...plots.style import legend_below, plain, sheet, title
from ...runs.display import say, wide_console
from ...storage.files import write_atomically
from .groups import GROUPS, Group, Row
from .show import facts_of

_HIDDEN = ("cpu_least", "cpu_most")


def bench(groups: Sequence[str], cases: Sequence[str] | None, rounds: int, out: Path | None) -> dict[str, Any]:
    """Measure groups one after the other; print each, and write JSON and a figure for each to a folder.

    Args:
        groups: names in :data:`~.groups.GROUPS`.
        cases: of those groups that have some; None: their own.
        rounds: of steps that take turns.
        out: the folder; None writes nothing.
    """
    if rounds < 1:
        raise ValueError(f"expected rounds ≥ 1; got {rounds}")
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {}
    for name in groups:
        group = GROUPS[name]
        say(f"{group.title} …", console=Console(stderr=True))
        rows = group.measure(cases or group.cases, rounds)
        results[name] = {"facts": facts_of(rounds), "rows": rows}
        for part in _by_columns(rows):
            wide_console().print(_table(group, part))
        say(group.note, console=wide_console())
        if out is not None:
            write_atomically(out / f"{name}.json", json.dumps(results[name], indent=2).encode())
            draw(group, rows).savefig(out / f"{name}.png", dpi=110)
    return results


def draw(group: Group, rows: Sequence[Row]) -> Figure:
    """The figure of a group: bars by case, or lines; a panel a case for lines."""
    shown = [row for row in rows if row.get(group.y) is not None and group.by in row]
    panels = [None] if group.bars else list(dict.fromkeys(row.get("case") for row in shown)) or [None]
    figure = sheet(9.4, 3.8)
    handles: list[Any] = []
    for axis, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        here = [row for row in shown if panel is None or row.get("case") == panel]
        names = list(dict.fromkeys(row[group.by] for row in here))
        places = list(dict.fromkeys(row[group.x] for row in here))
        handles = []
        for i, name in enumerate(names):
            mine = [row for row in here if row[group.by] == name]
            colour = _COLOURS[i % len(_COLOURS)]
            if group.bars:
                at = [places.index(row[group.x]) + (i - len(names) / 2 + 0.5) * 0.8 / len(names) for row in mine]
                hatch = "///" if i >= len(_COLOURS) else None
                handles.append(
                    axis.bar(
                        at, [row[group.y] for row in mine], 0.8 / len(names), color=colour, label=name, hatch=hatch
                    )
                )
            else:
                values = [row[group.x] for row in mine], [row[group.y] for row in mine]
                handles += axis.plot(*values, "o-", color=colour, label=name, markersize=3, linewidth=1.2)
        if group.bars:
            axis.set_xticks(range(len(places)), [str(place) for place in places])
        elif group.x in ("K", "d"):
            axis.set_xscale("log", base=2)
        if all(row[group.y] > 0 for row in here):
            axis.set_yscale("log")
        axis.set_xlabel(group.x.replace("_", " "), fontsize=9)
        axis.set_ylabel(group.y.replace("_", " "), fontsize=9)
        title(axis, group.title if panel is None else f"{group.title}: {panel}")
        plain(axis)
    legend_below(figure, handles, 4)
    return figure


def page(folder: Path) -> str:
    """The tables of the groups that were measured, as Markdown."""
    parts = []
    for name, group in GROUPS.items():
        file = folder / f"{name}.json"
        if not file.exists():
            continue
        result = json.loads(file.read_text(encoding="utf-8"))
        facts = ", ".join(f"{key} {value}" for key, value in result["facts"].items())
        parts.append(
            f"## {group.title} (`rnf bench {name}`)\n\n{group.note} {facts}.\n\n![{group.title}]({name}.png)\n"
        )
        for rows in _by_columns(result["rows"]):
            columns = _columns(rows)
            lines = [columns, ["---"] * len(columns), *([_cell(row.get(c)) for c in columns] for row in rows)]
            parts.append("\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n")
    return "\n".join(parts)


def _by_columns(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows with counted products, and levels to reach, apart from the others, since their columns differ."""
    kinds: dict[str, list[Row]] = {}
    for row in rows:
        kinds.setdefault(next((kind for kind in ("products", "level") if kind in row), ""), []).append(row)
    return list(kinds.values())


def _columns(rows: Sequence[Row]) -> list[str]:
    return [name for name in dict.fromkeys(key for row in rows for key in row) if name not in _HIDDEN]


def _table(group: Group, rows: Sequence[Row]) -> Table:
    table = Table(title=group.title, box=box.SIMPLE, padding=(0, 1, 0, 0))
    columns = _columns(rows)
    for name in columns:
        table.add_column(name.replace("_", "\n"), justify="right" if name not in ("case", "method") else "left")
    for row in rows:
        table.add_row(*(_cell(row.get(name)) for name in columns))
    return table


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)
