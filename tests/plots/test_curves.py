import numpy as np
import pytest

from rectangular_flows.plots.curves import Chart, Curve, curve_data, describe_chart, draw_curves

from .drawn import saved

NAN, INF = float("nan"), float("inf")


def chart(*curves, **options):
    return Chart([Curve(f"c{i}", x, y) for i, (x, y) in enumerate(curves)], "epoch", "loss", "Loss", **options)


def test_values_that_are_not_finite_make_gaps():
    (line,) = curve_data(chart((range(8), [1, 2, NAN, 3, INF, 4, -5, -INF])))
    np.testing.assert_array_equal(line.y, [1, 2, NAN, 3, NAN, 4, -5, NAN])
    np.testing.assert_array_equal(curve_data(chart(([0, NAN, 2], [1, 2, 3])))[0].y, [1, NAN, 3])


def test_a_logarithmic_axis_hides_what_is_not_positive():
    part = chart((range(4), [1e-6, 0.0, -1.0, 10.0]), log_y=True)
    np.testing.assert_array_equal(curve_data(part)[0].y, [1e-6, NAN, NAN, 10.0])
    (axis,) = draw_curves(part).axes
    assert axis.get_yscale() == "log"


def test_every_curve_is_drawn_as_it_is_and_lone_points_as_dots():
    part = chart((range(5), [1, NAN, 3, 4, 5]), ([0, 9], [7, 8]))
    figure = draw_curves(part)
    saved(figure)
    (axis,) = figure.axes
    np.testing.assert_array_equal(axis.lines[0].get_xydata(), [[0, 1], [1, NAN], [2, 3], [3, 4], [4, 5]])
    np.testing.assert_array_equal(axis.lines[1].get_xydata(), [[0, 7], [9, 8]])
    assert [dots.get_offsets().tolist() for dots in axis.collections] == [[[0, 1]], []]
    assert (axis.get_title(loc="left"), axis.get_xlabel(), axis.get_ylabel()) == ("Loss", "epoch", "loss")
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["c0", "c1"]
    assert draw_curves(chart(([0, 9], [7, 8]))).axes[0].get_legend() is None


@pytest.mark.parametrize("log_y", [False, True])
@pytest.mark.parametrize(
    "curves",
    [[], [([], [])], [([0, 1], [NAN, INF])], [([NAN], [1.0])], [([0], [1e305])]],
    ids=["no curve", "no point", "no finite y", "no finite x", "too large to draw"],
)
def test_nothing_to_draw(curves, log_y):
    figure = draw_curves(chart(*curves, log_y=log_y))
    saved(figure)
    assert "no data yet" in [text.get_text() for text in figure.axes[0].texts]
    assert "no data yet" in describe_chart(chart(*curves, log_y=log_y)).lower()


@pytest.mark.parametrize("log_y", [False, True])
@pytest.mark.parametrize("y", [[7.0], [0.25] * 3, [0.0, 0.0], [1.0, 1.0 + 1e-15], [-1e299, 1e299], [1e-320, 1e-310]])
def test_odd_series_are_drawn_without_a_warning(y, log_y):
    saved(draw_curves(chart((range(len(y)), y), log_y=log_y)))


def test_descriptions_for_readers_who_cannot_see():
    part = chart(([0, 1, 2], [4.0, 2.5, 1.0]), ([], []))
    assert describe_chart(part) == "Line chart of loss against epoch. c0: from 4 to 1; c1 (no data yet)."
