"""Known truths: densities and integral transforms against derivatives, nearest points against all points."""

import numpy as np
import pytest
from scipy.spatial import cKDTree

from rectangular_flows.data import DATASETS, find_dataset, von_mises_circle, von_mises_log_density
from rectangular_flows.data.truths import load_truth

KNOWN = {name: entry.known_truth() for name, entry in DATASETS.items() if entry.truth}
truths = pytest.mark.parametrize("truth", list(KNOWN.values()), ids=list(KNOWN))


def derivative(function, theta, step=1e-5):
    """∂ function / ∂ θ, (N, values, d), by central differences."""
    columns = []
    for i in range(theta.shape[1]):
        shift = np.zeros(theta.shape[1])
        shift[i] = step
        columns.append((function(theta + shift) - function(theta - shift)) / (2 * step))
    return np.stack(columns, axis=2)


def test_four_truths_are_known():
    assert set(KNOWN) == {"circle", "sphere", "torus", "swiss-roll"}
    assert DATASETS["power"].known_truth() is None
    with pytest.raises(ValueError, match="known truth; got 'power'"):
        load_truth(DATASETS["power"], None)


@truths
def test_the_density_is_that_of_the_transforms(truth):
    """p(x) √det JᵀJ is the density of the coordinates, |det ∂u/∂θ|: two formulas, and derivatives of other functions."""
    theta = truth.draw(300, np.random.default_rng(0))
    J = derivative(truth.place, theta)
    volume = 0.5 * np.linalg.slogdet(np.swapaxes(J, 1, 2) @ J)[1]
    transforms = derivative(lambda moved: truth.uniforms(truth.place(moved)), theta)
    expected = np.linalg.slogdet(transforms)[1]
    fine = np.abs(transforms).max(axis=(1, 2)) < 100  # not across a cut
    assert fine.mean() > 0.99
    np.testing.assert_allclose((truth.log_density(truth.place(theta)) + volume)[fine], expected[fine], atol=2e-4)


@truths
def test_draws_have_uniform_and_independent_transforms(truth):
    u = truth.uniforms(truth.place(truth.draw(40_000, np.random.default_rng(1))))
    assert u.shape == (40_000, truth.latent_dim)
    assert 0 <= u.min() <= u.max() <= 1
    counts = np.histogramdd(u, [np.linspace(0, 1, 5)] * truth.latent_dim)[0]
    np.testing.assert_allclose(counts / counts.mean(), 1, atol=0.1)


@truths
def test_nearest_points(truth):
    random = np.random.default_rng(2)
    on = truth.place(truth.draw(100_000, random))
    np.testing.assert_allclose(truth.place(truth.find(on[:500])), on[:500], atol=1e-9)
    x = on[:500] + 0.1 * random.standard_normal((500, on.shape[1]))
    nearest = cKDTree(on).query(x)[0]
    distance, theta = truth.distance(x), truth.find(x)
    assert (distance <= nearest + 1e-9).all()
    across = (x - truth.place(theta))[:, None] @ derivative(truth.place, theta)  # at right angles to the manifold
    assert np.quantile(np.abs(across), 0.99) < 1e-5  # but at the ends of the roll


def test_the_circle_is_the_one_that_is_drawn():
    truth = KNOWN["circle"]
    x = von_mises_circle(20_000, seed=0).double()
    angle = x[:, 1].atan2(x[:, 0])
    np.testing.assert_allclose(truth.log_density(x.numpy()), von_mises_log_density(angle), rtol=1e-6)
    counts = np.histogram(truth.uniforms(x.numpy()), 10, (0, 1))[0]
    np.testing.assert_allclose(counts / 2000, 1, atol=0.1)


def test_parts_differ_and_seeds_count():
    entry = find_dataset("torus")
    first, again, other = (entry.load(seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.test, again.test)
    assert not np.isclose(first.test[:50], other.test[:50]).any()
    assert not np.isclose(first.test[:50], first.train[:50]).any()
    assert first.columns == ("x", "y", "z")
    assert first.note == KNOWN["torus"].text
