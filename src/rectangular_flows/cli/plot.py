"""``rnf plot``: the figures of a run."""

from __future__ import annotations

import argparse

from .arguments import add_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which run."""
    add_run(parser)


def run(arguments: argparse.Namespace) -> int:
    """Draw and write."""
    from ..plots.run import draw_run
    from ..runs.display import say
    from ..runs.saved import SavedRun
    from ..storage.files import save_figure

    drawings = draw_run(SavedRun(arguments.folder))
    folder = arguments.folder / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    for drawing in drawings:
        path = folder / f"{drawing.name}.png"
        save_figure(path, drawing.figure, drawing.dpi)
        say(str(path))
    return 0
