import math

import pytest
import torch
from scipy import stats

from rectangular_flows import RectangularFlow, flows
from rectangular_flows.metrics.geometry import circle_fit, trace_curve

GRID = torch.linspace(-math.pi, math.pi, 20_001, dtype=torch.float64)
CDF = torch.from_numpy(stats.vonmises(1.0).cdf(GRID.numpy()))


class Arc(flows.Injection):
    """z ↦ the unit circle (or one of another radius) at the angle g(z): a flow whose fit is known."""

    def __init__(self, angle, radius=1.0):
        super().__init__((1,), (2,))
        self.angle, self.radius = angle, radius

    def forward(self, z):
        angle = self.angle(z)
        return self.radius * torch.cat([angle.cos(), angle.sin()], dim=-1)

    def inverse(self, x):
        z = torch.linspace(-6, 6, 100_001, dtype=x.dtype).unsqueeze(1)
        angle = torch.atan2(x[:, 1], x[:, 0])
        ahead = self.angle(z).flatten().contiguous()  # rising in z
        wanted = torch.where(angle < -math.pi / 2, angle + 2 * math.pi, angle)  # the turn around the mode
        return z[torch.searchsorted(ahead, wanted).clamp(max=len(z) - 1)]


def von_mises_quantile(z):
    """The map that turns a Gaussian into the true angles: F⁻¹(Φ(z)), by interpolation."""
    level = torch.special.ndtr(z.double()).clamp(1e-12, 1 - 1e-12)
    right = torch.searchsorted(CDF, level.detach()).clamp(1, len(GRID) - 1)
    left = right - 1
    share = (level - CDF[left]) / (CDF[right] - CDF[left])
    return GRID[left] + share * (GRID[right] - GRID[left]) + math.pi / 2


def flow_of(angle, radius=1.0):
    return RectangularFlow(Arc(angle, radius), flows.Identity(1), pad=flows.Pad(1, 1)).double()


def test_the_true_model_has_no_error():
    fit = circle_fit(flow_of(von_mises_quantile))
    assert fit.kl == pytest.approx(0, abs=1e-4)
    assert fit.sector_kl == pytest.approx(0, abs=1e-4)
    assert fit.total_variation == pytest.approx(0, abs=2e-3)
    assert fit.mass == pytest.approx(1, abs=1e-3)
    assert fit.max_distance < 1e-6
    assert fit.gap <= 2


def test_a_known_wrong_model():
    """A Gaussian angle of deviation 0.8 on a circle of radius 1.1: divergence and distance by quadrature."""
    fit = circle_fit(flow_of(lambda z: 0.8 * z + math.pi / 2, 1.1))
    theta = torch.linspace(-math.pi, math.pi, 200_001, dtype=torch.float64)
    true = torch.from_numpy(stats.vonmises(1.0).pdf(theta.numpy()))
    model = sum(torch.from_numpy(stats.norm(2 * math.pi * k, 0.8).pdf(theta.numpy())) for k in range(-1, 2))
    step = theta[1] - theta[0]
    assert fit.sector_kl == pytest.approx(float((true * (true / model).log()).sum() * step), rel=0.01)
    single = torch.from_numpy(stats.norm(0, 0.8).logpdf(theta.numpy()))[1:].log_softmax(0)  # one branch of the curve
    assert fit.kl == pytest.approx(float((true[1:] * step * ((true[1:] * step).log() - single)).sum()), rel=0.01)
    assert fit.total_variation == pytest.approx(float(0.5 * (true - model).abs().sum() * step), rel=0.01)
    assert fit.mean_distance == pytest.approx(0.1, rel=1e-3)
    assert fit.speed_spread == pytest.approx(0, abs=1e-6)
    assert fit.mass == pytest.approx(1, abs=1e-3)


def test_an_unreached_sector_is_an_infinite_divergence():
    assert circle_fit(flow_of(lambda z: torch.tanh(z) + math.pi / 2)).sector_kl == math.inf


def test_curves_only():
    with pytest.raises(ValueError, match="latent dimension 1; got 2"):
        trace_curve(RectangularFlow(flows.RealNVP(3), flows.Identity(2)))
