"""The rectangular flow: a manifold and a density on it."""

from .base import Manifold
from .batches import Batched, squared_distance
from .flow import RectangularFlow
from .scores import Scores
from .units import ModelUnits

__all__ = ["Batched", "Manifold", "ModelUnits", "RectangularFlow", "Scores", "squared_distance"]
