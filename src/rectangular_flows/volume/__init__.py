"""The log-volume L = ½ log det JᵀJ of a rectangular flow, exactly or as a stochastic gradient."""

from .auto import Auto
from .bundle import log_volume
from .codimension import codimension_log_volume
from .conjugate_gradient import Solution, conjugate_gradient
from .exact import Exact
from .solvers import CG, PCG, Corrected, Direct, RouletteCG, Solver, register_solver
from .stochastic import Stochastic, draw_probes

__all__ = [
    "CG",
    "PCG",
    "Auto",
    "Corrected",
    "Direct",
    "Exact",
    "RouletteCG",
    "Solution",
    "Solver",
    "Stochastic",
    "codimension_log_volume",
    "conjugate_gradient",
    "draw_probes",
    "log_volume",
    "register_solver",
]
