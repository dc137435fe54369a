import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from rectangular_flows.metrics import two_sample
from rectangular_flows.metrics.frechet import fid_like
from rectangular_flows.metrics.two_sample import (
    classifier_two_sample,
    equally_many,
    real_floor,
    sliced_wasserstein,
)


def brute_force(a, b):
    """W₂² in one dimension with every point repeated so often that both sides have as many."""
    n, m = len(a), len(b)
    return np.mean(np.square(np.repeat(np.sort(a), m) - np.repeat(np.sort(b), n)))


def gaussian(count, columns, seed=0):
    return np.random.default_rng(seed).standard_normal((count, columns))


def test_a_shift_in_one_dimension():
    x = gaussian(500, 1)
    assert sliced_wasserstein(x + 3, x) == pytest.approx(9, rel=1e-12)


def test_two_gaussians_in_one_dimension():
    """(μ₁ − μ₂)² + (σ₁ − σ₂)², within 5 % of sampling error."""
    assert sliced_wasserstein(3 * gaussian(50_000, 1, 0) + 2, gaussian(40_000, 1, 1)) == pytest.approx(8, rel=0.05)


@pytest.mark.parametrize("columns", [2, 3, 5])
def test_a_shift_has_no_error_from_the_directions(columns):
    """Over whole orthonormal bases, Σ(θᵀv)² = ‖v‖²."""
    x, v = gaussian(50, columns), np.arange(1.0, columns + 1)
    for seed in range(3):
        found = sliced_wasserstein(x + v, x, projections=4 * columns, seed=seed)
        assert found == pytest.approx(v @ v / columns, rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 13), st.integers(1, 13))
def test_unequal_numbers_of_points(seed, n, m):
    random = np.random.default_rng(seed)
    a, b = random.standard_normal((n, 1)), random.integers(-3, 3, (m, 1))  # the second with ties
    assert sliced_wasserstein(a, b) == pytest.approx(brute_force(a[:, 0], b[:, 0]), rel=1e-12, abs=1e-14)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 20), st.integers(1, 20))
def test_the_matching_gives_scipys_first_distance(seed, n, m):
    random = np.random.default_rng(seed)
    a, b = np.sort(random.standard_normal(n)), np.sort(random.standard_normal(m))
    left, right, weight = two_sample._matched(n, m)
    assert weight.sum() == pytest.approx(1, rel=1e-12)
    assert np.abs(a[left] - b[right]) @ weight == pytest.approx(stats.wasserstein_distance(a, b), rel=1e-9)


def test_several_columns_are_the_mean_over_directions():
    x, y = gaussian(30, 4, 0), 2 * gaussian(17, 4, 1)
    directions = two_sample._directions(4, 10, seed=5)
    expected = np.mean([brute_force(x @ theta, y @ theta) for theta in directions])
    assert sliced_wasserstein(x, y, projections=10, seed=5) == pytest.approx(expected, rel=1e-12)


def test_blocks_change_nothing(monkeypatch):
    x, y = gaussian(30, 4, 0), gaussian(17, 4, 1)
    whole = sliced_wasserstein(x, y, projections=25)
    monkeypatch.setattr(two_sample, "_BLOCK", 100)
    assert sliced_wasserstein(x, y, projections=25) == pytest.approx(whole, rel=1e-13)


@pytest.mark.parametrize(("columns", "count"), [(1, 5), (3, 7), (6, 2), (4, 4)])
def test_directions(columns, count):
    directions = two_sample._directions(columns, count, seed=0)
    assert directions.shape == (1 if columns == 1 else count, columns)
    np.testing.assert_allclose(np.linalg.norm(directions, axis=1), 1)
    first = directions[:columns]
    np.testing.assert_allclose(first @ first.T, np.eye(len(first)), atol=1e-14)


def test_directions_are_uniform():
    """Moments on the sphere of R³, E θθᵀ = I/3 and E θᵢ⁴ = 1/5, of each direction of a group, whole or not."""
    for count in (3, 2):
        groups = np.stack([two_sample._directions(3, count, seed) for seed in range(3000)])
        for theta in groups.transpose(1, 0, 2):
            np.testing.assert_allclose(theta.T @ theta / 3000, np.eye(3) / 3, atol=0.025)  # 4 standard errors
            np.testing.assert_allclose((theta**4).mean(0), 1 / 5, atol=0.02)


def test_seeds_and_symmetry():
    x, y = gaussian(40, 3, 0), 2 * gaussian(60, 3, 1)
    value = sliced_wasserstein(x, y, projections=8, seed=1)
    assert sliced_wasserstein(x, y, projections=8, seed=1) == value
    assert sliced_wasserstein(x, y, projections=8, seed=2) != value
    assert sliced_wasserstein(y, x, projections=8, seed=1) == pytest.approx(value, rel=1e-12)
    assert sliced_wasserstein(x.astype(np.float32), y, projections=8, seed=1) == pytest.approx(value, rel=1e-5)
    assert sliced_wasserstein(x, x[::-1]) == 0


def test_a_classifier_cannot_tell_one_distribution_from_itself():
    accuracy = classifier_two_sample(gaussian(500, 2, 0), gaussian(500, 2, 1))
    assert abs(accuracy - 0.5) < 4 * math.sqrt(0.25 / 1000)


def test_a_classifier_tells_two_apart():
    """Including by shape alone: a ring has the moments of a Gaussian, so that no FID-like score sees it."""
    angle = np.random.default_rng(2).uniform(0, 2 * np.pi, 500)
    ring = math.sqrt(2) * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    assert classifier_two_sample(ring, gaussian(700, 2)) > 0.9
    assert fid_like(ring, gaussian(700, 2)) < 0.03


def test_shared_rows_show_below_one_half():
    x = gaussian(150, 2)
    assert classifier_two_sample(x, x) < 0.45


def test_the_classifiers_seed_and_limit(monkeypatch):
    x, y = gaussian(80, 2, 0), gaussian(60, 2, 1) + 0.5
    assert classifier_two_sample(x, y, seed=3) == classifier_two_sample(x, y, seed=3)
    monkeypatch.setattr(two_sample, "_MOST_ROWS", 30)
    few = classifier_two_sample(x, y)
    assert (60 * few) == pytest.approx(round(60 * few))  # a share of 60 rows


def test_real_floor_draws_as_many_rows_of_each():
    seen = []

    def metric(a, b):
        seen.append((a, b))
        return 7.0

    data = np.arange(21.0)[:, None]
    assert real_floor(metric, data, data + 100, size=5) == 7.0
    a, b = seen[0]
    assert len(np.unique(a)) == len(np.unique(b)) == 5
    assert a.min() >= 100 > b.max()


def test_equally_many_rows_of_each():
    sets = [np.arange(n, dtype=float)[:, None] + start for n, start in ((50, 0), (20, 100), (30, 200))]
    parts = equally_many(*sets, seed=3)
    for part, rows in zip(parts, sets, strict=True):
        assert len(np.unique(part)) == 20
        assert np.isin(part, rows).all()
    assert [part.tolist() for part in equally_many(*sets, seed=3)] == [part.tolist() for part in parts]
    assert equally_many(*sets, seed=4)[0].tolist() != parts[0].tolist()


X = gaussian(20, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sliced_wasserstein(X, X[:, :1]), "same columns in samples and data; got 2 and 1"),
        (lambda: sliced_wasserstein(X[:0], X), "at least 1 rows in samples; got 0"),
        (lambda: sliced_wasserstein(X, X, projections=0), "at least 1 projection; got 0"),
        (lambda: sliced_wasserstein(X, np.full((2, 2), np.inf)), "finite numbers in data; got 4"),
        (lambda: classifier_two_sample(X[:9], X), "at least 10 rows in samples; got 9"),
        (lambda: real_floor(fid_like, X, X[:10], size=11), "size from 1 to 10, .*got 11"),
        (lambda: equally_many(X, X, X[:, :1]), "same columns"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
