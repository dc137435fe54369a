"""Training: the objective, its schedules, the loop, and the folder a run leaves behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy

if TYPE_CHECKING:
    from .config import TrainingConfig
    from .loop import fit
    from .objective import Objective, Terms
    from .run import Epoch, Run

_HOMES = {
    "Epoch": ".run",
    "Objective": ".objective",
    "Run": ".run",
    "Terms": ".objective",
    "TrainingConfig": ".config",
    "fit": ".loop",
}
__getattr__, __dir__ = lazy(__name__, _HOMES)

__all__ = ["Epoch", "Objective", "Run", "Terms", "TrainingConfig", "fit"]
