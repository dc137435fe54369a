"""``rnf reproduce images``: the paper's table of FID, published and ours, with samples of every model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from matplotlib.figure import Figure

from ..data.images import load_images
from ..data.rows import take
from ..evaluation.images import SAMPLES, check_amount, draw_bytes, find_network, quality_of
from ..metrics.image_quality import ImageQuality
from ..metrics.inception import Protocol
from ..plots.images import DPI
from ..runs.display import duration
from ..runs.jobs import preset_job
from ..runs.kept import kept
from ..runs.saved import SavedRun
from .experiment import Cell, Experiment, Group, Method, Table, Verdict, mean_and_error, mean_cell
from .gallery import Gallery, draw_gallery
from .options import Request

FEWER_SAMPLES = 2_000
"""Generated images that are compared of methods other than :data:`HEADLINES`, and by the published protocol."""

LONGER = "exact, longer"
_EXACT = {"volume": "exact", "volume_fraction": 0.05}
# K = 1 on a fifth of a batch costs as much as the exact volume on a twentieth of it
METHODS = {
    "exact": Method("exact", "image-fast", _EXACT),
    "k1": Method("K = 1", "image-fast", {"volume": "stochastic", "probes": 1, "volume_fraction": 0.2}),
    "two-step": Method("two-step", "image-fast-two-step"),
    "best": Method(LONGER, "image-best", _EXACT),
}
HEADLINES = {"exact": 720.0, LONGER: 3600.0}
"""The methods with the exact volume, and the seconds that a run of theirs may take."""

# FID of the paper's table of images, one run each
PUBLISHED: dict[str, dict[str, float]] = {
    "mnist": {"exact": 36.09, "K = 1": 33.98, "two-step": 35.52},
    "fashion-mnist": {"exact": 296.01, "K = 1": 288.39, "two-step": 318.59},
    "cifar10": {"exact": 643.31, "K = 1": 830.94, "two-step": 731.46},
}
TARGETS = {"mnist": 30.0, "fashion-mnist": 60.0}
"""The FID that the exact volume must reach, at 5,000 generated images."""

_SHOWN = 36  # images in a panel of the figure
_FID_CAPTION = (
    "published: the paper's FID, 50,000 samples, by a protocol of its own; ours, same: ours by that protocol, n samples "
    "against n training images drawn from all; its floor: n others against these. FID: as it is defined, against n test "
    "images; its floor: n training images against these."
)
_OTHER_CAPTION = (
    "KID ± its standard error; floors: training against test images, same n (of precision and recall: what perfect "
    "samples would reach). distance: mean squared, test images, pixels in 0 to 1."
)


@dataclass(frozen=True, eq=False)
class ImageResult:
    """A run on the test images.

    Attributes:
        seconds: of training.
        distance: mean squared distance of the test images from the manifold, in pixels of 0 to 1.
        quality: of the samples, as FID is defined; None without the network.
        matched: the same at the n of the other methods, to compare with them.
        published: by the published protocol; None where that was not asked for.
    """

    seconds: float
    distance: float
    quality: ImageQuality | None = None
    matched: ImageQuality | None = None
    published: ImageQuality | None = None


Groups = Sequence[Group[ImageResult]]


def image_cells(data: str, request: Request) -> list[Cell]:
    """Runs in OUT/images/SET/METHOD/seed-K, which ``rnf reproduce images`` and ``rnf reproduce ood`` share."""
    cells = []
    for key in request.methods:
        method = METHODS[key]
        for seed in request.seeds:
            folder, title = request.out / "images" / data / key / f"seed-{seed}", f"{data}, {method.name}, seed {seed}"
            job = preset_job(title, method.preset, folder, seed, request.epochs, {**method.change, "data": data})
            cells.append(Cell(data, method.name, seed, job))
    return cells


class Images(Experiment[ImageResult]):
    """Three sets of images; samples compared with real images by their Inception features."""

    name = "images"
    title = "The paper's table of images, reproduced"
    subtitle = "FID of rectangular flows on images: published, and ours."
    picture = (
        "images.png",
        "For each data set a row of panels: test images, samples of each method, images beside their projections",
        "Not chosen: the first of each kind.",
    )
    dpi = DPI

    def check(self) -> None:
        more = self.request.more
        self.samples = more.get("samples", SAMPLES)
        self.published_samples = more.get("published_samples", FEWER_SAMPLES)
        check_amount(self.samples, "-n")
        if self.published_samples:
            check_amount(self.published_samples, "--published-samples")
        self.network, self.missing = find_network(more.get("network"), more.get("network_sha256"), "skip_fid" in more)
        self.meaning = "" if self.network is None else _MEANING

    def load(self, data: str) -> None:
        load_images(data)

    def notes(self) -> list[str]:
        return [f"note: {self.missing}"] if self.missing else []

    def cells(self, data: str) -> list[Cell]:
        return image_cells(data, self.request)

    def judge(self, cell: Cell, seconds: float) -> ImageResult:
        folder, network = cell.job.folder, self.network
        saved = SavedRun(folder)
        flow, data = saved.flow, saved.data

        def reconstruction() -> dict[str, Any]:
            parts = (take(data.test, slice(i, i + 1000), dtype=flow.row_dtype) for i in range(0, len(data.test), 1000))
            with torch.no_grad():
                return {"mean": sum(float(flow.reconstruction_error(part).sum()) for part in parts) / len(data.test)}

        distance = kept(folder, "images.json", "squared distance, test images", reconstruction)["mean"]
        if network is None:
            return ImageResult(seconds, distance)

        def quality(count: int, protocol: Protocol = "fid") -> ImageQuality:
            options: dict[str, Any] = {"protocol": protocol, "console": self.console, "title": cell.job.title}
            return quality_of(saved, network, count, seed=cell.seed, **options)

        fewer, headline = min(self.samples, FEWER_SAMPLES), cell.method in HEADLINES
        theirs = quality(self.published_samples, "published") if headline and self.published_samples else None
        return ImageResult(seconds, distance, quality(self.samples if headline else fewer), quality(fewer), theirs)

    def tables(self, groups: Groups) -> list[Table]:
        fid = ("data", "method", "published", "ours, same", "floor", "n", "FID", "floor", "n", "time")
        other = ("data", "method", "n", "KID", "floor", "precision", "floor", "recall", "floor", "distance")
        captions = ("", "") if self.network is None else (_FID_CAPTION, _OTHER_CAPTION)
        others = [other_row(group) for group in groups if group.runs]
        return [
            Table("FID of samples", fid, [fid_row(group) for group in groups], captions[0], left=2),
            Table("Other measures", other, others, captions[1], left=2),
        ]

    def verdicts(self, groups: Groups) -> list[Verdict]:
        found = {(group.data, group.method): group for group in groups}
        return [
            verdict
            for data in TARGETS
            for method in HEADLINES
            if (data, method) in found
            for verdict in _verdicts(found[data, method], found.get((data, "two-step")) if method == "exact" else None)
        ]

    def numbers(self, groups: Groups) -> Any:
        runs = []
        for cell, result in (run for group in groups for run in group.runs):
            facts = {"data": cell.data, "method": cell.method, "seed": cell.seed, "folder": str(cell.job.folder)}
            for name in ("quality", "matched", "published"):
                found = getattr(result, name)
                facts[name] = None if found is None else {"n": found.n, **found.numbers()}
            runs.append({**facts, "seconds": result.seconds, "distance": result.distance})
        return {"runs": runs, "epochs": self.request.epochs}

    def figure(self, groups: Groups) -> Figure:
        return draw_gallery(galleries(groups))


def fid_row(group: Group[ImageResult]) -> list[str]:
    """Published and our FID by both protocols, each with its floor and n."""
    published = PUBLISHED.get(group.data, {}).get(group.method)
    head = [group.data, group.label, "" if published is None else f"{published:.2f}"]
    if not group.runs:
        return [*head, group.missing]
    cells = []
    for name in ("published", "quality"):
        there = _there(group, name)
        cells += [mean_cell([q.fid.value for q in there], 2) if there else ""]
        cells += [f"{there[0].fid.floor:.2f}", f"{there[0].n:,}"] if there else ["", ""]
    return [*head, *cells, duration(group.mean("seconds"))]


def other_row(group: Group[ImageResult]) -> list[str]:
    """n, KID, precision and recall, each with its floor, and the distance from the manifold."""
    cells, there = [""] * 7, _there(group, "quality")
    if there:
        mean, error = mean_and_error([quality.kid.value for quality in there])
        error = error if len(there) > 1 else there[0].kid_standard_error
        cells = [f"{there[0].n:,}", f"{mean:.4f} ± {error:.4f}", f"{there[0].kid.floor:.4f}"]
        for measure in ("precision", "recall"):
            both = [getattr(quality, measure) for quality in there]
            cells += [mean_cell([b.value for b in both], 3), f"{both[0].floor:.3f}"]
    return [group.data, group.label, *cells, mean_cell(group.values("distance"), 2)]


def _verdicts(group: Group[ImageResult], two_step: Group[ImageResult] | None) -> Iterator[Verdict]:
    """Those of one set and method; two-step runs are those of the same effort."""
    title, limit = f"{group.data}, {group.method}", TARGETS[group.data]
    for value, n in _mean_fid(group, "quality"):
        yield f"{title}, FID {value:.2f} ≤ {limit:g} at n = {n:,}", value <= limit
    for value, n in _mean_fid(group, "matched"):
        for other, m in [] if two_step is None else _mean_fid(two_step, "matched"):
            if n == m:
                yield f"{title}, FID {value:.2f} < two-step's {other:.2f} at n = {n:,}", value < other
    best = min(PUBLISHED[group.data].values())
    for value, n in _mean_fid(group, "published"):
        floor = _there(group, "published")[0].fid.floor
        text = f"{title}, FID by the published protocol {value:.2f} < {best} (the paper's best, n = 50,000)"
        yield f"{text} at n = {n:,}, where other training images score {floor:.2f}", value < best
    longest, most = max(group.values("seconds")), HEADLINES[group.method]
    yield f"{title}, longest training {duration(longest)} ≤ {duration(most)}", longest <= most


def _there(group: Group[ImageResult], name: str) -> list[ImageQuality]:
    return [quality for quality in group.values(name) if quality is not None]


def _mean_fid(group: Group[ImageResult], name: str) -> list[tuple[float, int]]:
    """One pair, the mean over seeds and n; none where there is no value."""
    there = _there(group, name)
    return [(mean_and_error([quality.fid.value for quality in there])[0], there[0].n)] if there else []


@torch.no_grad()
def galleries(groups: Groups) -> list[Gallery]:
    """What the figure shows of each set: real images, samples of the first run of each method, reconstructions."""
    found = []
    for data in dict.fromkeys(group.data for group in groups):
        cells = {group.method: group.runs[0][0] for group in groups if group.data == data}
        flows = {method: SavedRun(cell.job.folder).flow for method, cell in cells.items()}
        samples = {method: draw_bytes(flows[method], _SHOWN, cell.seed) for method, cell in cells.items()}
        method, flow = next(iter(flows.items()))
        shown = take(SavedRun(cells[method].job.folder).data.test, slice(_SHOWN), dtype=flow.row_dtype)
        found.append(Gallery(data, shown.numpy(), samples, method, flow.project(shown[: _SHOWN // 2]).numpy()))
    return found


_MEANING = """
**Two protocols.** The published numbers fed the Inception network 2x − 1 with x from 0 to 255, where it expects −1 to 1, and
compared 50,000 samples with the training set. They compare with each other only, and with the column *ours, same*, which
feeds the network the same way and compares with training images drawn from all, at a smaller n (FID falls as n grows:
this is to our disadvantage). *FID* is computed as FID is defined. Compare values of one n only; each is beside its *floor*,
what real images score at that n.

*KID* has no bias that depends on n. *Precision* is the share of samples that lie where real images do, *recall* that of real
images that lie where samples do.
"""
