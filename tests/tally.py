"""Faults tried and held, by class: what ``make reliability`` writes to docs/reliability.md."""

import re
from dataclasses import dataclass
from pathlib import Path

TALLIES, MEASURED = {}, {}
_HEAD = """# Reliability

What was tried, and how often it held: by `make reliability`, which runs the tests marked `reliability` and writes this
page. The ordinary tests run a short version of each. A sequence of the simulator that fails prints its seed, and
`python -m tests.simulator SEED` plays it again, step by step.

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


def measured(name, text):
    """Something measured, in words, below the table."""
    MEASURED[name] = text


def write(path: Path):
    """The page; what was not tried now stays as it is."""
    rows, notes = {}, {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and cells[1].replace(",", "").isdecimal():
            rows[cells[0]] = cells[1:]
        elif note := re.fullmatch(r"- \*\*(.+?)\*\*: (.+)", line):
            notes[note[1]] = note[2]
    rows |= {name: [f"{one.tried:,}", f"{one.held:,}"] for name, one in TALLIES.items()}
    notes |= MEASURED
    lines = [f"| {name} | {tried} | {held} |\n" for name, (tried, held) in sorted(rows.items())]
    below = [f"- **{name}**: {text}\n" for name, text in sorted(notes.items())]
    path.write_text("".join([_HEAD, *lines, *(["\nMeasured:\n\n", *below] if below else [])]), encoding="utf-8")
