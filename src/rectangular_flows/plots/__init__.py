"""Figures."""

from .circle import CircleResult, draw_circle, draw_circle_grid, draw_circle_run
from .tables import draw_manifold, draw_pairs

__all__ = ["CircleResult", "draw_circle", "draw_circle_grid", "draw_circle_run", "draw_manifold", "draw_pairs"]
