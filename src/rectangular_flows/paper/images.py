"""``rnf reproduce images``: the paper's table of FID, published and ours, with samples of every model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from ..evaluation.images import SAMPLES, check_amount, find_network
from ..plots.images import DPI
from ..report import write
from ..runs.display import say_where, wide_console
from ..storage.files import save_figure, write_atomically
from .gallery import draw_gallery
from .image_runs import FEWER_SAMPLES, Amounts, evaluate_image_run, galleries, train_runs
from .images_report import show


def images_command(
    out: Path,
    names: Sequence[str],
    methods: Sequence[str],
    seeds: int,
    epochs: int | None,
    processes: int | None,
    *,
    samples: int = SAMPLES,
    published_samples: int = FEWER_SAMPLES,
    skip_fid: bool = False,
    network: Path | None = None,
    network_sha256: str | None = None,
) -> int:
    """Train, compare samples with test images, print the table, draw samples, write the page."""
    console = wide_console()
    check_amount(samples, "-n")
    if published_samples:
        check_amount(published_samples, "--published-samples")
    found, missing = find_network(network, network_sha256, skip_fid)
    amounts = Amounts(samples, min(samples, FEWER_SAMPLES), published_samples)
    runs = train_runs(out, names, methods, seeds, epochs, processes, console)
    results = [evaluate_image_run(run, found, amounts, console) for run in runs]
    numbers = {"runs": [result.figures() for result in results], "epochs": epochs}
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / "results.json", json.dumps(numbers, indent=1) + "\n")
    places = {"numbers": out / "results.json"}
    picture = None
    if results:
        picture = out / "images.png"
        with console.status("drawing …"):
            save_figure(picture, draw_gallery(galleries(runs)), DPI)
        places |= {"figure": picture, "report": out / "report.html"}
    page = show(console, names, results, picture, epochs, missing)
    if results:
        write(page, out / "report.html")
    say_where(console, places)
    return 0


__all__ = ["images_command"]
