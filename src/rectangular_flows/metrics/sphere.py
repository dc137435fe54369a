r"""Densities on the unit sphere, per steradian: the learned one and others.

A flow's surface is near the sphere, not on it, and its density is one of the surface. What is compared here is
:math:`q(x) = p(\hat x)/\int_{S^2} p(\hat x)`, a density on the sphere, with the integral by quadrature.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import logsumexp
from torch import Tensor

from ..atlas import Model
from ..densities.kernels import KernelDensity
from ..errors import check_finite

Array = npt.NDArray[Any]

_QUADRATURE = 5_000  # points spread over the sphere, and as many where the data are
_WIDTH = 1e-3  # radians, of the narrowest kernels by which the latter are drawn
_CONCENTRATIONS = np.geomspace(1.0, 1e5, 31)
_AT_ONCE = 2_000  # rows
_MOST_ENTRIES = 2**22  # of one block of the matrix of cosines


@dataclass(frozen=True)
class SphereFit:
    """How good a density on the sphere is."""

    log_density: float
    """Mean over the test rows, per steradian, of the learned density divided by its mass."""
    kernel_log_density: float
    """That of a von Mises–Fisher kernel density estimate."""
    uniform_log_density: float
    """That of the uniform density, −log 4π."""
    kernel_degrees: float
    """The width of the kernels, 1/√κ in degrees, chosen on the validation rows."""
    mass: float
    """The integral of the learned density over the sphere; 1 if the surface is the sphere, more where points of different
    places share their projection, less where the surface leaves the sphere."""
    sample_distance: float
    """Mean distance of samples to the sphere, |radius − 1|."""


@torch.no_grad()
def sphere_fit(flow: Model, train: Tensor, validation: Tensor, test: Tensor, samples: Tensor) -> SphereFit:
    """Compare a flow with kernels on the training rows, whose width the validation rows choose, on the test rows."""
    mass = sphere_mass(flow, train)
    rows, checks, held_out = (part.double().numpy() for part in (train, validation, test))
    concentration = choose_concentration(rows, checks)
    return SphereFit(
        log_density=float(flow.log_prob(test).double().mean()) - math.log(mass),
        kernel_log_density=float(kernel_log_density(rows, held_out, concentration).mean()),
        uniform_log_density=-math.log(4 * math.pi),
        kernel_degrees=math.degrees(concentration**-0.5),
        mass=mass,
        sample_distance=float((samples.double().norm(dim=1) - 1).abs().mean()),
    )


@torch.no_grad()
def sphere_mass(flow: Model, train: Tensor) -> float:
    """The integral of a flow's density over the sphere.

    Half of the points are spread evenly and half drawn from kernels around the training rows, and each counts by one over
    the density of both together: a grid alone would miss narrow peaks.
    """
    kernels = KernelDensity("sphere", len(train), _WIDTH).double()
    kernels.initialise(train.double().cpu())
    drawn = kernels.sample(_QUADRATURE, torch.Generator().manual_seed(0))
    points = torch.cat([torch.from_numpy(spread_points(_QUADRATURE)), drawn])
    density = torch.cat([flow.log_prob(part.to(train), check=False) for part in points.split(_AT_ONCE)]).double().cpu()
    check_finite(density.exp(), "density on the sphere", "The surface degenerates between the data: use float64.")
    both = torch.logaddexp(kernels.log_prob(points), torch.tensor(-math.log(4 * math.pi)).double()) - math.log(2)
    return float((density - both).exp().mean())


def spread_points(count: int) -> Array:
    """Points spread evenly over the sphere, on a Fibonacci spiral, (count, 3): 4π times a mean over them is an integral."""
    i = np.arange(count)
    z = 1 - (2 * i + 1) / count
    angle = i * math.pi * (3 - math.sqrt(5))
    return np.stack([np.sqrt(1 - z**2) * np.cos(angle), np.sqrt(1 - z**2) * np.sin(angle), z], axis=1)


def kernel_log_density(centres: Array, points: Array, concentration: float) -> Array:
    r"""Log-density per steradian of the mean of von Mises–Fisher densities of one concentration κ.

    .. math:: \log \frac1N \sum_n \frac{\kappa}{2\pi(1 - e^{-2\kappa})} e^{\kappa(\mu_n\cdot x - 1)} .

    Centres μ (N, 3) and points x (M, 3) are unit vectors.
    """
    factor = math.log(concentration / (2 * math.pi)) - math.log1p(-math.exp(-2 * concentration))
    step = max(1, _MOST_ENTRIES // len(centres))
    blocks = [points[i : i + step] for i in range(0, len(points), step)]
    parts = [logsumexp(concentration * (block @ centres.T - 1), axis=1) for block in blocks]
    return np.concatenate(parts) + factor - math.log(len(centres))


def choose_concentration(centres: Array, validation: Array) -> float:
    """The κ between 1 and 10⁵ (widths of 57 to 0.2 degrees) under which the validation rows are likeliest."""
    means = [float(kernel_log_density(centres, validation, float(k)).mean()) for k in _CONCENTRATIONS]
    return float(_CONCENTRATIONS[int(np.argmax(means))])
