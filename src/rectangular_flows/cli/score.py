"""``rnf score``: the scores of every row of a table, or of every image."""

from __future__ import annotations

import argparse
from pathlib import Path

from .arguments import add_drop_invalid, add_run

_MEANS = {"log_density": "log-density", "reconstruction_error": "reconstruction error"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which run, which rows, what to write and where to."""
    add_run(parser)
    text = "file with the columns the model was trained on; images: a data set, a folder or an array; if it has test"
    parser.add_argument("data", metavar="DATA", help=f"{text} images, only these are scored")
    text = "CSV, TSV, NPY, NPZ or Parquet (default: %(default)s)"
    parser.add_argument("-o", "--output", type=Path, default=Path("scores.csv"), help=text)
    text = "keep these columns of the file, text or numbers, in the output; they need not be columns of the model"
    parser.add_argument("--id", default="", metavar="COLUMN,…", help=text)
    text = "also what each column adds to the outlier score (why_COLUMN, in nats) and the nearest typical point"
    parser.add_argument("--explain", action="store_true", help=f"{text} (nearest_COLUMN); lists the most unusual rows")
    parser.add_argument("--coordinates", action="store_true", help="also the coordinates z on the manifold")
    add_drop_invalid(parser)
    unfinished = parser.add_mutually_exclusive_group()
    text = "continue where this command was stopped or killed; the output is the same as without the interruption"
    unfinished.add_argument("--resume", action="store_true", help=text)
    unfinished.add_argument("--restart", action="store_true", help="throw away what it had done, and begin again")


def run(arguments: argparse.Namespace) -> int:
    """Score and write."""
    from ..evaluation.scored import open_scoring, write_scores
    from ..kinds import convert
    from ..runs.display import PlainConsole, WorkDisplay, say
    from ..runs.saved import SavedRun

    scoring = open_scoring(
        SavedRun(arguments.folder),
        arguments.data,
        drop_invalid=arguments.drop_invalid,
        coordinates=arguments.coordinates,
        ids=convert("id", arguments.id, tuple[str, ...]) if arguments.id else (),
        reasons=arguments.explain,
    )
    with WorkDisplay(PlainConsole(), "scoring", len(scoring.rows)) as display:
        unfinished = {"resume": arguments.resume, "restart": arguments.restart}
        try:
            written = write_scores(scoring, arguments.output, display.advance, resumed=display.resume_at, **unfinished)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("stopped. The same command with --resume continues where it was") from None
    for note in written.notes:
        say(f"note: {note}")
    means = [f"mean {label} {written.means[name]:.4g}" for name, label in _MEANS.items()]
    say(
        f"{written.rows} rows in {arguments.output}: {', '.join(means)}",
        *(["the most unusual:"] if written.most_unusual else []),
        *map(str, written.most_unusual),
    )
    return 0
