"""``rnf dimension``: what data say about the dimension of their manifold."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .arguments import add_drop_invalid, add_seed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which data, and where to."""
    parser.add_argument("data", metavar="DATA", help="a file, a folder of pictures, or a known data set")
    parser.add_argument("--columns", metavar="NAME,…", help="only these columns")
    parser.add_argument("--exclude", metavar="NAME,…", help="all columns but these")
    add_drop_invalid(parser)
    add_seed(parser, "the choice of rows")
    text = "file for the figure (default: %(default)s)"
    parser.add_argument("-o", "--output", type=Path, default=Path("dimension.png"), help=text)


def run(arguments: argparse.Namespace) -> int:
    """Estimate, print, draw."""
    from rich import box
    from rich.table import Table

    from ..metrics.dimension import estimate_dimension
    from ..plots.dimension import draw_dimension
    from ..runs.display import PlainConsole, say
    from ..runs.prepared import prepare, some_rows
    from ..settings import DataSettings
    from ..storage.files import save_figure

    names = {name: getattr(arguments, name) for name in ("columns", "exclude")}
    chosen: dict[str, Any] = {name: tuple(text.split(",")) for name, text in names.items() if text}
    settings = DataSettings(arguments.data, drop_invalid=arguments.drop_invalid, **chosen)
    console = PlainConsole()
    with console.status("looking at nearest neighbours …"):
        rows = some_rows(prepare(settings, None, arguments.seed).train, arguments.seed)
        found = estimate_dimension(rows, seed=arguments.seed)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    save_figure(arguments.output, draw_dimension(found, found.spectrum))
    table = Table(box=box.SIMPLE, title=f"{settings.data}: {rows.shape[1]} columns, {found.rows:,} rows looked at")
    for heading in ("estimate", "dimension", "±"):
        table.add_column(heading, justify="left" if heading == "estimate" else "right")
    for name, estimate in (("two nearest neighbours", found.two_nn), ("maximum likelihood", found.mle)):
        table.add_row(name, f"{estimate.value:.2f}", f"{estimate.standard_error:.2f}")
    table.add_row("principal components with 95 % of the variance", str(found.pca_95), "")
    console.print(table)
    say(f"suggestion: --latent-dim {found.suggestion} (--latent-dim auto chooses it)", f"figure: {arguments.output}")
    return 0
