"""What changes as training goes on: the likelihood's weight and the learning rate. Both are functions of the epoch."""

from __future__ import annotations

import math

from .config import TrainingConfig


def likelihood_weight(config: TrainingConfig, epoch: float) -> float:
    """0 until the annealing starts, then linear to 1.

    Example:
        >>> [likelihood_weight(TrainingConfig(anneal=(2, 4)), epoch) for epoch in (0, 2, 3, 4, 9)]
        [0.0, 0.0, 0.5, 1.0, 1.0]
    """
    start, end = config.anneal
    if epoch >= end:
        return 1.0
    return max(0.0, (epoch - start) / (end - start))


def learning_rate(config: TrainingConfig, epoch: float) -> float:
    """The rate at a (fractional) epoch: linear warm-up, then constant or half a cosine down to zero.

    Example:
        >>> learning_rate(TrainingConfig(epochs=10, learning_rate=0.1, schedule="cosine"), 5)
        0.05
    """
    if epoch < config.warm_up:
        return config.learning_rate * epoch / config.warm_up
    if config.schedule == "constant":
        return config.learning_rate
    progress = min(1.0, (epoch - config.warm_up) / max(config.epochs - config.warm_up, 1e-9))
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))


__all__ = ["learning_rate", "likelihood_weight"]
