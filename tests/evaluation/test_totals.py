"""What is said of scored rows in the end."""

from dataclasses import asdict

import numpy as np
import pytest

from rectangular_flows.evaluation.explain import Reason, UnusualRow
from rectangular_flows.evaluation.totals import Totals, Written


def columns(log_density, error):
    return {"log_density": np.array(log_density), "reconstruction_error": np.array(error)}


def row(score):
    return UnusualRow(score, f"row {score}", score, 0.01, [Reason("a", 1.0, 2.0, 0.5)])


def test_rows_that_are_not_finite_are_counted_and_left_out():
    part = Totals().plus(columns([1.0, -np.inf, 3.0], [0.5, 0.25, np.nan]))
    whole = part.plus(columns([2.0], [1.5]))
    assert (part.finite, part.broken) == (1, 2)
    assert (whole.finite, whole.broken) == (2, 2)
    assert whole.means == {"log_density": 1.5, "reconstruction_error": 1.0}
    assert "model: 2 rows, far from its data" in whole.notes[0]
    assert "model: 1 row, far" in Totals(broken=1).notes[0]
    assert Totals(finite=3).notes == []
    assert all(np.isnan(value) for value in Totals(broken=2).means.values())


def test_the_five_most_unusual_rows_of_all_parts():
    totals = Totals().plus(columns([0.0], [0.0]), [row(s) for s in (3, 9, 1, 4)])
    totals = totals.plus(columns([0.0], [0.0]), [row(s) for s in (7, 2)])
    assert [one.score for one in totals.most_unusual] == [9, 7, 4, 3, 2]
    assert Written(2, totals, []).most_unusual is totals.most_unusual
    assert Written(2, totals, []).means == totals.means


def test_totals_survive_a_file():
    totals = Totals(1.5, 0.25, 3, 1, [row(2), row(1)])
    assert Totals.of(asdict(totals)) == totals
    assert Totals.of({}) == Totals()


def test_several_tables_together():
    both = [Totals(1.0, 2.0, 3, 4, [row(1)]), Totals(10.0, 20.0, 30, 40, [row(2)])]
    assert Totals.sum(both) == Totals(11.0, 22.0, 33, 44)
    assert Totals.sum([]) == Totals()
    assert Totals.sum(both).means["log_density"] == pytest.approx(1 / 3)
