"""``rnf ood``: how well each score of a model separates its own data from data from elsewhere."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from .arguments import add_drop_invalid, add_run, add_seed, whole

if TYPE_CHECKING:
    from rich.console import Console

    from ..evaluation.ood import Judged


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which run, against what, how many rows."""
    add_run(parser)
    text = "a file, a folder of pictures, or the name of a known data set"
    parser.add_argument("--against", metavar="DATA", required=True, help=text)
    parser.add_argument(
        "-n", "--count", type=whole, default=10_000, help="at most COUNT rows of each set (default: %(default)s)"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FOLDER", help="for the results (default: RUN/ood-NAME)")
    add_seed(parser, "the choice of rows")
    add_drop_invalid(parser)


def run(arguments: argparse.Namespace) -> int:
    """Score, judge, print, draw."""
    from ..evaluation.ood import folder_for, judge_run, keep_judged
    from ..plots.detection import Histogram, draw_detection
    from ..runs.display import WorkDisplay, say_where, wide_console
    from ..runs.saved import SavedRun
    from ..storage.files import save_figure

    console, saved, against = wide_console(), SavedRun(arguments.folder), arguments.against
    options = {"seed": arguments.seed, "drop_invalid": arguments.drop_invalid}
    with WorkDisplay(console, "scoring") as display:
        judged = judge_run(saved, against, arguments.count, display=display, **options)
    folder = arguments.output or folder_for(saved, against)
    places = {"numbers": keep_judged(judged, folder, against), "figure": folder / "ood.png"}
    panels = {
        one.score.label: Histogram(one.train, one.test, one.outside, one.found, one.threshold, one.score.unit)
        for one in judged.scores.values()
    }
    save_figure(places["figure"], draw_detection(panels, judged.inside, judged.outside), 160)
    _show(console, judged)
    say_where(console, places)
    return 0


def _show(console: Console, judged: Judged) -> None:
    from rich import box
    from rich.table import Table

    from ..runs.display import say

    rows = judged.rows
    title = (
        f"{judged.inside} (inside, {rows['inside_test']:,} test rows) against {judged.outside} "
        f"(outside, {rows['outside_judged']:,} rows)"
    )
    table = Table(title=title, box=box.SIMPLE)
    for heading in ("score", "AUROC", "AUPR", "FPR at 95 %", "stump accuracy", "inside kept", "outside caught"):
        table.add_column(heading, justify="left" if heading == "score" else "right")
    for one in judged.scores.values():
        measures = (one.found.auroc, one.found.aupr, one.found.fpr95, one.found.accuracy or 0.0)
        table.add_row(one.score.label, *_cells(*measures, one.inside_kept, one.outside_caught))
    table.add_row("chance", *_cells(*judged.chance.values(), 0.95, 0.05), style="dim")
    console.print(table)
    own = [one for name, one in judged.scores.items() if name != "pca"]
    best = max(own, key=lambda one: one.found.auroc)
    say(
        "inside kept, outside caught: with the threshold that keeps 95 % of held-out rows; it uses nothing from outside",
        f"the plain baseline, the residual of a PCA of the training rows with d = {judged.latent_dim}, reaches AUROC "
        f"{judged.scores['pca'].found.auroc:.3f}; the model's best score, {best.score.label}, reaches "
        f"{best.found.auroc:.3f}",
        *(f"note: {note}" for note in judged.notes),
        console=console,
    )


def _cells(auroc: float, aupr: float, *shares: float) -> list[str]:
    return [f"{auroc:.3f}", f"{aupr:.3f}", *(f"{share:.1%}" for share in shares)]
