"""How columns are named as periodic, and what is guessed."""

import math

import numpy as np
import pytest

from rectangular_flows.data.periodic import notes_on, periodic_columns
from rectangular_flows.data.tables import DataError

RANDOM = np.random.default_rng(0)
NAMES = ("hour", "wind", "phase", "a:b", "day")
VALUES = np.stack(
    [
        RANDOM.uniform(0, 24, 100),
        RANDOM.uniform(-180, 180, 100),
        RANDOM.uniform(0, 2 * math.pi, 100),
        RANDOM.normal(size=100),
        1.0 + np.arange(100) % 7,
    ],
    axis=1,
)


def found(asked):
    return periodic_columns(asked, VALUES, NAMES, "X")


@pytest.mark.parametrize(
    "asked",
    [
        ["hour:24", "wind:degrees", "phase:radians"],
        ["hour:24", "wind", "phase"],
        ["3", "2:360", " 1:24.0"],
        {"wind": 360, "hour": 24.0, "phase": "radians"},
    ],
)
def test_ways_to_say_it(asked):
    columns = found(asked)
    assert [column.spelled for column in columns] == ["hour:24", "wind:360", "phase:radians"]
    assert [column.period for column in columns] == [24, 360, 2 * math.pi]
    assert [column.start for column in columns] == [0, -180, 0]
    assert [column.column for column in columns] == [0, 1, 2]
    again = found([column.spelled for column in columns])  # as config.toml keeps it
    assert [(column.column, column.period) for column in again] == [
        (column.column, column.period) for column in columns
    ]


def test_all_columns():
    assert [column.period for column in found("all:400")] == [400] * 5
    columns = periodic_columns("all", VALUES[:, 1:3], NAMES[1:3], "X")
    assert [column.period for column in columns] == [360, 2 * math.pi]
    assert notes_on(columns) == [
        "degrees guessed from the values of 'wind'",
        "radians guessed from the values of 'phase'",
    ]
    assert notes_on(found(["wind:degrees"])) == []


def test_names_may_have_colons():
    assert found(["a:b:8"])[0].name == "a:b"
    with pytest.raises(DataError, match="Give its period"):
        found(["a:b"])


def test_whole_numbers_from_one_come_back_around_themselves():
    assert found(["day:7"])[0].start == 0.5
    assert found(["day:8"])[0].start == 0


@pytest.mark.parametrize(
    ("low", "high", "start"), [(-360.0, -1.0, -360), (-170.0, 170.0, -180), (10.0, 400.0, 0), (-10.0, 350.0, -180)]
)
def test_ranges(low, high, start):
    assert periodic_columns(["x:360"], np.array([[low], [high], [0.5]])[:2], ["x"], "X")[0].start == start


@pytest.mark.parametrize(
    ("values", "period"),
    [
        ((0.0, 359.9), 360),
        ((-180.0, 180.0), 360),
        ((0.1, 6.2), 2 * math.pi),
        ((-3.1, 3.1), 2 * math.pi),
        ((0, 100), 360),
    ],
)
def test_guesses(values, period):
    assert periodic_columns(["x"], np.array(values)[:, None], ["x"], "X")[0].period == period


@pytest.mark.parametrize("values", [(0.0, 23.5), (0.0, 6.0), (1.0, 12.0), (0.0, 366.0), (10.0, 11.5), (0.0, 1.0)])
def test_what_cannot_be_guessed_is_asked_for(values):
    """Hours, weekdays, months, days of a year: none is an angle in degrees or radians."""
    with pytest.raises(DataError, match="x:degrees, x:radians, or a number as in x:24"):
        periodic_columns(["x"], np.array(values)[:, None], ["x"], "X")


def test_suspicious_periods_are_noted():
    assert "span 1.99 periods" in found(["hour:12"])[0].note
    assert "is the period right?" in found(["phase:degrees"])[0].note


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (["hours:24"], "no column 'hours'.*Did you mean 'hour'"),
        (["hour:0"], "Expected a period for column 'hour'; got '0'"),
        (["hour:day"], "got 'day'"),
        (["hour:nan"], "got 'nan'"),
        (["hour:24", "1:12"], "once; got 'hour' more than once|hour more than once"),
        (["9:24"], "no column '9'"),
    ],
)
def test_mistakes(asked, text):
    with pytest.raises(DataError, match=text):
        found(asked)
