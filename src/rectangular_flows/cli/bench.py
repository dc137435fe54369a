"""``rnf bench``: time, memory, noise and quality of training, measured."""

from __future__ import annotations

import argparse
from pathlib import Path

_TABLES = ("circle", "power", "gas", "hepmass", "miniboone")
_IMAGES = ("mnist", "cifar10")
_GROUPS = {
    "step": "one training step: auto, exact, probes, as published, and what one might take instead",
    "density": "exact log-volumes without a gradient",
    "memory": "extra peak of a step, in a process of its own",
    "variance": "noise of the stochastic gradient against the number of probes, and products counted",
    "probes": "memory of a stochastic step against the number of probes",
    "growth": "a step against the dimension of the manifold",
    "threads": "a step with one thread and with two",
    "quality": "validation scores against CPU seconds, on POWER and MINIBOONE",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What is measured, and how often."""
    what = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    volume = what.add_parser(
        "volume", help="one training step, exact and stochastic log-volume, against the published one"
    )
    cases = [*_TABLES, *_IMAGES]
    volume.add_argument("--cases", nargs="+", choices=cases, default=list(_TABLES), metavar="CASE", help="%(choices)s")
    volume.add_argument("--repeats", type=int, default=5, help="rounds, both sides interleaved (default: %(default)s)")
    volume.add_argument("--no-memory", action="store_true", help="skip the memory measurement in child processes")
    volume.add_argument("-o", "--output", type=Path, help="also write the numbers to this JSON file")
    for name, text in {**_GROUPS, "all": "all of these"}.items():
        group = what.add_parser(name, help=text)
        group.add_argument(
            "--cases",
            nargs="+",
            choices=(*_TABLES, "large", "image-fast", *_IMAGES),
            metavar="CASE",
            help="%(choices)s",
        )
        group.add_argument(
            "--rounds", type=int, default=5, help="steps of each kind, taking turns (default: %(default)s)"
        )
        group.add_argument("--out", type=Path, help="folder for the numbers (JSON), a figure and benchmarks.md")


def run(arguments: argparse.Namespace) -> int:
    """Measure and print."""
    if arguments.what == "volume":
        from ..paper.bench import bench_volume

        bench_volume(arguments.cases, arguments.repeats, memory=not arguments.no_memory, output=arguments.output)
        return 0
    from ..paper.bench.run import bench, page
    from ..storage.files import write_atomically

    bench(
        list(_GROUPS) if arguments.what == "all" else [arguments.what], arguments.cases, arguments.rounds, arguments.out
    )
    if arguments.out is not None:
        write_atomically(arguments.out / "benchmarks.md", page(arguments.out).encode())
    return 0
