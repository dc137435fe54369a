"""Regions of highest density and integral transforms, of models whose calibration is known by quadrature."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats

from rectangular_flows.data.truths import Circle, SwissRoll
from rectangular_flows.metrics.coverage import LEVELS, coverage, levels, truth_of, uniform_distance


def circle_model(kappa, turned=0.0):
    """A von Mises density on the circle, of another concentration or centre than the truth's."""
    law, centre = stats.vonmises(kappa), np.pi / 2 + turned

    def log_prob(x, check=True):
        return torch.from_numpy(law.logpdf(x[:, 1].atan2(x[:, 0]).numpy() - centre))

    def sample(count, generator):
        angle = law.rvs(count, random_state=generator.initial_seed()) + centre
        return torch.from_numpy(np.stack([np.cos(angle), np.sin(angle)], axis=1))

    return SimpleNamespace(log_prob=log_prob, sample=sample, latent_dim=1)


def points(truth, count=20_000):
    return torch.from_numpy(truth.place(truth.draw(count, np.random.default_rng(5))))


@pytest.mark.parametrize("kappa", [0.3, 1.0, 4.0])
def test_shares_are_what_the_truth_gives_the_models_regions(kappa):
    """The region of a von Mises density at level α is an interval around its centre; κ = 4 is too sure, 0.3 not enough."""
    found = coverage(circle_model(kappa), Circle(), points(Circle()))
    for level in LEVELS:
        half = stats.vonmises(kappa).ppf(0.5 + level / 2)
        expected = 2 * stats.vonmises(1.0).cdf(half) - 1
        assert found.share(level) == pytest.approx(expected, abs=0.012)
        assert found.true_share(level) == pytest.approx(level, abs=0.012)
        assert found.standard_error(level) == pytest.approx(np.sqrt(level * (1 - level) / 20_000))
    assert (abs(found.share(0.5) - 0.5) < 0.012) == (kappa == 1)
    np.testing.assert_allclose(found.distances, 0, atol=1e-12)


def test_transforms_tell_where_samples_fall():
    """A density turned by 0.5: its largest deviation from uniform is that of the distribution functions."""
    found = coverage(circle_model(1.0, turned=0.5), Circle(), points(Circle()))
    angle = np.linspace(-np.pi, np.pi, 10_001)
    truth = stats.vonmises(1.0).cdf(angle)
    turned = np.searchsorted(
        np.sort((stats.vonmises(1.0).rvs(200_000, random_state=0) + 3.6416) % 6.2832 - 3.1416), angle
    )
    expected = np.abs(turned / 200_000 - truth).max()
    assert uniform_distance(found.uniforms[:, 0]) == pytest.approx(expected, abs=0.015)
    assert expected > 0.1
    assert uniform_distance(found.true_uniforms[:, 0]) < 0.015
    assert found.share(0.9) < 0.9  # the regions are elsewhere


def test_a_point_that_overflows_is_in_no_region():
    draws = np.random.default_rng(0).normal(size=1000)
    assert levels(np.array([-np.inf, np.inf]), draws).tolist() == [1.0, 0.0]
    assert levels(np.array([np.median(draws)]), draws)[0] == pytest.approx(0.5, abs=0.002)


def test_distance_from_uniform_against_scipy():
    values = np.random.default_rng(0).beta(2, 2, 500)
    assert uniform_distance(values) == pytest.approx(stats.kstest(values, "uniform").statistic, abs=1e-12)


def test_the_truth_is_that_of_the_data_set():
    flow = SimpleNamespace(latent_dim=2)
    assert isinstance(truth_of("swiss-roll", flow), SwissRoll)
    assert truth_of("SWISS-ROLL", flow) is not None
    assert [truth_of(source, flow) for source in ("circle", "power", "./torus", "x.csv", None)] == [None] * 5
