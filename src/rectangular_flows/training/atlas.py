r"""How an atlas is trained: by the likelihood of the mixture of its charts, and first each chart on its own part.

.. math:: -\log \sum_k \pi_k\, p_k(y_k)^w\, e^{-\|y - y_k\|^2 / 2\sigma^2} + \beta \sum_k r_k \|y - y_k\|^2,

batch mean, in the model's units, with the shares :math:`r_k` of the charts in the first sum and σ three times the rows' own
distance from the nearest chart, at least 0.04. With the shares held fixed,
:math:`\sum_k r_k [\log r_k - \log \pi_k - w \log p_k]` has the same value and gradient as its first term, but for
distances, which are β's; and each row is passed through the charts that matter for it alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..atlas import Atlas, Model, width_of
from ..data.rows import Rows, shuffled, take
from ..manifold import ModelUnits, squared_distance
from ..volume import Auto, Exact, Stochastic
from .objective import Objective, Part, Place, Terms

_HOPELESS = 12.0  # nats behind the best chart, before volumes are known, at which a chart is not considered
_LEAST = 1e-3  # share that is passed through a chart
_ROWS = 20_000
_AUTO_FRACTION = 0.05  # of the rows of a chart whose volume is computed, where that is left open


class AtlasObjective(nn.Module):
    """The training objective of an atlas; arguments and terms as of :class:`~.objective.Objective`.

    While the likelihood has no weight, every chart learns to reconstruct the rows of the part it started from, which
    overlaps its neighbours'; without such parts, each row counts for the charts that are nearest. The reconstruction error
    that is reported is the squared distance from the nearest chart.
    """

    def __init__(
        self,
        flow: Atlas,
        volume: Exact | Stochastic,
        beta: float,
        volume_fraction: float = 1.0,
        row_weights: Callable[[Tensor], Tensor] | None = None,
    ):
        super().__init__()
        self.flow, self.volume, self.beta = flow, volume, beta
        self.volume_fraction, self.row_weights = volume_fraction, row_weights

    def forward(self, x: Tensor, weight: float = 1.0, part: Part = "all", place: Place | None = None) -> Terms:
        """The objective at data x (user's units), a whole batch or part of one; see :meth:`Objective.forward`."""
        y = self.flow.to_model_units(x)
        views = [chart.in_model_units for chart in self.flow.charts]
        if part == "reconstruction" or weight == 0:
            return self._manifold(views, y)
        shares, least = self._shares(views, y, 1.0 if part == "likelihood" else weight)
        if part == "likelihood":
            nll = self._latent(views, y, shares)
            return Terms(weight * nll, nll, nll.new_full((), math.nan))
        return self._mixture(views, y, shares, least, weight)

    def _manifold(self, views: list[ModelUnits], y: Tensor) -> Terms:
        if self.flow.start is None:
            with torch.no_grad():
                apart = self.flow.distances(y)
                shares = (-self.beta * apart).softmax(dim=1).to(y.dtype)
        else:
            inside = self.flow.start(y).to(y.dtype)
            shares = inside / inside.sum(dim=1, keepdim=True)
        error = y.new_zeros(len(y))
        for k, view in enumerate(views):
            rows = torch.nonzero(shares[:, k] > _LEAST).flatten()
            if len(rows):
                away = _squares(y[rows], view.project(y[rows]))
                error = error.index_add(0, rows, shares[rows, k] * away)
        return Terms(self._penalty(y, error), error.new_full((), math.nan), error.mean())

    @torch.no_grad()
    def _shares(self, views: list[ModelUnits], y: Tensor, weight: float) -> tuple[Tensor, Tensor]:
        """r, (B, K), and the squared distance from the nearest chart, (B,); volumes only where charts compete."""
        z = [view.encode(y) for view in views]
        away = torch.stack([squared_distance(y, view.decode(at)) for view, at in zip(views, z, strict=True)], dim=1)
        density = torch.stack([view.latent.log_prob(at).double() for view, at in zip(views, z, strict=True)], dim=1)
        least = away.nan_to_num(torch.inf, torch.inf).min(dim=1).values
        joint = self.flow.logits.double().log_softmax(dim=0) + weight * density - away / (2 * width_of(least) ** 2)
        joint = torch.where(joint.isfinite(), joint, -torch.inf)
        joint = torch.where(joint > joint.max(dim=1, keepdim=True).values - _HOPELESS, joint, -torch.inf)
        lost = ~joint.isfinite().any(dim=1)  # far from everything: the first chart has them
        joint[lost, 0] = 0.0
        contested = (joint.isfinite().sum(dim=1) > 1)[:, None] & joint.isfinite()
        for k, view in enumerate(views):
            rows = torch.nonzero(contested[:, k]).flatten()
            if len(rows):
                joint[rows, k] -= weight * Exact()(view, z[k][rows])[1].double()
        shares = joint.softmax(dim=1)
        shares = torch.where(shares > _LEAST, shares, 0.0)
        shares = shares / shares.sum(dim=1, keepdim=True)
        return shares.to(y.dtype), least.to(y.dtype)

    def _latent(self, views: list[ModelUnits], y: Tensor, shares: Tensor) -> Tensor:
        """The part of the likelihood that depends on the latent densities and the weights."""
        total, log_weights = self._entropy(shares), self.flow.logits.log_softmax(dim=0)
        for k, view in enumerate(views):
            rows = torch.nonzero(shares[:, k]).flatten()
            if len(rows):
                with torch.no_grad():
                    z = view.encode(y[rows])
                total = total - (shares[rows, k] * (view.latent.log_prob(z) + log_weights[k])).sum()
        return total / len(y)

    def _mixture(self, views: list[ModelUnits], y: Tensor, shares: Tensor, least: Tensor, weight: float) -> Terms:
        log_weights, chosen = self.flow.logits.log_softmax(dim=0), self._entropy(shares)
        density, error = y.new_zeros(()), y.new_zeros(len(y))
        for k, view in enumerate(views):
            rows = torch.nonzero(shares[:, k]).flatten()
            if not len(rows):
                continue
            share, z = shares[rows, k], view.encode(y[rows])
            count = max(1, math.ceil(self.volume_fraction * len(rows)))
            y_hat, L = self.volume(view, z[:count])
            if count < len(rows):
                y_hat = torch.cat([y_hat, view.decode(z[count:])])
            error = error.index_add(0, rows, share * _squares(y[rows], y_hat))
            volume = (share[:count] * L).sum() * (len(rows) / count)
            density = density + (share * view.latent.log_prob(z)).sum() - volume
            chosen = chosen - log_weights[k] * share.sum()
        chosen, density = chosen / len(y), density / len(y)
        loss = chosen - weight * density + self._penalty(y, error)
        return Terms(loss, chosen - density, least.mean())

    @staticmethod
    def _entropy(shares: Tensor) -> Tensor:
        return torch.special.xlogy(shares, shares).sum()

    def _penalty(self, y: Tensor, error: Tensor) -> Tensor:
        return self.beta * (error if self.row_weights is None else self.row_weights(y) * error).mean()


def _squares(y: Tensor, y_hat: Tensor) -> Tensor:
    return (y - y_hat).flatten(1).square().sum(dim=1)


def objective_of(
    flow: Model,
    volume: Auto | Exact | Stochastic,
    beta: float,
    volume_fraction: float = 1.0,
    row_weights: Callable[[Tensor], Tensor] | None = None,
) -> Objective | AtlasObjective:
    """The training objective of a flow or of an atlas."""
    if isinstance(flow, Atlas):
        if isinstance(volume, Auto):  # which measures flows of one chart
            exact = Exact(codimension=volume.codimension, tangent_dtype=volume.tangent_dtype)
            volume, volume_fraction = exact, _AUTO_FRACTION
        return AtlasObjective(flow, volume, beta, volume_fraction, row_weights)
    return Objective(flow, volume, beta, volume_fraction, row_weights)


def settle(flow: Model, train: Rows, held_out: Tensor, seed: int) -> None:
    """What is left to do once the weights are final: of an atlas, σ by rows held out, and charts without rows go."""
    if isinstance(flow, Atlas):
        flow.fit_sigma(held_out)
        rows = take(train, shuffled(len(train), seed)[:_ROWS], held_out.device, held_out.dtype)
        flow.drop_idle(rows)
