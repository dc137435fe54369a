"""Groups of the benchmark run, shown, drawn and written down."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from rich import box
from rich.console import Console
from rich.table import Table

from ...plots.curves import _COLOURS
from ...plots.style import BLUE, MUTED, PALE, RED, legend_below, plain, sheet, title
from ...runs.display import say, wide_console
from ...storage.files import write_atomically
from .groups import GROUPS, OURS, Group, Row
from .show import facts_of
from .targets import GOALS

_ACROSS = 5  # panels
_ROUNDING = 1e6
_MOST_ROWS = 120  # of a table that anybody reads
_HIDDEN = ("cpu_least", "cpu_most")
_HEADINGS = {
    "cpu_seconds": "CPU seconds",
    "wall_seconds": "wall seconds",
    "over_reconstruction": "over reconstruction only",
    "published_exact_over_this": "published, exact, over this",
    "of_published": "of the published one",
    "time_over_whole": "time over the whole batch",
    "mib": "MiB",
    "cpu": "CPU seconds",
    "fid_like": "FID-like",
    "of": "method",
}


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
    """The figure of a group: a panel for each x with a row for each method, or lines, with a panel for each case."""
    shown = [row for row in rows if row.get(group.y) is not None and group.by in row]
    return _in_rows(group, shown) if group.panels else _lines(group, shown)


def _in_rows(group: Group, shown: Sequence[Row]) -> Figure:
    places = list(dict.fromkeys(row[group.x] for row in shown))
    names = list(dict.fromkeys(row[group.by] for row in shown))[::-1]
    across = min(len(places), _ACROSS)
    down = -(-len(places) // across)
    figure = sheet(2.2 + 1.9 * across, 0.5 + down * (0.4 + 0.27 * len(names)), w_pad=0.06)
    axes = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False).flatten()
    for axis in axes[len(places) :]:
        axis.set_visible(False)
    least, most = (bound(row[group.y] for row in shown) for bound in (min, max))
    for axis, place in zip(axes, places, strict=False):
        for row in shown:
            if row[group.x] != place:
                continue
            at, value = names.index(row[group.by]), row[group.y]
            colour = RED if row[group.by].startswith("auto") else BLUE if row[group.by] in OURS else MUTED
            axis.plot([least, value], [at, at], color=PALE, linewidth=1.2, zorder=1)
            axis.plot([value], [at], "o", color=colour, markersize=5, zorder=2)
            said = f"{value:.0f}" if value >= 100 else f"{value:.2g}"
            axis.annotate(said, (value, at), (6, 0), textcoords="offset points", va="center", fontsize=7.5)
        axis.set_xscale("log")
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_formatter("")
        axis.set_xlim(least / 1.3, most * 2.2)
        axis.set_ylim(-0.6, len(names) - 0.4)
        axis.set_yticks(range(len(names)), names)
        title(axis, str(place) if group.x == "case" else f"{group.x} {place}")
        plain(axis)
    figure.supxlabel(group.label, fontsize=9, color=MUTED)
    return figure


def _lines(group: Group, shown: Sequence[Row]) -> Figure:
    panels = list(dict.fromkeys(row.get("case") for row in shown)) or [None]
    figure = sheet(9.4, 3.8)
    handles: list[Any] = []
    for axis, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        here = [row for row in shown if row.get("case") == panel]
        handles = []
        for i, name in enumerate(dict.fromkeys(row[group.by] for row in here)):
            mine = [row for row in here if row[group.by] == name]
            values = [row[group.x] for row in mine], [row[group.y] for row in mine]
            colour = _COLOURS[i % len(_COLOURS)]
            handles += axis.plot(*values, "o-", color=colour, label=name, markersize=3, linewidth=1.2)
        if group.x in ("K", "d"):
            axis.set_xscale("log", base=2)
            axis.xaxis.set_major_formatter("{x:g}")
        if all(row[group.y] > 0 for row in here):
            axis.set_yscale("log")
            heights = [float(row[group.y]) for row in here]
            least = max(heights) / _ROUNDING
            if min(heights) < least:  # nothing but rounding, which would flatten all else
                axis.set_ylim(bottom=min(v for v in heights if v >= least) / 4)
        axis.set_xlabel({"cpu": "CPU seconds"}.get(group.x, group.x), fontsize=9)
        axis.set_ylabel(group.label, fontsize=9)
        title(axis, group.title if panel is None else f"{group.title}: {panel}")
        plain(axis)
    legend_below(figure, handles, 4)
    return figure


def page(folder: Path, figures: str = "") -> str:
    """The groups that were measured, as Markdown: what was to be reached, then a figure and tables for each.

    Args:
        folder: with the JSON files of :func:`bench`.
        figures: what goes before the names of the figures, such as "benchmarks/".
    """
    files = {name: folder / f"{name}.json" for name in GROUPS}
    results = {name: json.loads(file.read_text(encoding="utf-8")) for name, file in files.items() if file.exists()}
    parts = [_text("introduction"), *_goals({name: result["rows"] for name, result in results.items()})]
    for name, result in results.items():
        group, facts = GROUPS[name], ", ".join(f"{key} {value}" for key, value in result["facts"].items())
        parts.append(
            f"## {group.title} (`rnf bench {name}`)\n\n{group.note} {facts.capitalize()}.\n\n"
            f"![{group.title}]({figures}{name}.png)\n"
        )
        for rows in _by_columns(result["rows"]):
            if len(rows) > _MOST_ROWS:
                parts.append(f"The {len(rows)} points of the curves are in {name}.json.\n")
                continue
            columns = _columns(rows)
            parts.append(
                _markdown([_heading(c) for c in columns], [[_cell(row.get(c)) for c in columns] for row in rows])
            )
    return "\n".join([*parts, _text("authors")])


def _text(name: str) -> str:
    return resources.files(__package__).joinpath(f"{name}.md").read_text(encoding="utf-8")


def _goals(rows: Mapping[str, Sequence[Row]]) -> list[str]:
    found = [
        [
            goal.text,
            case,
            f"{'≥' if goal.at_least else '≤'} {bound:g}",
            f"{value:.3g}",
            "reached" if reached else "**missed**",
        ]
        for goal in GOALS
        for case, bound, value, reached in goal.outcomes(rows.get(goal.group, ()))
    ]
    head = ["target", "case", "bound", "measured", "outcome"]
    return ["## Targets\n", _markdown(head, found)] if found else []


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


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
        table.add_column(
            _heading(name).replace(" ", "\n"), justify="right" if name not in ("case", "method") else "left"
        )
    for row in rows:
        table.add_row(*(_cell(row.get(name)) for name in columns))
    return table


def _heading(column: str) -> str:
    return _HEADINGS.get(column, column.replace("_", " "))


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)
