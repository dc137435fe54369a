"""Optimisers by name. Imports no torch, so that the command line can list them at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.nn import Parameter
    from torch.optim import Optimizer

    from .config import TrainingConfig

Maker = Callable[["list[Parameter]", "TrainingConfig"], "Optimizer"]


def _adam(parameters: list[Parameter], config: TrainingConfig) -> Optimizer:
    from ..adam import EagerAdam

    return EagerAdam(parameters, config.peak_rate)


def _adamw(parameters: list[Parameter], config: TrainingConfig) -> Optimizer:
    from ..adam import EagerAdamW

    return EagerAdamW(parameters, config.peak_rate, config.weight_decay)


OPTIMISERS: dict[str, Maker] = {"adam": _adam, "adamw": _adamw}


def register_optimiser(name: str, make: Maker) -> None:
    """Make an optimiser of your own known by a name, for ``TrainingConfig(optimiser=name)``.

    Args:
        name: of the optimiser.
        make: from the parameters to train and the settings to the optimiser; the loop sets its learning rate before each
            step. Its state has to be tensors, which checkpoints keep.
    """
    OPTIMISERS[name] = make


def make_optimiser(parameters: list[Parameter], config: TrainingConfig) -> Optimizer:
    """The optimiser that the settings name, over the parameters."""
    if not parameters:
        raise ValueError("the flow has no parameters to train")
    return OPTIMISERS[config.optimiser](parameters, config)
