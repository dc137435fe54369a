"""Figures. Each module separates the numbers that a figure shows from drawing them."""

from .circle import CircleResult, draw_circle_run
from .curves import Chart, Curve, draw_curves
from .detection import Histogram, draw_detection
from .dimension import draw_dimension
from .earth import draw_earth
from .images import draw_interpolations, draw_latent_grid, draw_reconstructions, draw_samples
from .reasons import draw_reasons
from .tables import draw_manifold, draw_pairs

__all__ = [
    "Chart",
    "CircleResult",
    "Curve",
    "Histogram",
    "draw_circle_run",
    "draw_curves",
    "draw_detection",
    "draw_dimension",
    "draw_earth",
    "draw_interpolations",
    "draw_latent_grid",
    "draw_manifold",
    "draw_pairs",
    "draw_reasons",
    "draw_reconstructions",
    "draw_samples",
]
