import math

import pytest
import torch
from scipy import stats

from rectangular_flows.data import von_mises_circle, von_mises_log_density


def test_points_follow_the_von_mises_law():
    x = von_mises_circle(20_000, seed=3).double()
    torch.testing.assert_close(x.norm(dim=1), torch.ones(20_000, dtype=torch.float64), rtol=0, atol=1e-6)
    angle = torch.atan2(x[:, 1], x[:, 0]).numpy()
    shifted = (angle - math.pi / 2 + math.pi) % (2 * math.pi) - math.pi
    assert stats.kstest(shifted, stats.vonmises(1.0).cdf).pvalue > 1e-3


def test_density_against_scipy():
    angle = torch.linspace(-3, 3, 7, dtype=torch.float64)
    expected = stats.vonmises(2.0, loc=0.5).logpdf(angle.numpy())
    torch.testing.assert_close(von_mises_log_density(angle, 2.0, 0.5), torch.from_numpy(expected))


def test_seed_and_radius_noise():
    assert torch.equal(von_mises_circle(5, seed=1), von_mises_circle(5, seed=1))
    noisy = von_mises_circle(50_000, seed=1, radius_noise=0.01)
    assert float(noisy.norm(dim=1).std()) == pytest.approx(0.01, rel=0.05)
