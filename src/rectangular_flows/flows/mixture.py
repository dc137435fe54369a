r"""A mixture of Gaussians as the density on the latent space.

.. math:: p_h(z) = \sum_{k=1}^K w_k \, \mathcal N\bigl(z;\ \mu_k, (A_k^\top A_k)^{-1}\bigr),

with every A lower triangular. The plainest density that is not Gaussian, and hard to overfit: with a few thousand rows in
many dimensions it generalises where flows do not.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn

from .adapters import Density, draw_normal, standard_normal_log_prob
from .injection import as_shape

_LEAST_VARIANCE = 1e-3  # of a component, in units of the variance of its coordinate, where it starts
_ITERATIONS = 100


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
        if components < 1:
            raise ValueError(f"expected at least one component; got {components}")
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
        chosen = torch.multinomial(weights, count, replacement=True, generator=generator).to(self.means.device)
        u = draw_normal((count, self.features), self.means, generator)
        z = torch.empty_like(u)
        for k, factor in enumerate(self.factors()):
            mine = chosen == k
            z[mine] = self.means[k] + torch.linalg.solve_triangular(factor, u[mine].mT, upper=False).mT
        return z

    @torch.no_grad()
    def initialise(self, z: Tensor) -> None:
        """Components by the EM algorithm, in float64; of fewer points than 2K nothing is learnt but mean and covariance."""
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.mixture import GaussianMixture

        rows = z.detach().cpu().double()
        deviation = rows.std(dim=0).clamp_min(torch.finfo(z.dtype).tiny)
        known = self.components if len(rows) >= 2 * self.components else 1
        model = GaussianMixture(known, reg_covar=_LEAST_VARIANCE, max_iter=_ITERATIONS, random_state=self.seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # it is where training starts
            model.fit((rows / deviation).numpy())

        def spread(values: Tensor) -> Tensor:
            return values.expand(self.components, *values.shape[1:]).to(self.means)

        # scikit-learn's factor U of the precision UUᵀ is upper triangular
        factors = torch.from_numpy(model.precisions_cholesky_).mT / deviation
        self.logits.copy_(spread(torch.from_numpy(model.weights_).log()))
        self.means.copy_(spread(torch.from_numpy(model.means_) * deviation))
        self.lower.copy_(spread(factors.tril(-1)))
        self.log_diagonal.copy_(spread(factors.diagonal(dim1=-2, dim2=-1).log()))


__all__ = ["MixtureDensity"]
