r"""The cheapest volume whose gradient is as good: how many rows, exact or how many probes, which solver.

Of a batch of B rows let the volume be computed on n, exactly or with K probes. With variances of a row's gradient, each of
its coordinates weighted as Adam weighs it: G of the whole exact gradient, V of the volume's part in it, and P_K of what the
probes add at a row,

.. math:: \frac{\mathrm{Var}(n, K)}{\mathrm{Var}(\text{exact})} = 1 + \frac{V\,(B/n - 1) + P_K\,B/n}{G},
          \qquad P_K = P_1 \frac{d - K}{K (d - 1)} \ \text{or}\ \frac{P_1}{K} .

The first holds for rows in random order; the second for orthonormal probes, because each coordinate of the gradient is a
quadratic form of the probe, and for independent Rademacher ones, which have a P_1 of their own: they do not see the
diagonal of that form, often its largest part. :meth:`Auto.choose` takes the choice of least cost for which this is at
most 1.05. Costs are counted in passes of one vector through f̃, never timed, so that runs repeat.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

from torch import Tensor

from ..flows.injection import Injection
from .bundle import HasLayers
from .exact import Exact
from .precision import TangentDtype
from .solvers import Corrected, Direct
from .stochastic import Stochastic

_LEAST_PROBED = 16  # d from which probes are weighed: below, they save little of a step
_ITERATIONS = 30  # most of conjugate gradients, then direct
_TOLERANCE, _EXACT = 0.05, 1e-4  # at which conjugate gradients stop; and on the share of the rows that follows
_CORRECTED = 1 / 16
_BACKWARD = 3.0  # passes of a vector that carries a gradient: one forward, two backward
_CALL = 2**15  # scalars that a pass takes as long as, however few it has

CHOICE = ("volume_share", "volume_probes", "variance_ratio")
"""Names of a choice's numbers in the history of a run."""


class Spread(NamedTuple):
    """What was measured: variances of one row's gradient, weighted as Adam weighs it."""

    gradient: float
    """G, of the exact gradient."""
    volume: float
    """V, of the volume's part in it."""
    probes: float = math.nan
    """P_1, what one orthonormal probe adds at a row; NaN if it was not measured."""
    condition: float = math.nan
    """Median condition number of J."""
    iterations: float = math.inf
    """Of preconditioned conjugate gradients until they are stopped; infinite if they would not converge in time."""
    signs: float = math.nan
    """P_1 of a Rademacher probe."""


class Sizes(NamedTuple):
    """What the costs depend on."""

    rows: int
    """B, rows of a batch."""
    d: int
    products: int
    """Tangents of the exact method: d, or with the codimension identity D − d."""
    width: int
    """Of the widest layer."""


@dataclass(frozen=True)
class Choice:
    """A volume method, and the share of the rows that it is computed on."""

    share: float = 1.0
    probes: int = 0
    """K; 0: exact."""
    solver: Literal["direct", "pcg"] = "direct"
    ratio: float = 1.0
    """Variance of the gradient over that of the exact one on all rows, as estimated."""
    cost: float = math.nan
    """Of a step over that of one without the volume, counted."""
    distribution: Literal["orthonormal", "rademacher"] = "orthonormal"
    """Of the probes."""

    def method(
        self, codimension: Literal["auto", "always", "never"] = "auto", tangent_dtype: TangentDtype = None
    ) -> Exact | Stochastic:
        """The method itself."""
        if not self.probes:
            return Exact(codimension=codimension, tangent_dtype=tangent_dtype)
        solver = Direct() if self.solver == "direct" else budgeted()
        return Stochastic(self.probes, self.distribution, solver, tangent_dtype=tangent_dtype)

    def numbers(self) -> dict[str, float]:
        """For the history of a run."""
        return dict(zip(CHOICE, (self.share, float(self.probes), self.ratio), strict=True))

    def text(self, rows: int) -> str:
        """For people; ``rows`` are those of a batch."""
        how = f"{self.probes} probe{'s' * (self.probes > 1)} ({self.solver})" if self.probes else "exact"
        where = f"on {self.counted(rows)} of {rows} rows" if self.share < 1 else "on all rows"
        return f"{how} {where}: {self.ratio:.3f} × the exact gradient's variance, {self.cost:.2f} × a step without it"

    def counted(self, rows: int) -> int:
        """How many of so many rows it is computed on."""
        return max(1, math.ceil(self.share * rows))

    def plain(self) -> dict[str, Any]:
        """As a mapping, for files."""
        return asdict(self)


def budgeted() -> Corrected:
    """Conjugate gradients that stop early or after a budget of iterations; what is left is solved directly."""
    return Corrected(_TOLERANCE, _ITERATIONS, Direct(), _CORRECTED, _EXACT)


@dataclass(frozen=True)
class Auto:
    """The volume method that :func:`~rectangular_flows.fit` chooses, and chooses again, by what it measures.

    Called by itself it is exact.

    Args:
        variance: most that the variance of a batch's gradient may be, over that of the exact one on all rows.
        codimension: of the exact method; see :class:`Exact`.
        tangent_dtype: of both; see there.

    Example:
        >>> spread = Spread(gradient=1.0, volume=0.002)
        >>> Auto().choose(spread, Sizes(rows=5_000, d=3, products=3, width=128)).share
        0.0386
    """

    variance: float = 1.05
    codimension: Literal["auto", "always", "never"] = "auto"
    tangent_dtype: TangentDtype = None

    def __post_init__(self) -> None:
        if not 1 < self.variance < math.inf:
            raise ValueError(f"expected variance > 1; got {self.variance}")
        Exact(codimension=self.codimension, tangent_dtype=self.tangent_dtype)

    def __call__(self, flow: HasLayers | Injection, z: Tensor) -> tuple[Tensor, Tensor]:
        """(f(z), ½ log det J(z)ᵀJ(z)) for z of shape (B, d), exactly."""
        return Exact(codimension=self.codimension)(flow, z)

    def needs_measuring(self, sizes: Sizes) -> bool:
        """Whether anything can be cheaper than exact on all rows."""
        least = Spread(1.0, 0.0, 0.0, iterations=1.0)
        return self.choose(least, sizes) != self.choose(Spread(math.nan, math.nan), sizes)

    def choose(self, spread: Spread, sizes: Sizes) -> Choice:
        """The cheapest choice whose gradient has little enough variance; exact on all rows where nothing was found."""
        exact = Choice(cost=_cost(sizes, sizes.rows, 0, "direct", math.inf))
        if not (spread.gradient > 0 and math.isfinite(spread.gradient + spread.volume)):
            return exact
        best = exact
        for probes, distribution, solver in _candidates(spread, sizes):
            added = _added(spread, sizes.d, probes, distribution, solver)
            least = (spread.volume + added) / (spread.volume + (self.variance - 1) * spread.gradient)
            rows = max(1, math.ceil(least * sizes.rows))
            if rows > sizes.rows:
                continue
            share = rows / sizes.rows
            ratio = 1 + (spread.volume * (1 / share - 1) + added / share) / spread.gradient
            cost = _cost(sizes, rows, probes, solver, spread.iterations)
            if cost < best.cost:
                best = Choice(share, probes, solver, ratio, cost, distribution)
        return best


_Distribution = Literal["orthonormal", "rademacher"]
_Solver = Literal["direct", "pcg"]


def _candidates(spread: Spread, sizes: Sizes) -> Iterator[tuple[int, _Distribution, _Solver]]:
    yield 0, "orthonormal", "direct"
    if sizes.d < _LEAST_PROBED or math.isnan(spread.probes):
        return
    probes = 1
    while probes < 2 * sizes.d / 3:  # above, exact is cheaper and has no noise
        signs = not math.isnan(spread.signs) and _added(spread, sizes.d, probes, "rademacher") < _added(
            spread, sizes.d, probes
        )
        distribution: _Distribution = "rademacher" if signs else "orthonormal"
        yield probes, distribution, "direct"
        if spread.iterations < math.inf:
            yield probes, distribution, "pcg"
        probes *= 2


def _added(
    spread: Spread, d: int, probes: int, distribution: _Distribution = "orthonormal", solver: _Solver = "direct"
) -> float:
    """P_K, with the variance of the solver's correction."""
    if not probes:
        return 0.0
    of_solver = 1 + _TOLERANCE**2 / _CORRECTED if solver == "pcg" else 1.0
    if distribution == "rademacher":
        return of_solver * spread.signs / probes
    return of_solver * spread.probes * (d - probes) / (probes * (d - 1))


def _cost(sizes: Sizes, rows: int, probes: int, solver: str, iterations: float) -> float:
    """Passes of a step over those of one without the volume: which encodes and decodes every row."""
    if not probes:
        each = _BACKWARD * sizes.products
    elif solver == "direct":
        each = _BACKWARD * probes + sizes.d
    else:  # a push and a pull of f and of f† in each iteration, one of f at the end, and corrections
        each = probes * (_BACKWARD + (4 * iterations + 2) * (1 + 4 * _CORRECTED)) + 2
    call = _BACKWARD * _CALL / sizes.width * (rows < sizes.rows)  # rows without the volume take a call of their own
    without = 2 * _BACKWARD * sizes.rows
    return 1 + (rows * each + call) / without
