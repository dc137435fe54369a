"""Runs on the paper's image sets, in FOLDER/SET/METHOD/seed-K, and how good their samples are.

``rnf reproduce images`` and ``rnf reproduce ood`` use the same runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console

from ..data.images import load_images
from ..data.rows import take
from ..data.tables import MissingFileError
from ..evaluation.images import SAMPLES, draw_bytes, quality_of
from ..metrics.image_quality import ImageQuality
from ..metrics.inception import FeatureNetwork, Protocol
from ..runs.jobs import Job, preset_job, run_jobs
from ..runs.kept import kept
from ..runs.saved import SavedRun
from .gallery import Gallery
from .reproduction import check_seeds

FEWER_SAMPLES = 2_000
"""Generated images of the methods that are beside the headline one, and under the published protocol."""

_RESULT = "images.json"
_SHOWN = 36  # images in a panel of the figure


class Method(NamedTuple):
    """A way to train: its name on the command line and of its folder, its preset, and what it changes in it."""

    key: str
    preset: str
    change: Mapping[str, Any]


LONGER = "exact, longer"
# K = 1 on a fifth of a batch costs as much as the exact volume on a twentieth of it
METHODS = {
    "exact": Method("exact", "image-fast", {}),
    "K = 1": Method("k1", "image-fast", {"volume": "stochastic", "probes": 1, "volume_fraction": 0.2}),
    "two-step": Method("two-step", "image-fast-two-step", {}),
    LONGER: Method("best", "image-best", {}),
}
HEADLINES = ("exact", LONGER)
"""Of these more samples are compared, and by the published protocol too."""

KEYS = {method.key: name for name, method in METHODS.items()}


@dataclass(frozen=True)
class ImageRun:
    """A trained run."""

    data: str
    method: str
    seed: int
    folder: Path
    seconds: float

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.data}, {self.method}, seed {self.seed}"


@dataclass(frozen=True, eq=False)
class ImageResult:
    """A run on the test images.

    Attributes:
        run: which.
        reconstruction: mean squared distance of the test images from the manifold, in pixels of 0 to 1.
        quality: of the samples, as FID is defined; None without the network.
        matched: the same at the n of the other methods, for comparing with them; None without the network.
        published: under the published protocol; None where that was not asked for.
    """

    run: ImageRun
    reconstruction: float
    quality: ImageQuality | None = None
    matched: ImageQuality | None = None
    published: ImageQuality | None = None

    def figures(self) -> dict[str, Any]:
        """Plain numbers, for a file."""
        found: dict[str, Any] = {**asdict(self.run), "folder": str(self.run.folder), "distance": self.reconstruction}
        for name in ("quality", "matched", "published"):
            quality = getattr(self, name)
            found[name] = None if quality is None else {"n": quality.n, **quality.numbers()}
        return found


class Amounts(NamedTuple):
    """How many generated images are compared."""

    headline: int = SAMPLES
    others: int = FEWER_SAMPLES
    published: int = FEWER_SAMPLES


def at_hand(names: Sequence[str], console: Console) -> list[str]:
    """Those sets whose data are there; of the others it is said that they are not."""
    found = []
    for name in names:
        with console.status(f"reading {name} …"):
            try:
                load_images(name)
            except MissingFileError:
                console.print(f"{name}: data not at hand (rnf data get {name})", highlight=False)
            else:
                found.append(name)
    return found


def train_runs(
    out: Path,
    names: Sequence[str],
    methods: Sequence[str],
    seeds: int,
    epochs: int | None,
    processes: int | None,
    console: Console,
) -> list[ImageRun]:
    """The runs of the sets that are :func:`at_hand`, trained where they are not yet.

    Args:
        out: folder of all of them.
        names: of the data sets.
        methods: of :data:`METHODS`.
        seeds: how many, from 0.
        epochs: a limit.
        processes: runs at a time.
        console: where to show them.
    """
    check_seeds(seeds)
    wanted: dict[Path, tuple[str, str, int]] = {}
    jobs: list[Job] = []
    for name in at_hand(names, console):
        for method in methods:
            for seed in range(seeds):
                folder = out / name / METHODS[method].key / f"seed-{seed}"
                wanted[folder] = (name, method, seed)
                change = {**METHODS[method].change, "data": name}
                title = f"{name}, {method}, seed {seed}"
                jobs.append(preset_job(title, METHODS[method].preset, folder, seed, epochs, change))
    times = run_jobs(jobs, console, processes) if jobs else []
    return [ImageRun(*wanted[job.folder], job.folder, took) for job, took in zip(jobs, times, strict=True)]


def evaluate_image_run(
    run: ImageRun, network: FeatureNetwork | None, amounts: Amounts, console: Console | None = None
) -> ImageResult:
    """A run on its test images; what was computed of this very model before is taken from its folder.

    Args:
        run: a trained run.
        network: for features; None for nothing that needs them.
        amounts: generated images; with 0 under the published protocol it is left out, as for all but :data:`HEADLINES`.
        console: where to show how far it is.
    """
    saved = SavedRun(run.folder)
    flow, data = saved.flow, saved.data

    def reconstruction() -> dict[str, Any]:
        dtype = flow.dtype
        total = 0.0
        with torch.no_grad():
            for start in range(0, len(data.test), 1000):
                total += float(
                    flow.reconstruction_error(take(data.test, slice(start, start + 1000), dtype=dtype)).sum()
                )
        return {"mean": total / len(data.test)}

    distance = kept(run.folder, _RESULT, "squared distance, test images", reconstruction)["mean"]
    if network is None:
        return ImageResult(run, distance)
    used = network

    def quality(count: int, protocol: Protocol = "fid") -> ImageQuality:
        options: dict[str, Any] = {"protocol": protocol, "console": console, "title": run.title}
        return quality_of(saved, used, count, seed=run.seed, **options)

    headline = run.method in HEADLINES
    first = quality(amounts.headline if headline else amounts.others)
    matched = quality(amounts.others)
    published = quality(amounts.published, "published") if headline and amounts.published else None
    return ImageResult(run, distance, first, matched, published)


@torch.no_grad()
def galleries(runs: Sequence[ImageRun]) -> list[Gallery]:
    """What the figure shows of each set: real images, samples of the first seed of each method, reconstructions."""
    found = []
    for name in dict.fromkeys(run.data for run in runs):
        mine = {run.method: run for run in reversed(runs) if run.data == name}
        methods = [method for method in METHODS if method in mine]
        test = SavedRun(mine[methods[0]].folder).data.test
        flows = {method: SavedRun(mine[method].folder).flow for method in methods}
        samples = {method: draw_bytes(flow, _SHOWN, mine[method].seed) for method, flow in flows.items()}
        first = flows[methods[0]]
        shown = take(test, slice(_SHOWN), dtype=first.dtype)
        found.append(Gallery(name, shown.numpy(), samples, methods[0], first.project(shown[: _SHOWN // 2]).numpy()))
    return found


__all__ = [
    "FEWER_SAMPLES",
    "HEADLINES",
    "KEYS",
    "LONGER",
    "METHODS",
    "Amounts",
    "ImageResult",
    "ImageRun",
    "at_hand",
    "evaluate_image_run",
    "galleries",
    "train_runs",
]
