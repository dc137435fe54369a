"""A density of all of R^D out of one on the manifold: noise off it."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from .out_of_distribution import Array, _pair


def noisy_log_density(
    log_density: ArrayLike, reconstruction_error: ArrayLike, mean_error: float, codimension: int
) -> Array:
    r"""The log-density of points near the manifold, if data are points of it with Gaussian noise at right angles to it.

    .. math::
        \log p(\hat x) - \frac{D - d}{2}\Bigl(\frac{e}{\bar e} + \log\frac{2\pi\bar e}{D - d}\Bigr),
        \qquad e = \|x - \hat x\|^2,

    the noise having the variance ē/(D − d) in each of D − d directions, which makes the mean squared distance ē what it is.
    One score that falls with the distance and rises with the density, with nothing to weigh them by but ē. To first order
    in the curvature of the manifold; exact for a linear one.

    Args:
        log_density: log p(x̂) on the manifold, (N,).
        reconstruction_error: e, (N,), in the units of the density.
        mean_error: ē, of held-out in-distribution data.
        codimension: D − d; with 0 the density is left as it is.

    Example:
        >>> noisy_log_density([-1.0, -1.0], [0.0, 2.0], mean_error=1.0, codimension=2).round(4).tolist()
        [-2.1447, -4.1447]
    """
    if codimension < 0:
        raise ValueError(f"expected a codimension ≥ 0; got {codimension}")
    density, error = _pair(log_density, reconstruction_error)
    if codimension == 0:
        return density
    if not (mean_error > 0 and math.isfinite(mean_error)):
        raise ValueError(f"expected a positive mean_error; got {mean_error}")
    found: Array = density - codimension / 2 * (error / mean_error + np.log(2 * np.pi * mean_error / codimension))
    return found


__all__ = ["noisy_log_density"]
