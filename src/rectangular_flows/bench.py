"""Speed and memory of one training step against the algorithm as published: what ``rnf bench volume`` runs.

Both sides take the same step (encode, volume, latent density, reconstruction, backward, Adam) on the same data; only
the volume differs. Steps are interleaved, published then ours, so that a busy machine slows both, and the figure that
counts is the median of the ratios within a round. Memory is the extra peak of one step in a process of its own.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from torch import Tensor, nn

from . import RectangularFlow, flows
from .volume import Exact, Stochastic

Volume = Callable[..., tuple[Tensor, Tensor]]
Step = Callable[[], None]


@dataclass(frozen=True)
class Case:
    """One size of REFERENCE.md with the paper's networks."""

    D: int
    d: int
    batch: int
    hidden: tuple[int, ...] | None = (128,) * 4
    layers: int = 10
    latent_hidden: tuple[int, ...] | None = (32, 32)
    image: tuple[int, int, int] | None = None
    probes: tuple[int, ...] = (1, 10)
    authors: tuple[float, ...] = ()
    """Seconds of a step of the authors' own program, exact and with the probes: measured once, on 2 cores like these."""

    def flow(self) -> RectangularFlow:
        """The flow with fresh weights."""
        if self.image is not None:
            ambient: flows.Injection = flows.MultiscaleRealNVP(self.image)
        else:
            ambient = _paper_flow(self.D, self.layers, self.hidden or ())
        latent = flows.Identity(self.d) if self.latent_hidden is None else _paper_flow(self.d, 5, self.latent_hidden)
        return RectangularFlow(ambient, latent)

    def rows(self, probes: int | None) -> int:
        """Rows of a step: the batch, or as many as keep the published copies, K for each row, to 10,000."""
        return self.batch if probes is None else min(self.batch, 10_000 // probes)

    def data(self, probes: int | None = None) -> Tensor:
        """Random points, which take the same time as any others."""
        return torch.randn(self.rows(probes), *(self.image or (self.D,)))

    def authors_seconds(self, probes: int | None) -> float | None:
        """What a step took the authors' program, if it had as many rows."""
        if self.rows(probes) != self.batch or not self.authors:
            return None
        return self.authors[0 if probes is None else 1 + self.probes.index(probes)]

    def cost(self, probes: int | None) -> float:
        """Roughly what a published step costs; for the time left only."""
        passes = self.d if probes is None else probes * (2 * min(11, self.d) + 6)
        hidden = self.hidden or (1,)
        width = 50_000 * self.D / 28 if self.image else self.layers * sum(hidden) ** 2 / len(hidden)
        return self.rows(probes) * width * (passes + 2)


CASES = {
    "circle": Case(2, 1, 1000, hidden=(10, 10), layers=5, latent_hidden=None, authors=(0.04, 0.04, 0.19)),
    "power": Case(6, 3, 5000, authors=(2.7, 3.0, 39.9)),
    "gas": Case(8, 2, 2500, authors=(1.0, 1.9, 18.7)),
    "hepmass": Case(21, 10, 750, authors=(1.7, 2.0, 15.9)),
    "miniboone": Case(43, 21, 400, authors=(2.2, 1.6, 7.2)),
    # images take minutes: only if named
    "mnist": Case(784, 20, 10, None, 0, (32,) * 4, (1, 28, 28), (1, 4), (62, 27, 112)),
    "cifar10": Case(3072, 20, 4, None, 0, (32,) * 4, (3, 32, 32), (1, 4), (54, 23, 76)),
}


@dataclass(frozen=True)
class Row:
    """One method at one size. Times compare as published over ours, memory as ours over published."""

    case: str
    D: int
    d: int
    batch: int
    method: str
    published_seconds: float
    ours_seconds: float
    ratio: float
    """Median over the rounds of the ratio within a round; its least and largest follow."""
    ratio_min: float
    ratio_max: float
    authors_seconds: float | None = None
    """Of a step of the authors' program; not measured here."""
    published_mib: float | None = None
    ours_mib: float | None = None
    memory_ratio: float | None = None
    products_seconds: float | None = None
    step_over_products: float | None = None
    """Our exact step over its matrix products alone, median over the rounds; tables only."""


@dataclass(frozen=True)
class Target:
    """What is to be reached at MINIBOONE size on 2 cores."""

    text: str
    method: str
    field: str
    bound: float
    at_least: bool

    def measured(self, rows: Sequence[Row]) -> float | None:
        """The value in the rows, if it was measured."""
        for row in rows:
            if (row.case, row.method) == ("miniboone", self.method):
                value: float | None = getattr(row, self.field)
                return value
        return None

    def reached(self, value: float) -> bool:
        """Whether the value meets the bound."""
        return value >= self.bound if self.at_least else value <= self.bound


TARGETS = (
    Target("exact, times faster: ≥ 2.5", "exact", "ratio", 2.5, True),
    Target("exact, share of the memory: ≤ 0.6", "exact", "memory_ratio", 0.6, False),
    Target("K = 1, times faster: ≥ 3", "K = 1", "ratio", 3.0, True),
    Target("K = 10, times faster: ≥ 8", "K = 10", "ratio", 8.0, True),
    Target("exact step over its matrix products: ≤ 1.6", "exact", "step_over_products", 1.6, False),
)


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
    with _progress() as progress:
        task = progress.add_task("", total=sum(CASES[name].cost(probes) * rounds for name, probes in plan))
        for name, probes in plan:
            progress.update(task, description=f"{name}, {_label(probes)}")
            advance = partial(progress.advance, task, CASES[name].cost(probes))
            rows.append(_measure(name, probes, repeats, memory, device, advance))
    console = console or Console(width=None if sys.stdout.isatty() else 130)
    facts = _facts(device, repeats)
    _print(console, rows, facts)
    if output is not None:
        targets = [{"target": t.text, "measured": t.measured(rows)} for t in TARGETS]
        result = {"facts": facts, "rows": [asdict(row) for row in rows], "targets": targets}
        Path(output).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return rows


def training_step(flow: RectangularFlow, x: Tensor, volume: Volume, optimiser: torch.optim.Optimizer) -> None:
    """One step of the paper's objective at full weight, β = 50."""
    optimiser.zero_grad(set_to_none=True)
    z = flow.encode(x, model_units=True)
    x_hat, L = volume(flow, z, model_units=True)
    error = (x - x_hat).flatten(1).square().sum(dim=1)
    loss = (L - flow.latent.log_prob(z) + 50 * error).mean()
    loss.backward()
    optimiser.step()


def _measure(
    name: str, probes: int | None, repeats: int, memory: bool, device: str, advance: Callable[[], None]
) -> Row:
    case = CASES[name]
    torch.manual_seed(0)
    flow, x = case.flow().to(device), case.data(probes).to(device)
    steps = [_step(deepcopy(flow), x, published, probes) for published in (True, False)]
    for step in steps:
        step()
    advance()
    times: list[list[float]] = []
    for _ in range(repeats):
        times.append([_seconds(step, device) for step in steps])
        advance()
    over: list[tuple[float, float]] = []
    if probes is None and case.image is None:  # our step in its steady state, with nothing of the other side between
        ours_step, products_step = steps[1], _products(flow, case, device)
        products_step()
        for _ in range(repeats):
            ours_step()
            over.append((_seconds(ours_step, device), _seconds(products_step, device)))
    del steps, flow
    used = [_memory_in_child(name, probes, published, device) if memory else None for published in (True, False)]
    if memory:
        advance()
    published, ours = (list(column) for column in zip(*times, strict=True))
    ratios = [a / b for a, b in zip(published, ours, strict=True)]
    return Row(
        case=name,
        D=case.D,
        d=case.d,
        batch=case.rows(probes),
        method=_label(probes),
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


# --- what is timed


def _step(flow: RectangularFlow, x: Tensor, published: bool, probes: int | None) -> Step:
    volume: Volume = _published(probes) if published else Exact() if probes is None else Stochastic(probes=probes)
    optimiser = torch.optim.Adam(flow.parameters(), lr=1e-4, fused=True)
    return lambda: training_step(flow, x, volume, optimiser)


def _products(flow: RectangularFlow, case: Case, device: str) -> Step:
    """The matrix products of our exact step and nothing else, with operands and results in place already.

    Each has operands of its own, as in the step: sharing them would time products of data that never leave the cache.

    Every linear layer of f sees the batch twice (encode, primal) and the bundle of B·d tangents once, every one of h
    the batch once. A pass is one product forward and two backward, less those for inputs that need no gradient: the
    data, at the last coupling, and the basis, at the first.
    """
    ambient = [_linears(link) for link in flow.layers() if _linears(link)]
    passes: list[tuple[nn.Linear, int, bool]] = []
    for position, linears in enumerate(ambient):
        for depth, linear in enumerate(linears):
            passes.append((linear, case.batch, depth > 0 or position < len(ambient) - 1))
            passes.append((linear, case.batch, True))
            passes.append((linear, case.batch * case.d, depth > 0 or position > 0))
    passes += [(linear, case.batch, True) for linear in _linears(flow.latent)]
    results: dict[tuple[int, ...], Tensor] = {}
    products: list[tuple[Tensor, Tensor, Tensor]] = []

    def add(a: Tensor, b: Tensor) -> None:
        shape = (a.shape[0], b.shape[1])
        products.append((a, b, results.setdefault(shape, torch.empty(shape, device=device))))

    for linear, rows, input_gradient in passes:
        W = linear.weight.detach()
        x, y = torch.randn(rows, W.shape[1], device=device), torch.randn(rows, W.shape[0], device=device)
        add(x, W.mT)
        add(y.mT, x)
        if input_gradient:
            add(y, W)

    def run() -> None:
        for a, b, out in products:
            torch.mm(a, b, out=out)

    return run


def _linears(module: nn.Module) -> list[nn.Linear]:
    return [part for part in module.modules() if isinstance(part, nn.Linear)]


def _seconds(step: Step, device: str) -> float:
    _synchronise(device)
    start = time.perf_counter()
    step()
    _synchronise(device)
    return time.perf_counter() - start


def _synchronise(device: str) -> None:
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


def _published(probes: int | None) -> Volume:
    """The published algorithm: a module of the installed package, or of benchmarks/ in a source checkout."""
    try:
        module: Any = importlib.import_module("rectangular_flows._benchmarks.published")
    except ModuleNotFoundError:
        path = Path(__file__).resolve().parents[2] / "benchmarks" / "published.py"
        spec = importlib.util.spec_from_file_location("rectangular_flows._benchmarks_published", path)
        if spec is None or spec.loader is None or not path.exists():
            raise
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    volume: Volume = module.Published(probes)
    return volume


# --- memory: one step in a child process


def _memory_in_child(name: str, probes: int | None, published: bool, device: str) -> float | None:
    """Extra peak in MiB, or None if the child did not survive."""
    task = {"name": name, "probes": probes, "published": published, "device": device}
    command = [sys.executable, "-m", "rectangular_flows.bench", json.dumps(task), str(torch.get_num_threads())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return float(done.stdout) if done.returncode == 0 else None


def _child(name: str, probes: int | None, published: bool, device: str) -> float:
    case = CASES[name]
    torch.manual_seed(0)
    flow, x = case.flow().to(device), case.data(probes).to(device)
    _step(flow, x[:2], published, probes)()  # what libraries set up, gradients, Adam's state: not counted
    step = _step(flow, x, published, probes)
    before = _peak(device, reset=True)
    step()
    return _peak(device) - before


def _peak(device: str, reset: bool = False) -> float:
    """Largest memory so far in MiB; on Linux and CUDA, since the last reset."""
    if torch.device(device).type == "cuda":
        if reset:
            torch.cuda.reset_peak_memory_stats(device)
        return torch.cuda.max_memory_allocated(device) / 2**20
    status = Path("/proc/self/status")
    if status.exists():
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 2**10
    unit = 1 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


# --- what is shown


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("left"))
    return Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)


def _print(console: Console, rows: Sequence[Row], facts: dict[str, str | int]) -> None:
    table = Table(
        title="One training step: the algorithm as published against ours", box=box.SIMPLE, padding=(0, 1, 0, 0)
    )
    headings = (
        "case",
        "D",
        "d",
        "batch",
        "method",
        "authors\ns",
        "published\ns",
        "ours\ns",
        "times\nfaster",
        "min–max",
    )
    for heading in headings:
        table.add_column(heading, justify="left" if heading in ("case", "method") else "right", no_wrap=True)
    for heading in ("published\nMiB", "ours\nMiB", "memory\nratio", "step /\nproducts"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        seconds = _number(row.authors_seconds), f"{row.published_seconds:.3f}", f"{row.ours_seconds:.3f}"
        ratio = f"{row.ratio:.2f}", f"{row.ratio_min:.1f}–{row.ratio_max:.1f}"
        used = _number(row.published_mib, 0), _number(row.ours_mib, 0), _number(row.memory_ratio)
        sizes = str(row.D), str(row.d), str(row.batch)
        table.add_row(row.case, *sizes, row.method, *seconds, *ratio, *used, _number(row.step_over_products))
    console.print(table)
    console.print(
        "Authors: their own program, measured once on a machine like those this was developed on. Published: the same "
        "algorithm on our layers, here, interleaved with ours; the ratio is of these two.",
        highlight=False,
    )
    for target in TARGETS:
        value = target.measured(rows)
        if value is not None:
            verdict = "[green]reached" if target.reached(value) else "[red]missed"
            console.print(f"MINIBOONE {target.text}: {value:.2f}, {verdict}[/]", highlight=False)
    console.print(", ".join(f"{key} {value}" for key, value in facts.items()), highlight=False)


def _number(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _label(probes: int | None) -> str:
    return "exact" if probes is None else f"K = {probes}"


def _facts(device: str, repeats: int) -> dict[str, str | int]:
    return {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name(device) if torch.device(device).type == "cuda" else device,
        "dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "machine": f"{platform.system()} {platform.machine()}",
        "rounds": repeats,
    }


def _paper_flow(features: int, layers: int, hidden: tuple[int, ...]) -> flows.RealNVP:
    return flows.RealNVP(features, layers, hidden, activation="tanh", scale="exp", zero_init=False)


__all__ = ["CASES", "TARGETS", "Case", "Row", "Target", "bench_volume", "training_step"]

if __name__ == "__main__":  # the child of _memory_in_child
    torch.set_num_threads(int(sys.argv[2]))
    sys.stdout.write(f"{_child(**json.loads(sys.argv[1]))}\n")
