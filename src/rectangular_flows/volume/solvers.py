r"""Solvers: how the stochastic method finds Wε = J(JᵀJ)⁻¹ε for its probes ε.

:class:`Direct` builds J without a graph. :class:`CG` and :class:`PCG` solve JᵀJu = ε by conjugate gradients, where a product
with JᵀJ is one push and one pull of a bundle, and give Wε = Ju. :class:`RouletteCG` stops them at random and
:class:`Corrected` stops them early, both without a bias. :data:`SOLVERS` has those that can be given by name;
:func:`register_solver` adds one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from ..densities.base import draw_normal
from ..errors import NotConvergedWarning, in_transform, warn
from ..flows.injection import Injection, TangentMap, linearize_inverse_through, linearize_through, push_through
from .bundle import basis, transpose
from .conjugate_gradient import Solution, conjugate_gradient
from .precision import TangentDtype, check_tangent_dtype, guarded_factors, rounded


class Solver(Protocol):
    """What a solver is: a callable, called without a graph."""

    def __call__(
        self, core: list[Injection], z: Tensor, x: Tensor, tangent_map: TangentMap, probes: Tensor
    ) -> tuple[Tensor, Solution | None]:
        """Wε for every probe, (B, K, *out), and how an iterative solver fared.

        Args:
            core: the links of f whose volume is taken.
            z: points, (B, d).
            x: their images under the core, (B, *out).
            tangent_map: t ↦ Jt there, (B, K, d) → (B, K, *out).
            probes: ε, (B, K, d).
        """


@dataclass(frozen=True)
class Direct:
    """An explicit J from d tangents without a graph, factorised: best for small d, up to a few hundred.

    Args:
        tangent_dtype: as of :class:`~.exact.Exact`.
    """

    tangent_dtype: TangentDtype = None
    _reported: dict[str, float] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_tangent_dtype(self.tangent_dtype)

    def __call__(
        self, core: list[Injection], z: Tensor, x: Tensor, tangent_map: TangentMap, probes: Tensor
    ) -> tuple[Tensor, None]:
        """Wε; see :class:`Solver`."""
        jacobian = rounded(tangent_map, self.tangent_dtype)(basis(z))
        _, (_, Q, R) = guarded_factors(
            jacobian.flatten(2),
            lambda rows: push_through(core, z[rows], basis(z[rows]))[1].flatten(2),
            self.tangent_dtype,
            self._reported,
        )
        coordinates = torch.linalg.solve_triangular(R.mT, probes.mT.to(R.dtype), upper=False)
        return (Q @ coordinates).mT.to(z.dtype).unflatten(2, jacobian.shape[2:]), None


@dataclass(frozen=True)
class CG:
    """Conjugate gradients on JᵀJ, the paper's Algorithm 1: for large d and well-conditioned flows.

    It stops on values, so that torch.compile cannot trace it.

    Args:
        tol: relative residual at which it stops; a loose one biases the gradient.
        max_iter: most iterations; 2d unless given (the paper stops at d).
        fallback: a solver for the points that did not converge; without one, a warning.
    """

    tol: float = 1e-5
    max_iter: int | None = None
    fallback: Solver | None = None
    _reported: dict[str, float] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.tol < 0 or (self.max_iter is not None and self.max_iter < 1):
            raise ValueError(f"expected tol ≥ 0 and max_iter ≥ 1; got {self.tol} and {self.max_iter}")

    def preconditioner(self, core: list[Injection], x: Tensor, probes: Tensor) -> TangentMap | None:
        """r ↦ Pr with P ≈ (JᵀJ)⁻¹, or None for plain conjugate gradients."""
        return None

    def __call__(
        self, core: list[Injection], z: Tensor, x: Tensor, tangent_map: TangentMap, probes: Tensor
    ) -> tuple[Tensor, Solution]:
        """Wε; see :class:`Solver`."""
        pull = transpose(tangent_map, probes)
        solution = conjugate_gradient(
            lambda u: pull(tangent_map(u)),
            probes,
            tol=self.tol,
            max_iter=self.max_iter,
            preconditioner=self.preconditioner(core, x, probes),
        )
        found = tangent_map(solution.solution)
        failed = ~solution.converged.all(dim=-1)
        if self.fallback is None:
            self._report(solution)
        elif bool(failed.any()):
            at, again = linearize_through(core, z[failed])
            found[failed] = self.fallback(core, z[failed], at, again, probes[failed])[0]
            self._reported["fallen back"] = self.fallen_back + float(failed.sum())
        return found, solution

    @property
    def fallen_back(self) -> float:
        """Points that were left to the fallback so far."""
        return self._reported.get("fallen back", 0.0)

    def _report(self, solution: Solution) -> None:
        """Warn of problems that did not converge: the first time, and whenever it gets ten times worse."""
        if in_transform(solution.residual) or bool(solution.converged.all()):
            return
        worst = float(solution.residual.max())
        if worst <= 10 * self._reported.get("worst", 0.0):
            return
        self._reported["worst"] = worst
        failed = int((~solution.converged).sum())
        warn(
            NotConvergedWarning,
            f"conjugate gradients did not reach the relative residual {self.tol:.1e} in {failed} of "
            f"{solution.converged.numel()} problems (worst {worst:.1e} after {int(solution.iterations.max())} iterations): "
            "the gradient of the log-volume is biased there. Use the solver 'direct' (small d) or 'pcg', float64, a larger "
            "max_iter or tol, or bound the log-scale of the flow.",
        )


@dataclass(frozen=True)
class PCG(CG):
    """Conjugate gradients preconditioned with EEᵀ, E = ∂f†/∂x: for badly conditioned flows of small codimension.

    In exact arithmetic at most min(d, D − d) + 1 iterations are needed, each with a push and a pull of f† more.

    Args:
        tol: as in :class:`CG`.
        max_iter: likewise.
        fallback: likewise.
    """

    def preconditioner(self, core: list[Injection], x: Tensor, probes: Tensor) -> TangentMap:
        """r ↦ EEᵀr."""
        _, inverse_map = linearize_inverse_through(core, x)
        inverse_pull = transpose(inverse_map, x.unsqueeze(1).expand(-1, probes.shape[1], *x.shape[1:]))
        return lambda r: inverse_map(inverse_pull(r))


@dataclass(frozen=True)
class RouletteCG(CG):
    r"""Conjugate gradients that stop at random, and weigh their steps so that nothing is lost on average.

    .. math:: u = \sum_{k=1}^{T} \frac{\Delta_k}{P(T \ge k)}, \qquad P(T \ge k) = c^{\max(k - m, 0)},

    with Δ_k the k-th step: E u is what conjugate gradients converge to, with fewer iterations than they need. The price is
    variance, which grows as c falls, and explodes where steps shrink more slowly than √P(T ≥ k), as they do at bad
    conditioning. One T is drawn for a whole batch, since the rows of a batch take their products together.

    Args:
        tol: as in :class:`CG`.
        max_iter: most iterations, beyond which it is biased; 2d unless given.
        least: m, iterations that are always taken.
        keep: c, the probability of each iteration after those, given the one before; 1 for :class:`CG`.
        generator: source of T; torch's own unless given.

    References: Filippone & Engler, Enabling scalable stochastic gradient-based inference for Gaussian processes,
    arXiv:1501.05427; Potapczynski et al., Bias-free scalable Gaussian processes via randomized truncations,
    arXiv:2102.06695.

    Example:
        >>> RouletteCG(least=2, keep=0.5).survival(d=2)
        [1.0, 1.0, 0.5, 0.25]
    """

    least: int = 5
    keep: float = 0.8
    generator: torch.Generator | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.least < 1 or not 0 <= self.keep <= 1:
            raise ValueError(f"expected least ≥ 1 and 0 ≤ keep ≤ 1; got {self.least} and {self.keep}")

    def survival(self, d: int) -> list[float]:
        """P(T ≥ k) for k from 1 to the most iterations."""
        most = 2 * d if self.max_iter is None else self.max_iter
        return [self.keep ** max(k - self.least, 0) for k in range(1, most + 1)]

    def __call__(
        self, core: list[Injection], z: Tensor, x: Tensor, tangent_map: TangentMap, probes: Tensor
    ) -> tuple[Tensor, Solution]:
        """An unbiased estimate of Wε; see :class:`Solver`."""
        pull, d = transpose(tangent_map, probes), probes.shape[-1]
        chance = float(torch.rand((), generator=self.generator, dtype=torch.float64))
        weights = [1 / share for share in self.survival(d) if share > chance or share == 1]
        solution = conjugate_gradient(lambda u: pull(tangent_map(u)), probes, tol=self.tol, weights=weights)
        if len(weights) == len(self.survival(d)):  # it was to go on to the end
            self._report(solution)
        return tangent_map(solution.solution), solution


@dataclass(frozen=True)
class Corrected(PCG):
    r"""Preconditioned conjugate gradients that stop early, and on a few points go on, so that nothing is lost on average.

    .. math:: \widetilde{W\varepsilon} = \widehat{W\varepsilon}
              + \frac{b}{s}\,(W\varepsilon - \widehat{W\varepsilon}), \qquad b \sim \mathrm{Bernoulli}(s),

    with Ŵε of a loose tolerance on every point, and Wε of a tight one where b = 1. Its error is small already, so that the
    variance of the correction, about tol²/s of that of the probes, is small too.

    Args:
        tol: relative residual on every point.
        max_iter: as in :class:`CG`, for both.
        fallback: likewise.
        share: s, of the points that are corrected.
        exact_tol: relative residual on those; at most tol.
        generator: source of b; torch's own unless given.

    Example:
        >>> import torch
        >>> import rectangular_flows as rnf
        >>> flow = rnf.RectangularFlow(ambient=rnf.flows.RealNVP(5), latent=rnf.flows.RealNVP(2))
        >>> volume = rnf.volume.Stochastic(2, "rademacher", Corrected(share=0.25))
        >>> volume(flow, torch.randn(7, 2))[1].shape
        torch.Size([7])
    """

    tol: float = 0.05
    share: float = 1 / 16
    exact_tol: float = 1e-5
    generator: torch.Generator | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (0 < self.share <= 1 and self.exact_tol >= 0):
            raise ValueError(f"expected 0 < share ≤ 1 and exact_tol ≥ 0; got {self.share} and {self.exact_tol}")

    def __call__(
        self, core: list[Injection], z: Tensor, x: Tensor, tangent_map: TangentMap, probes: Tensor
    ) -> tuple[Tensor, Solution]:
        """An unbiased estimate of Wε; see :class:`Solver`."""
        found, solution = super().__call__(core, z, x, tangent_map, probes)
        some = torch.special.ndtr(draw_normal((len(z), 1), z, self.generator)[:, 0]) < self.share
        if bool(some.any()):
            tight = PCG(min(self.exact_tol, self.tol), self.max_iter, self.fallback)
            object.__setattr__(tight, "_reported", self._reported)  # what it has to say counts with the rest
            at, again = linearize_through(core, z[some])
            exact, _ = tight(core, z[some], at, again, probes[some])
            found[some] += (exact - found[some]) / self.share
        return found, solution


SOLVERS: dict[str, Callable[..., Solver]] = {
    "direct": Direct,
    "cg": CG,
    "pcg": PCG,
    "roulette": RouletteCG,
    "corrected": Corrected,
}


def register_solver(name: str, solver: Callable[..., Solver]) -> None:
    """Make a solver of your own known by a name.

    Args:
        name: as in ``Stochastic(solver=name)``.
        solver: its class, or a function that makes it from its settings.
    """
    SOLVERS[name] = solver


def as_solver(solver: str | Solver, **settings: Any) -> Solver:
    """The solver itself, or the one of that name with those settings; None stands for a setting that is not given.

    Raises:
        ValueError: there is no such solver, or it has no such setting.
    """
    given = {name: value for name, value in settings.items() if value is not None}
    if not isinstance(solver, str):
        if given:
            raise ValueError(f"{', '.join(given)} is for a solver given by name; give it to the solver: CG(tol=1e-3)")
        return solver
    if solver not in SOLVERS:
        raise ValueError(f"expected a solver among {', '.join(SOLVERS)}; got {solver!r}")
    for name in given:
        having = [key for key, made in SOLVERS.items() if name in inspect.signature(made).parameters]
        if solver not in having:
            listed = " and ".join(", ".join(having).rsplit(", ", 1))
            raise ValueError(f"{name} is for {listed}; got solver {solver!r}")
    return SOLVERS[solver](**given)


def solver_name(solver: object) -> str:
    """The name a solver is registered under; that of its class where it is not."""
    return next((name for name, made in SOLVERS.items() if made is type(solver)), type(solver).__name__)
