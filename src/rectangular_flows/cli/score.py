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
    text = "keep these columns of the file, text or numbers, in the output; they need not be columns of the model"
    parser.add_argument("--id", default="", metavar="COLUMN,…", help=text)
    text = "also what each column adds to the outlier score (why_COLUMN, in nats) and the nearest typical point"
    parser.add_argument("--explain", action="store_true", help=f"{text} (nearest_COLUMN); lists the most unusual rows")
    parser.add_argument("--coordinates", action="store_true", help="also the coordinates z on the manifold")
    add_drop_invalid(parser)


def run(arguments: argparse.Namespace) -> int:
    """Score and write."""
    from ..evaluation.scored import score_file
    from ..kinds import convert
    from ..runs.display import say
    from ..runs.saved import SavedRun

    saved = SavedRun(arguments.folder)
    scored = score_file(
        saved,
        arguments.data,
        drop_invalid=arguments.drop_invalid,
        coordinates=arguments.coordinates,
        ids=convert("id", arguments.id, tuple[str, ...]) if arguments.id else (),
        reasons=arguments.explain,
    )
    scored.write(arguments.output)
    for note in scored.notes:
        say(f"note: {note}")
    means = {name: scored.columns[name].mean() for name in ("log_density", "reconstruction_error")}
    say(
        f"{len(scored.columns['log_density'])} rows in {arguments.output}: mean log-density {means['log_density']:.4g}, "
        f"mean reconstruction error {means['reconstruction_error']:.4g}",
        *(["the most unusual:"] if scored.explanation else []),
        *map(str, scored.most_unusual()),
    )
    return 0
