"""Steps by ``torch.compile``: the same objective in fused kernels, where the compiler can follow it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import NumericalError, warn
from .atlas import AtlasObjective
from .distributed import World
from .objective import Means, Objective, Part, Place, Terms

_MOST_KINDS = 64  # of steps: another batch, number of parts or probes makes one


class NotCompiledWarning(UserWarning):
    """``compile=True`` was asked for where the compiler cannot help: training goes on without it."""


class Compiled:
    """An objective whose means are computed by compiled code; without it, with a warning, from where that fails.

    Random draws are those of the objective itself, so that only rounding differs. The compiler takes half a minute or
    more, at the first step and again at the first step of another shape.

    Args:
        objective: of the run; its volume, β and share of rows may change at any time.
    """

    def __init__(self, objective: Objective):
        self.objective = objective
        warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\._inductor")
        self._fast: Callable[..., Any] = torch.compile(
            objective.means, fullgraph=True, options={"fallback_random": True}
        )
        self._works = True

    def parameters(self) -> Iterator[nn.Parameter]:
        """Of the objective."""
        return self.objective.parameters()

    def __call__(self, x: Tensor, weight: float = 1.0, part: Part = "all", place: Place | None = None) -> Terms:
        """As of :class:`~.objective.Objective`."""
        return self.objective(x, weight, part, place, self._means)

    def _means(self, x: Tensor, place: Place, with_volume: int | None) -> Means:
        if self._works:
            try:
                with torch._dynamo.config.patch(recompile_limit=_MOST_KINDS):
                    return Means(*self._fast(x, place, with_volume))
            except NumericalError:
                raise
            except (
                Exception
            ) as error:  # whatever the compiler could not do; what is the objective's own comes again below
                found = self.objective.means(x, place, with_volume)
                self._works = False
                reason = str(error).strip().splitlines()[0]
                warn(
                    NotCompiledWarning, f"torch.compile cannot do this objective, so training goes on without: {reason}"
                )
                return found
        return self.objective.means(x, place, with_volume)


def compiled(
    objective: Objective | AtlasObjective, wanted: bool, world: World
) -> Objective | AtlasObjective | Compiled:
    """The objective as a step calls it: compiled, if that is wanted and can be."""
    if not wanted:
        return objective
    if isinstance(objective, AtlasObjective):
        warn(NotCompiledWarning, "torch.compile cannot follow an atlas, whose charts take other rows in each step")
        return objective
    if world.size > 1:
        warn(NotCompiledWarning, "compile is for one process: with several, training goes on without")
        return objective
    return Compiled(objective)
