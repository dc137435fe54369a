"""Figures."""

from .circle import CircleResult, draw_circle, draw_circle_grid, draw_circle_run
from .detection import Histogram, draw_detection
from .earth import draw_earth, draw_earths
from .images import draw_interpolations, draw_latent_grid, draw_reconstructions, draw_samples, mosaic
from .tables import draw_manifold, draw_pairs

__all__ = [
    "CircleResult",
    "Histogram",
    "draw_circle",
    "draw_circle_grid",
    "draw_circle_run",
    "draw_detection",
    "draw_earth",
    "draw_earths",
    "draw_interpolations",
    "draw_latent_grid",
    "draw_manifold",
    "draw_pairs",
    "draw_reconstructions",
    "draw_samples",
    "mosaic",
]
