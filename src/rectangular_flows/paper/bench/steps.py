"""What is timed: a training step of ours, one with the volume as published, and the matrix products of ours alone."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ...manifold import RectangularFlow
from ...volume import Exact, Stochastic
from ..published import Published
from .cases import Case

Volume = Callable[..., tuple[Tensor, Tensor]]
Step = Callable[[], None]


def training_step(flow: RectangularFlow, x: Tensor, volume: Volume, optimiser: torch.optim.Optimizer) -> None:
    """One step of the paper's objective at full weight, β = 50."""
    optimiser.zero_grad(set_to_none=True)
    z = flow.in_model_units.encode(x)
    x_hat, L = volume(flow.in_model_units, z)
    error = (x - x_hat).flatten(1).square().sum(dim=1)
    loss = (L - flow.latent.log_prob(z) + 50 * error).mean()
    loss.backward()
    optimiser.step()


def make_step(flow: RectangularFlow, x: Tensor, published: bool, probes: int | None) -> Step:
    """One training step of ours, or with the volume as published."""
    volume: Volume = Published(probes) if published else Exact() if probes is None else Stochastic(probes=probes)
    optimiser = torch.optim.Adam(flow.parameters(), lr=1e-4, fused=True)
    return lambda: training_step(flow, x, volume, optimiser)


def make_products(flow: RectangularFlow, case: Case, device: str) -> Step:
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
            passes.append((linear, case.batch, depth > 0 or position < len(ambient) - 1))
            passes.append((linear, case.batch, True))
            passes.append((linear, case.batch * case.d, depth > 0 or position > 0))
    passes += [(linear, case.batch, True) for linear in _linears(flow.latent)]
    results: dict[tuple[int, ...], Tensor] = {}
    products: list[tuple[Tensor, Tensor, Tensor]] = []

    def add(a: Tensor, b: Tensor) -> None:
        shape = (a.shape[0], b.shape[1])
        products.append((a, b, results.setdefault(shape, torch.empty(shape, device=device))))

    for linear, rows, input_gradient in passes:
        W = linear.weight.detach()
        x, y = torch.randn(rows, W.shape[1], device=device), torch.randn(rows, W.shape[0], device=device)
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


def seconds_of(step: Step, device: str) -> float:
    """What a step takes."""
    _synchronise(device)
    start = time.perf_counter()
    step()
    _synchronise(device)
    return time.perf_counter() - start


def _synchronise(device: str) -> None:
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


__all__ = ["Step", "make_products", "make_step", "seconds_of", "training_step"]
