"""What is measured: the sizes of the paper's experiments, a row of the result, and the targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ... import flows
from ...manifold import RectangularFlow


@dataclass(frozen=True)
class Case:
    """One size of the paper's experiments, with its networks."""

    D: int
    d: int
    batch: int
    hidden: tuple[int, ...] = (128,) * 4
    layers: int = 10
    latent_hidden: tuple[int, ...] | None = (32, 32)
    image: tuple[int, int, int] | None = None
    probes: tuple[int, ...] = (1, 10)
    preset: str | None = None
    """Whose networks it has, in place of the paper's."""
    warm: int = 60
    """Steps of training before its steps are timed."""

    def flow(self) -> RectangularFlow:
        """The flow with fresh weights."""
        if self.preset is not None:
            return _of_preset(self)

        def paper_flow(features: int, layers: int, hidden: tuple[int, ...]) -> flows.RealNVP:
            return flows.RealNVP(features, layers, hidden, activation="tanh", scale="exp", zero_init=False)

        ambient: flows.Injection = (
            flows.MultiscaleRealNVP(self.image) if self.image else paper_flow(self.D, self.layers, self.hidden)
        )
        latent = flows.Identity(self.d) if self.latent_hidden is None else paper_flow(self.d, 5, self.latent_hidden)
        return RectangularFlow(ambient, latent)

    def rows(self, probes: int | None) -> int:
        """Rows of a step: the batch, or as many as keep the published copies, K for each row, to 10,000."""
        return self.batch if probes is None else min(self.batch, 10_000 // probes)

    def data(self, probes: int | None = None) -> Tensor:
        """Random points, which take the same time as any others."""
        return torch.randn(self.rows(probes), *(self.image or (self.D,)))

    def cost(self, probes: int | None) -> float:
        """Roughly what a published step costs; only for the time left."""
        passes = self.d if probes is None else probes * (2 * min(11, self.d) + 6)
        width = 50_000 * self.D / 28 if self.image else self.layers * sum(self.hidden) ** 2 / len(self.hidden)
        return self.rows(probes) * width * (passes + 2)


def _of_preset(case: Case) -> RectangularFlow:
    from ...atlas import one_chart
    from ...runs.build import build_flow
    from ...settings import FitSettings, read_preset

    settings = FitSettings.from_flat({}, read_preset(str(case.preset)))
    generator = torch.Generator().manual_seed(1)
    rows = torch.rand(2_000, *(case.image or (case.D,)), generator=generator)
    return one_chart(build_flow(settings.model, rows, 0))


CASES = {
    "circle": Case(2, 1, 1000, hidden=(10, 10), layers=5, latent_hidden=None),
    "power": Case(6, 3, 5000),
    "gas": Case(8, 2, 2500),
    "hepmass": Case(21, 10, 750),
    "miniboone": Case(43, 21, 400),
    # images take minutes, and some 10 GiB as published: only if named
    "mnist": Case(784, 20, 10, latent_hidden=(32,) * 4, image=(1, 28, 28), probes=(1, 4), warm=20),
    "image-fast": Case(784, 20, 250, image=(1, 28, 28), preset="image-fast"),
    "large": Case(1024, 512, 64, hidden=(128, 128), layers=4, latent_hidden=None),
    "cifar10": Case(3072, 20, 4, latent_hidden=(32,) * 4, image=(3, 32, 32), probes=(1, 4), warm=20),
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
    published_mib: float | None = None
    ours_mib: float | None = None
    memory_ratio: float | None = None
    products_seconds: float | None = None
    step_over_products: float | None = None
    """Our exact step over its matrix products alone, median over the rounds; tables only."""


class Target(NamedTuple):
    """What is to be reached at MINIBOONE size on 2 cores: a bound for a field of a method's row."""

    text: str
    method: str
    field: str
    bound: float
    at_least: bool

    def measured(self, rows: Sequence[Row]) -> float | None:
        """The value in the rows, if it was measured."""
        mine = [row for row in rows if (row.case, row.method) == ("miniboone", self.method)]
        return getattr(mine[0], self.field) if mine else None

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
