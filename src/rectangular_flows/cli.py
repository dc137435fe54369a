"""The command line, ``rnf``. Nothing heavy is imported before a command needs it: ``rnf --help`` loads no torch."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ._version import __version__

_CASES = ("circle", "power", "gas", "hepmass", "miniboone", "mnist", "cifar10")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0, 2 for a mistake in what was asked, 130 after Ctrl-C."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.command is None:
        parser.print_help()
        return 0
    _keep_freed_memory()
    try:
        return int(arguments.run(arguments))
    except KeyboardInterrupt:
        print("rnf: stopped", file=sys.stderr)
        return 130
    except (ValueError, OSError) as error:
        print(f"rnf: {error}", file=sys.stderr)
        return 2


def _keep_freed_memory() -> None:
    """Ask glibc not to hand freed memory back after every training step, only to fault it in again.

    Elsewhere than on glibc this does nothing.
    """
    if sys.platform != "linux":
        return
    import ctypes

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return
    trim_threshold, mmap_threshold = -1, -3
    mallopt(trim_threshold, 2**31 - 1)
    mallopt(mmap_threshold, 2**25)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rnf",
        description="Learn a low-dimensional manifold in data, and the density on it, by maximum likelihood.",
    )
    parser.add_argument("--version", action="version", version=f"rnf {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")

    demo = commands.add_parser("demo", help="the von Mises circle: train both methods, draw the figure")
    demo.add_argument(
        "-o", "--out", type=Path, default=Path("runs/demo"), help="folder for the results (default: %(default)s)"
    )
    demo.add_argument("--seed", type=int, default=0, help="of data, weights and batches (default: %(default)s)")
    demo.add_argument("--epochs", type=int, help="fewer than the default, for a quick look")
    demo.set_defaults(run=_demo)

    bench = commands.add_parser("bench", help="time and memory against the algorithm as published")
    what = bench.add_subparsers(dest="what", metavar="WHAT", required=True)
    volume = what.add_parser("volume", help="one training step, exact and stochastic log-volume")
    volume.add_argument(
        "--cases", nargs="+", choices=_CASES, default=list(_CASES[:5]), metavar="CASE", help="%(choices)s"
    )
    volume.add_argument("--repeats", type=int, default=5, help="rounds, both sides interleaved (default: %(default)s)")
    volume.add_argument("--no-memory", action="store_true", help="skip the memory measurement in child processes")
    volume.add_argument("-o", "--output", type=Path, help="also write the figures to this JSON file")
    volume.set_defaults(run=_bench_volume)
    return parser


def _demo(arguments: argparse.Namespace) -> int:
    from .demo import run_demo

    run_demo(arguments.out, arguments.seed, arguments.epochs)
    return 0


def _bench_volume(arguments: argparse.Namespace) -> int:
    from .bench import bench_volume

    bench_volume(arguments.cases, arguments.repeats, memory=not arguments.no_memory, output=arguments.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
