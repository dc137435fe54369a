"""How good a fit is."""

from .geometry import CircleFit, circle_fit

__all__ = ["CircleFit", "circle_fit"]
