"""``rnf evaluate``: how good a model is, on rows that training never saw."""

from __future__ import annotations

import argparse

from .arguments import add_network, add_run, add_seed, whole


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which run, how many rows and samples."""
    add_run(parser)
    text = "samples to compare (default: 10000; images: 5000)"
    parser.add_argument("-n", "--samples", type=whole, help=text)
    parser.add_argument("--rows", type=whole, default=50_000, help="use at most ROWS test rows (default: %(default)s)")
    add_seed(parser, "the random draws")
    parser.add_argument("--skip-fid", action="store_true", help="images: leave out FID and what else is slow")
    add_network(parser)


def run(arguments: argparse.Namespace) -> int:
    """Evaluate, print, write."""
    from rich import box
    from rich.table import Table

    from ..evaluation.evaluate import METRICS, evaluate_run, keep_evaluation
    from ..evaluation.images import find_network
    from ..evaluation.run_verdict import verdict_of
    from ..runs.display import PlainConsole, say
    from ..runs.saved import EVALUATION, SavedRun

    console, saved = PlainConsole(), SavedRun(arguments.folder)
    images, chosen = saved.flow.kind == "image", (arguments.network, arguments.network_sha256, arguments.skip_fid)
    if not images and any(chosen):
        raise ValueError(f"{saved.path} is a model of tables; --skip-fid and --network are for images")
    network, missing = find_network(*chosen) if images else (None, "")
    with console.status("evaluating …"):
        amounts = (arguments.samples, arguments.seed, arguments.rows)
        numbers = evaluate_run(saved, *amounts, network=network, console=console)
        verdict = verdict_of(saved, again=True)
    keep_evaluation(saved, {**numbers, "verdict": verdict.numbers()})
    table = Table(title=f"{saved.path}, {numbers['test_rows']} test rows", box=box.SIMPLE)
    for heading in ("", "value", "real against real"):
        table.add_column(heading, justify="left" if not heading else "right")
    for name, metric in METRICS.items():
        if name in numbers:
            table.add_row(metric.label, _cell(numbers, name), _cell(numbers, f"{name}_floor"))
    console.print(table)
    if "fid" in numbers:
        say(f"{numbers['samples']:,} samples against the first test images; real against real: as many training images")
    say(str(verdict))
    if missing:
        say(f"note: {missing}")
    say(f"numbers: {saved.path / EVALUATION}")
    return 0


def _cell(numbers: dict[str, float], name: str) -> str:
    if name not in numbers:
        return ""
    error = numbers.get(f"{name}_standard_error")
    return f"{numbers[name]:.4g}" if error is None else f"{numbers[name]:.4g} ± {error:.2g}"
