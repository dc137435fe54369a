"""Every setting of a training run, in one place."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ..volume import Exact, Stochastic


@dataclass(frozen=True)
class TrainingConfig:
    """How a rectangular flow is trained.

    Args:
        method: "ml" maximises likelihood and minimises reconstruction error together; "two-step" alternates whole passes:
            one on the likelihood, which trains h with z held fixed, one on the reconstruction, which trains f̃.
        volume: how the log-volume is differentiated (only for "ml").
        beta: weight of the squared reconstruction error, summed over dimensions, in model units.
        epochs: passes over the training data (for "two-step" one pass of each kind).
        batch_size: rows a step.
        learning_rate: of Adam; the peak where a schedule changes it.
        schedule: "constant" or "cosine" (to zero over all epochs).
        warm_up: epochs over which the learning rate rises linearly from zero.
        anneal: (start, end) epochs between which the weight of the likelihood rises linearly from 0 to 1.
        clip: largest norm of the gradient, or None.
        patience: stop after so many epochs without improvement of the validation objective, counted from the end of the
            annealing; None trains to the end. The best weights are kept either way.
        evaluate_every: epochs between validations.
        seed: of the order of the batches and of the probes.
    """

    method: Literal["ml", "two-step"] = "ml"
    volume: Exact | Stochastic = field(default_factory=Exact)
    beta: float = 50.0
    epochs: int = 100
    batch_size: int = 500
    learning_rate: float = 1e-3
    schedule: Literal["constant", "cosine"] = "constant"
    warm_up: float = 0.0
    anneal: tuple[float, float] = (0.0, 0.0)
    clip: float | None = None
    patience: int | None = None
    evaluate_every: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        for name, allowed in (("method", ("ml", "two-step")), ("schedule", ("constant", "cosine"))):
            if getattr(self, name) not in allowed:
                raise ValueError(f"expected {name} among {', '.join(allowed)}; got {getattr(self, name)!r}")
        for name in ("beta", "epochs", "batch_size", "learning_rate", "evaluate_every"):
            if not getattr(self, name) > 0:
                raise ValueError(f"expected a positive {name}; got {getattr(self, name)}")
        if not 0 <= self.anneal[0] <= self.anneal[1]:
            raise ValueError(f"expected annealing epochs 0 ≤ start ≤ end; got {self.anneal}")


__all__ = ["TrainingConfig"]
