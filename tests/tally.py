"""Faults tried and held, by class: what ``make reliability`` writes to docs/reliability.md."""

from dataclasses import dataclass
from pathlib import Path

TALLIES = {}
_HEAD = """# Reliability

What was tried, and how often it held: by `make reliability`, which runs the tests marked `reliability` and writes this
page. The ordinary tests run a short version of each.

| fault class | tried | held |
|---|---:|---:|
"""


@dataclass
class Tally:
    """Of one fault class: how many cases were tried, and how many held."""

    tried: int = 0
    held: int = 0


def tally(name):
    """The tally of a fault class, from 0 when it is first asked for."""
    return TALLIES.setdefault(name, Tally())


def write(path: Path):
    """The page; rows of classes that were not tried now stay as they are."""
    rows = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and cells[1].replace(",", "").isdecimal():
            rows[cells[0]] = cells[1:]
    rows |= {name: [f"{one.tried:,}", f"{one.held:,}"] for name, one in TALLIES.items()}
    lines = [f"| {name} | {tried} | {held} |\n" for name, (tried, held) in sorted(rows.items())]
    path.write_text(_HEAD + "".join(lines), encoding="utf-8")
