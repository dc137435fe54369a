import math
import re

import numpy as np
import pytest
from rectangular_flows.report.charts import draw, format_number, log_ticks, round_ticks, tick_labels

from rectangular_flows.report import Chart, Curve

NAN, INF = float("nan"), float("inf")


def chart(*curves, **options):
    return draw(Chart([Curve(f"c{i}", x, y) for i, (x, y) in enumerate(curves)], "x", "y", **options))


def coordinates(path):
    """The points of an absolute path, one list for each piece; fails on anything but numbers."""
    pieces = [piece.removesuffix("h0").split("L") for piece in path.split("M")[1:]]
    return [[tuple(float(n) for n in point.split(" ")) for point in piece] for piece in pieces]


def values(text):
    return [float(v) for v in text.split(",")] if text else []


def test_points_land_where_the_ticks_say():
    drawing = chart(([0, 5, 10], [-1.0, 0.5, 2.0]))
    x_tick = {tick.label: tick.position for tick in drawing.x_ticks}
    y_tick = {tick.label: tick.position for tick in drawing.y_ticks}
    (points,) = coordinates(drawing.lines[0].path)
    assert points[0] == pytest.approx((10 * x_tick["0"], 10 * y_tick["−1"]), abs=0.06)
    assert points[2] == pytest.approx((10 * x_tick["10"], 10 * y_tick["2"]), abs=0.06)
    assert points[1] == pytest.approx((500, (10 * y_tick["0"] + 10 * y_tick["1"]) / 2), abs=0.06)


def test_values_that_are_not_finite_make_gaps():
    (line,) = chart((range(8), [1, 2, NAN, 3, INF, 4, 5, -INF])).lines
    assert [len(piece) for piece in coordinates(line.path)] == [2, 2]
    assert [len(piece) for piece in coordinates(line.dots)] == [1]
    assert values(line.x) == [0, 1, 3, 5, 6]
    (line,) = chart(([0, NAN, 2, 3], [1, 2, 3, 4])).lines
    assert values(line.x) == [0, 2, 3]
    assert len(coordinates(line.dots)) == 1


def test_logarithmic_axis_hides_what_is_not_positive_and_spaces_decades_evenly():
    drawing = chart(([0, 1, 2, 3, 4], [1e-6, 0.0, -1.0, 1e-3, 1.0]), log_y=True)
    assert values(drawing.lines[0].y) == [1e-6, 1e-3, 1.0]
    assert {"10⁻⁶", "10⁻³", "10⁰"} <= {tick.label for tick in drawing.y_ticks}
    steps = np.diff([tick.position for tick in drawing.y_ticks])
    assert steps == pytest.approx(steps[0])
    place = {tick.label: 10 * tick.position for tick in drawing.y_ticks}
    assert coordinates(drawing.lines[0].path)[0][0][1] == pytest.approx(place["10⁻³"], abs=0.06)


@pytest.mark.parametrize(
    "curves",
    [[], [([], [])], [([0, 1], [NAN, INF])], [([NAN], [1.0])], [([0], [1e305])]],
    ids=["no curve", "no point", "no finite y", "no finite x", "too large to draw"],
)
def test_nothing_to_draw(curves):
    drawing = chart(*curves)
    assert not drawing.lines
    assert "no data yet" in drawing.summary


def test_an_empty_curve_beside_a_full_one():
    drawing = chart(([], []), ([0, 1], [1, 2]))
    assert [bool(line.path) for line in drawing.lines] == [False, True]
    assert "c0: no data yet" in drawing.summary


@pytest.mark.parametrize("log_y", [False, True])
@pytest.mark.parametrize(
    ("x", "y"),
    [
        ([3], [7.0]),
        ([0, 1, 2], [0.25] * 3),
        ([0, 1], [0.0, 0.0]),
        ([0, 1], [1e-320, 1e-310]),
        ([0, 1], [1.0, 1.0 + 1e-15]),
        ([0, 1], [-1e299, 1e299]),
        ([5, 5, 5], [1, 2, 3]),
        ([0, 1e12], [1e9, 1e9 + 1]),
        ([2, 1, 3, 0], [4, 3, 2, 1]),
        ([0, 1], np.array([1, 2], dtype=np.float32)),
        (range(3), [None, 1.0, 2.0]),
    ],
)
def test_every_coordinate_is_finite_and_inside(x, y, log_y):
    drawing = chart((x, y), log_y=log_y, marker=1.0)
    for line in drawing.lines:
        for piece in coordinates(line.path) + coordinates(line.dots):
            assert all(0 <= c <= 1000 for point in piece for c in point)
    for tick in [*drawing.x_ticks, *drawing.y_ticks]:
        assert -0.01 <= tick.position <= 100.01
        assert tick.label
    if drawing.lines:
        assert drawing.x_ticks
        assert drawing.y_ticks


def test_a_single_point_and_a_constant_are_in_the_middle():
    (line,) = chart(([3], [7.0])).lines
    assert coordinates(line.dots) == [[(500.0, 500.0)]]
    (line,) = chart(([0, 1], [0.25, 0.25])).lines
    assert coordinates(line.path) == [[(0.0, 500.0), (1000.0, 500.0)]]


def test_marker_is_kept_in_view_and_ignored_when_not_finite():
    assert chart(([0, 1], [0, 1]), marker=2.0).marker == 100
    assert chart(([0, 4], [0, 1]), marker=1.0).marker == 25
    assert chart(([0, 1], [0, 1]), marker=NAN).marker is None


def test_long_series_are_thinned_without_losing_extremes_or_gaps():
    rng = np.random.default_rng(0)
    x, y = np.arange(100_000.0), rng.standard_normal(100_000)
    y[31_234], y[77_777] = 50.0, -50.0
    y[40_000:50_000] = NAN
    (line,) = chart((x, y)).lines
    assert line.dense
    assert len(line.path) + len(line.x) + len(line.y) < 100_000
    assert {50.0, -50.0} <= set(values(line.y))
    shown = np.array(values(line.x))
    assert (shown[0], shown[-1]) == (0, 99_999)
    assert len(coordinates(line.path)) == 2
    assert not ((shown >= 40_000) & (shown < 50_000)).any()
    assert [float(f"{y[int(i)]:.5g}") for i in shown] == values(line.y), "what is shown is data, not averages"


@pytest.mark.parametrize("kind", ["to and fro", "every other missing", "one column"])
def test_long_series_of_odd_kinds_stay_small(kind):
    rng = np.random.default_rng(0)
    x, y = np.arange(100_000.0), rng.standard_normal(100_000)
    if kind == "to and fro":
        x = rng.standard_normal(100_000)
    elif kind == "every other missing":
        y[::2] = NAN
    else:
        x[:-1] = 0.0
    (line,) = chart((x, y)).lines
    assert 0 < len(line.path) + len(line.dots) + len(line.x) + len(line.y) < 150_000


def test_ticks_are_round_numbers_inside_the_range():
    rng = np.random.default_rng(0)
    for _ in range(300):
        low = rng.standard_normal() * 10.0 ** rng.integers(-8, 8)
        high = low + 10.0 ** rng.uniform(-2, 8) * max(abs(low), 1e-8)
        for whole in (False, True) if high - low > 3 else (False,):
            ticks = round_ticks(low, high, whole=whole)
            assert 2 <= len(ticks) <= 6
            slack = 1e-8 * (high - low)
            assert low - slack <= ticks[0]
            assert ticks[-1] <= high + slack
            step = ticks[1] - ticks[0]
            mantissa = step / 10.0 ** math.floor(math.log10(step) + 1e-6)
            assert min(abs(mantissa - m) for m in (1, 2, 2.5, 5)) < 1e-4
            assert len(set(tick_labels(ticks))) == len(ticks), "labels tell the ticks apart"


def test_whole_numbers_get_whole_ticks():
    assert round_ticks(0, 3, 6, whole=True) == [0, 1, 2, 3]
    assert [tick.label for tick in chart((range(4), [1, 2, 3, 4])).x_ticks] == ["0", "1", "2", "3"]


@pytest.mark.parametrize(("low", "high"), [(-9.5, 3.2), (-1.2, 1.1), (0.02, 0.9), (0.3, 0.34), (-280.0, 290.0)])
def test_logarithmic_ticks(low, high):
    ticks = log_ticks(low, high)
    assert 2 <= len(ticks) <= 8
    assert all(low - 1e-9 <= math.log10(t) <= high + 1e-9 for t in ticks)
    assert len(set(tick_labels(ticks, log=True))) == len(ticks)


@pytest.mark.parametrize(
    ("ticks", "labels"),
    [
        ([0.0, 0.1, 0.2], ["0.0", "0.1", "0.2"]),
        ([0.0, 0.25, 0.5], ["0.00", "0.25", "0.50"]),
        ([-5.0, 0.0, 5.0], ["−5", "0", "5"]),
        ([0.0, 2500.0, 5000.0], ["0", "2500", "5000"]),
        ([0.0, 50000.0, 100000.0], ["0", "50\u202f000", "100\u202f000"]),
        ([0.0, 2e6, 4e6], ["0", "2×10⁶", "4×10⁶"]),
        ([0.0, 2e-5, 4e-5], ["0", "2×10⁻⁵", "4×10⁻⁵"]),
        ([1.0], ["1"]),
        ([], []),
    ],
)
def test_tick_labels(ticks, labels):
    assert tick_labels(ticks) == labels


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.41623, "0.4162"),
        (12345.6, "12\u202f350"),
        (99999.0, "10⁵"),
        (1234567, "1\u202f234\u202f567"),
        (-0.5, "−0.5"),
        (0.0, "0"),
        (-1e-7, "−10⁻⁷"),
        (6.02214e23, "6.022×10²³"),
        (-INF, "−∞"),
        (np.float32(0.5), "0.5"),
        (np.int64(12), "12"),
    ],
)
def test_numbers_for_readers(value, text):
    assert format_number(value) == text


def test_curves_of_unequal_lengths_are_refused():
    with pytest.raises(ValueError, match=re.escape("Curve 'loss': expected as many y as x, 2; got 1")):
        Curve("loss", [0, 1], [1.0])


def test_more_curves_than_colours_are_told_apart():
    drawing = chart(*[([0, 1], [0, i]) for i in range(10)])
    assert len({(line.colour, line.dashed) for line in drawing.lines}) == 10
