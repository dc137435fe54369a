import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

from rectangular_flows.metrics import frechet
from rectangular_flows.metrics.frechet import fid_like, frechet_distance, moments


def covariance(random, size, rank=None):
    factor = random.standard_normal((size, size if rank is None else rank))
    return factor @ factor.T


def rotation(random, size):
    return np.linalg.qr(random.standard_normal((size, size)))[0]


def test_one_dimension():
    """Two 1-D Gaussians: (μ₁ − μ₂)² + (σ₁ − σ₂)²."""
    assert frechet_distance([1.0], [[4.0]], [-2.0], [[25.0]]) == pytest.approx(9 + 9, rel=1e-14)


def test_commuting_covariances():
    random = np.random.default_rng(0)
    Q = rotation(random, 6)
    a, b = random.uniform(0, 3, 6), random.uniform(0, 3, 6)
    found = frechet_distance(np.zeros(6), (Q * a) @ Q.T, np.zeros(6), (Q * b) @ Q.T)
    assert found == pytest.approx(np.square(np.sqrt(a) - np.sqrt(b)).sum(), rel=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_the_formula_by_matrix_square_root(seed):
    random = np.random.default_rng(seed)
    A, B = covariance(random, 7) + np.eye(7), covariance(random, 7) + np.eye(7)
    m1, m2 = random.standard_normal((2, 7))
    expected = np.square(m1 - m2).sum() + np.trace(A + B - 2 * np.real(scipy.linalg.sqrtm(A @ B)))
    assert frechet_distance(m1, A, m2, B) == pytest.approx(expected, rel=1e-10)


def test_equal_moments_are_at_distance_zero():
    """Not merely to the square root of the precision: 1e-14 of the trace."""
    random = np.random.default_rng(1)
    for rank in (1, 5, 20):
        A = covariance(random, 20, rank)
        assert 0 <= frechet_distance(np.ones(20), A, np.ones(20), A) <= 1e-14 * np.trace(A)


def test_a_small_difference_is_not_lost():
    """(1 − √(1 + 1e-10))² is 2.5e-21; the difference of traces would give 0 or 1e-16."""
    found = frechet_distance([0.0, 0.0], np.eye(2), [0.0, 0.0], (1 + 1e-10) * np.eye(2))
    assert found == pytest.approx(2 * 2.5e-21, rel=1e-4)


def test_rank_deficient_covariances():
    """Along two orthogonal lines (aaᵀ)(bbᵀ) = 0, so all that is left is the traces; along one line, (‖a‖ − ‖b‖)²."""
    a, b = np.array([3.0, 0, 0]), np.array([0, 2.0, 0])
    zero = np.zeros(3)
    assert frechet_distance(zero, np.outer(a, a), zero, np.outer(b, b)) == pytest.approx(9 + 4, rel=1e-12)
    assert frechet_distance(zero, np.outer(a, a), zero, 4 * np.outer(a, a)) == pytest.approx(9, rel=1e-12)
    assert frechet_distance(zero, np.zeros((3, 3)), zero, np.outer(a, a)) == pytest.approx(9, rel=1e-12)


def test_rank_one_in_general():
    """tr (Σ aaᵀ)^½ = √(aᵀΣa)."""
    random = np.random.default_rng(2)
    A, a = covariance(random, 8), random.standard_normal(8)
    expected = np.trace(A) + a @ a - 2 * np.sqrt(a @ A @ a)
    assert frechet_distance(np.zeros(8), A, np.zeros(8), np.outer(a, a)) == pytest.approx(expected, rel=1e-10)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.integers(0, 8), st.floats(1e-6, 1e6))
def test_properties(seed, size, rank, scale):
    random = np.random.default_rng(seed)
    A, B = scale * covariance(random, size), scale * covariance(random, size, min(rank, size))
    m1, m2 = np.sqrt(scale) * random.standard_normal((2, size))
    found = frechet_distance(m1, A, m2, B)
    whole = np.square(m1 - m2).sum() + np.trace(A + B)
    assert 0 <= found <= whole * (1 + 1e-12)
    Q, slack = rotation(random, size), 1e-11 * whole
    assert frechet_distance(m2, B, m1, A) == pytest.approx(found, abs=slack)
    assert frechet_distance(Q @ m1, Q @ A @ Q.T, Q @ m2, Q @ B @ Q.T) == pytest.approx(found, abs=slack)
    assert frechet_distance(3 * m1, 9 * A, 3 * m2, 9 * B) == pytest.approx(9 * found, abs=9 * slack)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 5))
def test_triangle_inequality(seed, size):
    random = np.random.default_rng(seed)
    points = [(random.standard_normal(size), covariance(random, size)) for _ in range(3)]
    a, b, c = (np.sqrt(frechet_distance(*points[i], *points[j])) for i, j in ((0, 1), (1, 2), (0, 2)))
    assert c <= a + b + 1e-9


def test_fid_like_is_the_papers_formula():
    """Squared distance of means, covariances with 1/(n − 1), nothing done to the data."""
    random = np.random.default_rng(3)
    x, y = random.standard_normal((50, 4)) @ random.standard_normal((4, 4)), random.standard_normal((80, 4)) + 1
    A, B = np.cov(x, rowvar=False, ddof=1), np.cov(y, rowvar=False, ddof=1)
    expected = np.square(x.mean(0) - y.mean(0)).sum() + np.trace(A + B - 2 * np.real(scipy.linalg.sqrtm(A @ B)))
    assert fid_like(x, y) == pytest.approx(expected, rel=1e-10)


def test_fewer_points_than_columns():
    random = np.random.default_rng(4)
    x = random.standard_normal((5, 30))
    assert fid_like(x, x[::-1]) == pytest.approx(0, abs=1e-12)
    assert fid_like(x + 2, x) == pytest.approx(4 * 30, rel=1e-10)
    assert fid_like(3 * (x - x.mean(0)), x - x.mean(0)) == pytest.approx(4 * np.var(x, axis=0, ddof=1).sum(), rel=1e-10)


def test_single_precision_points_are_worked_on_in_double():
    random = np.random.default_rng(5)
    x = (random.standard_normal((4000, 3)) + 1000).astype(np.float32)
    y = (random.standard_normal((4000, 3)) + 1000).astype(np.float32)
    assert fid_like(x, y) == pytest.approx(fid_like(x.astype(np.float64), y.astype(np.float64)), rel=1e-12)
    assert 0 < fid_like(x, y) < 0.02


def test_the_floor_between_two_samples_of_one_gaussian():
    """The docstring's (2D + D(D + 1)/2)/n, within 5 % over 200 draws."""
    D, n = 6, 500
    random = np.random.default_rng(6)
    found = np.mean([fid_like(*random.standard_normal((2, n, D))) for _ in range(200)])
    assert found == pytest.approx((2 * D + D * (D + 1) / 2) / n, rel=0.05)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 45), st.floats(-1e6, 1e6))
def test_moments_in_any_chunks(seed, chunk, offset):
    x = np.random.default_rng(seed).standard_normal((40, 3)) + offset
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frechet, "_CHUNK", chunk)
        mean, covariance = moments(x)
    np.testing.assert_allclose(mean, x.mean(0), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(covariance, np.cov(x, rowvar=False), rtol=1e-7, atol=1e-8)


def test_a_large_mean_does_not_cancel(monkeypatch):
    monkeypatch.setattr(frechet, "_CHUNK", 7)
    x = np.random.default_rng(7).standard_normal((3000, 2))
    np.testing.assert_allclose(moments(x + 1e8)[1], np.cov(x, rowvar=False), atol=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fid_like(np.ones(3), np.ones((3, 1))), r"samples of shape \(N, D\); got \(3,\)"),
        (lambda: fid_like(np.ones((1, 2)), np.ones((3, 2))), "at least 2 rows in samples; got 1"),
        (lambda: fid_like(np.ones((3, 2)), np.ones((3, 4))), "same columns in samples and data; got 2 and 4"),
        (lambda: fid_like(np.ones((3, 2)), [[1, 2], [np.nan, 3]]), "finite numbers in data; got 1 that"),
        (lambda: fid_like(np.ones((3, 2)) * 1j, np.ones((3, 2))), "real numbers in samples; got dtype complex128"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
