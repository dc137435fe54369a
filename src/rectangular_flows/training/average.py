r"""An exponential moving average of the weights, :math:`\bar\theta \leftarrow \alpha\bar\theta + (1-\alpha)\theta`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Average:
    """The average of a module's parameters; without a decay it does nothing.

    Early on the decay is (1 + n)/(10 + n), so that the start is forgotten soon.

    Args:
        module: whose parameters are averaged.
        decay: α.
    """

    def __init__(self, module: nn.Module, decay: float | None):
        self._parameters = [p for p in module.parameters() if p.requires_grad]
        self._decay = decay
        self.values: list[Tensor] = [] if decay is None else [p.detach().clone() for p in self._parameters]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Move the average towards the parameters, after step number ``step``."""
        if self._decay is not None:
            decay = min(self._decay, (1 + step) / (10 + step))
            torch._foreach_lerp_(self.values, [p.detach() for p in self._parameters], 1 - decay)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The module has the averaged weights inside this context."""
        self.swap()
        try:
            yield
        finally:
            self.swap()

    @torch.no_grad()
    def restart(self) -> None:
        """The average is the module's weights as they are now."""
        for value, parameter in zip(self.values, self._parameters if self.values else [], strict=True):
            value.copy_(parameter)

    def swap(self) -> None:
        """Exchange the module's weights and the average."""
        if self._decay is not None:
            for parameter, value in zip(self._parameters, self.values, strict=True):
                parameter.data, value.data = value.data, parameter.data
