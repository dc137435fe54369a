"""A report as one HTML file: text, numbers, tables, charts and pictures, with nothing to fetch from anywhere."""

from ..plots import Chart, Curve
from .page import Cards, Code, Grid, Metric, Page, Part, Picture, Section, Text, render, write

__all__ = [
    "Cards",
    "Chart",
    "Code",
    "Curve",
    "Grid",
    "Metric",
    "Page",
    "Part",
    "Picture",
    "Section",
    "Text",
    "render",
    "write",
]
