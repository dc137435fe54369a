"""Why a row is unusual: contributions that add up, planted columns that come first, and units that do not matter."""

import numpy as np
import pytest
import torch

import rectangular_flows as rnf
from rectangular_flows import flows
from rectangular_flows.evaluation import explain as module
from rectangular_flows.evaluation.explain import Explanation, Reason, can_explain, explain, unusual_rows
from rectangular_flows.evaluation.scores import calibrate, score_rows
from rectangular_flows.metrics.out_of_distribution import Tail

MIX = np.array([[1.0, 0.0, 1.0, 1.0, -1.0], [0.0, 1.0, 1.0, -1.0, 0.5]])
NAMES = ["a", "b", "c", "d", "e"]
FACTOR, SHIFT = np.array([1e6, 1.0, 1e-6, 3.0, 1.0]), np.array([5e6, -2.0, 1e-5, 0.0, 7.0])


def table(rows, seed):
    """Five columns of two factors, with noise of a tenth of their deviation: any column follows from two others."""
    random = np.random.default_rng(seed)
    return random.standard_normal((rows, 2)) @ MIX + 0.15 * random.standard_normal((rows, 5))


def fitted(train, held_out):
    """A plane, of the first two columns in standardised units, without any training; the density knows the rest."""
    mean, scale = train.mean(axis=0), train.std(axis=0)
    units = flows.Standardise(torch.from_numpy(mean), torch.from_numpy(scale))
    flow = rnf.RectangularFlow(
        flows.Identity(5), flows.Identity(2), [units], pad=flows.Pad(2, 5, order="first")
    ).double()
    flow.fit_scatter(torch.from_numpy(train), torch.from_numpy(held_out))
    flow.double()  # it had no parameters to take the precision from
    return flow, calibrate(flow, torch.from_numpy(held_out), torch.from_numpy(train))


@pytest.fixture(scope="module")
def model():
    return fitted(table(600, 0), table(300, 1))


def reasons_of(model, X):
    return explain(*model, torch.from_numpy(X), NAMES)


def planted(rows, how, seed=2):
    """Usual rows with one value that does not belong, and its column."""
    random, X, columns = np.random.default_rng(seed), table(rows, seed), np.arange(rows) % 5
    other = table(rows, seed + 1)
    sign = random.choice([-1, 1], size=rows)
    for row, column in enumerate(columns):
        shifted = X[row, column] + 6 * sign[row] * np.std(other[:, column])
        X[row, column] = shifted if how == "shift" else other[row, column]
    return X, columns


def test_contributions_add_up_to_the_score_whichever_part_attains_it(model):
    flow, calibration = model
    X = np.concatenate([table(40, 3), planted(40, "shift")[0], planted(40, "swap")[0], 30 * table(5, 4)])
    found = reasons_of(model, X)
    ambient = -Tail(-calibration.ambient)(-flow.ambient_log_prob(torch.from_numpy(X), smooth=True).numpy())
    y = flow.to_model_units(torch.from_numpy(X)).numpy()
    third = np.sort(np.linalg.norm(y[:, None] - calibration.reference, axis=2), axis=1)[:, 2]
    neighbours = -Tail(calibration.distance)(third)
    assert (ambient > neighbours).sum() > 10
    assert (neighbours > ambient).sum() > 10
    np.testing.assert_allclose(found.score, np.maximum(ambient, neighbours), rtol=1e-9)
    np.testing.assert_allclose(found.contributions.sum(axis=1), found.score, rtol=1e-12)
    assert (found.contributions >= 0).all()


def test_the_first_contribution_is_by_how_much_the_score_falls(model):
    """By trying every value of the rows that are nearest by the other columns, one after the other."""
    flow, calibration = model
    X = planted(6, "shift")[0]
    y, reference = flow.to_model_units(torch.from_numpy(X)).numpy(), calibration.reference
    for row in range(len(X)):
        falls = np.zeros(5)
        (score,) = calibration.outlier_score(score_rows(flow, torch.from_numpy(X[row : row + 1])))
        for column in range(5):
            others = np.delete(np.arange(5), column)
            gaps = np.minimum(np.abs(y[row] - reference), 2)[:, others]
            for value in reference[np.argsort((gaps**2).sum(axis=1))[:5], column]:
                changed = y[row].copy()
                changed[column] = value
                x = flow.to_data_units(torch.from_numpy(changed[None]))
                (after,) = calibration.outlier_score(score_rows(flow, x))
                falls[column] = max(falls[column], score - after)
        found = reasons_of(model, X[row : row + 1])
        first = int(found.contributions[0].argmax())
        assert first == falls.argmax()
        rest = found.score[0] - falls[first]  # what is left may fall to the same column
        assert falls[first] <= found.contributions[0, first] + 1e-9 <= falls[first] + rest + 1e-6


def test_values_are_those_of_rows_near_by_the_other_columns():
    random = np.random.default_rng(0)
    rows, reference = 2 * random.standard_normal((7, 3)), random.standard_normal((50, 3))
    near = module._rows_nearby(module._gaps(torch.from_numpy(rows), torch.from_numpy(reference)))
    for row, column in np.ndindex(7, 3):
        others = [other for other in range(3) if other != column]
        gaps = np.minimum((rows[row, others] - reference[:, others]) ** 2, 4.0)
        expected = reference[np.argsort(gaps.sum(axis=1), kind="stable")[:5], column]
        np.testing.assert_allclose(np.sort(reference[near[row, column], column]), np.sort(expected))


def test_a_usual_row_shares_its_score_by_distance_from_the_manifold(model):
    flow, calibration = model
    X = table(60, 7)
    found = reasons_of(model, X)
    usual = found.score <= np.median(calibration.usual)
    assert 15 < usual.sum() < 45
    y = flow.to_model_units(torch.from_numpy(X))
    squares = (y - flow.in_model_units.project(y)).square().numpy()
    expected = found.score[:, None] * squares / squares.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found.contributions[usual], expected[usual], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("how", ["shift", "swap"])
def test_planted_columns_come_first(model, how):
    """A value six deviations off; a value of another row, wherever it makes the row unusual at all."""
    X, columns = planted(200, how)
    found = reasons_of(model, X)
    clear = model[1].p_value(found.score) <= 0.01
    assert clear.mean() > (0.99 if how == "shift" else 0.4)
    assert (found.contributions.argmax(axis=1) == columns)[clear].mean() >= 0.95


def test_the_nearest_point_is_on_the_manifold_and_near_what_was_there(model):
    flow, _ = model
    usual, (X, columns) = table(50, 2), planted(50, "shift")
    found = reasons_of(model, X)
    np.testing.assert_allclose(flow.project(torch.from_numpy(found.nearest)), found.nearest, atol=1e-9)
    np.testing.assert_allclose(found.difference, X - found.nearest)
    rows = np.flatnonzero(columns < 2)  # of this flow, the columns that the manifold has
    off = np.abs(found.nearest - usual)[rows, columns[rows]]
    assert np.quantile(off, 0.9) < 1.5  # of six


def test_units_change_nothing(model):
    X = np.concatenate([table(20, 5), planted(20, "shift")[0], planted(20, "swap")[0]])
    plain = reasons_of(model, X)
    other = fitted(*(part * FACTOR + SHIFT for part in (table(600, 0), table(300, 1))))
    found = reasons_of(other, X * FACTOR + SHIFT)
    np.testing.assert_allclose(found.score, plain.score, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.contributions, plain.contributions, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose((found.nearest - SHIFT) / FACTOR, plain.nearest, rtol=1e-4, atol=1e-4)
    assert [row.index for row in found.most_unusual(20)] == [row.index for row in plain.most_unusual(20)]


def test_a_value_beyond_all_numbers(model):
    X = table(3, 6)
    X[1, 3] = 1e300
    found = reasons_of(model, X)
    assert found.score[1] == found.contributions[1].sum() == np.inf
    assert found.contributions[1].argmax() == 3
    assert not np.isnan(found.contributions).any()
    assert np.isfinite(found.nearest).all()
    assert np.isfinite(found.contributions[[0, 2]]).all()


def test_many_wrong_columns_are_shared_out(model):
    """No single column helps: what is left is shared by distance from a typical row."""
    X = np.full((1, 5), 40.0)
    found = reasons_of(model, X)
    np.testing.assert_allclose(found.contributions.sum(), found.score[0])
    assert (found.contributions[0] > 0).sum() >= 3


def test_batches_change_nothing(model, monkeypatch):
    X = planted(12, "shift")[0]
    whole = reasons_of(model, X)
    monkeypatch.setattr(module, "_CELLS", 5 * model[1].reference.size)
    parts = reasons_of(model, X)
    np.testing.assert_allclose(parts.contributions, whole.contributions, rtol=1e-9)
    np.testing.assert_allclose(parts.nearest, whole.nearest, rtol=1e-9)


def test_reasons_in_words():
    found = Explanation(
        np.array([1.0, 5.0]),
        np.array([[0.5, 0.5, 0.0], [0.3, 4.6, 0.1]]),
        np.array([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]]),
        np.array([[0.0, 0.0, 0.0], [0.0, 10.0, -1.0]]),
        ("a", "b", "c"),
        np.array([0.5, 0.01]),
        np.array([[1.0, 2.0, 3.0], [1.0, 12.0, 2.0]]),
    )
    assert [(row.index, row.name, row.score, row.p_value) for row in found.most_unusual(5)] == [
        (1, "row 2", 5.0, 0.01),
        (0, "row 1", 1.0, 0.5),
    ]
    assert found.most_unusual(1)[0].reasons == found.reasons(1)
    assert found.reasons(1) == [Reason("b", 4.6, 12.0, 2.0)]  # the others add less than a tenth of that
    assert [reason.column for reason in found.reasons(0)] == ["a", "b"]
    assert str(found.reasons(1)[0]) == "b = 12, typical 2 (4.6 nats)"
    assert list(found.table(difference=True)) == [f"{p}_{c}" for p in ("why", "nearest", "difference") for c in "abc"]
    assert found.table()["why_b"].tolist() == [0.5, 4.6]


def test_the_most_unusual_of_some_rows(model):
    class Run:
        flow, calibration, columns, sphere = *model, tuple(NAMES), None

    X, columns = planted(30, "shift")
    X[:20] = table(20, 9)
    rows = unusual_rows(Run(), torch.from_numpy(X), "test row", 4)
    scores = model[1].outlier_score(score_rows(model[0], torch.from_numpy(X)))
    worst = np.argsort(-scores)[:4]
    assert [row.name for row in rows] == [f"test row {i + 1}" for i in worst]
    assert [row.reasons[0].column for row in rows] == [NAMES[columns[i]] for i in worst]
    assert rows[0].p_value == pytest.approx(1 / 301)
    assert str(rows[0]).startswith(f"test row {worst[0] + 1}: outlier score {scores[worst[0]]:.3g}, p = 0.0033; ")


def test_what_is_needed_is_asked_for(model):
    flow, calibration = model
    assert can_explain(flow, calibration)
    assert not can_explain(flow, None)
    with pytest.raises(ValueError, match="needs a density in all columns and a calibration"):
        explain(flow, None, torch.zeros(1, 5), NAMES)
