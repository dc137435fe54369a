r"""The variance of the gradient, measured: of the whole, of the volume's part in it, and of what probes add.

Rows of a batch are taken in groups. The gradients of groups of s rows vary s times less than those of single rows, so that
their variance, times s, is that of a row; only sums and sums of squares are kept. Coordinates are weighted by 1/v, with v
the second moments of Adam.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from ..errors import NumericalError
from ..flows.injection import linearize_through
from ..flows.local_chart import local_chart
from ..volume import PCG, Auto, Direct, Exact, Stochastic, draw_probes
from ..volume.auto import Sizes, Spread, budgeted
from ..volume.bundle import basis, core_and_tail
from ..volume.codimension import codimension_of
from .objective import Objective

_GROUPS, _ROWS = 8, 16  # groups, and most rows of one
_TANGENTS = 2**12  # most to carry in a measurement
_LEAST_PROBED = 16
_KINDS: tuple[Literal["orthonormal", "rademacher"], ...] = ("orthonormal", "rademacher")


def sizes_of(objective: Objective, rows: int, volume: Auto) -> Sizes:
    """What the costs of a batch of so many rows depend on."""
    view = objective.flow.in_model_units
    d = objective.flow.latent_dim
    core, _ = core_and_tail(view, torch.empty(1, *view.layers()[0].in_shape, device="meta"))
    codimension = codimension_of(core)
    exact = Exact(codimension=volume.codimension)
    products = d if codimension is None or not (core and exact._use_codimension(core, d)) else codimension
    return Sizes(rows, d, products, max(link.activation_size for link in view.layers()))


def measure(
    objective: Objective, x: Tensor, volume: Auto, weights: Sequence[Tensor | None], generator: torch.Generator
) -> Spread:
    """The variances of a row's gradient at full weight of the likelihood; weights and gradients stay as they are.

    Args:
        objective: of the run.
        x: rows of a batch, in random order.
        volume: the method whose settings count.
        weights: of the coordinates of each parameter of :func:`moved`; None where there are none yet, and they come from
            the measured gradients.
        generator: of the probes.
    """
    d = objective.flow.latent_dim
    size = max(1, min(_ROWS, len(x) // _GROUPS, _TANGENTS // (_GROUPS * d)))
    groups = [group for group in x.split(size)[:_GROUPS] if len(group) == size]
    if len(groups) < 2:
        return Spread(math.nan, math.nan)
    parameters = moved(objective)
    whole, part = _Sums(parameters), _Sums(parameters)
    noise = {kind: _Sums(parameters) for kind in (_KINDS if d >= _LEAST_PROBED else ())}
    exact = Exact(codimension=volume.codimension)
    try:
        for group in groups:
            rest, L = objective.apart(group, exact)
            by_rest = torch.autograd.grad(rest, parameters, retain_graph=True, allow_unused=True)
            by_volume = torch.autograd.grad(L, parameters, allow_unused=True)
            whole.add(_total(by_rest, by_volume))
            part.add(by_volume)
            for kind, sums in noise.items():
                probed = Stochastic(1, kind, generator=generator)
                by_probe = torch.autograd.grad(objective.apart(group, probed)[1], parameters, allow_unused=True)
                sums.add(_total(by_probe, by_volume, -1))
        condition, iterations = conditioning(objective, groups[0], generator)
    except NumericalError:  # the step itself will say what is wrong
        return Spread(math.nan, math.nan)
    scale = [w if w is not None else whole.scale(i, len(x) / size) for i, w in enumerate(weights)]
    added = {kind: size * sums.second_moment(scale) for kind, sums in noise.items()}
    return Spread(
        size * whole.variance(scale),
        size * part.variance(scale),
        added.get("orthonormal", math.nan),
        condition,
        iterations,
        added.get("rademacher", math.nan),
    )


@torch.no_grad()
def conditioning(objective: Objective, x: Tensor, generator: torch.Generator | None = None) -> tuple[float, float]:
    """Median condition number of J at some rows, and the iterations of conjugate gradients where these are weighed."""
    view = objective.flow.in_model_units
    d = objective.flow.latent_dim
    x = x[: max(1, min(8, 512 // d))]
    z = view.encode(objective.flow.to_model_units(x))
    core, _ = core_and_tail(view, z)
    core, z = local_chart(core, z)
    if not core:
        return 1.0, math.inf
    at, tangent_map = linearize_through(core, z)
    values = torch.linalg.svdvals(tangent_map(basis(z)).flatten(2).double())
    condition = float((values[:, 0] / values[:, -1]).median())
    if d < _LEAST_PROBED or generator is None:
        return condition, math.inf
    probes, solver = draw_probes(z, 1, "orthonormal", generator), budgeted()
    early, late = (
        PCG(tol, solver.max_iter, Direct())(core, z, at, tangent_map, probes)[1]
        for tol in (solver.tol, solver.exact_tol)
    )
    return condition, float(early.iterations.max()) if bool(late.converged.all()) else math.inf


def moved(objective: Objective) -> list[nn.Parameter]:
    """The parameters that the volume depends on: those of f."""
    view = objective.flow.in_model_units
    return [p for link in view.layers() for p in link.parameters() if p.requires_grad]


def adam_weights(optimiser: torch.optim.Optimizer, parameters: Sequence[Tensor]) -> list[Tensor | None]:
    """1/(√v + ε)² of each coordinate, with Adam's second moments; None where a parameter has none yet."""
    group = optimiser.param_groups[0]
    found: list[Tensor | None] = []
    for parameter in parameters:
        state = optimiser.state.get(parameter, {})
        if "exp_avg_sq" not in state or not float(state["step"]):
            found.append(None)
            continue
        moments = state["exp_avg_sq"] / (1 - group["betas"][1] ** float(state["step"]))
        found.append((moments.sqrt() + group["eps"]).pow(-2))
    return found


class _Sums:
    """Sums and sums of squares of gradients, coordinate by coordinate, in float64."""

    def __init__(self, parameters: Sequence[Tensor]):
        self._count = 0
        self._sums = [torch.zeros_like(p, dtype=torch.float64) for p in parameters]
        self._squares = [torch.zeros_like(p, dtype=torch.float64) for p in parameters]

    def add(self, gradients: Sequence[Tensor | None]) -> None:
        self._count += 1
        for total, squares, gradient in zip(self._sums, self._squares, gradients, strict=True):
            if gradient is not None:
                total += gradient
                squares.addcmul_(gradient.double(), gradient.double())

    def _variances(self, i: int) -> Tensor:
        variance: Tensor = (self._squares[i] - self._sums[i].square() / self._count) / (self._count - 1)
        return variance.clamp(min=0)

    def scale(self, i: int, groups: float) -> Tensor:
        """1/v from the gradients themselves: the mean squared, and the variance of a batch of so many groups."""
        moment = (self._sums[i] / self._count).square() + self._variances(i) / groups
        return torch.where(moment > 0, 1 / moment, torch.zeros_like(moment))

    def variance(self, weights: Sequence[Tensor]) -> float:
        """Weighted sum of the coordinates' variances."""
        return sum(float((w * self._variances(i)).sum()) for i, w in enumerate(weights))

    def second_moment(self, weights: Sequence[Tensor]) -> float:
        """The same about zero, for what is zero on average."""
        return sum(float((w * s).sum()) / self._count for w, s in zip(weights, self._squares, strict=True))


def _total(a: Sequence[Tensor | None], b: Sequence[Tensor | None], sign: float = 1) -> list[Tensor | None]:
    return [x if y is None else sign * y if x is None else x + sign * y for x, y in zip(a, b, strict=True)]
