"""``rnf reproduce``: the paper's experiments."""

from __future__ import annotations

import argparse

from ..paper.options import add_reproduce_arguments, run_reproduce
from .arguments import add_network


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which experiment, and what of it."""
    add_reproduce_arguments(parser)
    add_network(parser)


def run(arguments: argparse.Namespace) -> int:
    """Train whatever is not there yet, judge, write the report."""
    return run_reproduce(arguments)
