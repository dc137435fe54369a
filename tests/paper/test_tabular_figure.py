import numpy as np
import pytest

from rectangular_flows.paper.tabular_figure import Bars, draw_tabular, score_panels
from rectangular_flows.plots.panels import Dots, Line, Note, Rule
from rectangular_flows.plots.style import BLUE, INK, RED
from tests.plots.drawn import saved, shows

GROUPS = [
    Bars("power", "exact", "ours", [0.02, 0.03, 90.0], [0.2, 0.3, 0.4]),
    Bars("power", "two-step", "ours", [0.3], [0.7]),
    Bars("power", "exact", "published", [0.5, 0.6], [0.8, 0.9]),
    Bars("gas", "exact", "ours", [0.1, 0.2], [0.01, 0.02]),
]
FLOORS = {"power": (0.01, 0.001), "gas": (0.05, 0.002)}
PUBLISHED = {"power": {"exact": (0.08, 0.01), "two-step": (0.2, 0.02)}, "gas": {"exact": (0.3, 0.05)}}


def layers(panel, kind):
    return [layer for layer in panel.layers if isinstance(layer, kind)]


def test_every_seed_is_in_its_column():
    fid, sliced = score_panels(GROUPS, FLOORS, PUBLISHED)[0]
    assert (fid.title, sliced.title) == ("POWER: FID-like score", "POWER: Sliced Wasserstein-2, squared")
    seeds = [dots for dots in layers(sliced, Dots) if "alpha" in dots.style]
    assert [dots.y.tolist() for dots in seeds] == [[0.2, 0.3, 0.4], [0.7], [0.8, 0.9]]
    assert [dots.x.mean() for dots in seeds] == pytest.approx([0, 1, -0.18])
    assert [dots.colour for dots in seeds][:2] == [BLUE, RED]
    assert fid.x.format == ["exact", "two-step"]


def test_medians_floors_and_published_scores():
    (fid, sliced), (gas, _) = score_panels(GROUPS, FLOORS, PUBLISHED)
    medians = [line.y.tolist() for line in layers(fid, Line) if line.colour != INK]
    assert medians == [[0.03] * 2, [0.3] * 2, pytest.approx([0.55] * 2)]
    assert [layers(panel, Rule)[0].at for panel in (fid, sliced, gas)] == [0.01, 0.001, 0.05]
    theirs = [line.y.tolist() for line in layers(fid, Line) if line.colour == INK]
    assert theirs == [pytest.approx([0.07, 0.08, 0.09]), pytest.approx([0.18, 0.2, 0.22])]
    assert not [line for line in layers(sliced, Line) if line.colour == INK]


def test_runs_that_broke_down_are_marked_at_the_end_of_the_axis():
    fid, _ = score_panels(GROUPS, FLOORS, PUBLISHED)[0]
    seen, off = layers(fid, Dots)[:2]
    assert seen.y.tolist() == [0.02, 0.03]
    assert (off.x.tolist(), off.y.tolist()) == (pytest.approx([0.07]), [pytest.approx(4 * 0.55)])
    (note,) = layers(fid, Note)
    assert (note.text.strip(), note.y) == ("90", pytest.approx(4 * 0.55))


def test_they_are_drawn_one_column_a_data_set():
    figure = draw_tabular(GROUPS, FLOORS, PUBLISHED)
    saved(figure)
    (power, power_sliced), (gas, gas_sliced) = score_panels(GROUPS, FLOORS, PUBLISHED)
    panels = (power, gas, power_sliced, gas_sliced)
    assert all(shows(axis, panel) for axis, panel in zip(figure.axes, panels, strict=True))
    assert len(figure.legends[0].get_texts()) == 5
    ours = [group for group in GROUPS if group.settings == "ours"]
    assert len(draw_tabular(ours, FLOORS, PUBLISHED).legends[0].get_texts()) == 4
    assert np.isfinite([axis.get_ylim() for axis in figure.axes]).all()
