"""What is timed: a training step of ours, one with the volume as published, and the matrix products of ours alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from ...manifold import RectangularFlow
from ...volume import Exact, Stochastic
from ..published import published_exact, published_stochastic

Volume = Callable[..., tuple[Tensor, Tensor]]
Step = Callable[[], None]


def make_step(flow: RectangularFlow, x: Tensor, published: bool, probes: int | None) -> Step:
    """One training step of the paper's objective at full weight, β = 50: ours, or with the volume as published.

    Args:
        flow: the flow to train.
        x: points, (B, *data_shape).
        published: whether the volume is computed as published.
        probes: K; None for the exact volume.
    """
    ours: Volume = Exact() if probes is None else Stochastic(probes=probes)
    theirs: Volume = published_exact if probes is None else partial(published_stochastic, probes=probes)
    volume = theirs if published else ours
    optimiser = torch.optim.Adam(flow.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        z = flow.in_model_units.encode(x)
        x_hat, L = volume(flow.in_model_units, z)
        error = (x - x_hat).flatten(1).square().sum(dim=1)
        (L - flow.latent.log_prob(z) + 50 * error).mean().backward()
        optimiser.step()

    return step


def make_products(flow: RectangularFlow, batch: int) -> Step:
    """The matrix products of our exact step and nothing else, with operands and results in place already.

    Each has operands of its own, as in the step: sharing them would time products of data that never leave the cache.

    Every linear layer of f sees the batch twice (encode, primal) and the bundle of B·d tangents once, every one of h
    the batch once. A pass is one product forward and two backward, less those for inputs that need no gradient: the
    data, at the last coupling, and the basis, at the first.
    """
    ambient = [_linears(link) for link in flow.layers() if _linears(link)]
    passes: list[tuple[nn.Linear, int, bool]] = []
    for position, linears in enumerate(ambient):
        for depth, linear in enumerate(linears):
            passes.append((linear, batch, depth > 0 or position < len(ambient) - 1))
            passes.append((linear, batch, True))
            passes.append((linear, batch * flow.latent_dim, depth > 0 or position > 0))
    passes += [(linear, batch, True) for linear in _linears(flow.latent)]
    results: dict[tuple[int, ...], Tensor] = {}
    products: list[tuple[Tensor, Tensor, Tensor]] = []

    def add(a: Tensor, b: Tensor) -> None:
        shape = (a.shape[0], b.shape[1])
        products.append((a, b, results.setdefault(shape, torch.empty(shape))))

    for linear, rows, input_gradient in passes:
        W = linear.weight.detach()
        x, y = torch.randn(rows, W.shape[1]), torch.randn(rows, W.shape[0])
        add(x, W.mT)
        add(y.mT, x)
        if input_gradient:
            add(y, W)

    def run() -> None:
        for a, b, out in products:
            torch.mm(a, b, out=out)

    return run


def _linears(module: nn.Module) -> list[nn.Linear]:
    return [part for part in module.modules() if isinstance(part, nn.Linear)]
