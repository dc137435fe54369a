"""The settings of a log-volume: one small class for each kind, and for each solver of the stochastic one."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from ..kinds import Chosen, Nothing, choice

if TYPE_CHECKING:
    from ..volume import Auto, Exact, Stochastic


@dataclass(frozen=True)
class ExactVolume:
    """Of the exact log-volume.

    Args:
        bundle_size: tangents carried at a time, to bound memory; none: all.
        codimension: whether to use a cheaper identity for manifolds with almost as many dimensions as the data: "auto",
            "always" or "never".
        tangent_dtype: "bfloat16" carries the tangents through the networks in that precision, faster on processors with
            instructions for it; rows where that would not do are computed again. none: in that of the flow.
    """

    bundle_size: int | None = None
    codimension: Literal["auto", "always", "never"] = "auto"
    tangent_dtype: Literal["bfloat16"] | None = None


@dataclass(frozen=True)
class Iterations:
    """Of conjugate gradients.

    Args:
        tolerance: relative residual at which conjugate gradients stop.
        max_iterations: the most iterations they may take; none: twice the latent dimension.
    """

    tolerance: float = 1e-5
    max_iterations: int | None = None


@dataclass(frozen=True)
class RouletteIterations(Iterations):
    """Of conjugate gradients that stop at random.

    Args:
        least_iterations: iterations that are always taken.
        continuation: probability of each iteration after those, given the one before.
    """

    least_iterations: int = 5
    continuation: float = 0.8


@dataclass(frozen=True)
class CorrectedIterations(Iterations):
    """Of conjugate gradients that stop early and are corrected on a few rows.

    Args:
        corrected_share: share of the rows, drawn at random, on which they are corrected.
        corrected_tolerance: relative residual on these.
    """

    tolerance: float = 0.05
    corrected_share: float = 1 / 16
    corrected_tolerance: float = 1e-5


SOLVERS: dict[str, type] = {
    "direct": Nothing,
    "cg": Iterations,
    "pcg": Iterations,
    "roulette": RouletteIterations,
    "corrected": CorrectedIterations,
}
_SOLVER_ARGUMENTS = {
    "tolerance": "tol",
    "max_iterations": "max_iter",
    "least_iterations": "least",
    "continuation": "keep",
    "corrected_share": "share",
    "corrected_tolerance": "exact_tol",
}  # setting → argument of the solver


@dataclass(frozen=True)
class StochasticVolume:
    """Of the stochastic log-volume.

    Args:
        probes: random tangents for each row.
        distribution: how the probes are drawn: "orthonormal", "gaussian" (as published) or "rademacher".
        solver: how the linear equations are solved: "direct", "cg" (conjugate gradients, as published), "pcg"
            (preconditioned conjugate gradients), "roulette" (conjugate gradients that stop at random, without a bias) or
            "corrected" (preconditioned ones that stop early and are corrected on a few rows, without a bias).
        tangent_dtype: as for the exact log-volume.
    """

    probes: int = 1
    distribution: Literal["orthonormal", "gaussian", "rademacher"] = "orthonormal"
    solver: Chosen = choice(SOLVERS, "direct")
    tangent_dtype: Literal["bfloat16"] | None = None


@dataclass(frozen=True)
class AutoVolume:
    """Of the log-volume that is chosen by measurements.

    Args:
        volume_variance: most that the variance of a batch's gradient may be, over that of the exact one on all rows.
        codimension: as for the exact log-volume.
        tangent_dtype: likewise.
    """

    volume_variance: float = 1.05
    codimension: Literal["auto", "always", "never"] = "auto"
    tangent_dtype: Literal["bfloat16"] | None = None


VOLUMES: dict[str, type] = {"exact": ExactVolume, "stochastic": StochasticVolume, "auto": AutoVolume}


def build_volume(chosen: Chosen) -> Auto | Exact | Stochastic:
    """The volume method of these settings."""
    from ..volume import Auto, Exact, Stochastic
    from ..volume.solvers import as_solver

    settings = chosen.settings
    if isinstance(settings, AutoVolume):
        return Auto(settings.volume_variance, settings.codimension, settings.tangent_dtype)
    if isinstance(settings, ExactVolume):
        return Exact(settings.bundle_size, settings.codimension, settings.tangent_dtype)
    low = settings.tangent_dtype
    name, chosen_solver = settings.solver
    given = {_SOLVER_ARGUMENTS[f.name]: getattr(chosen_solver, f.name) for f in fields(chosen_solver)}
    return Stochastic(settings.probes, settings.distribution, as_solver(name, **given), tangent_dtype=low)


def describe_volume(volume: Any) -> Chosen:
    """The settings of a volume method; a class of your own is recorded by its name."""
    from ..volume import Auto, Exact, Stochastic
    from ..volume.solvers import solver_name

    if isinstance(volume, Auto):
        return Chosen("auto", AutoVolume(volume.variance, volume.codimension, volume.tangent_dtype))
    if isinstance(volume, Exact):
        return Chosen("exact", ExactVolume(volume.bundle_size, volume.codimension, volume.tangent_dtype))
    if isinstance(volume, Stochastic):
        name: str = solver_name(volume.solver)
        kind = SOLVERS.get(name, Nothing)
        given = {f.name: getattr(volume.solver, _SOLVER_ARGUMENTS[f.name]) for f in fields(kind)}
        solver = Chosen(name, kind(**given))
        plain = StochasticVolume(volume.probes, volume.distribution, solver, volume.tangent_dtype)
        return Chosen("stochastic", plain)
    return Chosen(type(volume).__name__, Nothing())
