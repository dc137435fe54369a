r"""The objective, one module called once a step.

.. math:: -w\,[\log p_h(z) - L(z)] + \beta\,\|y - \hat y\|^2, \qquad z = f^\dagger(y),

batch mean, in the model's units (standardised data).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from ..manifold import RectangularFlow
from ..volume import Exact, Stochastic


@dataclass(frozen=True)
class Terms:
    """The parts of the objective for one batch, each a batch mean."""

    loss: Tensor
    negative_log_likelihood: Tensor
    """With a stochastic volume this is a surrogate, and only its gradient means anything."""
    reconstruction: Tensor


class Objective(nn.Module):
    """The training objective of a rectangular flow.

    Args:
        flow: the model.
        volume: how L and its gradient are computed.
        beta: β.
    """

    def __init__(self, flow: RectangularFlow, volume: Exact | Stochastic, beta: float):
        super().__init__()
        self.flow = flow
        self.volume = volume
        self.beta = beta

    def forward(self, x: Tensor, weight: float = 1.0) -> Terms:
        """The objective at data x (user's units), with the likelihood weighted by ``weight``."""
        y = self.flow.to_model_units(x)
        z = self.flow.encode(y, model_units=True)
        if weight == 0:
            y_hat = self.flow.decode(z, model_units=True)
            reconstruction = _squared_distance(y, y_hat)
            return Terms(self.beta * reconstruction, reconstruction.new_full((), float("nan")), reconstruction)
        y_hat, L = self.volume(self.flow, z, model_units=True)
        nll = (L - self.flow.latent.log_prob(z)).mean()
        reconstruction = _squared_distance(y, y_hat)
        return Terms(weight * nll + self.beta * reconstruction, nll, reconstruction)

    def reconstruction_step(self, x: Tensor) -> Tensor:
        """β‖y − ŷ‖², the pass of the two-step method that trains f̃."""
        return self.forward(x, weight=0.0).loss

    def likelihood_step(self, x: Tensor) -> Tensor:
        """−log p_h(z) with z held fixed, the pass of the two-step method that trains h."""
        z = self.flow.encode(self.flow.to_model_units(x), model_units=True).detach()
        return -self.flow.latent.log_prob(z).mean()


def _squared_distance(y: Tensor, y_hat: Tensor) -> Tensor:
    return (y - y_hat).flatten(1).square().sum(dim=1).mean()


__all__ = ["Objective", "Terms"]
