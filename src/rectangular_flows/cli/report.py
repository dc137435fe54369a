"""``rnf report``: a run on one page."""

from __future__ import annotations

import argparse
from pathlib import Path

from .arguments import add_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which run, where to."""
    add_run(parser)
    parser.add_argument("-o", "--output", type=Path, help="file for the page (default: RUN/report.html)")


def run(arguments: argparse.Namespace) -> int:
    """Evaluate, draw, write."""
    from ..report.page import write
    from ..report.run import run_page
    from ..runs.display import PlainConsole, say
    from ..runs.saved import SavedRun

    output = arguments.output or arguments.folder / "report.html"
    with PlainConsole().status("evaluating and drawing …"):
        write(run_page(SavedRun(arguments.folder)), output)
    say(f"report: {output}")
    return 0
