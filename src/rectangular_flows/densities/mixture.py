r"""A mixture of Gaussians as the density on the latent space.

.. math:: p_h(z) = \sum_{k=1}^K w_k \, \mathcal N\bigl(z;\ \mu_k, (A_k^\top A_k)^{-1}\bigr),

with every A lower triangular. The plainest density that is not Gaussian: with a few thousand rows in many dimensions it
generalises where flows overfit.
"""

from __future__ import annotations

import math
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import RankDeficientError, check_finite, warn
from ..flows.injection import as_shape
from .base import Density, draw_normal, standard_normal_log_prob

_LEAST_VARIANCE = 1e-3  # of a component, in units of the variance of its coordinate, where it starts
_LEAST_POINTS = 5  # for each component and dimension, where it starts
_ITERATIONS = 100
_FITTED_ROWS, _EM_ROUNDS = 5_000, 50
_MOST_COMPONENTS = 32
_FLOORS = (1e-4, 1e-2, 1e-1)  # of the variance of a component, in whitened units; of many rows only the first
_MANY = 2_000
_WHITE = 1.0  # the floor of one Gaussian that is white in these units, not fitted
_PATIENCE = 0.05  # nats below the best at which more components are still tried
_FAR = 10.0  # times the spread of most points; a larger standard deviation comes from a few far ones


class FewerComponentsWarning(UserWarning):
    """There are too few points for all components of a mixture: some start as one and the same."""


def most_components(points: int, dimension: int) -> int:
    """As many as so many points in so many dimensions can start, at least one.

    Example:
        >>> most_components(90, 2), most_components(3, 2)
        (6, 1)
    """
    return max(1, points // (_LEAST_POINTS * (dimension + 1)))


class MixtureDensity(Density):
    """A mixture of K Gaussians with full covariances.

    It starts as a standard Gaussian, components and all, and takes its values from data by ``initialise``, which runs
    the EM algorithm. Where that ends, mean and covariance of the mixture are those of the data.

    Args:
        features: d.
        components: K.
        seed: of the start of EM.
        floor: of the variance of a component where it starts, in units of the variance of its coordinate.

    Cost: K triangular products a row, O(K d²).

    Reference:
        Dempster, Laird, Rubin, *Maximum likelihood from incomplete data via the EM algorithm*, 1977.

    Example:
        >>> h = MixtureDensity(2, components=3)
        >>> h.log_prob(torch.zeros(1, 2)), h.sample(5).shape
        (tensor([-1.8379], grad_fn=<LogsumexpBackward0>), torch.Size([5, 2]))
    """

    def __init__(self, features: int, components: int = 8, seed: int = 0, floor: float = _LEAST_VARIANCE):
        super().__init__()
        as_shape(features)
        if components != int(components) or components < 1:
            raise ValueError(f"expected a whole number of components, at least one; got {components}")
        self.features, self.components, self.seed, self.floor = features, components, seed, floor
        self.logits = nn.Parameter(torch.zeros(components))
        self.means = nn.Parameter(torch.zeros(components, features))
        self.lower = nn.Parameter(torch.zeros(components, features, features))
        self.log_diagonal = nn.Parameter(torch.zeros(components, features))

    def factors(self) -> Tensor:
        """The triangular A of every component, (K, d, d)."""
        return self.lower.tril(-1) + torch.diag_embed(self.log_diagonal.exp())

    def log_prob(self, z: Tensor) -> Tensor:
        """log p(z), (B, d) → (B,); of the first m coordinates alone, (B, m) → (B,), by their marginal density.

        A is triangular, so that the marginal density of the first coordinates has the leading block of A for its factor.
        """
        return torch.logsumexp(self._parts(z), dim=1)

    def _parts(self, z: Tensor) -> Tensor:
        """Log-density of every component times its weight, (B, m) → (B, K)."""
        m = z.shape[1]
        u = torch.einsum("kij,bkj->bki", self.factors()[:, :m, :m], z[:, None] - self.means[:, :m])
        return standard_normal_log_prob(u) + self.log_diagonal[:, :m].sum(dim=-1) + self.logits.log_softmax(dim=0)

    def sample(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        return self.sample_given(self.means.new_zeros(count, 0), generator)

    def sample_given(self, z: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Draws of the other coordinates given the first m, (B, m) → (B, d − m)."""
        count, m = z.shape
        device = self.means.device if generator is None else generator.device
        # the same for all rows when there is nothing to condition on
        odds = self._parts(z).softmax(dim=1) if m else self.logits.softmax(dim=0)
        draws = 1 if m else max(count, 1)
        chosen = torch.multinomial(odds.to(device), draws, replacement=True, generator=generator)
        chosen = chosen.flatten()[:count].to(self.means.device)
        u = draw_normal((count, self.features - m), self.means, generator)
        rest = torch.empty_like(u)
        for k, factor in enumerate(self.factors()):
            mine = chosen == k
            known = (z[mine] - self.means[k, :m]) @ factor[m:, :m].mT
            solved = torch.linalg.solve_triangular(factor[m:, m:], (u[mine] - known).mT, upper=False).mT
            rest[mine] = self.means[k, m:] + solved
        return rest

    @torch.no_grad()
    def initialise(self, z: Tensor) -> None:
        """Components by the EM algorithm, in float64; as many as the points allow, with a warning where they are fewer.

        Raises:
            RankDeficientError: some coordinate is constant.
        """
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.mixture import GaussianMixture
        from threadpoolctl import threadpool_limits

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
        known = min(self.components, most_components(len(rows), self.features))
        if known < self.components:
            warn(
                FewerComponentsWarning,
                f"{len(rows)} points in {self.features} dimensions are too few for a mixture of {self.components}: it "
                f"starts as one of {known}. Ask for fewer components (--latent-components {known}) to avoid this warning.",
            )
        scale = _scale(rows, deviation)
        model = GaussianMixture(known, reg_covar=self.floor, max_iter=_ITERATIONS, random_state=self.seed)
        with warnings.catch_warnings(), threadpool_limits(1):
            warnings.simplefilter("ignore", ConvergenceWarning)  # it is where training starts
            model.fit(((rows - mean) / scale).numpy())

        self._take(model, mean, torch.diag(scale), torch.diag(1 / scale))

    def _take(self, model: Any, mean: Tensor, root: Tensor, inverse: Tensor) -> None:
        """The components that scikit-learn found for v, where z = mean + root v, root lower triangular."""
        same = torch.arange(self.components) % model.n_components  # which of them each component is

        def spread(values: Tensor) -> Tensor:
            return values[same].to(self.means)

        # scikit-learn's factor U of the precision UUᵀ is upper triangular
        factors = torch.from_numpy(model.precisions_cholesky_).mT @ inverse
        self.logits.copy_(spread(torch.from_numpy(model.weights_).log()) - same.bincount()[same].log().to(self.means))
        self.means.copy_(spread(mean + torch.from_numpy(model.means_) @ root.mT))
        self.lower.copy_(spread(factors.tril(-1)))
        self.log_diagonal.copy_(spread(factors.diagonal(dim1=-2, dim2=-1).log()))

    @classmethod
    @torch.no_grad()
    def fitted(
        cls, rows: Tensor, held_out: Tensor, seed: int = 0, like: MixtureDensity | None = None
    ) -> MixtureDensity:
        """The mixture of the rows whose number of components is best for rows held out.

        The rows are whitened first, so that directions of little scatter are as good as others; the variance of a component
        has a floor in these units, which is chosen in the same way. Where rows are few for their dimensions, so is one
        Gaussian with the covariance of Ledoit & Wolf, A well-conditioned estimator for large-dimensional covariance matrices
        (2004).

        Args:
            rows: (N, d), of which at most 5,000 are used.
            held_out: (M, d), M ≥ 1.
            seed: of the EM algorithm.
            like: a mixture whose number of components and floor are taken as they are.
        """
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.mixture import GaussianMixture
        from threadpoolctl import threadpool_limits

        rows, held_out = rows[:_FITTED_ROWS].detach().cpu().double(), held_out.detach().cpu().double()
        if len(rows) < 2 or not len(held_out):
            raise RankDeficientError(f"a mixture needs 2 rows and 1 held out; got {len(rows)} and {len(held_out)}")
        mean, root = _root(rows)
        inverse = torch.linalg.solve_triangular(root, torch.eye(len(root), dtype=root.dtype), upper=False)
        white, judged = ((part - mean) @ inverse.mT for part in (rows, held_out))
        best, best_score = None, -math.inf
        first, last = (1, _MOST_COMPONENTS) if like is None else (like.components, like.components)
        floors = _FLOORS[:1] if len(rows) >= _MANY else _FLOORS
        for floor in floors if like is None else {like.floor} - {_WHITE}:
            rise, count = True, first
            while rise and count <= last and (count == first or len(rows) >= 3 * count * rows.shape[1]):
                model = GaussianMixture(count, reg_covar=floor, max_iter=_EM_ROUNDS, random_state=seed)
                with warnings.catch_warnings(), threadpool_limits(1):  # more threads lose time on small matrices
                    warnings.simplefilter("ignore", ConvergenceWarning)
                    score = float(model.fit(white.numpy()).score(judged.numpy()))
                rise = score > best_score - _PATIENCE
                if score > best_score:
                    best, best_score = model, score
                count *= 2
        if _few(rows) if like is None else like.floor == _WHITE:  # what EM would fit has lost the shrinkage of the root
            score = float(standard_normal_log_prob(judged).mean())
            best = _white(rows.shape[1]) if score > best_score else best
        if best is None:
            raise RankDeficientError("no mixture of Gaussians has a finite likelihood on the rows that were held out")
        density = cls(rows.shape[1], best.n_components, seed, best.reg_covar).double()
        density._take(best, mean, root, inverse)
        return density


def _few(rows: Tensor) -> bool:
    return len(rows) <= 10 * rows.shape[1]


def _white(size: int) -> Any:
    """The standard Gaussian as scikit-learn would have fitted it."""
    parts = {"weights_": np.ones(1), "means_": np.zeros((1, size)), "precisions_cholesky_": np.eye(size)[None]}
    return SimpleNamespace(n_components=1, reg_covar=_WHITE, **parts)


def _root(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Mean, and the lower triangular root of the covariance; shrunk towards a multiple of I where rows are few."""
    from sklearn.covariance import ledoit_wolf

    mean = rows.mean(dim=0)
    count, size = rows.shape
    if not _few(rows):
        covariance = (rows - mean).mT @ (rows - mean) / count
        covariance = covariance + 1e-10 * torch.diag(covariance.diagonal() + 1e-30)
    else:
        scale = (rows - mean).square().mean(dim=0).sqrt().clamp_min(1e-30)
        shrunk = torch.from_numpy(ledoit_wolf(((rows - mean) / scale).numpy())[0])
        if count <= size:  # two or three rows look certain of their direction, which they are not
            shrunk = (count * shrunk + torch.eye(size, dtype=rows.dtype)) / (count + 1)
        covariance = shrunk * scale[:, None] * scale + 1e-10 * torch.diag(scale.square())
    root, failed = torch.linalg.cholesky_ex(covariance)
    if failed:
        raise RankDeficientError(f"the covariance of {count} rows in {size} dimensions has no root")
    return mean, root


def _scale(rows: Tensor, deviation: Tensor) -> Tensor:
    """Of each coordinate: its standard deviation, or half the span of two thirds if a few points far out inflate that."""
    low, high = torch.from_numpy(np.quantile(rows.numpy(), [0.16, 0.84], axis=0))
    most = (high - low) / 2
    return torch.where((most > 0) & (deviation > _FAR * most), most, deviation)
