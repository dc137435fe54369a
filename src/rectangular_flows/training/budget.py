"""A training that fits a time: how many epochs, from the measured seconds of a step."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

from .config import TrainingConfig


class ShortTimeWarning(UserWarning):
    """A time that is too short for any training of use."""


PLANNED = {"epochs", "epoch_rows", "latent_epochs", "evaluate_every", "patience"}
"""The settings that a time decides."""
_WARM_UP, _MEASURED = 3, 7  # steps
_SHARE = 0.65  # of the time that is for steps; the rest is for validation, mixtures, calibration and the verdict
_COLUMNS = 0.6  # seconds of the density of the columns one after another, for each second of steps
_LATENT = 0.2  # seconds of a step of the latent density alone, over those of a whole one
_LEAST_EPOCHS, _LEAST_STEPS = 12, 30


def seconds_of(step: Callable[[], object]) -> float:
    """The median time of a step, after a few to warm up."""
    spent = []
    for _ in range(_WARM_UP + _MEASURED):
        start = time.perf_counter()
        step()
        spent.append(time.perf_counter() - start)
    return statistics.median(spent[_WARM_UP:])


def least_seconds(config: TrainingConfig, seconds_per_step: float, used: float = 0.0) -> float:
    """The least that a training and what follows it take; arguments as of :func:`within`.

    Example:
        >>> round(least_seconds(TrainingConfig(epochs="auto", time=1.0, batch_size=100).for_rows(10_000), 0.1, 2.0), 1)
        9.6
    """
    return used + _LEAST_STEPS * _seconds_of_a_step(config, seconds_per_step) / _SHARE


def _seconds_of_a_step(config: TrainingConfig, measured: float) -> float:
    """With its share of the density of the columns, and of the latent density alone."""
    alone = _LATENT * config.latent_epochs / config.whole_epochs
    return measured * (1 + alone + _COLUMNS * config.scatter)


def within(config: TrainingConfig, rows: int, seconds_per_step: float, used: float = 0.0) -> TrainingConfig:
    """The settings with as many epochs as fit ``config.time``, and at most as many steps as without a limit.

    Args:
        config: with ``time``, and epochs decided by :meth:`TrainingConfig.for_rows`.
        rows: to train on.
        seconds_per_step: measured.
        used: seconds that are gone.

    Example:
        >>> config = TrainingConfig(epochs="auto", time=20.0, batch_size=100).for_rows(10_000)
        >>> planned = within(config, 10_000, 0.1)
        >>> planned.epochs, planned.epoch_rows  # some 78 steps, in at least 12 epochs
        (13, 600)
    """
    if config.time is None:
        return config
    epoch_rows = min(rows, config.epoch_rows or rows)
    per_epoch = math.ceil(epoch_rows / config.batch_size)
    steps = max(_SHARE * (config.time - used) / _seconds_of_a_step(config, seconds_per_step), _LEAST_STEPS)
    if steps >= per_epoch * config.whole_epochs:
        return config
    if steps < _LEAST_EPOCHS * per_epoch:  # shorter epochs, so that there are enough validations to choose from
        per_epoch = max(1, math.floor(steps / _LEAST_EPOCHS))
        epoch_rows = min(rows, per_epoch * config.batch_size)
    epochs = max(1, math.floor(steps / per_epoch))
    share = config.latent_epochs / config.whole_epochs
    shorter = replace(config, epochs=epochs, epoch_rows=epoch_rows, latent_epochs=round(share * epochs))
    return replace(shorter, evaluate_every=max(1, epochs // 30), patience=config.patience and max(1, epochs // 5))
