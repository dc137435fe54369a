"""When ``volume = "auto"`` measures, and what it then takes; all of it a function of seed and state, none of the clock."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..data.rows import mix
from ..volume import PCG, Auto
from ..volume.auto import Choice, Spread
from .distributed import World
from .objective import Objective
from .variance import adam_weights, conditioning, measure, moved, sizes_of

if TYPE_CHECKING:
    from .run import Progress

_FIRST_GAP, _LARGEST_GAP = 25, 1_600  # steps between two measurements, each gap twice the one before
_WATCH = 50  # steps between two looks at the condition number
_UNKNOWN = Spread(math.nan, math.nan)
_MOVED = 2.0  # factor by which it has to change for a new measurement


class VolumeChooser:
    """Gives the objective its volume method, step by step. What it knows is in ``progress.volume``.

    Args:
        auto: the settings.
        objective: whose volume it sets.
        rows: of a batch.
        seed: of the run.
        world: the processes of the run, which decide alike.
    """

    def __init__(self, auto: Auto, objective: Objective, rows: int, seed: int, world: World):
        self.auto, self.objective, self.seed, self.world = auto, objective, seed, world
        self.sizes = sizes_of(objective, rows, auto)

    def restore(self, progress: Progress) -> None:
        """Take up the choice of a run that is continued."""
        if progress.volume:
            self._use(Choice(**progress.volume["choice"]))

    def looks(self, progress: Progress) -> bool:
        """Whether it needs the rows of this step: to measure, or to see whether the condition number has moved."""
        known = progress.volume
        return not known or progress.step >= known["next"] or (known["next"] - progress.step) % _WATCH == 0

    def step(self, progress: Progress, x: Tensor, optimiser: torch.optim.Optimizer) -> bool:
        """Before a step with the likelihood on the rows x: measure if it is time; whether the choice was made anew."""
        known, now = progress.volume, progress.step
        if known and now < known["next"] and not self._has_moved(known, now, x):
            return False
        if not self.auto.needs_measuring(self.sizes):
            choice = self.auto.choose(_UNKNOWN, self.sizes)
            progress.volume = {"spread": list(_UNKNOWN), "gap": 0, "next": math.inf, "choice": choice.plain()}
            self._use(choice)
            return True
        generator = torch.Generator(x.device).manual_seed(mix(self.seed, progress.step, 2))
        weights = adam_weights(optimiser, moved(self.objective))
        found = measure(self.objective, x, self.auto, weights, generator)
        found = _blended(known.get("spread"), Spread(*(self.world.agree(value) for value in found)))
        gap = min(2 * known["gap"], _LARGEST_GAP) if "gap" in known else _FIRST_GAP
        choice = self.auto.choose(found, self.sizes)
        # at once, so that a step that is given up and done again finds what it was done with
        progress.volume = {"spread": list(found), "gap": gap, "next": now + gap, "choice": choice.plain()}
        self._use(choice)
        return True

    def after_step(self, progress: Progress) -> bool:
        """Do without conjugate gradients until the next measurement if they left rows of this step to the direct solver."""
        solver = getattr(self.objective.volume, "solver", None)
        if not self.world.any(isinstance(solver, PCG) and solver.fallen_back > 0):
            return False
        spread = Spread(*progress.volume["spread"])._replace(iterations=math.inf)
        choice = self.auto.choose(spread, self.sizes)
        progress.volume = {**progress.volume, "spread": list(spread), "choice": choice.plain()}
        self._use(choice)
        return True

    def _use(self, choice: Choice) -> None:
        self.objective.volume = choice.method(self.auto.codimension, self.auto.tangent_dtype)
        self.objective.volume_fraction = choice.share

    def _has_moved(self, known: dict[str, Any], step: int, x: Tensor) -> bool:
        before = known["spread"][3]
        if (known["next"] - step) % _WATCH or math.isnan(before):
            return False
        now = self.world.agree(conditioning(self.objective, x)[0])
        return not before / _MOVED <= now <= before * _MOVED


def _blended(before: list[float] | None, now: Spread) -> Spread:
    """Relative variances, G being 1: averaged with those of before, which steadies them, where that is no less."""
    if not (now.gradient > 0 and math.isfinite(now.gradient)):
        return now
    G = now.gradient
    relative = now._replace(gradient=1.0, volume=now.volume / G, probes=now.probes / G, signs=now.signs / G)
    if before is None or not before[0] > 0:
        return relative
    known = Spread(*before)
    steady = {name: _steady(getattr(known, name), getattr(relative, name)) for name in ("volume", "probes", "signs")}
    return relative._replace(**steady)


def _steady(before: float, now: float) -> float:
    return now if math.isnan(before) else max(now, (before + now) / 2)
