"""``rnf score``: the scores of every row of a table, or of every image."""

from __future__ import annotations

import argparse
from pathlib import Path

from .arguments import add_drop_invalid, add_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which run, which rows, what to write and where to."""
    add_run(parser)
    text = "file with the columns the model was trained on; images: a data set, a folder or an array, of which the test"
    parser.add_argument("data", metavar="DATA", help=f"{text} images are scored where some are set apart, or else all")
    text = "CSV, TSV, NPY, NPZ or Parquet (default: %(default)s)"
    parser.add_argument("-o", "--output", type=Path, default=Path("scores.csv"), help=text)
    parser.add_argument("--coordinates", action="store_true", help="also the coordinates z on the manifold")
    add_drop_invalid(parser)


def run(arguments: argparse.Namespace) -> int:
    """Score and write."""
    from ..evaluation.scores import score_file
    from ..runs.display import say
    from ..runs.saved import SavedRun

    saved = SavedRun(arguments.folder)
    scored = score_file(saved, arguments.data, drop_invalid=arguments.drop_invalid, coordinates=arguments.coordinates)
    scored.write(arguments.output)
    for note in scored.notes:
        say(f"note: {note}")
    means = {name: scored.columns[name].mean() for name in ("log_density", "reconstruction_error")}
    say(
        f"{len(scored.columns['log_density'])} rows in {arguments.output}: mean log-density {means['log_density']:.4g}, "
        f"mean reconstruction error {means['reconstruction_error']:.4g}"
    )
    return 0
