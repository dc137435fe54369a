r"""The fit against a known truth: a learned curve and its density beside the von Mises density on the unit circle."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..data.synthetic import von_mises_log_density
from ..manifold import RectangularFlow

_SECTORS = 360


@dataclass(frozen=True)
class CircleFit:
    """How a learned curve compares with the von Mises density on the unit circle."""

    kl: float
    """KL(true ‖ model) of densities on the circle: p_model(θ) ∝ what ``log_prob`` gives at the circle's points."""
    sector_kl: float
    """KL(true ‖ model) of the probabilities of sectors, for the curve's points wherever they lie; infinite if the curve
    misses a sector, as an open arc may where it cannot close."""
    total_variation: float
    """Of the probabilities of sectors."""
    mass: float
    """∫ p ds along the curve, by arc length of its points: 1 if density and volume are right."""
    mean_distance: float
    """Mean distance of the curve to the circle under the model."""
    max_distance: float
    """The largest distance over the central 99 % of the model's mass; over all of a curve that closes."""
    speed_spread: float
    """Standard deviation over mean of ‖f′(z)‖ under the model."""
    gap: float
    """Angle, in degrees, that the central 99.9 % of the curve leaves open; all of a curve that closes."""


@dataclass(frozen=True)
class Curve:
    """A learned curve on a fine grid of its coordinate."""

    z: Tensor
    points: Tensor
    density: Tensor
    speed: Tensor
    probability: Tensor
    """Of each cell between neighbouring points; they number one less than the points."""


@torch.no_grad()
def trace_curve(flow: RectangularFlow, count: int = 40_001, tail: float = 1e-6) -> Curve:
    """The curve z ↦ f(z) of a flow with d = 1: all of one that closes, else between quantiles ``tail`` and 1 − ``tail``."""
    if flow.latent_dim != 1:
        raise ValueError(f"expected a flow with latent dimension 1; got {flow.latent_dim}")
    low, high = -math.pi, math.pi
    if flow.latent.space.flat:
        low, high = _quantiles(flow, torch.tensor([tail, 1 - tail], dtype=torch.float64)).tolist()
    z = torch.linspace(low, high, count, dtype=torch.float64)
    flow64 = _in_double(flow)
    points = flow64.decode(z.unsqueeze(1))
    L = flow64.log_volume(z.unsqueeze(1))
    latent = flow64.latent.log_prob(z.unsqueeze(1)).exp()
    probability = (z[1] - z[0]) * (latent[1:] + latent[:-1]) / 2
    return Curve(z, points, latent / L.exp(), L.exp(), probability)


@torch.no_grad()
def circle_fit(flow: RectangularFlow) -> CircleFit:
    """Compare a flow with d = 1 and D = 2 with the von Mises density, κ = 1 around π/2, by quadrature.

    ``kl`` asks what density the model assigns to points of the circle; ``sector_kl`` and ``total_variation`` ask where its
    samples go, by the probabilities of 360 equal sectors, and are the stricter ones.
    """
    curve = trace_curve(flow, 100_001)
    middle = (curve.points[1:] + curve.points[:-1]) / 2
    angle = torch.atan2(middle[:, 1], middle[:, 0])
    sector = ((angle + math.pi) / (2 * math.pi) * _SECTORS).floor().clamp(0, _SECTORS - 1).long()
    model = torch.zeros(_SECTORS, dtype=torch.float64).index_add(0, sector, curve.probability)
    fine = torch.linspace(-math.pi, math.pi, 100 * _SECTORS + 1, dtype=torch.float64)
    true = von_mises_log_density((fine[1:] + fine[:-1]) / 2).exp().view(_SECTORS, 100).sum(1)
    true = true / true.sum()
    centres = (fine[1:] + fine[:-1])[::10] / 2
    on_circle = torch.stack([centres.cos(), centres.sin()], dim=1)
    model_log = _in_double(flow).log_prob(on_circle, check=False).log_softmax(0)
    true_log = von_mises_log_density(centres).log_softmax(0)
    distance = (middle.norm(dim=1) - 1).abs()
    cumulative = curve.probability.cumsum(0) / curve.probability.sum()
    closed = not flow.latent.space.flat
    central = (cumulative > 0.005) & (cumulative < 0.995) | closed
    wide = (cumulative > 0.0005) & (cumulative < 0.9995) | closed
    length = (curve.points[1:] - curve.points[:-1]).norm(dim=1)
    weight = curve.probability / curve.probability.sum()
    speed = (curve.speed[1:] + curve.speed[:-1]) / 2
    mean_speed = (weight * speed).sum()
    turned = torch.unique((angle[wide] * 180 / math.pi).floor())
    return CircleFit(
        kl=float((true_log.exp() * (true_log - model_log)).sum()),
        sector_kl=float((true * (true / (model / model.sum())).log()).sum()),
        total_variation=float(0.5 * (true - model / model.sum()).abs().sum()),
        mass=float((length * (curve.density[1:] + curve.density[:-1]) / 2).sum()),
        mean_distance=float((weight * distance).sum()),
        max_distance=float(distance[central].max()),
        speed_spread=float(((weight * (speed - mean_speed).square()).sum()).sqrt() / mean_speed),
        gap=float(360 - len(turned)),
    )


def _quantiles(flow: RectangularFlow, levels: Tensor) -> Tensor:
    """Of the latent density, d = 1, by quadrature on a wide grid."""
    draws = flow.latent.sample(4096, torch.Generator().manual_seed(0)).double().flatten()
    middle, reach = draws.mean(), 12 * draws.std()
    z = torch.linspace(float(middle - reach), float(middle + reach), 200_001, dtype=torch.float64)
    density = _in_double(flow).latent.log_prob(z.unsqueeze(1)).exp()
    cumulative = density.cumsum(0) / density.sum()
    return z[torch.searchsorted(cumulative, levels).clamp(max=len(z) - 1)]


def _in_double(flow: RectangularFlow) -> RectangularFlow:
    return copy.deepcopy(flow).double().cpu()
