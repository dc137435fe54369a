"""Rectangular flows: learn a low-dimensional manifold in data and the density on it, by maximum likelihood."""

from . import errors, flows, volume
from ._version import __version__
from .manifold import RectangularFlow

__all__ = ["RectangularFlow", "__version__", "errors", "flows", "volume"]
