from rectangular_flows.paper.ood_figure import draw_directions
from rectangular_flows.plots.detection import histogram_panels
from tests.plots.drawn import saved, shows
from tests.plots.test_detection import SCORES


def test_a_row_for_each_direction_and_a_panel_for_each_score():
    first = {name: SCORES[name] for name in ("plain", "logarithmic", "compressed")}
    rows = {"Trained on a": first, "Trained on b": {name: SCORES[name] for name in ("infinite", "constant")}}
    figure = draw_directions(rows)
    saved(figure)
    assert [part.get_suptitle() for part in figure.subfigs] == list(rows)
    for part, scores in zip(figure.subfigs, rows.values(), strict=True):
        visible = [axis for axis in part.axes if axis.get_visible()]
        assert all(shows(axis, panel) for axis, panel in zip(visible, histogram_panels(scores), strict=True))
    assert [text.get_text() for text in figure.legends[0].get_texts()][2] == "outside, test"
