"""What a training run is made of: its state while it goes on, its history, and what it leaves."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from ..manifold import RectangularFlow
from .config import TrainingConfig


@dataclass(frozen=True)
class Epoch:
    """One line of the history, written after a validation."""

    epoch: int
    step: int
    objective: float
    """On the validation rows: the full objective with the exact volume and the likelihood at full weight; for the
    two-step method the sum of its two losses, which know no volume; with a target error the negative log-likelihood, plus
    a penalty where the error exceeds it by more than 5 %."""
    negative_log_likelihood: float
    reconstruction: float
    train_loss: float
    """Mean loss of the steps since the last line; with a stochastic volume it is a surrogate."""
    train_reconstruction: float
    weight: float
    """Of the likelihood, at the end of the epoch."""
    beta: float
    learning_rate: float
    gradient_norm: float
    """Mean over the steps, before clipping."""
    seconds: float
    metrics: dict[str, float] = field(default_factory=dict)

    def value(self, name: str) -> float:
        """A named value to judge by."""
        own = {"objective": self.objective, "nll": self.negative_log_likelihood, "reconstruction": self.reconstruction}
        return {**self.metrics, **own}[name]

    def flat(self) -> dict[str, Any]:
        """One flat mapping, for files."""
        values = {name: value for name, value in vars(self).items() if name != "metrics"}
        return {**values, **self.metrics}


@dataclass
class Progress:
    """Where a run stands. Everything that is not a tensor and that going on depends on."""

    beta: float
    steps: int = 0
    """In all, if it is not stopped early."""
    epoch: int = 0
    """Epochs that are done."""
    turn: int = 0
    """Which pass of the epoch (the two-step method has two)."""
    latent_started: bool = False
    """Whether h took its start from data, where it does so in training."""
    latent_from: int | None = None
    """The epoch after which h trains alone, once it does."""
    batch: int = 0
    step: int = 0
    best: float = math.inf
    best_epoch: int = 0
    seconds: float = 0.0
    finished: str = ""
    """Why it ended, if it did."""
    sums: dict[str, float] = field(default_factory=dict)

    def add(self, **values: float) -> None:
        """Add to the means of the current line of the history."""
        for name, value in values.items():
            if not math.isnan(value):
                self.sums[name] = self.sums.get(name, 0.0) + value
                self.sums[f"{name} count"] = self.sums.get(f"{name} count", 0.0) + 1

    def mean(self, name: str) -> float:
        """Mean of what was added since the last line."""
        return self.sums.get(name, math.nan) / self.sums.get(f"{name} count", 1.0)


@dataclass
class Run:
    """What a training run left: the flow with its best weights, and how it got there."""

    flow: RectangularFlow
    config: TrainingConfig
    history: list[Epoch] = field(default_factory=list)
    seconds: float = 0.0
    folder: Path | None = None
    progress: Progress = field(default_factory=lambda: Progress(1.0), repr=False)
    best_weights: dict[str, Tensor] = field(default_factory=dict, repr=False)

    @property
    def best_epoch(self) -> int:
        """The epoch whose weights were best."""
        return self.progress.best_epoch

    @property
    def finished(self) -> str:
        """Why it ended, if it did."""
        return self.progress.finished
