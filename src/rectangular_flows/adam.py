"""Adam and AdamW as torch has them, fused, without the two seconds in which torch loads its compiler."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch.optim import Adam, AdamW, Optimizer


class _Eager(Optimizer):
    """Steps of torch's own code, past the wrappers that load ``torch._dynamo`` at the first call of each."""

    _wrapped_step: Any

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        inspect.unwrap(Optimizer.add_param_group)(self, param_group)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        inspect.unwrap(Optimizer.load_state_dict)(self, state_dict)

    def state_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = inspect.unwrap(Optimizer.state_dict)(self)
        return found

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        inspect.unwrap(self._wrapped_step)(self, closure)


class EagerAdam(_Eager, Adam):
    """``torch.optim.Adam(fused=True)``, number for number.

    Args:
        parameters: to train.
        lr: the learning rate.

    Example:
        >>> weight = torch.nn.Parameter(torch.ones(2))
        >>> optimiser = EagerAdam([weight], lr=0.1)
        >>> weight.square().sum().backward()
        >>> optimiser.step()
        >>> weight.detach()
        tensor([0.9000, 0.9000])
    """

    _wrapped_step = Adam.step

    def __init__(self, parameters: Any, lr: float):
        super().__init__(parameters, lr=lr, fused=True)


class EagerAdamW(_Eager, AdamW):
    """``torch.optim.AdamW(fused=True)``, number for number.

    Args:
        parameters: to train.
        lr: the learning rate.
        weight_decay: of the weights.
    """

    _wrapped_step = AdamW.step

    def __init__(self, parameters: Any, lr: float, weight_decay: float):
        super().__init__(parameters, lr=lr, weight_decay=weight_decay, fused=True)
