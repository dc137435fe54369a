import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import make_swiss_roll

from rectangular_flows.metrics import dimension
from rectangular_flows.metrics.dimension import (
    DuplicateRowsWarning,
    estimate_dimension,
    maximum_likelihood,
    pca_spectrum,
    two_nn,
)


def line(random, count):
    return random.uniform(size=(count, 1)) * [1.0, -2.0, 0.5]


def plane(random, count):
    return random.uniform(size=(count, 2)) @ random.standard_normal((2, 4))


def sphere(random, count):
    x = random.standard_normal((count, 3))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def swiss_roll(random, count):
    return make_swiss_roll(count, random_state=int(random.integers(1000)))[0]


def gaussian_in_many(random, count):
    return random.standard_normal((count, 5)) @ np.linalg.qr(random.standard_normal((20, 20)))[0][:5]


# the true dimension, and how far an estimate from 1500 rows may be off: 10 %, and 15 % with the edges of 5 dimensions
MANIFOLDS = [(line, 1, 0.1), (plane, 2, 0.1), (sphere, 2, 0.1), (swiss_roll, 2, 0.1), (gaussian_in_many, 5, 0.15)]


@pytest.mark.parametrize(("make", "true", "tolerance"), MANIFOLDS)
@pytest.mark.parametrize("estimator", [two_nn, maximum_likelihood])
def test_known_manifolds(make, true, tolerance, estimator):
    x = make(np.random.default_rng(0), 1500)
    assert estimator(x).value == pytest.approx(true, rel=tolerance)


@pytest.mark.parametrize(("make", "true"), [case[:2] for case in MANIFOLDS])
def test_the_suggestion(make, true):
    found = estimate_dimension(make(np.random.default_rng(1), 1000))
    assert found.suggestion == true
    assert found.rows == 1000


def circles(seed, count=500):
    """The product of two circles, flat and without edges, so that nothing but chance is left."""
    angle = np.random.default_rng(seed).uniform(0, 2 * np.pi, (count, 2))
    return np.concatenate([np.cos(angle), np.sin(angle)], axis=1)


@pytest.mark.parametrize("estimator", [two_nn, maximum_likelihood])
def test_standard_errors_over_seeds(estimator):
    """The spread over 60 data sets is the standard error, or up to a third less: it is meant to be on the safe side."""
    found = [estimator(circles(seed)) for seed in range(60)]
    spread = np.std([each.value for each in found], ddof=1)
    claimed = np.mean([each.standard_error for each in found])
    assert 0.6 < spread / claimed < 1.2  # the spread itself is known to 9 %
    assert np.mean([each.value for each in found]) == pytest.approx(2, abs=0.05)


def test_two_nn_agrees_with_the_published_line():
    """The slope of −log(1 − F) against log μ through the origin, over the lowest 90 %."""
    x = circles(0, 1000)
    away = np.sqrt(np.square(x[:, None] - x).sum(2))
    np.fill_diagonal(away, np.inf)
    nearest = np.sort(away, axis=1)[:, :2]
    log_mu = np.sort(np.log(nearest[:, 1] / nearest[:, 0]))[:900]
    level = -np.log(1 - np.arange(1, 901) / 1000)
    found = two_nn(x)
    assert abs(found.value - (log_mu @ level) / (log_mu @ log_mu)) < found.standard_error


def test_two_nn_of_ratios_by_hand():
    """Points 0, 1, 3, 7, 15 of a line: the neighbours are 1, 3; 1, 2; 2, 3; 4, 6 and 8, 12 away; four ratios are used."""
    x = np.array([[0.0], [1.0], [3.0], [7.0], [15.0]])
    logs = np.log([3 / 2, 3 / 2, 3 / 2, 2, 3])
    assert two_nn(x).value == pytest.approx(3 / (logs[:4].sum() + logs[3]), rel=1e-12)


def test_maximum_likelihood_by_the_formula(monkeypatch):
    monkeypatch.setattr(dimension, "_NEIGHBOURS", (3, 5))
    x = circles(3, 60)
    away = np.sort(np.sqrt(np.square(x[:, None] - x).sum(2)), axis=1)[:, 1:]
    curve = []
    for k in (3, 4, 5):
        inverse = np.mean([np.log(row[k - 1] / row[: k - 1]).mean() for row in away])
        curve.append((k, pytest.approx(1 / inverse, rel=1e-9)))
    found = maximum_likelihood(x)
    assert list(found.curve) == curve
    assert found.value == pytest.approx(np.mean([value for _, value in found.curve]))


def test_noise_is_seen_at_its_scale():
    """A line with noise of 1e-3: twenty neighbours among 300 do not see it, the nearest among 10,000 do."""
    random = np.random.default_rng(4)
    t = random.uniform(size=(10_000, 1))
    x = np.concatenate([t, 1e-3 * random.standard_normal((10_000, 1))], axis=1)
    assert maximum_likelihood(x[:300]).value < 1.2
    assert two_nn(x).value > 1.6


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(1e-6, 1e6), st.floats(-1e3, 1e3))
def test_units_origin_and_rotation_do_not_matter(seed, scale, offset):
    random = np.random.default_rng(seed)
    x = plane(random, 100)
    moved = scale * (x @ np.linalg.qr(random.standard_normal((4, 4)))[0] + offset)
    for estimator in (two_nn, maximum_likelihood):
        assert estimator(moved).value == pytest.approx(estimator(x).value, rel=1e-6)


def test_far_from_the_origin_with_many_columns():
    """Where the search itself computes distances by cancelling squares (it does beyond 15 columns)."""
    x = gaussian_in_many(np.random.default_rng(5), 500)
    assert two_nn(x + 1e6).value == pytest.approx(two_nn(x).value, rel=1e-5)
    exact = np.sort(np.sqrt(np.square(x[:, None] - x).sum(2)), axis=1)[:, 1:6]
    np.testing.assert_allclose(dimension._neighbours(x, 5), exact, rtol=1e-12)


def test_blocks_change_nothing(monkeypatch):
    x = circles(0, 100)
    whole = dimension._neighbours(x, 4)
    monkeypatch.setattr(dimension, "_BLOCK", 50)
    np.testing.assert_array_equal(dimension._neighbours(x, 4), whole)


def test_minus_zero_is_zero():
    with pytest.warns(DuplicateRowsWarning, match="1 of 101 rows"):
        two_nn(np.concatenate([circles(0, 99), [[0.0] * 4], [[-0.0] * 4]]))


@pytest.mark.parametrize("estimator", [two_nn, maximum_likelihood, estimate_dimension])
def test_duplicates_are_counted_and_left_out(estimator):
    x = plane(np.random.default_rng(6), 200)
    with pytest.warns(DuplicateRowsWarning, match="50 of 250 rows repeat others") as caught:
        repeated = estimator(np.concatenate([x, x[:50]]))
    assert len(caught) == 1
    if estimator is estimate_dimension:
        assert repeated.rows == 200
        assert repeated.suggestion == 2
    else:
        assert repeated.value == pytest.approx(estimator(x).value, rel=1e-9)


def test_constant_columns_and_units_of_columns():
    """A constant column's deviation may be a rounding, not 0; and one column in millions does not hide the others."""
    constant = np.full((800, 2), 0.1)
    assert constant.std(0).min() > 0
    x = plane(np.random.default_rng(7), 800)
    wide = np.concatenate([x * [1e6, 1, 1, 1e-6], constant], axis=1)
    found, plain = estimate_dimension(wide), estimate_dimension(x)
    assert found.two_nn.value == pytest.approx(plain.two_nn.value, rel=1e-6)
    assert found.suggestion == 2
    assert found.pca_95 == plain.pca_95 <= 2


def test_two_columns_leave_one_dimension():
    """1 ≤ d ≤ D − 1, even if the data fill the plane."""
    assert estimate_dimension(np.random.default_rng(8).standard_normal((300, 2))).suggestion == 1


def test_rows_drawn(monkeypatch):
    monkeypatch.setattr(dimension, "_MOST_ROWS", 100)
    x = circles(1, 400)
    found = estimate_dimension(x, seed=1)
    assert found.rows == 100
    assert estimate_dimension(x, seed=1).two_nn == found.two_nn
    assert estimate_dimension(x, seed=2).two_nn != found.two_nn
    assert estimate_dimension(x.astype(np.float32)).two_nn.value == pytest.approx(2, abs=0.5)


def test_nothing_is_warned_of_without_reason():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimate_dimension(circles(2, 100))


def test_pca_spectrum():
    random = np.random.default_rng(9)
    x = random.standard_normal((50, 6)) @ random.standard_normal((6, 6)) + 7
    expected = np.sort(np.linalg.eigvalsh(np.cov(x, rowvar=False)))[::-1]
    np.testing.assert_allclose(pca_spectrum(x), expected / expected.sum(), rtol=1e-9)
    few = pca_spectrum(x[:3])
    assert few.shape == (6,)
    assert few.sum() == pytest.approx(1)
    np.testing.assert_allclose(few[2:], 0, atol=1e-25)


def test_pca_spectrum_of_very_unequal_columns():
    """A share of 1e-24, far below what a covariance in float64 holds."""
    x = np.random.default_rng(10).standard_normal((200, 2)) * [1, 1e-12]
    expected = (x[:, 1].var() * (1 - np.corrcoef(x.T)[0, 1] ** 2)) / x[:, 0].var()
    assert pca_spectrum(x)[1] == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(("noise", "components"), [(0.01, 1), (0.3, 2), (1.0, 3)])
def test_components_with_95_percent_of_the_variance(noise, components):
    """Three copies of one column with noise: the first component has (3 + n²)/(3 + 3n²) of the variance."""
    random = np.random.default_rng(0)
    x = random.standard_normal((2000, 1)) + noise * random.standard_normal((2000, 3))
    assert (3 + noise**2) / (3 + 3 * noise**2) > 0.96 or components > 1
    assert estimate_dimension(x).pca_95 == components


X = circles(0, 100)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: two_nn(X[:4]), "at least 5 rows in x; got 4"),
        (lambda: two_nn(np.repeat(X[:4], 3, axis=0)), "at least 5 distinct rows in x; got 4 among 12"),
        (lambda: two_nn(np.arange(4)), r"x of shape \(N, D\); got \(4,\)"),
        (lambda: two_nn(np.eye(6)), "got equal ones throughout"),
        (lambda: two_nn(np.arange(10.0)[:, None] * 1e-200), "underflow"),
        (lambda: maximum_likelihood(np.eye(30)), "got the first 10 equal throughout"),
        (lambda: maximum_likelihood(X[:20]), "at least 21 rows in x; got 20"),
        (lambda: estimate_dimension(X[:21]), "at least 22 rows in x; got 21"),
        (lambda: estimate_dimension(X[:, :1]), "at least 2 columns.*got 1"),
        (lambda: estimate_dimension(np.where(X > 0.9, np.nan, X)), "finite numbers in x"),
        (lambda: pca_spectrum(np.full((4, 2), 0.1)), "rows that differ; got 4 equal rows"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
