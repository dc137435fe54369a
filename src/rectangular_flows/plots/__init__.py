"""Figures."""

from .circle import CircleResult, draw_circle, draw_circle_grid, draw_circle_run
from .earth import draw_earth, draw_earths
from .tables import draw_manifold, draw_pairs

__all__ = [
    "CircleResult",
    "draw_circle",
    "draw_circle_grid",
    "draw_circle_run",
    "draw_earth",
    "draw_earths",
    "draw_manifold",
    "draw_pairs",
]
