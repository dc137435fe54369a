"""What changes during training: passes, the likelihood's weight, the learning rate, β; functions of the epoch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .config import TrainingConfig

if TYPE_CHECKING:
    from .objective import Part
    from .run import Progress

_PASSES: dict[str, tuple[Part, ...]] = {"ml": ("all",), "two-step": ("likelihood", "reconstruction")}
_LATENT_PASSES: tuple[Part, ...] = ("likelihood",)
AFTER_TROUBLE = 0.3  # of the learning rate that is left after a numerical trouble
_RISE = 0.3  # share of a one-cycle schedule that goes up
_START, _END = 1 / 25, 1e-4  # of the peak, at the ends of a one-cycle schedule
_LIKELIHOOD, _ALONE = 2.0, 0.3  # cost of a step, over that of one of the reconstruction alone; see work
_COLUMNS, _COLUMN = 0.3, 0.03  # likewise of the density of the columns, and for each column more


def annealing(config: TrainingConfig, steps_per_epoch: int) -> tuple[float, float]:
    """(start, end) of the annealing in epochs, whatever it was given in."""
    unit = {"epochs": 1.0, "steps": steps_per_epoch}.get(config.anneal_in) or 1 / config.whole_epochs
    return config.anneal[0] / unit, config.anneal[1] / unit


def likelihood_weight(config: TrainingConfig, epoch: float, steps_per_epoch: int = 1) -> float:
    """0 until the annealing starts, then linear to 1.

    Example:
        >>> [likelihood_weight(TrainingConfig(anneal=(2, 4)), epoch) for epoch in (0, 2, 3, 4, 9)]
        [0.0, 0.0, 0.5, 1.0, 1.0]
    """
    start, end = annealing(config, steps_per_epoch)
    if epoch >= end:
        return 1.0
    return 0.0 if epoch <= start else (epoch - start) / (end - start)


def learning_rate(config: TrainingConfig, epoch: float, latent_from: float | None = None) -> float:
    """The rate: linear warm-up, then constant, half a cosine down to zero, or one cycle.

    One cycle (Smith & Topin, arXiv:1708.07120): from 1/25 of the peak up to it, then down to 1/10,000 of it, on cosines.
    The epochs of h alone, which begin at ``latent_from``, have a schedule of their own, without warm-up.

    Example:
        >>> learning_rate(TrainingConfig(epochs=10, learning_rate=0.1, schedule="cosine"), 5)
        0.05
    """
    if latent_from is None and epoch < config.warm_up:
        return config.peak_rate * epoch / config.warm_up
    if config.schedule == "constant":
        return config.peak_rate
    start, length = config.warm_up, config.whole_epochs - config.warm_up
    if latent_from is not None:
        start, length = latent_from, config.latent_epochs
    progress = min(1.0, (epoch - start) / max(length, 1e-9))
    if config.schedule == "cosine":
        return config.peak_rate * _cosine(1, 0, progress)
    if progress < _RISE:
        return config.peak_rate * _cosine(_START, 1, progress / _RISE)
    return config.peak_rate * _cosine(1, _END, (progress - _RISE) / (1 - _RISE))


def dual_step(
    config: TrainingConfig, beta: float, reconstruction: float, target: float | None, least: float = 1e-6
) -> float:
    r"""β after one step of dual ascent on the constraint E‖x − x̂‖² ≤ κ, κ = ``target``, and no less than ``least``.

    .. math:: \log\beta \leftarrow \log\beta + \eta\,\mathrm{clip}(\|x - \hat x\|^2/\kappa - 1,\ -1,\ 1)

    The step is in log β, so that β stays positive and errors of any size move it at the same pace. Without a target β stays
    as it is.

    Example:
        >>> config = TrainingConfig(target_error=0.01)
        >>> dual_step(config, 50.0, 0.01, 0.01), dual_step(config, 50.0, 1.0, 0.01) > 50
        (50.0, True)
    """
    if target is None:
        return beta
    violation = max(-1.0, min(1.0, reconstruction / target - 1))
    return min(max(beta * math.exp(config.dual_rate * violation), least), 1e9)


def work(config: TrainingConfig, progress: Progress, more: int = 0, columns: int = 0) -> tuple[float, float]:
    """What is done, and all there is to do, in steps of the reconstruction alone: steps with the likelihood cost more.

    Args:
        config: of the run.
        progress: of the run.
        more: steps of the density of the columns, which follow.
        columns: how many there are.

    Example:
        >>> from .run import Progress
        >>> config = TrainingConfig(epochs=10, anneal=(5, 6))
        >>> work(config, Progress(1.0, steps=100, step=60))
        (70.0, 150.0)
    """
    passes = len(_PASSES[config.method])
    epochs = config.whole_epochs if progress.latent_from is None else progress.latent_from
    together = progress.steps * epochs * passes / max(epochs * passes + config.latent_epochs, 1)
    if not config.latent_epochs:
        together = float(progress.steps)
    first = min(annealing(config, max(1, round(together / max(epochs, 1))))[0] / max(epochs, 1), 1.0) * together

    def cost(step: float) -> float:
        alone = max(step - together, 0.0)
        return step - alone + (_LIKELIHOOD - 1) * max(min(step, together) - first, 0.0) + _ALONE * alone

    return cost(progress.step), cost(progress.steps) + (_COLUMNS + _COLUMN * columns) * more


def _cosine(start: float, end: float, progress: float) -> float:
    return end + (start - end) * 0.5 * (1 + math.cos(math.pi * progress))


@dataclass(frozen=True)
class Plan:
    """What a run does when, as functions of its progress: f̃ and h together, then, if it is so set, h alone.

    Args:
        config: the settings.
        rows: rows to train on.
        latent_trains: whether h has weights to train.
    """

    config: TrainingConfig
    rows: int
    latent_trains: bool

    @property
    def epoch_rows(self) -> int:
        """Rows in an epoch."""
        return min(self.rows, self.config.epoch_rows or self.rows)

    @property
    def batches(self) -> int:
        """Steps of one pass."""
        return math.ceil(self.epoch_rows / self.config.batch_size)

    @property
    def steps_per_epoch(self) -> int:
        """While f̃ and h train together."""
        return self.batches * len(_PASSES[self.config.method])

    def passes(self, progress: Progress) -> tuple[Part, ...]:
        """What the passes of an epoch train."""
        return _PASSES[self.config.method] if progress.latent_from is None else _LATENT_PASSES

    def last_epoch(self, progress: Progress) -> int:
        """Of the current phase."""
        before = progress.latent_from
        return self.config.whole_epochs if before is None else before + self.config.latent_epochs

    def steps(self, progress: Progress) -> int:
        """In all, if it is not stopped early."""
        before = self.config.whole_epochs if progress.latent_from is None else progress.latent_from
        return self.steps_per_epoch * before + self.batches * self.config.latent_epochs * self.latent_trains

    def judged_from(self, progress: Progress) -> int:
        """The first epoch whose weights are judged: before the end of the annealing they cannot be compared."""
        annealed = math.ceil(annealing(self.config, self.steps_per_epoch)[1])
        return annealed if progress.latent_from is None else progress.latent_from

    def latent_is_next(self, progress: Progress) -> bool:
        """Whether the phase of h alone is about to begin."""
        wanted = self.config.latent_epochs and self.latent_trains
        return bool(progress.finished and wanted and progress.latent_from is None)

    def weight(self, progress: Progress) -> float:
        """Of the likelihood, in the current step."""
        if progress.latent_from is not None:
            return 1.0
        return likelihood_weight(self.config, self._now(progress), self.steps_per_epoch)

    def rate(self, progress: Progress) -> float:
        """The learning rate of the current step, lower after every numerical trouble."""
        return AFTER_TROUBLE**progress.troubles * learning_rate(self.config, self._now(progress), progress.latent_from)

    def _now(self, progress: Progress) -> float:
        passed = progress.turn == len(self.passes(progress))  # validating: what the last step had
        return progress.epoch + (self.batches - 1 if passed else progress.batch) / self.batches
