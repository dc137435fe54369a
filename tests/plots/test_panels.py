import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator

from rectangular_flows.plots.panels import (
    NO_TICKS,
    Bars,
    Boxes,
    Dots,
    Line,
    Note,
    Panel,
    Ribbon,
    Rule,
    Scale,
    draw_panel,
)
from rectangular_flows.plots.style import BLUE, RED

from .drawn import saved, shows

X, Y = np.array([1.0, 2.0, 4.0]), np.array([3.0, np.nan, 5.0])


def drawn(panel):
    figure = Figure()
    axis = figure.subplots()
    artists = draw_panel(axis, panel)
    saved(figure)
    return axis, artists


@pytest.mark.parametrize(
    "layer",
    [
        Line(X, Y, BLUE),
        Dots(X, Y, RED),
        Dots(X, Y, values=X, limits=(1, 3)),
        Bars(X, np.arange(4.0), BLUE),
        Bars(X, np.arange(4.0), BLUE, None),
        Rule(2.5),
        Rule(2.5, vertical=True),
        Ribbon(np.stack([X, X], 1), X, 7.0, "viridis"),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_every_layer_is_drawn_with_its_numbers(layer):
    panel = Panel([layer], "title", "detail", Scale("x"), Scale("y"))
    axis, artists = drawn(panel)
    assert len(artists) == 1
    assert shows(axis, panel)
    assert not shows_another(axis, layer)


def shows_another(axis, layer):
    """The same kind of layer with other numbers: :func:`shows` must not be fooled."""
    other = {
        Line: Line(X, 2 * Y, BLUE),
        Dots: Dots(X, 2 * Y, RED),
        Bars: Bars(2 * X, np.arange(4.0), BLUE),
        Rule: Rule(0.0, vertical=getattr(layer, "vertical", False)),
        Ribbon: Ribbon(np.stack([X, X], 1), X, 700.0, "viridis"),
    }
    try:
        return shows(axis, Panel([other[type(layer)]], "title", "detail", Scale("x")))
    except AssertionError:
        return False


def test_filled_bars_and_outlines():
    _, (filled, outline) = drawn(Panel([Bars(X, np.arange(4.0), BLUE, 0.3), Bars(X, np.arange(4.0), RED, None)]))
    assert (filled.get_fill(), filled.get_alpha()) == (True, 0.3)
    assert not outline.get_fill()


def test_a_band_around_a_rule():
    axis, _ = drawn(Panel([Rule(2.0, "two", RED, error=0.5)]))
    (band,) = axis.patches
    assert (band.get_y(), band.get_height()) == (1.5, 1.0)


def test_boxes_stand_at_1_2_3_whatever_the_ticks():
    values = np.random.default_rng(0).normal([0, 10, 20], size=(50, 3))
    axis, (boxes,) = drawn(Panel([Boxes(values, BLUE, RED)], x=Scale("direction", ticks=FixedLocator([1, 2, 3]))))
    medians = [line.get_ydata()[0] for line in boxes["medians"]]
    np.testing.assert_allclose(medians, np.median(values, axis=0))
    assert [line.get_xdata().mean() for line in boxes["medians"]] == [1, 2, 3]
    assert [label.get_text() for label in axis.get_xticklabels()] == ["1", "2", "3"]


def test_axes():
    x = Scale("x", (1, 100), "log", FixedLocator([1, 10]), ["one", "ten"])
    axis, _ = drawn(Panel([Note(2, 0.5, "here")], x=x, y=Scale("y", (0, 1), ticks=NO_TICKS), equal=False))
    assert (axis.get_xscale(), axis.get_xlim(), axis.get_ylim()) == ("log", (1, 100), (0, 1))
    assert [label.get_text() for label in axis.get_xticklabels()] == ["one", "ten"]
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("x", "y")
    assert not len(axis.get_yticks())
    assert not axis.spines["left"].get_visible()
    assert "here" in [text.get_text() for text in axis.texts]


def test_legends_name_lines_and_rules_also_with_underscores_and_dollars():
    layers = [Line(X, Y, BLUE, "_hidden"), Rule(1.0, r"$\frac$"), Line(X, X, RED)]
    axis, artists = drawn(Panel(layers, legend="best"))
    legend = axis.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["_hidden", r"\$\frac\$"]
    assert legend.get_lines()[0].get_color() == artists[0].get_color()
