"""Optimisers by name. Imports no torch, so that the command line can list them at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.nn import Module, Parameter
    from torch.optim import Optimizer

    from .config import TrainingConfig

Maker = Callable[["Module", "TrainingConfig"], "Optimizer"]


def trained(flow: Module) -> list[Parameter]:
    """The parameters that training changes."""
    return [parameter for parameter in flow.parameters() if parameter.requires_grad]


def _adam(flow: Module, config: TrainingConfig) -> Optimizer:
    from ..adam import EagerAdam

    return EagerAdam(trained(flow), config.peak_rate)


def _adamw(flow: Module, config: TrainingConfig) -> Optimizer:
    from ..adam import EagerAdamW

    return EagerAdamW(trained(flow), config.peak_rate, config.weight_decay)


def _muon(flow: Module, config: TrainingConfig) -> Optimizer:
    from ..flows.networks import inner_weights
    from ..muon import Muon

    return Muon(trained(flow), config.peak_rate, inner_weights(flow))


OPTIMISERS: dict[str, Maker] = {"adam": _adam, "adamw": _adamw, "muon": _muon}


def register_optimiser(name: str, make: Maker) -> None:
    """Make an optimiser of your own known by a name, for ``TrainingConfig(optimiser=name)``.

    Args:
        name: of the optimiser.
        make: from the flow and the settings to the optimiser of the flow's parameters; the loop sets its learning rate
            before each step. Its state has to be tensors, which checkpoints keep.
    """
    OPTIMISERS[name] = make


def make_optimiser(flow: Module, config: TrainingConfig) -> Optimizer:
    """The optimiser that the settings name, over the flow's parameters."""
    if not trained(flow):
        raise ValueError("the flow has no parameters to train")
    return OPTIMISERS[config.optimiser](flow, config)
