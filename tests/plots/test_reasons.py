import numpy as np
import pytest
from matplotlib.patches import Rectangle

from rectangular_flows.evaluation.explain import Reason, UnusualRow
from rectangular_flows.plots import draw_reasons

from .drawn import saved, text_of

ROWS = [
    UnusualRow(3, "row 4", 9.5, 0.01, [Reason("$weight$", 8.0, 412.0, 71.0), Reason("age", 1.5, 3.0, 40.0)]),
    UnusualRow(0, "row 1", 2.0, 0.2, [Reason("a name that is very long indeed", 2.0, 1.0, 0.5)]),
]


def bars(axis):
    return [bar.get_width() for bar in axis.patches if isinstance(bar, Rectangle)]


@pytest.mark.parametrize("count", [1, 2, 4, 6])
def test_a_bar_for_every_reason_on_one_scale(count):
    rows = (ROWS * 3)[:count]
    figure = draw_reasons(rows)
    saved(figure)
    shown = [axis for axis in figure.axes if axis.get_visible()]
    assert len(shown) == count
    for axis, row in zip(shown, rows, strict=True):
        assert bars(axis) == [reason.nats for reason in row.reasons]
        assert text_of(axis.get_title(loc="left")) == row.name
        assert axis.get_xlim() == shown[0].get_xlim()
    texts = [text_of(text.get_text()) for text in shown[0].texts]
    assert texts == ["$weight$", "412, typical 71", "age", "3, typical 40", "outlier score 9.5, p = 0.01"]


def test_an_infinite_contribution_fills_the_panel():
    endless = UnusualRow(0, "row 1", np.inf, 0.01, [Reason("a", np.inf, 1e300, 0.0)])
    figure = draw_reasons([endless, ROWS[0]])
    saved(figure)
    assert bars(figure.axes[0]) == [figure.axes[0].get_xlim()[1]]


def test_long_names_are_cut():
    (text, *_) = draw_reasons(ROWS).axes[1].texts
    assert text.get_text() == "a name that is ve…"
