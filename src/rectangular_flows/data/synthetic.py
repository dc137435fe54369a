r"""Data with a known manifold and a known density on it.

The von Mises density on the unit circle, :math:`p(\theta) = e^{\kappa\cos(\theta - \mu)} / (2\pi I_0(\kappa))`, is the
paper's first experiment: κ = 1, centred at μ = π/2.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from .datasets import Dataset, Splits


def von_mises_circle(
    count: int, *, seed: int, kappa: float = 1.0, centre: float = math.pi / 2, radius_noise: float = 0.0
) -> Tensor:
    """Points of the unit circle with von Mises distributed angle, (count, 2), float32.

    Args:
        count: how many.
        seed: of the generator; the same seed gives the same points.
        kappa: concentration.
        centre: the angle of the mode.
        radius_noise: standard deviation of the radius (0 in the paper; 0.01 in the manifold-flow code).

    Example:
        >>> x = von_mises_circle(1000, seed=0)
        >>> bool(((x.square().sum(1) - 1).abs() < 1e-6).all())
        True
    """
    random = np.random.default_rng(seed)
    angle = random.vonmises(centre, kappa, count)
    radius = 1 + radius_noise * random.standard_normal(count)
    points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return torch.from_numpy(points.astype(np.float32))


def von_mises_log_density(angle: Tensor, kappa: float = 1.0, centre: float = math.pi / 2) -> Tensor:
    """log p(θ) with respect to arc length on the unit circle."""
    kappa_tensor = torch.as_tensor(kappa, dtype=angle.dtype, device=angle.device)
    return kappa * torch.cos(angle - centre) - math.log(2 * math.pi) - torch.log(torch.special.i0(kappa_tensor))


def load_circle(entry: Dataset, root: Path, *, seed: int = 0, radius_noise: float = 0.0) -> Splits:
    """The paper's circle: three parts of the sizes that the entry states, each from a seed of its own."""
    train, validation, test = (
        von_mises_circle(count, seed=seed + 10_000 * i, radius_noise=radius_noise).numpy()
        for i, count in enumerate(entry.rows)
    )
    note = "von Mises on the unit circle, κ = 1, centred at π/2"
    return Splits(entry.name, train, validation, test, ("x", "y"), note)
