r"""A kernel around every row, as wide as rows are apart there; for densities of fine detail in few dimensions.

.. math:: p(z) = w_0\, u(z) + \sum_j w_j\, \frac1n \sum_i q\bigl(z;\ z_i,\ \max(\delta_{k_j}(i) / 2,\ h)\bigr),

with the distance δ_k(i) of row i from its k-th neighbour, k = 1, 2, 4, …, 64, and kernels q that are von Mises on circles,
von Mises–Fisher on spheres and Gaussian on lines. The density u is uniform where the space closes up. The weights are those
that are best for a tenth of the rows under the kernels of the others.

References: Breiman, Meisel & Purcell, Variable kernel estimates of multivariate densities, Technometrics 19 (1977); for the
weights, Smyth & Wolpert, Machine Learning 36 (1999).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ..errors import RankDeficientError, check_finite
from ..flows.spaces import EMBEDDED, Embedding, Space
from .base import Density
from .closed_mixture import HEIGHTS, SAMPLERS, squares
from .scatter import stacked
from .uniform import UniformDensity

_NEIGHBOURS = (1, 2, 4, 8, 16, 32, 64)
_LEAST_ON_LINES = 0.1  # deviations
_LEAST_WEIGHT = 1e-3  # of kernels that are worth their time
_CELLS = 2**23  # of the largest array at a time


class KernelDensity(Density):
    """The density above. It has no weights to train: :meth:`initialise` takes all of it from data.

    Before that it is uniform on circles and spheres, and standard Gaussian on lines.

    Args:
        space: its name, such as "sphere" or "line*circle".
        points: most rows that get a kernel.
        width: h, radians; on lines, in deviations, at least 0.1.
        seed: of the rows, where they are more, and of the tenth.

    Cost: O(points) a row.

    Example:
        >>> z = torch.tensor([[0.1], [0.2], [3.0]])
        >>> density = KernelDensity("circle", points=3)
        >>> density.initialise(z)
        >>> density.log_prob(z).exp() > 1 / (2 * math.pi)
        tensor([True, True, True])
    """

    centres: Tensor
    distances: Tensor
    count: Tensor
    weights: Tensor
    mean: Tensor
    scale: Tensor

    def __init__(self, space: str, points: int = 10_000, width: float = 0.02, seed: int = 0):
        super().__init__()
        if points != int(points) or points < 1:
            raise ValueError(f"expected a whole number of points, at least one; got {points}")
        if not 0 < width < math.inf:
            raise ValueError(f"expected a positive width; got {width}")
        self._space = Space.of(space)
        self.features, self.points, self.width, self.seed = self._space.coordinates, points, width, seed
        self.embed, self.base = Embedding(str(self._space)), UniformDensity(str(self._space))
        size = self.embed.out_shape[0]
        self.register_buffer("centres", torch.zeros(points, size))
        self.register_buffer("distances", torch.zeros(points, len(_NEIGHBOURS)))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))
        self.register_buffer("weights", torch.eye(len(_NEIGHBOURS) + 1)[0])
        self.register_buffer("mean", torch.zeros(self.features))
        self.register_buffer("scale", torch.ones(self.features))

    @property
    def space(self) -> Space:
        """The space that it is a density on."""
        return self._space

    def log_prob(self, z: Tensor) -> Tensor:
        count, used = int(self.count), self.weights > 0
        which = used[1:].nonzero().flatten().tolist() if count else []
        parts = self._parts(z, self.centres[:count], self.distances[:count], which)
        return torch.logsumexp(parts + self.weights[[0, *(1 + j for j in which)]].log(), dim=1)

    def _parts(self, z: Tensor, centres: Tensor, distances: Tensor, which: Sequence[int]) -> Tensor:
        """Log-densities of the base and of kernels of these widths, (B, coordinates) → (B, 1 + widths)."""
        z = (z - self.mean) / self.scale
        found = [self.base.log_prob(z)[:, None]]
        if which:
            precision = torch.stack([self._log_precision(distances[:, j]) for j in which])  # (widths, n, factors)
            step = max(1, _CELLS // (len(centres) * self.centres.shape[1]))
            found.append(torch.cat([self._sums(part, centres, precision) for part in self.embed(z).split(step)]))
        return torch.cat(found, dim=1) - self.scale.log().sum()

    def _sums(self, v: Tensor, centres: Tensor, precision: Tensor) -> Tensor:
        """Log-densities of kernels of some widths, each a mean over all centres, (B, embedded) → (B, widths)."""
        places = self._space.places(EMBEDDED)
        apart = [squares(name, v[:, place], centres[:, place]) for name, place in places]
        sums = []
        for each in precision:
            height = torch.stack([HEIGHTS[name](each[:, i]) for i, (name, _) in enumerate(places)]).sum(dim=0)
            parts = height - 0.5 * sum(each[:, i].exp() * off for i, off in enumerate(apart))
            sums.append(torch.logsumexp(parts, dim=1))
        return torch.stack(sums, dim=1) - math.log(len(centres))

    def _log_precision(self, distance: Tensor) -> Tensor:
        """−2 log of the widths, (n,) → (n, factors)."""
        least = [max(self.width, _LEAST_ON_LINES) if name == "line" else self.width for name in self._space.factors]
        return -2 * torch.maximum(distance[:, None] / 2, distance.new_tensor(least)).log()

    @torch.no_grad()
    def sample(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        device = self.weights.device if generator is None else generator.device
        odds = self.weights.double().to(device)
        which = torch.multinomial(odds, max(count, 1), replacement=True, generator=generator)[:count].to(
            self.weights.device
        )
        most = max(1, int(self.count))
        row = torch.randint(most, (count,), device=device, generator=generator).to(self.weights.device)
        precision = self._log_precision(self.distances[row, (which - 1).clamp_min(0)]).double()
        parts = []
        for i, (name, place) in enumerate(self._space.places(EMBEDDED)):
            parts.append(SAMPLERS[name](self.centres[row, place].double(), precision[:, i], generator))
        z = torch.cat(parts, dim=1).to(self.centres.dtype)
        z = z if "sphere" not in self._space.factors else self.embed.inverse(self.embed(z))
        z = torch.where((which == 0)[:, None], self.base.sample(count, generator).to(z), z)
        return z * self.scale + self.mean

    @torch.no_grad()
    def initialise(self, z: Tensor) -> None:
        """Kernels around the rows, or around as many of them as there may be; weights by a tenth of these.

        Raises:
            RankDeficientError: a coordinate on a line is constant.
        """
        rows = z.detach().double().cpu()
        check_finite(rows, "The coordinates that kernels are laid around", "Check the data.")
        rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(self.seed))[: self.points]]
        for name, place in self._space.places():
            if name != "line":
                continue
            part = rows[:, place]
            deviation = part.std(dim=0, correction=0)
            if not bool((deviation > torch.finfo(z.dtype).eps * part.abs().amax(dim=0)).all()):
                raise RankDeficientError(
                    f"a coordinate of {len(rows)} points is constant. Give more points, or a smaller space."
                )
            self.mean[place], self.scale[place] = part.mean(dim=0).to(self.mean), deviation.to(self.scale)
        here = self.mean.cpu().double(), self.scale.cpu().double()
        v = self.embed((rows - here[0]) / here[1])
        self.weights.copy_(torch.eye(len(self.weights))[0])
        cut = len(v) // 10
        if cut and len(v) - cut > 1:
            kept = v[cut:]
            judged, centres, distances = (part.to(self.centres) for part in (rows[:cut], kept, _apart(kept)))
            weights = stacked(self._parts(judged, centres, distances, range(len(_NEIGHBOURS))).double())
            weights = torch.where(weights < _LEAST_WEIGHT, 0.0, weights)
            weights[0] = weights[0].clamp_min(_LEAST_WEIGHT)  # so that no point has a density of zero
            self.weights.copy_(weights / weights.sum())
        self.centres[: len(v)], self.distances[: len(v)] = v.to(self.centres), _apart(v).to(self.centres)
        self.count.fill_(len(v))


def _apart(v: Tensor) -> Tensor:
    """Distance of every point from its neighbours of the numbers above, or from the farthest, (n, embedded) → (n, k)."""
    from sklearn.neighbors import NearestNeighbors

    most = min(_NEIGHBOURS[-1], len(v) - 1)
    if most < 1:
        return v.new_zeros(len(v), len(_NEIGHBOURS))
    found = torch.from_numpy(NearestNeighbors(n_neighbors=most).fit(v.numpy()).kneighbors()[0])  # not itself
    return found[:, [min(k, most) - 1 for k in _NEIGHBOURS]]
