"""``rnf sweep``: train a grid of settings, side by side or on Ray, and compare."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..settings import DEFAULT_PRESET, preset_files, read_preset, read_toml
from ..settings.grid import grid, parse_axis
from .arguments import whole

if TYPE_CHECKING:
    from rich.table import Table

    from ..runs.sweep import Result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The settings of all runs, what varies, and where they run."""
    parser.usage = "rnf sweep SETTINGS --over NAME=VALUES [--over NAME=VALUES …] [--out FOLDER] [options]"
    parser.epilog = "Repeat the command to go on: finished runs are skipped, stopped ones resume."
    parser.add_argument("settings", metavar="SETTINGS", help="a TOML file with settings, as for rnf fit --config")
    text = "a setting and its values: seed=0..4, latent_dim=2,3,5, hidden='64,64;128,128'; every combination is run"
    parser.add_argument("--over", action="append", metavar="NAME=VALUES", required=True, help=text)
    text = f"settings under those of the file (default: {DEFAULT_PRESET})"
    parser.add_argument("--preset", choices=tuple(preset_files()), metavar="NAME", help=text)
    parser.add_argument(
        "-o", "--out", type=Path, metavar="FOLDER", help="folder for all runs (default: runs/NAME-sweep)"
    )
    parser.add_argument(
        "--jobs", type=whole, help="runs at a time (default: one for each core; with Ray, as it decides)"
    )
    parser.add_argument(
        "--launcher", choices=("local", "ray"), default="local", help="where runs go (default: %(default)s)"
    )
    parser.add_argument("--address", help="of a Ray cluster, such as auto (default: a local one)")


def run(arguments: argparse.Namespace) -> int:
    """Train what is missing, compare, write the table and the figure; 1 if a run failed."""
    if arguments.address is not None and arguments.launcher != "ray":
        raise ValueError("--address is for --launcher ray; add that, or leave it out")
    given, is_run = read_toml(arguments.settings)
    base = read_preset(arguments.preset or DEFAULT_PRESET)
    if is_run:
        base, given = {**base, **given}, {}
    points = grid([parse_axis(text) for text in arguments.over], given, base)
    out = arguments.out or Path("runs") / f"{Path(arguments.settings).stem}-sweep"

    from ..plots.sweep import draw_sweep
    from ..runs.display import say_where, wide_console
    from ..runs.jobs import run_jobs
    from ..runs.sweep import FIGURE, RESULTS, TABLE, result_of, sweep_jobs, write_results
    from ..storage.files import save_figure

    launcher, at_once = None, arguments.jobs
    if arguments.launcher == "ray":
        from ..runs.ray_workers import RayWorker, connect

        connect(arguments.address)
        launcher, at_once = RayWorker, at_once or len(points)
    console, jobs = wide_console(), sweep_jobs(points, out)
    ended = run_jobs(jobs, console, at_once, launcher=launcher)
    results = [result_of(*found) for found in zip(points, jobs, ended, strict=True)]
    out.mkdir(parents=True, exist_ok=True)
    write_results(out, results)
    places = {"table": out / TABLE, "results": out / RESULTS}
    if any(result.numbers for result in results):
        save_figure(out / FIGURE, draw_sweep(results))
        places["figure"] = out / FIGURE
        console.print(_table(results))
    say_where(console, places)
    return int(any(result.failure for result in results))


def _table(results: Sequence[Result]) -> Table:
    """A line for each combination of settings, over its seeds."""
    from rich import box
    from rich.table import Table

    from ..runs.sweep import COMPARE, NUMBERS, groups_of

    failed = sum(bool(result.failure) for result in results)
    lost = f"; {failed} of {len(results)} runs failed" if failed else ""
    groups = groups_of(results)
    caption = COMPARE if "latent_dim" in groups[0].values else None
    title = f"Validation rows, best epoch of each run, mean ± standard error{lost}"
    table = Table(title=title, caption=caption, box=box.SIMPLE)
    for name in (*groups[0].values, "runs", *NUMBERS):
        table.add_column(name, justify="right")
    for group in groups:
        numbers = (f"{group.mean[n]:.4g}" + _plus_minus(group.error[n]) for n in NUMBERS)
        table.add_row(*map(str, group.values.values()), str(group.runs), *numbers)
    return table


def _plus_minus(error: float) -> str:
    return "" if error != error else f" ± {error:.2g}"
