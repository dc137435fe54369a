"""Training: the objective, its schedules, and the loop."""

from .config import TrainingConfig
from .loop import Epoch, Run, fit
from .objective import Objective, Terms

__all__ = ["Epoch", "Objective", "Run", "Terms", "TrainingConfig", "fit"]
