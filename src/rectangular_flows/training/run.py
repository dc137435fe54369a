"""What a training run is made of: its state, its history, and its result."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ..atlas import Model
from ..errors import NonFiniteError, NumericalError
from ..volume.auto import Choice
from .config import TrainingConfig

if TYPE_CHECKING:
    from .evaluation import Values


@dataclass(frozen=True)
class Epoch:
    """One line of the history, written after a validation."""

    epoch: int
    step: int
    objective: float
    """On the validation rows: the full objective with the exact volume and the likelihood at full weight; for the
    two-step method the sum of its two losses, without the volume; with a target error the negative log-likelihood, plus
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
    volume: dict[str, float] = field(default_factory=dict)
    """What ``volume = "auto"`` has chosen; empty with other methods. Share 0 before the likelihood counts."""

    def value(self, name: str) -> float:
        """A named value to judge by."""
        own = {"objective": self.objective, "nll": self.negative_log_likelihood, "reconstruction": self.reconstruction}
        return {**self.metrics, **own}[name]

    def flat(self) -> dict[str, Any]:
        """One flat mapping, for files."""
        values = {name: value for name, value in vars(self).items() if name not in ("metrics", "volume")}
        return {**values, **self.volume, **self.metrics}


@dataclass
class Progress:
    """Where a run stands: everything but tensors that resuming needs."""

    beta: float
    steps: int = 0
    """In all, if it is not stopped early."""
    epoch: int = 0
    """Epochs that are done."""
    turn: int = 0
    """Which pass of the epoch (the two-step method has two)."""
    target: float | None = None  # of the reconstruction error
    start: tuple[float, float] | None = (
        None  # likelihood and error on the validation rows of the weights it started with
    )
    least_error: float = math.inf  # on the validation rows, before the likelihood counts
    latent_started: bool = False
    """Whether h was started from data during training."""
    latent_from: int | None = None
    """The epoch after which h trains alone, once it does."""
    batch: int = 0
    step: int = 0
    best: float = math.inf
    best_epoch: int = 0
    seconds: float = 0.0
    finished: str = ""
    """Why it ended; empty while it has not."""
    sums: dict[str, float] = field(default_factory=dict)
    volume: dict[str, Any] = field(default_factory=dict)
    """What ``volume = "auto"`` has measured and chosen."""
    rows_at_once: dict[str, int] = field(default_factory=dict)
    """Of each kind of step; see :class:`~.memory.RowsAtOnce`."""
    troubles: int = 0
    """Steps that failed numerically, after each of which the learning rate is lower."""

    @property
    def choice(self) -> Choice | None:
        """The last choice of ``volume = "auto"``."""
        return Choice(**self.volume["choice"]) if "choice" in self.volume else None

    def line(self, epoch: int, values: Values, weight: float, rate: float, seconds: float, auto: bool) -> Epoch:
        """The next line of the history, with the means of what was added since the last one."""
        numbers = (self.choice or Choice(share=0.0)).numbers() if auto else {}
        line = Epoch(
            epoch,
            self.step,
            **vars(values),
            train_loss=self._mean("loss"),
            train_reconstruction=self._mean("error"),
            weight=weight,
            beta=self.beta,
            learning_rate=rate,
            gradient_norm=self._mean("norm"),
            seconds=seconds,
            volume=numbers,
        )
        self.sums = {}
        return line

    def judge(self, value: float, epoch: int, since: int, config: TrainingConfig) -> bool:
        """Whether the weights of an epoch are the best so far; the run is finished after too long without better ones."""
        if epoch < since:  # nothing counts yet
            return False
        best = value < self.best  # never true of NaN
        if best:
            self.best, self.best_epoch = value, epoch
        waited = epoch - max(self.best_epoch, since)
        if config.waits is not None and waited >= config.waits:
            self.finished = f"no better {config.monitor} for {waited} epochs"
        return best

    def failure(self, error: NumericalError, restored: bool) -> NonFiniteError:
        """What to raise after a numerical failure in the current step, its best weights having been restored or not."""
        return NonFiniteError(
            f"training stopped in epoch {self.epoch + 1}, step {self.step + 1}: {error} The flow has "
            f"{self.best_weights if restored else 'the weights from before that step, which are finite'}. Try a lower "
            "learning_rate, clip (say 5), warm_up, a bounded log-scale (scale='tanh'), or dtype='float64'."
        )

    @property
    def best_weights(self) -> str:
        """Those of which epoch are the best."""
        return f"its best weights again (epoch {self.best_epoch})"

    def add(self, **values: float) -> None:
        """Add to the means of the current line of the history."""
        for name, value in values.items():
            if not math.isnan(value):
                self.sums[name] = self.sums.get(name, 0.0) + value
                self.sums[f"{name} count"] = self.sums.get(f"{name} count", 0.0) + 1

    def _mean(self, name: str) -> float:
        return self.sums.get(name, math.nan) / self.sums.get(f"{name} count", 1.0)


@dataclass
class Run:
    """The result of training: the flow with its best weights, and how it got there."""

    flow: Model
    config: TrainingConfig
    history: list[Epoch] = field(default_factory=list)
    seconds: float = 0.0
    folder: Path | None = None
    progress: Progress = field(default_factory=lambda: Progress(1.0), repr=False)
    column_steps: int = field(default=0, repr=False)
    best_weights: dict[str, Tensor] = field(default_factory=dict, repr=False)

    def use_best(self) -> bool:
        """Give the flow its best weights, if there are any."""
        if self.best_weights:
            self.flow.load_state_dict(self.best_weights)
        return bool(self.best_weights)

    @property
    def best_epoch(self) -> int:
        """The epoch whose weights were best."""
        return self.progress.best_epoch

    @property
    def finished(self) -> str:
        """Why it ended; empty if it did not."""
        return self.progress.finished
