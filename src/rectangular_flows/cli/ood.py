"""``rnf ood``: whether a model can tell data from elsewhere, by which score, and how well."""

from __future__ import annotations

import argparse
import itertools
import json
import re
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from ..evaluation.judge import Judged, judge_run, name_of
from ..plots.detection import draw_detection
from ..runs.display import WorkDisplay, say_where, wide_console
from ..runs.saved import SavedRun
from ..storage.files import save_figure, write_atomically
from .arguments import add_drop_invalid, add_run, add_seed

_SOURCE = "against"  # in the file of figures: which data these were


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which run, against what, how many rows."""
    add_run(parser)
    text = "a file, a folder of pictures, or the name of a known data set"
    parser.add_argument("--against", metavar="DATA", required=True, help=text)
    parser.add_argument("-n", "--count", type=int, default=10_000, help="most rows of each set (default: %(default)s)")
    parser.add_argument("-o", "--output", type=Path, metavar="FOLDER", help="(default: RUN/ood-NAME)")
    add_seed(parser, "the choice of rows")
    add_drop_invalid(parser)


def run(arguments: argparse.Namespace) -> int:
    """Score, judge, print, draw."""
    options = (arguments.count, arguments.output, arguments.seed, arguments.drop_invalid)
    return ood_command(arguments.folder, arguments.against, *options)


def ood_command(run: Path, against: str, count: int, output: Path | None, seed: int, drop_invalid: bool) -> int:
    """Score, judge, print, draw."""
    console = wide_console()
    with WorkDisplay(console, "scoring") as display:
        judged = judge_run(SavedRun(run), against, count, seed=seed, drop_invalid=drop_invalid, display=display)
    folder = output or _folder(run, against)
    folder.mkdir(parents=True, exist_ok=True)
    places = {"figures": folder / "ood.json", "picture": folder / "ood.png"}
    figures = {**judged.figures(), _SOURCE: _source(against)}
    write_atomically(places["figures"], json.dumps(figures, indent=1, allow_nan=False) + "\n")
    panels = {score.name: score.histogram() for score in judged.scores.values()}
    save_figure(places["picture"], draw_detection(panels, judged.inside, judged.outside), 160)
    _tell(console, judged)
    say_where(console, places)
    return 0


def _tell(console: Console, judged: Judged) -> None:
    rows = judged.rows
    title = (
        f"{judged.inside} (inside, {rows['inside_test']:,} test rows) against {judged.outside} "
        f"(outside, {rows['outside_judged']:,} rows)"
    )
    table = Table(title=title, box=box.SIMPLE)
    headings = ("score", "AUROC", "AUPR", "FPR at 95 %", "stump accuracy", "inside kept", "outside caught")
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "score" else "right")
    chance = judged.figures()["chance"]
    for score in judged.scores.values():
        found = score.found
        cells = [f"{found.auroc:.3f}", f"{found.aupr:.3f}", f"{found.fpr95:.1%}", f"{found.accuracy or 0:.1%}"]
        table.add_row(score.name, *cells, f"{score.inside_kept:.1%}", f"{score.outside_caught:.1%}")
    cells = [f"{chance['auroc']:.3f}", f"{chance['aupr']:.3f}", f"{chance['fpr95']:.1%}", f"{chance['accuracy']:.1%}"]
    table.add_row("chance", *cells, "95.0%", "5.0%", style="dim")
    console.print(table)
    own = {key: score for key, score in judged.scores.items() if key != "pca"}
    best = max(own.values(), key=lambda score: score.found.auroc)
    pca = judged.scores["pca"].found
    lines = [
        "inside kept, outside caught: by the threshold that keeps 95 % of held-out rows, fitted on nothing from outside",
        f"the plain baseline, a linear PCA with d = {judged.latent_dim} of training rows, reaches AUROC "
        f"{pca.auroc:.3f} by its residual alone; the model's best score, {best.name}, {best.found.auroc:.3f}",
        *(f"note: {note}" for note in judged.notes),
    ]
    console.print("\n".join(lines), highlight=False, soft_wrap=True, markup=False)


def _folder(run: Path, against: str) -> Path:
    """A folder of the run by the name of the data, with a number where other data of that name have it."""
    slug = re.sub(r"[^\w.-]+", "-", name_of(against)).strip("-.") or "data"
    for number in itertools.count(1):
        folder = run / (f"ood-{slug}" if number == 1 else f"ood-{slug}-{number}")
        file = folder / "ood.json"
        there = json.loads(file.read_text(encoding="utf-8")).get(_SOURCE) if file.exists() else None
        if there in (None, _source(against)):
            break
    return folder


def _source(against: str) -> str:
    path = Path(against).expanduser()
    return str(path.resolve()) if path.exists() else against


__all__ = ["add_arguments", "ood_command", "run"]
