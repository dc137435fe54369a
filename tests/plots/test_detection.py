import numpy as np
import pytest

from rectangular_flows.metrics.out_of_distribution import Detection, detect
from rectangular_flows.plots.detection import Histogram, draw_detection, histogram_panels
from rectangular_flows.plots.style import BLUE, INK, RED

from .drawn import saved, shows, text_of

SETS = np.random.default_rng(0).normal(size=(3, 500)) + np.array([[0.0], [0.1], [3.0]])
FOUND = detect(SETS[1], SETS[2])
SCORES = {
    "plain": Histogram(*SETS, FOUND, threshold=1.6),
    "logarithmic": Histogram(*np.exp(3 * SETS), Detection(0.75, 0.5, 0.5, 0.625), unit="distance"),
    "compressed": Histogram(SETS[0], SETS[1], -np.exp(4 * SETS[2]), FOUND),
    "infinite": Histogram(SETS[0], SETS[1], np.where(SETS[2] > 3, -np.inf, SETS[2]), FOUND),
    "constant": Histogram(*np.zeros((3, 5)), FOUND),
    "nothing finite": Histogram(*np.full((3, 5), -np.inf), FOUND),
}


def mean(bars):
    return (bars.heights * (bars.edges[1:] + bars.edges[:-1]) / 2).sum()


def test_each_set_has_its_own_bars():
    test, outside, train, threshold = histogram_panels(SCORES)[0].layers
    assert [mean(bars) for bars in (train, test, outside)] == pytest.approx(SETS.mean(axis=1).tolist(), abs=0.05)
    assert [bars.colour for bars in (train, test, outside)] == [INK, BLUE, RED]
    assert [bars.alpha for bars in (train, test, outside)] == [None, 0.5, 0.5]
    assert (threshold.at, threshold.vertical) == (1.6, True)


def test_each_set_is_counted_in_full():
    for panel in histogram_panels(SCORES):
        for bars in panel.layers[:3]:
            assert bars.heights.sum() == pytest.approx(1)
    infinite = histogram_panels(SCORES)[3].layers[1]
    assert infinite.heights[0] == pytest.approx((SETS[2] > 3).mean(), abs=0.01)


def test_titles_units_and_numbers():
    panels = histogram_panels(SCORES)
    assert [panel.title for panel in panels] == [name.capitalize() for name in SCORES]
    assert panels[1].detail == "AUROC 0.750 · stump 62.5%"
    assert panels[0].detail == f"AUROC {FOUND.auroc:.3f}"
    assert [panel.x.label for panel in panels[:2]] == ["", "distance"]


def test_bins_are_even_on_their_axis():
    plain, logarithmic, compressed, *_ = histogram_panels(SCORES)
    assert np.ptp(np.diff(plain.layers[0].edges)) < 1e-12
    assert logarithmic.x.kind == "log"
    assert np.ptp(np.diff(np.log(logarithmic.layers[0].edges))) < 1e-9
    edges = compressed.layers[0].edges
    assert edges[0] < -1e6
    across = compressed.x.kind.get_transform().transform(edges)
    assert np.ptp(np.diff(across)) < 1e-9
    np.testing.assert_allclose(compressed.x.kind.get_transform().inverted().transform(across), edges)
    ticks = compressed.x.ticks()
    assert 3 <= len(ticks) <= 9
    assert (edges[0] <= min(ticks)) & (max(ticks) <= edges[-1])


def test_thresholds_off_the_axis_have_no_line():
    (panel,) = histogram_panels({"far": Histogram(*SETS, FOUND, threshold=1e9)})
    assert len(panel.layers) == 3


def test_they_are_drawn_in_their_order():
    figure = draw_detection(SCORES, r"own $\frac$", "other")
    saved(figure)
    assert all(shows(axis, panel) for axis, panel in zip(figure.axes, histogram_panels(SCORES), strict=False))
    texts = [text_of(text.get_text()) for text in figure.legends[0].get_texts()]
    own = r"own $\frac$"
    assert texts == [f"{own}, test", f"{own}, training", "other, test", f"keeps 95 % of {own}"]
    assert [axis.get_visible() for axis in draw_detection(dict(list(SCORES.items())[:5])).axes] == [True] * 5 + [False]
