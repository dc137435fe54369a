"""Figures. matplotlib is imported with this room and nowhere else."""

from .circle import CircleResult, draw_circle

__all__ = ["CircleResult", "draw_circle"]
