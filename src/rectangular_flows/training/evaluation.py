"""Validation: the objective with the exact volume, and the named metrics, on rows that training never sees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ..atlas import Model
from ..errors import NumericalError, warn
from ..volume import Exact
from .atlas import objective_of
from .config import TrainingConfig
from .distributed import World

Metric = Callable[[Model, Tensor], float]
_OWN = ("objective", "nll", "reconstruction")
_INFEASIBLE = 1000.0
SLACK = 1.05  # of a target that counts as met


@dataclass(frozen=True)
class Values:
    """What a validation found."""

    objective: float
    negative_log_likelihood: float
    reconstruction: float
    metrics: dict[str, float]


def fid_like(flow: Model, rows: Tensor) -> float:
    """The FID-like score of as many samples as there are rows (at least 10,000), with a fixed seed."""
    from ..metrics.frechet import fid_like as score

    generator = torch.Generator().manual_seed(0)
    samples = flow.sample(max(len(rows), 10_000), generator=generator)
    return score(samples.flatten(1).cpu().numpy(), rows.flatten(1).cpu().numpy())


def metrics_for(config: TrainingConfig, metrics: Mapping[str, Metric] | None) -> dict[str, Metric]:
    """The metrics to compute, with the one that is monitored among them.

    Raises:
        ValueError: the monitored one is not known.
    """
    chosen = dict(metrics or {})
    if config.monitor == "fid-like":
        chosen.setdefault("fid-like", fid_like)
    if config.monitor not in (*_OWN, *chosen):
        names = ", ".join((*_OWN, "fid-like", *(name for name in chosen if name != "fid-like")))
        raise ValueError(f"expected monitor among {names}; got {config.monitor!r}")
    return chosen


def judged_by(nll: float, reconstruction: float, target: float) -> float:
    """The negative log-likelihood, plus a penalty where the error exceeds its target by more than 5 %."""
    return nll + _INFEASIBLE * max(0.0, reconstruction / target - SLACK)


@torch.no_grad()
def evaluate(
    flow: Model,
    rows: Tensor,
    config: TrainingConfig,
    metrics: Mapping[str, Metric],
    beta: float,
    target: float | None,
    world: World,
) -> Values:
    """All of it on the validation rows. Where the manifold is degenerate the likelihood is NaN, with a warning.

    Of several processes the first has all rows and takes its share of them; each of the others has its own.
    """
    own = world.share(rows) if world.first else rows
    total = int(world.total(torch.tensor(len(own))))
    exact = objective_of(flow, Exact(), beta)
    nll = latent = reconstruction = 0.0
    for part in own.split(flow.rows_at_once()):
        share = len(part) / total
        try:
            terms = exact(part)
        except NumericalError as error:
            terms = exact(part, part="reconstruction")
            if config.method == "ml":
                warn(RuntimeWarning, f"no likelihood on the validation rows: {error}")
        nll += share * float(terms.negative_log_likelihood)
        reconstruction += share * float(terms.reconstruction)
        if config.method == "two-step":
            latent += share * float(exact(part, part="likelihood").loss)
    sums = world.total(torch.tensor([nll, latent, reconstruction], dtype=torch.float64))
    nll, latent, reconstruction = sums.tolist()
    objective = (latent if config.method == "two-step" else nll) + config.beta * reconstruction
    if target is not None:  # β changes, so that its objective is no yardstick: likelihood if feasible
        objective = judged_by(nll, reconstruction, target)
    found = {name: world.agree(float(metric(flow, rows)) if world.first else 0.0) for name, metric in metrics.items()}
    return Values(objective, nll, reconstruction, found)
