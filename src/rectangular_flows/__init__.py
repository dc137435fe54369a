"""Rectangular flows: learn a low-dimensional manifold in data and the density on it, by maximum likelihood."""

import lazy_loader

from ._version import __version__

# names are imported when first used (see __init__.pyi), so that the command line answers --help without loading torch
__getattr__, _names, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ += ["__version__"]


def __dir__() -> list[str]:
    return [*_names(), "__version__"]
