import numpy as np
import pytest
from scipy import stats

from rectangular_flows.metrics.off_manifold import noisy_log_density


@pytest.mark.parametrize(("ambient", "dim", "seed"), [(2, 1, 0), (5, 2, 1), (7, 6, 2)])
def test_on_a_linear_manifold_it_is_the_density_of_a_gaussian(ambient, dim, seed):
    """x = Az + noise at right angles to A: a Gaussian on R^D, whose density scipy knows."""
    random = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(random.standard_normal((ambient, ambient)))
    along, off = basis[:, :dim], basis[:, dim:]
    scales, variance = random.uniform(0.5, 2, dim), 0.3
    covariance = along * scales**2 @ along.T + variance * off @ off.T
    x = random.multivariate_normal(np.zeros(ambient), covariance, size=20)
    on_manifold = stats.norm.logpdf(x @ along, scale=scales).sum(1)
    error = np.square(x @ off).sum(1)
    found = noisy_log_density(on_manifold, error, variance * (ambient - dim), ambient - dim)
    np.testing.assert_allclose(found, stats.multivariate_normal(np.zeros(ambient), covariance).logpdf(x), rtol=1e-10)


def test_what_is_not_finite_is_outside():
    found = noisy_log_density([0.0, -np.inf, -np.inf], [np.inf, 1.0, np.inf], 1.0, 3)
    np.testing.assert_array_equal(found, [-np.inf] * 3)


def test_without_codimension_there_is_no_noise():
    np.testing.assert_array_equal(noisy_log_density([1.0, 2.0], [0.1, 0.2], 0.0, 0), [1, 2])


@pytest.mark.parametrize(
    ("mean", "codimension", "text"),
    [(0.0, 1, "positive mean_error; got 0"), (np.nan, 1, "got nan"), (1, -1, "≥ 0; got -1")],
)
def test_mistakes_are_told(mean, codimension, text):
    with pytest.raises(ValueError, match=text):
        noisy_log_density([1.0], [1.0], mean, codimension)
