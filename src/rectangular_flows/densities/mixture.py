r"""A mixture of Gaussians as the density on the latent space.

.. math:: p_h(z) = \sum_{k=1}^K w_k \, \mathcal N\bigl(z;\ \mu_k, (A_k^\top A_k)^{-1}\bigr),

with every A lower triangular. The plainest density that is not Gaussian: with a few thousand rows in many dimensions it
generalises where flows overfit.
"""

from __future__ import annotations

import warnings

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import RankDeficientError, check_finite, warn
from ..flows.injection import as_shape
from .base import Density, draw_normal, standard_normal_log_prob

_LEAST_VARIANCE = 1e-3  # of a component, in units of the variance of its coordinate, where it starts
_LEAST_POINTS = 5  # for each component and dimension, where it starts
_ITERATIONS = 100
_FAR = 10.0  # times the spread of most points; a larger standard deviation comes from a few far ones


class FewerComponentsWarning(UserWarning):
    """There are too few points for all components of a mixture: some start as one and the same."""


class MixtureDensity(Density):
    """A mixture of K Gaussians with full covariances.

    It starts as a standard Gaussian, components and all, and takes its values from data by ``initialise``, which runs
    the EM algorithm. Where that ends, mean and covariance of the mixture are those of the data.

    Args:
        features: d.
        components: K.
        seed: of the start of EM.

    Cost: K triangular products a row, O(K d²).

    Reference:
        Dempster, Laird, Rubin, *Maximum likelihood from incomplete data via the EM algorithm*, 1977.

    Example:
        >>> h = MixtureDensity(2, components=3)
        >>> h.log_prob(torch.zeros(1, 2)), h.sample(5).shape
        (tensor([-1.8379], grad_fn=<LogsumexpBackward0>), torch.Size([5, 2]))
    """

    def __init__(self, features: int, components: int = 8, seed: int = 0):
        super().__init__()
        as_shape(features)
        if components != int(components) or components < 1:
            raise ValueError(f"expected a whole number of components, at least one; got {components}")
        self.features, self.components, self.seed = features, components, seed
        self.logits = nn.Parameter(torch.zeros(components))
        self.means = nn.Parameter(torch.zeros(components, features))
        self.lower = nn.Parameter(torch.zeros(components, features, features))
        self.log_diagonal = nn.Parameter(torch.zeros(components, features))

    def factors(self) -> Tensor:
        """The triangular A of every component, (K, d, d)."""
        return self.lower.tril(-1) + torch.diag_embed(self.log_diagonal.exp())

    def log_prob(self, z: Tensor) -> Tensor:
        u = torch.einsum("kij,bkj->bki", self.factors(), z[:, None] - self.means)
        parts = standard_normal_log_prob(u) + self.log_diagonal.sum(dim=-1)
        return torch.logsumexp(parts + self.logits.log_softmax(dim=0), dim=1)

    def sample(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        device = self.means.device if generator is None else generator.device
        weights = self.logits.softmax(dim=0).to(device)
        chosen = torch.multinomial(weights, max(count, 1), replacement=True, generator=generator)[:count]
        chosen = chosen.to(self.means.device)
        u = draw_normal((count, self.features), self.means, generator)
        z = torch.empty_like(u)
        for k, factor in enumerate(self.factors()):
            mine = chosen == k
            z[mine] = self.means[k] + torch.linalg.solve_triangular(factor, u[mine].mT, upper=False).mT
        return z

    @torch.no_grad()
    def initialise(self, z: Tensor) -> None:
        """Components by the EM algorithm, in float64; as many as the points allow, with a warning where they are fewer.

        Raises:
            RankDeficientError: some coordinate is constant.
        """
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.mixture import GaussianMixture

        rows = z.detach().cpu().double()
        check_finite(
            rows,
            "The coordinates that a mixture starts from",
            "Check the data, and train the manifold at a lower learning rate.",
        )
        deviation, mean = rows.std(dim=0, correction=0), rows.mean(dim=0)
        constant = deviation <= torch.finfo(z.dtype).eps * mean.abs().clamp_min(float(deviation.max()))
        if bool(constant.any()):
            raise RankDeficientError(
                f"{int(constant.sum())} of {self.features} coordinates of the {len(rows)} points that a mixture starts from "
                "are constant. Give more points, or a smaller latent dimension."
            )
        most = max(1, len(rows) // (_LEAST_POINTS * (self.features + 1)))
        known = min(self.components, most)
        if known < self.components:
            warn(
                FewerComponentsWarning,
                f"{len(rows)} points in {self.features} dimensions are too few for a mixture of {self.components}: it "
                f"starts as one of {known}. Ask for fewer components (--latent-components {known}) to avoid this warning.",
            )
        scale = _scale(rows, deviation)
        model = GaussianMixture(known, reg_covar=_LEAST_VARIANCE, max_iter=_ITERATIONS, random_state=self.seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # it is where training starts
            model.fit(((rows - mean) / scale).numpy())

        same = torch.arange(self.components) % known  # which of them each component is

        def spread(values: Tensor) -> Tensor:
            return values[same].to(self.means)

        # scikit-learn's factor U of the precision UUᵀ is upper triangular
        factors = torch.from_numpy(model.precisions_cholesky_).mT / scale
        self.logits.copy_(spread(torch.from_numpy(model.weights_).log()) - same.bincount()[same].log().to(self.means))
        self.means.copy_(spread(mean + torch.from_numpy(model.means_) * scale))
        self.lower.copy_(spread(factors.tril(-1)))
        self.log_diagonal.copy_(spread(factors.diagonal(dim1=-2, dim2=-1).log()))


def _scale(rows: Tensor, deviation: Tensor) -> Tensor:
    """Of each coordinate: its standard deviation, or half the span of two thirds if a few points far out inflate that."""
    low, high = torch.from_numpy(np.quantile(rows.numpy(), [0.16, 0.84], axis=0))
    most = (high - low) / 2
    return torch.where((most > 0) & (deviation > _FAR * most), most, deviation)
