"""The groups of ``rnf bench``: each measures rows of numbers, and says how to draw them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...training.objective import Objective
from ...training.setup import threads_for
from ...training.variance import adam_weights, moved
from ...volume import Exact, Stochastic
from ...volume.exact import two_log_volumes
from ..published import published_exact
from .baselines import BETA, Bench, naive
from .cases import CASES, Case
from .counting import count, counting
from .memory import memory_of
from .quality import quality
from .rounds import in_turns

Row = dict[str, Any]
TABLES = ("circle", "power", "gas", "hepmass", "miniboone")
_OURS = ("reconstruction only", "auto", "exact", "K = 1", "K = min(10, d)")
OURS = (*_OURS, "exact, whole batch", "K = 1, pcg", "ours")
"""Methods of this library, which figures show in a colour."""
_PUBLISHED = ("published, exact", "published, K = 1")
_WITH = {
    "large": ("K = 1, pcg",),
    "image-fast": _PUBLISHED,
    "mnist": ("published, exact",),
}  # where others take minutes
_CHILDREN = 3  # processes whose memory is measured
_OTHERS = ("jacfwd and slogdet", "square zuko flow", "free-form surrogate", "bare products")


class Group(NamedTuple):
    """What is measured and how it is drawn: ``y`` against ``x``, a line for each ``by``; or a panel for each ``x``."""

    title: str
    measure: Callable[[Sequence[str], int], list[Row]]
    x: str
    y: str
    by: str
    cases: tuple[str, ...]
    note: str
    label: str
    """Of y, for people."""
    panels: bool = False
    """Whether each x has a panel, with a row for each ``by``."""


def _step(cases: Sequence[str], rounds: int) -> list[Row]:
    rows: list[Row] = []
    for name in cases:
        case, bench = CASES[name], Bench(CASES[name])
        names = [*_OURS, *_WITH.get(name, (*_PUBLISHED, *_OTHERS, "auto, compiled"))]
        with threads_for(bench.flow, case.batch):
            found = in_turns(bench.steps(names), rounds)
        chosen = bench.choice()
        for method, times in found.items():
            row = {"case": name, "D": case.D, "d": case.d, "rows": case.batch, "method": method, **times.numbers()}
            row["over_reconstruction"] = times.over(found["reconstruction only"])
            if "published, exact" in found:
                row["published_exact_over_this"] = found["published, exact"].over(times)
            row["variance_ratio"] = chosen.ratio if method == "auto" else None
            row["choice"] = chosen.text(case.batch).split(":")[0] if method == "auto" else ""
            rows.append(row)
    return rows


def _density(cases: Sequence[str], rounds: int) -> list[Row]:
    rows: list[Row] = []
    for name in cases:
        case, bench = CASES[name], Bench(CASES[name], steps=1)
        flow = bench.flow
        with torch.no_grad():
            z = flow.encode(bench.x)

        def ours(flow: Any = flow, z: Tensor = z) -> None:
            two_log_volumes(flow, flow.in_model_units, z)

        def published(flow: Any = flow, z: Tensor = z) -> None:
            with torch.no_grad():
                published_exact(flow, z)

        def plain(flow: Any = flow, z: Tensor = z) -> None:
            with torch.no_grad():
                naive(flow, z)

        found = in_turns({"ours": ours, "published": published, "jacfwd and slogdet": plain}, rounds)
        for method, times in found.items():
            row = {"case": name, "D": case.D, "d": case.d, "rows": case.batch, "method": method, **times.numbers()}
            rows.append({**row, "over_ours": times.over(found["ours"])})
    return rows


def _memory(cases: Sequence[str], rounds: int) -> list[Row]:
    rows: list[Row] = []
    for name in cases:
        methods = ("published, exact", "exact", "exact, whole batch", "auto", "K = 1", "reconstruction only")
        used = {method: _median([memory_of(name, method) for _ in range(_CHILDREN)]) for method in methods}
        bench = Bench(CASES[name], steps=1)
        found = in_turns(bench.steps(["exact", "exact, whole batch"]), rounds)
        for method, mib in used.items():
            theirs = used["published, exact"]
            share = mib / theirs if mib is not None and theirs else None
            times = found.get(method)
            over = None if times is None else times.over(found["exact, whole batch"])
            rows.append({"case": name, "method": method, "mib": mib, "of_published": share, "time_over_whole": over})
    return rows


def _probes(cases: Sequence[str], rounds: int) -> list[Row]:
    """Memory of a step against K, ours on the whole batch and as published with its K copies of every row."""
    rows: list[Row] = []
    for name in cases:
        for K in (k for k in (1, 2, 4, 8, 16) if k <= CASES[name].d):
            for method, step in (
                ("ours", f"K = {K}, whole batch"),
                ("ours, in parts", f"K = {K}"),
                ("published", f"published, K = {K}"),
            ):
                rows.append({"case": name, "K": K, "method": method, "mib": memory_of(name, step)})
    return rows


def _median(found: Sequence[float | None]) -> float | None:
    """Of what was measured: malloc makes single peaks differ by a tenth."""
    return statistics.median(value for value in found if value is not None) if any(found) else None


def _variance(cases: Sequence[str], rounds: int) -> list[Row]:
    """Noise of the volume's gradient against K, weighted as Adam weighs it, and products counted, at each case."""
    rows: list[Row] = []
    for name in cases:
        bench = Bench(CASES[name])
        d, x = CASES[name].d, bench.x[:64]
        objective = Objective(bench.flow, Exact(), BETA)
        parameters = moved(objective)
        weights = [1.0 if w is None else w for w in adam_weights(bench.optimiser, parameters)]
        exact = _gradient(objective, x, Exact(codimension="never"), parameters)
        size = sum(float((w * g.square()).sum()) for w, g in zip(weights, exact, strict=True))
        counter = counting(bench.flow)
        with torch.no_grad():
            z = counter.encode(x)
        for distribution in ("orthonormal", "gaussian", "rademacher"):
            for K in sorted({1, 2, 4, 8, 16, d}):
                if d < K:
                    continue
                method = Stochastic(K, distribution, generator=torch.Generator().manual_seed(K))
                noise = []
                for _ in range(max(4, rounds)):
                    found = _gradient(objective, x, method, parameters)
                    pairs = zip(weights, found, exact, strict=True)
                    noise.append(sum(float((w * (a - b).square()).sum()) for w, a, b in pairs) / size)
                rows.append({"case": name, "distribution": distribution, "K": K, "noise": statistics.mean(noise)})
        for label, volume in (
            ("exact", Exact(codimension="never")),
            ("K = 1, direct", Stochastic(1)),
            ("K = 1, cg", Stochastic(1, solver="cg")),
            ("K = 1, pcg", Stochastic(1, solver="pcg")),
            ("published, exact", published_exact),
        ):
            counted = count(partial(_backward, volume, counter, z), len(z))
            rows.append({"case": name, "products": label, **counted})
    return rows


def _backward(volume: Any, flow: Any, z: Tensor) -> None:
    volume(flow, z)[1].sum().backward()


def _gradient(objective: Objective, x: Tensor, volume: Any, parameters: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return torch.autograd.grad(objective.apart(x, volume)[1], parameters, allow_unused=True, materialize_grads=True)


def _growth(cases: Sequence[str], rounds: int) -> list[Row]:
    """A step against d at D = 2d, 64 rows, four couplings of (128, 128)."""
    rows: list[Row] = []
    for d in (2, 8, 32, 128):
        case = Case(2 * d, d, 64, hidden=(128, 128), layers=4, latent_hidden=None)
        bench = Bench(case, steps=20)
        names = ["reconstruction only", "auto", "exact", "K = 1", "K = 1, pcg", "published, exact"]
        for method, times in in_turns(bench.steps(names), rounds).items():
            rows.append({"d": d, "D": 2 * d, "method": method, **times.numbers()})
    return rows


def _threads(cases: Sequence[str], rounds: int) -> list[Row]:
    rows: list[Row] = []
    for name in cases:
        bench = Bench(CASES[name], steps=5)
        for threads in (1, 2):
            with _with_threads(threads):
                found = in_turns(bench.steps(["reconstruction only", "auto", "exact"]), rounds)
            for method, times in found.items():
                rows.append({"case": name, "threads": threads, "method": method, **times.numbers()})
    return rows


@contextmanager
def _with_threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


GROUPS: dict[str, Group] = {
    "step": Group(
        "One training step",
        _step,
        "case",
        "over_reconstruction",
        "method",
        TABLES,
        "CPU seconds of a step over those of one without the likelihood; K = min(10, d) has no more probes than d.",
        "CPU time over that of a step without the likelihood",
        panels=True,
    ),
    "density": Group(
        "Exact log-volumes",
        _density,
        "case",
        "over_ours",
        "method",
        TABLES,
        "CPU seconds over ours.",
        "CPU time over ours",
        panels=True,
    ),
    "memory": Group(
        "Memory of a step",
        _memory,
        "case",
        "of_published",
        "method",
        TABLES,
        "Extra peak of a step in a process of its own, median of three, over that of the exact algorithm as published.",
        "memory over that of the published algorithm, exact",
        panels=True,
    ),
    "variance": Group(
        "Noise of probes",
        _variance,
        "K",
        "noise",
        "distribution",
        ("miniboone",),
        "Squared error of the volume's gradient on 64 rows over its square, weighted as Adam weighs it; products counted.",
        "squared error of the gradient, relative",
    ),
    "probes": Group(
        "Memory against K",
        _probes,
        "K",
        "mib",
        "method",
        ("miniboone",),
        "Extra peak of a step with K probes, in a process of its own; the published algorithm has K copies of every row.",
        "MiB of a step",
    ),
    "growth": Group(
        "Growth with d", _growth, "d", "cpu_seconds", "method", (), "D = 2d, 64 rows.", "CPU seconds of a step"
    ),
    "threads": Group(
        "Threads",
        _threads,
        "threads",
        "wall_seconds",
        "method",
        ("miniboone",),
        "Wall time of a step.",
        "seconds of a step",
        panels=True,
    ),
    "quality": Group(
        "Time to quality",
        quality,
        "cpu",
        "fid_like",
        "method",
        ("power", "miniboone"),
        "FID-like of as many samples as validation rows (at least 10,000) against CPU seconds, validation included.",
        "FID-like, validation rows",
    ),
}
