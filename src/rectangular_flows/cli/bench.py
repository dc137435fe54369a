"""``rnf bench``: time and memory of a training step."""

from __future__ import annotations

import argparse
from pathlib import Path

_CASES = ("circle", "power", "gas", "hepmass", "miniboone", "mnist", "cifar10")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What is measured, and how often."""
    what = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    volume = what.add_parser("volume", help="one training step, exact and stochastic log-volume")
    volume.add_argument(
        "--cases", nargs="+", choices=_CASES, default=list(_CASES[:5]), metavar="CASE", help="%(choices)s"
    )
    volume.add_argument("--repeats", type=int, default=5, help="rounds, both sides interleaved (default: %(default)s)")
    volume.add_argument("--no-memory", action="store_true", help="skip the memory measurement in child processes")
    volume.add_argument("-o", "--output", type=Path, help="also write the numbers to this JSON file")


def run(arguments: argparse.Namespace) -> int:
    """Measure and print."""
    from ..paper.bench import bench_volume

    bench_volume(arguments.cases, arguments.repeats, memory=not arguments.no_memory, output=arguments.output)
    return 0
