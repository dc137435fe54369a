"""Time and memory of one training step against the algorithm as published: what ``rnf bench volume`` runs.

Both sides take the same step (encode, volume, latent density, reconstruction, backward, Adam) on the same data; only the
volume differs. Steps are interleaved, published then ours, so that a busy machine slows both, and the result is the median
of the ratios within a round. Memory is the extra peak of one step in a process of its own.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import asdict
from functools import partial
from pathlib import Path

import torch
from rich.console import Console

from ...runs.display import WorkDisplay, wide_console
from ...training.setup import threads_for
from .cases import CASES, TARGETS, Row
from .memory import memory_in_child
from .show import facts_of, print_table
from .steps import Step, make_products, make_step


def bench_volume(
    cases: Sequence[str] = ("circle", "power", "gas", "hepmass", "miniboone"),
    repeats: int = 5,
    memory: bool = True,
    output: Path | None = None,
) -> list[Row]:
    """Time exact and stochastic training steps against the published algorithm, print a table, return its rows.

    Args:
        cases: names in :data:`CASES`. "mnist" and "cifar10" take minutes, and some 10 GiB as published.
        repeats: rounds, of a published step and one of ours; then of one of ours and its matrix products.
        memory: also measure memory, in a process for each side.
        output: JSON file for the rows, the targets and the facts of the machine.
    """
    unknown = [name for name in cases if name not in CASES]
    if unknown:
        raise ValueError(f"expected cases among {', '.join(CASES)}; got {', '.join(unknown)}")
    if repeats < 1:
        raise ValueError(f"expected repeats ≥ 1; got {repeats}")
    plan = [(name, probes) for name in cases for probes in (None, *CASES[name].probes)]
    rounds = repeats + 1 + memory  # a warm-up, and a child that takes a step of each side
    rows: list[Row] = []
    total = sum(CASES[name].cost(probes) * rounds for name, probes in plan)
    with WorkDisplay(Console(stderr=True), "measuring", total) as display:
        for name, probes in plan:
            advance = partial(display.advance, CASES[name].cost(probes))
            rows.append(_measure(name, probes, repeats, memory, advance))
    facts = facts_of(repeats)
    print_table(wide_console(), rows, facts)
    if output is not None:
        targets = [{"target": t.text, "measured": t.measured(rows)} for t in TARGETS]
        result = {"facts": facts, "rows": [asdict(row) for row in rows], "targets": targets}
        Path(output).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return rows


def _measure(name: str, probes: int | None, repeats: int, memory: bool, advance: Callable[[], None]) -> Row:
    case = CASES[name]
    torch.manual_seed(0)
    flow, x = case.flow(), case.data(probes)
    with threads_for(flow, case.rows(probes)):  # as training does
        copies = {published: deepcopy(flow) for published in (True, False)}
        steps = [make_step(copy, x, published, probes) for published, copy in copies.items()]
        for (published, copy), step in zip(copies.items(), steps, strict=True):
            # images take minutes: two rows warm the libraries up
            (make_step(copy, x[:2], published, probes) if case.image else step)()
        advance()
        times = []
        for _ in range(repeats):
            times.append([_seconds(step) for step in steps])
            advance()
        over: list[tuple[float, float]] = []
        if probes is None and case.image is None:  # our step in its steady state, with no published step between
            ours_step, products_step = steps[1], make_products(flow, case.batch)
            products_step()
            for _ in range(repeats):
                ours_step()
                over.append((_seconds(ours_step), _seconds(products_step)))
    del steps, copies, flow
    used = [memory_in_child(name, probes, published) if memory else None for published in (True, False)]
    if memory:
        advance()
    theirs, ours = (list(column) for column in zip(*times, strict=True))
    ratios = [a / b for a, b in times]
    return Row(
        case=name,
        D=case.D,
        d=case.d,
        batch=case.rows(probes),
        method=_label(probes),
        published_seconds=statistics.median(theirs),
        ours_seconds=statistics.median(ours),
        ratio=statistics.median(ratios),
        ratio_min=min(ratios),
        ratio_max=max(ratios),
        published_mib=used[0],
        ours_mib=used[1],
        memory_ratio=used[1] / used[0] if used[0] and used[1] is not None else None,
        products_seconds=statistics.median(b for _, b in over) if over else None,
        step_over_products=statistics.median(a / b for a, b in over) if over else None,
    )


def _label(probes: int | None) -> str:
    return "exact" if probes is None else f"K = {probes}"


def _seconds(step: Step) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


__all__ = ["CASES", "TARGETS", "Row", "bench_volume"]
