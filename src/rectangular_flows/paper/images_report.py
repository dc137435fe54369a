"""The tables of ``rnf reproduce images``, what must hold of them, and the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from .._version import __version__
from ..metrics.image_quality import ImageQuality
from ..report import Grid, Page, Picture, Section, Text
from ..runs.display import duration
from .image_runs import HEADLINES, LONGER, ImageResult
from .reproduction import Verdict, mean_and_error, mean_cell, shortened, show_table, show_verdicts, verdict_sections

# FID of the paper's table of images, one run each
PUBLISHED: dict[str, dict[str, float]] = {
    "mnist": {"exact": 36.09, "K = 1": 33.98, "two-step": 35.52},
    "fashion-mnist": {"exact": 296.01, "K = 1": 288.39, "two-step": 318.59},
    "cifar10": {"exact": 643.31, "K = 1": 830.94, "two-step": 731.46},
}
TARGETS = {"mnist": 30.0, "fashion-mnist": 60.0}
"""FID of the exact volume that is to be reached, at 5,000 generated images."""

SECONDS = {"exact": 720.0, LONGER: 3600.0}
"""A training run is to take no more."""

FID_HEADINGS = ("data", "method", "published", "ours, same", "floor", "n", "FID", "floor", "n", "time")
OTHER_HEADINGS = ("data", "method", "n", "KID", "floor", "precision", "floor", "recall", "floor", "distance")
FID_CAPTION = (
    "published: the paper's FID, 50,000 samples, by a protocol of its own; ours, same: ours by that protocol, n samples "
    "against n training images drawn from all; its floor: n others against these. FID: as it is defined, against n test "
    "images; its floor: n training images against these."
)
OTHER_CAPTION = (
    "KID ± its standard error; floors: training against test images, same n (of precision and recall: what perfect "
    "samples would reach). distance: mean squared, test images, pixels in 0 to 1."
)
_MEANING = """
**Two protocols.** The published figures fed the Inception network 2x − 1 with x from 0 to 255, where it expects −1 to 1, and
compared 50,000 samples with the training set. They compare with each other only, and with the column *ours, same*, which
feeds the network the same way and compares with training images drawn from all, at a smaller n (FID falls as n grows:
this is to our disadvantage). *FID* is computed as FID is defined. Values of one n compare; each is beside its *floor*,
what real images score at that n.

*KID* has no bias that depends on n. *Precision* is the share of samples that lie where real images do, *recall* that of real
images that lie where samples do.
"""


def show(
    console: Console,
    names: Sequence[str],
    results: Sequence[ImageResult],
    picture: Path | None,
    epochs: int | None,
    missing: str,
) -> Page:
    """The tables and verdicts on the console; the page with them and the picture."""
    verdicts = judge(results)
    tables = [
        _filled("FID of samples", FID_HEADINGS, fid_rows(names, results), FID_CAPTION),
        _filled("Other measures", OTHER_HEADINGS, other_rows(results), OTHER_CAPTION),
    ]
    tables = [table for table in tables if table[2]]  # of sets that are not at hand there are no other measures
    for title, headings, rows, caption in tables:
        show_table(console, title, headings, rows, caption, left=2)
    if epochs is not None:
        console.print(shortened(epochs), highlight=False)
    if missing:
        console.print(f"note: {missing}", highlight=False, soft_wrap=True, markup=False)
    show_verdicts(console, verdicts)
    meaning = _MEANING.strip() if any(result.quality is not None for result in results) else ""
    text = "\n\n".join(part for part in (meaning, shortened(epochs), missing) if part)
    alt = "For each data set a row of panels: test images, samples of each method, images beside their projections"
    pictures = [Section("Samples", [Picture(picture, alt, "Not chosen: the first of each kind.")])] if picture else []
    return Page(
        "The paper's table of images, reproduced",
        "FID of rectangular flows on images: published, and ours.",
        [
            Section("Results", [*(Grid(*table[1:]) for table in tables), *([Text(text)] if text else [])]),
            *pictures,
            *verdict_sections(verdicts),
        ],
        f"rectangular-flows {__version__} · rnf reproduce images",
    )


def _filled(
    title: str, headings: Sequence[str], rows: Sequence[Sequence[str]], caption: str
) -> tuple[str, list[str], list[list[str]], str]:
    """A table without its empty columns; without features of samples its caption has nothing to explain."""
    kept = [i for i in range(len(headings)) if any(row[i] for row in rows)]
    left = [headings[i] for i in kept]
    return title, left, [[row[i] for i in kept] for row in rows], caption if "floor" in left else ""


def fid_rows(names: Sequence[str], results: Sequence[ImageResult]) -> list[list[str]]:
    """A row for each set and method, as :data:`FID_HEADINGS` says; sets not at hand say so."""
    rows = []
    for name in names:
        groups = _groups(results, name)
        for method, group in groups.items():
            published = PUBLISHED.get(name, {}).get(method)
            theirs, ours = _fid([r.published for r in group]), _fid([r.quality for r in group])
            time = duration(mean_and_error([r.run.seconds for r in group])[0])
            rows.append([name, method, "" if published is None else f"{published:.2f}", *theirs, *ours, time])
        if not groups:
            for method, published in PUBLISHED.get(name, {}).items():
                rows.append([name, method, f"{published:.2f}", "data not at hand", *[""] * 6])
    return rows


def other_rows(results: Sequence[ImageResult]) -> list[list[str]]:
    """A row for each set and method, as :data:`OTHER_HEADINGS` says."""
    rows = []
    for name in dict.fromkeys(result.run.data for result in results):
        for method, group in _groups(results, name).items():
            found = [result.quality for result in group if result.quality is not None]
            cells = [""] * 7
            if found:
                kid = [quality.kid.value for quality in found]
                error = mean_and_error(kid)[1] if len(kid) > 1 else found[0].kid_standard_error
                mean = mean_and_error(kid)[0]
                cells = [f"{found[0].n:,}", f"{mean:.4f} ± {error:.4f}", f"{found[0].kid.floor:.4f}"]
                for measure in ("precision", "recall"):
                    both = [getattr(quality, measure) for quality in found]
                    cells += [mean_cell([b.value for b in both], 3), f"{both[0].floor:.3f}"]
            rows.append([name, method, *cells, mean_cell([r.reconstruction for r in group], 2)])
    return rows


def judge(results: Sequence[ImageResult]) -> list[Verdict]:
    """What must hold of the methods with the exact volume, and whether it does."""
    found: list[Verdict] = []
    for name in TARGETS:
        groups = _groups(results, name)
        for method in HEADLINES:
            if method in groups:
                found += _judge(name, method, groups[method], groups.get("two-step", []) if method == "exact" else [])
    return found


def _judge(name: str, method: str, exact: Sequence[ImageResult], two_step: Sequence[ImageResult]) -> Iterator[Verdict]:
    """Those of one set and method; two-step runs are those of the same effort."""
    title, limit = f"{name}, {method}", TARGETS[name]
    for value, n in _mean_fid([r.quality for r in exact]):
        yield f"{title}, FID {value:.2f} ≤ {limit:g} at n = {n:,}", value <= limit
    pairs = zip(_mean_fid([r.matched for r in exact]), _mean_fid([r.matched for r in two_step]), strict=False)
    for (value, n), (other, m) in pairs:
        if n == m:
            yield f"{title}, FID {value:.2f} < two-step's {other:.2f} at n = {n:,}", value < other
    best = min(PUBLISHED[name].values())
    for value, n in _mean_fid([r.published for r in exact]):
        floor = next(r.published.fid.floor for r in exact if r.published is not None)
        text = f"{title}, FID by the published protocol {value:.2f} < {best} (the paper's best, n = 50,000)"
        yield f"{text} at n = {n:,}, where other training images score {floor:.2f}", value < best
    longest, most = max(r.run.seconds for r in exact), SECONDS[method]
    yield f"{title}, longest training {duration(longest)} ≤ {duration(most)}", longest <= most


def _groups(results: Sequence[ImageResult], name: str) -> dict[str, list[ImageResult]]:
    groups: dict[str, list[ImageResult]] = {}
    for result in results:
        if result.run.data == name:
            groups.setdefault(result.run.method, []).append(result)
    return groups


def _mean_fid(qualities: Sequence[ImageQuality | None]) -> list[tuple[float, int]]:
    """One pair, the mean over seeds and n; none where there is no value."""
    there = [quality for quality in qualities if quality is not None]
    return [(mean_and_error([q.fid.value for q in there])[0], there[0].n)] if there else []


def _fid(qualities: Sequence[ImageQuality | None]) -> list[str]:
    """Cells of FID over seeds, its floor, and n; empty where there is none."""
    there = [quality for quality in qualities if quality is not None]
    if not there:
        return ["", "", ""]
    return [mean_cell([q.fid.value for q in there], 2), f"{there[0].fid.floor:.2f}", f"{there[0].n:,}"]


__all__ = ["PUBLISHED", "TARGETS", "fid_rows", "judge", "other_rows", "show"]
