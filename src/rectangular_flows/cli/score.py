"""``rnf score``: the scores of every row of a table, or of every image."""

from __future__ import annotations

import argparse
from pathlib import Path

from .arguments import add_drop_invalid, add_run, whole

_MEANS = {"log_density": "log-density", "reconstruction_error": "reconstruction error"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which run, which rows, what to write and where to."""
    add_run(parser)
    text = "file with the columns the model was trained on, or a folder of such files; "
    text += "images: a data set, a folder or an array; if it has test"
    parser.add_argument("data", metavar="DATA", help=f"{text} images, only these are scored")
    text = "CSV, TSV, NPY, NPZ or Parquet (default: scores.csv); for a folder of tables, a folder (default: scores)"
    parser.add_argument("-o", "--output", type=Path, help=text)
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
    text = "score on the workers of Ray, for files on a path that all of them share (default: in this process)"
    parser.add_argument("--engine", choices=("ray",), help=text)
    text = "of a cluster of Ray, or 'auto' (default: start Ray on this machine)"
    parser.add_argument("--address", metavar="ADDRESS", help=text)
    parser.add_argument("--workers", type=whole, metavar="N", help="of Ray, each on a core (default: 2)")


def run(arguments: argparse.Namespace) -> int:
    """Score and write."""
    from ..data.datasets import place_of
    from ..evaluation.scored import Scoring, open_scoring, write_scores
    from ..evaluation.scored_folder import write_folder
    from ..evaluation.totals import Written
    from ..kinds import convert
    from ..runs.display import PlainConsole, WorkDisplay, say
    from ..runs.saved import SavedRun

    saved, source = SavedRun(arguments.folder), arguments.data
    options = {
        "drop_invalid": arguments.drop_invalid,
        "coordinates": arguments.coordinates,
        "ids": convert("id", arguments.id, tuple[str, ...]) if arguments.id else (),
        "reasons": arguments.explain,
    }
    unfinished = {"resume": arguments.resume, "restart": arguments.restart}
    if arguments.engine is None and (arguments.address or arguments.workers):
        raise ValueError("--address and --workers are for --engine ray; leave them out, or add it")

    def write(scoring: Scoring, path: Path, **unfinished: bool) -> Written:
        engine = None
        if arguments.engine == "ray":
            from ..evaluation.ray_engine import ray_engine

            engine = ray_engine(scoring.source, options, arguments.workers or 2, arguments.address)
        with WorkDisplay(PlainConsole(), "scoring", len(scoring.rows)) as display:
            return write_scores(scoring, path, display.advance, resumed=display.resume_at, engine=engine, **unfinished)

    def opened(path: Path) -> Scoring:
        return open_scoring(saved, str(path), **options)

    try:
        if Path(source).is_dir() and saved.flow.kind == "table" and place_of(source) is not None:
            output = arguments.output or Path("scores")
            written = write_folder(opened, Path(source), output, write, say, **unfinished)
        else:
            output = arguments.output or Path("scores.csv")
            written = write(open_scoring(saved, source, **options), output, **unfinished)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("stopped. The same command with --resume continues where it was") from None
    for note in written.notes:
        say(f"note: {note}")
    means = [f"mean {label} {written.means[name]:.4g}" for name, label in _MEANS.items()]
    say(
        f"{written.rows} rows in {output}: {', '.join(means)}",
        *(["the most unusual:"] if written.most_unusual else []),
        *map(str, written.most_unusual),
    )
    return 0
