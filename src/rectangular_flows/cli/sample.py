"""``rnf sample``: new rows or images from a trained model."""

from __future__ import annotations

import argparse
from pathlib import Path

from .arguments import add_run, add_seed, whole


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which run, how many, where to."""
    add_run(parser)
    parser.add_argument("-n", "--count", type=whole, default=1000, help="number of samples (default: %(default)s)")
    formats = "CSV, TSV, NPY, NPZ or Parquet (default: samples.csv); images: NPY, NPZ or one PNG (default: samples.npy)"
    parser.add_argument("-o", "--output", type=Path, help=formats)
    text = (
        "whether rows scatter around the manifold as data do, or lie exactly on it (default: they scatter, for tables; "
    )
    text += "images, and points on the sphere, lie on it)"
    parser.add_argument("--scatter", action=argparse.BooleanOptionalAction, default=None, help=text)
    text = "whether columns with few distinct values take one of these (default: they do, where rows scatter)"
    parser.add_argument("--round", action=argparse.BooleanOptionalAction, default=None, help=text)
    add_seed(parser, "the random draws")


def run(arguments: argparse.Namespace) -> int:
    """Draw and write."""
    from ..plots.samples import write_samples
    from ..runs.display import PlainConsole, WorkDisplay, say
    from ..runs.saved import SavedRun

    saved = SavedRun(arguments.folder)
    images = saved.flow.kind == "image"
    output = arguments.output or Path("samples.npy" if images else "samples.csv")
    with WorkDisplay(PlainConsole(), "sampling", arguments.count) as display:
        options = {"scatter": arguments.scatter, "rounded": arguments.round, "tick": display.advance}
        rounded = write_samples(saved, output, arguments.count, arguments.seed, **options)
    say(f"{arguments.count} {'images' if images else 'samples'} in {output}")
    if rounded:
        say(f"rounded to values that the data have: {', '.join(rounded)} (--no-round leaves them as they were drawn)")
    return 0
