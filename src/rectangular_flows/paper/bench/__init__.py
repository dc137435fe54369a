"""Speed and memory of one training step against the algorithm as published: what ``rnf bench volume`` runs.

Both sides take the same step (encode, volume, latent density, reconstruction, backward, Adam) on the same data; only
the volume differs. Steps are interleaved, published then ours, so that a busy machine slows both, and the figure that
counts is the median of the ratios within a round. Memory is the extra peak of one step in a process of its own.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import asdict
from functools import partial
from pathlib import Path

import torch
from rich.console import Console

from ...runs.display import wide_console
from ...training.setup import threads_for
from .cases import CASES, TARGETS, Case, Row, Target
from .memory import memory_in_child
from .show import facts_of, label, print_table, progress_bar
from .steps import make_products, make_step, seconds_of, training_step


def bench_volume(
    cases: Sequence[str] = ("circle", "power", "gas", "hepmass", "miniboone"),
    repeats: int = 5,
    memory: bool = True,
    output: Path | None = None,
    *,
    device: str = "cpu",
    console: Console | None = None,
) -> list[Row]:
    """Time exact and stochastic training steps against the published algorithm, print a table, return its rows.

    Args:
        cases: names in :data:`CASES`. "mnist" runs only if named: it takes minutes, and some 10 GiB when published.
        repeats: rounds, of a published step and one of ours; then of one of ours and its matrix products.
        memory: also measure memory, in a process for each side.
        output: JSON file for the rows, the targets and the facts of the machine.
        device: where to run.
        console: where the table goes; standard output unless given.
    """
    unknown = [name for name in cases if name not in CASES]
    if unknown:
        raise ValueError(f"expected cases among {', '.join(CASES)}; got {', '.join(unknown)}")
    if repeats < 1:
        raise ValueError(f"expected repeats ≥ 1; got {repeats}")
    plan = [(name, probes) for name in cases for probes in (None, *CASES[name].probes)]
    rounds = repeats + 1 + memory  # a warm-up, and a child that takes a step of each side
    rows: list[Row] = []
    with progress_bar() as progress:
        task = progress.add_task("", total=sum(CASES[name].cost(probes) * rounds for name, probes in plan))
        for name, probes in plan:
            progress.update(task, description=f"{name}, {label(probes)}")
            advance = partial(progress.advance, task, CASES[name].cost(probes))
            rows.append(_measure(name, probes, repeats, memory, device, advance))
    console = console or wide_console()
    facts = facts_of(device, repeats)
    print_table(console, rows, facts)
    if output is not None:
        targets = [{"target": t.text, "measured": t.measured(rows)} for t in TARGETS]
        result = {"facts": facts, "rows": [asdict(row) for row in rows], "targets": targets}
        Path(output).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return rows


def _measure(
    name: str, probes: int | None, repeats: int, memory: bool, device: str, advance: Callable[[], None]
) -> Row:
    case = CASES[name]
    torch.manual_seed(0)
    flow, x = case.flow().to(device), case.data(probes).to(device)
    with threads_for(flow, case.rows(probes)):  # as training does
        copies = [deepcopy(flow), deepcopy(flow)]
        steps = [make_step(copy, x, published, probes) for copy, published in zip(copies, (True, False), strict=True)]
        for copied, as_published, step in zip(copies, (True, False), steps, strict=True):
            if case.image is None:
                step()
            else:  # minutes: two rows warm the libraries up
                make_step(copied, x[:2], as_published, probes)()
        advance()
        times: list[list[float]] = []
        for _ in range(repeats):
            times.append([seconds_of(step, device) for step in steps])
            advance()
        over: list[tuple[float, float]] = []
        if (
            probes is None and case.image is None
        ):  # our step in its steady state, with nothing of the other side between
            ours_step, products_step = steps[1], make_products(flow, case, device)
            products_step()
            for _ in range(repeats):
                ours_step()
                over.append((seconds_of(ours_step, device), seconds_of(products_step, device)))
    del steps, copies, flow
    used = [memory_in_child(name, probes, published, device) if memory else None for published in (True, False)]
    if memory:
        advance()
    published, ours = (list(column) for column in zip(*times, strict=True))
    ratios = [a / b for a, b in zip(published, ours, strict=True)]
    return Row(
        case=name,
        D=case.D,
        d=case.d,
        batch=case.rows(probes),
        method=label(probes),
        published_seconds=statistics.median(published),
        ours_seconds=statistics.median(ours),
        ratio=statistics.median(ratios),
        ratio_min=min(ratios),
        ratio_max=max(ratios),
        authors_seconds=case.authors_seconds(probes),
        published_mib=used[0],
        ours_mib=used[1],
        memory_ratio=used[1] / used[0] if used[0] and used[1] is not None else None,
        products_seconds=statistics.median(b for _, b in over) if over else None,
        step_over_products=statistics.median(a / b for a, b in over) if over else None,
    )


__all__ = ["CASES", "TARGETS", "Case", "Row", "Target", "bench_volume", "training_step"]
