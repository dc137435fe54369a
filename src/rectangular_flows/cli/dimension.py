"""``rnf dimension``: what data say about the dimension of their manifold."""

from __future__ import annotations

from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from ..metrics.dimension import estimate_dimension, pca_spectrum
from ..plots.dimension import draw_dimension
from ..runs.prepared import prepare, some_rows
from ..settings import DataSettings
from ..storage.files import save_figure


def dimension_command(settings: DataSettings, output: Path, seed: int) -> int:
    """Estimate, print, draw."""
    console = Console()
    with console.status("looking at nearest neighbours …"):
        rows = some_rows(prepare(settings, None, seed).train, seed)
        found = estimate_dimension(rows, seed=seed)
    standardised = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    output.parent.mkdir(parents=True, exist_ok=True)
    save_figure(output, draw_dimension(found, pca_spectrum(standardised)))
    table = Table(box=box.SIMPLE, title=f"{settings.data}: {rows.shape[1]} columns, {found.rows:,} rows looked at")
    for heading in ("estimate", "dimension", "±"):
        table.add_column(heading, justify="left" if heading == "estimate" else "right")
    for name, estimate in (("two nearest neighbours", found.two_nn), ("maximum likelihood", found.mle)):
        table.add_row(name, f"{estimate.value:.2f}", f"{estimate.standard_error:.2f}")
    table.add_row("principal components with 95 % of the variance", str(found.pca_95), "")
    console.print(table)
    text = f"suggestion: --latent-dim {found.suggestion} (which --latent-dim auto chooses)\npicture: {output}"
    console.print(text, highlight=False, soft_wrap=True, markup=False)
    return 0


__all__ = ["dimension_command"]
