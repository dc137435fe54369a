"""What matplotlib's axes hold, compared with the panel that they should show."""

import io

import numpy as np
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.patches import StepPatch

from rectangular_flows.plots.panels import Bars, Dots, Line, Ribbon, Rule


def text_of(text):
    """Text as it appears."""
    return text.replace(r"\$", "$").strip()


def shows(axis, panel):
    """Whether the axes show the panel: its titles and the numbers of all of its layers, in their colours."""
    assert text_of(axis.get_title(loc="left")) == panel.title
    assert panel.detail in [text_of(text.get_text()) for text in axis.texts]
    assert text_of(axis.get_xlabel()) in (panel.x.label, "")
    for layer in panel.layers:
        assert any(_same(artist, layer) for artist in axis.get_children()), layer
    return True


def saved(figure):
    """The figure as a file: whatever can go wrong in drawing goes wrong here."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=40)
    return file.getvalue()


def _same(artist, layer):
    match layer:
        case Line():
            found = hasattr(artist, "get_xydata") and artist.get_xydata()
            wanted = np.stack([layer.x, layer.y], axis=1)
            return found is not False and _equal(found, wanted) and artist.get_color() == layer.colour
        case Rule():
            if not hasattr(artist, "get_xdata"):
                return False
            return _equal(artist.get_xdata() if layer.vertical else artist.get_ydata(), [layer.at] * 2)
        case Dots():
            if type(artist) is not PathCollection or not _equal(artist.get_offsets(), np.stack([layer.x, layer.y], 1)):
                return False
            return layer.values is None or _equal(artist.get_array(), layer.values)
        case Bars():
            if not isinstance(artist, StepPatch):
                return False
            data = artist.get_data()
            return _equal(data.values, layer.heights) and _equal(data.edges, layer.edges)
        case Ribbon():
            if not isinstance(artist, LineCollection) or artist.get_array() is None:
                return False
            middles = (layer.values[1:] + layer.values[:-1]) / 2
            if artist.get_clim() != (0, layer.top) or not _equal(artist.get_array(), middles):
                return False
            return _equal([segment[0] for segment in artist.get_segments()], layer.points[:-1])
    return True


def _equal(found, wanted):
    found, wanted = np.asarray(found, dtype=float), np.asarray(wanted, dtype=float)
    return found.shape == wanted.shape and np.array_equal(found, wanted, equal_nan=True)
