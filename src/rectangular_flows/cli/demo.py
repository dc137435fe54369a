"""``rnf demo``: the von Mises circle, by both methods."""

from __future__ import annotations

import argparse
from pathlib import Path

from .arguments import add_seed, whole


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where to, the seed, and how long."""
    parser.add_argument("-o", "--out", type=Path, default=Path("runs/demo"), help="folder (default: %(default)s)")
    add_seed(parser, "the data, weights and batches")
    parser.add_argument("--epochs", type=whole, help="train for fewer epochs, for a quick look")


def run(arguments: argparse.Namespace) -> int:
    """Train, draw, write the report."""
    from ..paper.circle import demo_command

    return demo_command(arguments.out, arguments.seed, arguments.epochs)
