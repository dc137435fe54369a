"""``rnf plot``: a run in pictures."""

from __future__ import annotations

import argparse

from .arguments import add_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which run."""
    add_run(parser)


def run(arguments: argparse.Namespace) -> int:
    """Draw and write."""
    from .report import plot_command

    return plot_command(arguments.folder)
