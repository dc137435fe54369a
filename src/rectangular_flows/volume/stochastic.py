r"""The stochastic method: a few random tangents carry an unbiased gradient of the log-volume.

Since ∂L = ⟨W, ∂J⟩ with W = J(JᵀJ)⁻¹, probes with E[εεᵀ] = I give the surrogate

.. math:: \hat L = \frac1K \sum_k \mathtt{stop\_gradient}(W\varepsilon_k)^\top J\varepsilon_k ,
          \qquad \mathbb E[\partial \hat L] = \partial L .

It has the gradient of the paper's estimator (its equation 12), and only K tangents carry gradients: no vector–Jacobian
product is differentiated. How Wε is found is the :mod:`solver <rectangular_flows.volume.solvers>`'s choice.
"""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field
from typing import Literal, get_args

import torch
from torch import Tensor

from ..densities.base import draw_normal
from ..flows.injection import Injection, forward_through, linearize_through, push_through
from ..flows.local_chart import local_chart
from .bundle import HasLayers, check_jacobian, core_and_tail
from .precision import TangentDtype, check_tangent_dtype, guarded_products, rounded
from .solvers import Direct, Solver, as_solver

Distribution = Literal["orthonormal", "gaussian", "rademacher"]


@dataclass(frozen=True)
class Stochastic:
    r"""An unbiased estimate of the gradient of L = ½ log det JᵀJ, with x̂ = f(z) from the same pass.

    **The value returned is a surrogate with the right gradient, not a log-volume**: it is about d whatever the flow. For
    densities use ``flow.log_prob``, which is always exact.

    Args:
        probes: K, random tangents for each point. At most d orthonormal ones are taken: with d the gradient is exact.
        distribution: "orthonormal" (√d times random orthonormal columns: less variance than Gaussian ones, and exact at
            K = d), "gaussian" (as published) or "rademacher" (best where JᵀJ is nearly diagonal).
        solver: how Wε is found: ``Direct()``, ``CG(tol=…)`` or ``PCG(tol=…)``, or their names "direct", "cg", "pcg"; see
            :mod:`~rectangular_flows.volume.solvers`.
        tol: shorthand for the ``tol`` of a solver given by name.
        max_iter: shorthand for the ``max_iter`` of a solver given by name.
        generator: source of the probes; torch's own unless given.
        tangent_dtype: as of :class:`~.exact.Exact`, for the tangents that carry the gradient and those of the direct
            solver; conjugate gradients need their precision.

    Example:
        >>> import torch
        >>> import rectangular_flows as rnf
        >>> flow = rnf.RectangularFlow(ambient=rnf.flows.RealNVP(5), latent=rnf.flows.RealNVP(2))
        >>> x_hat, L = Stochastic(probes=1, solver=rnf.volume.CG(tol=1e-4))(flow, torch.randn(7, 2))
        >>> L.mean().backward()
    """

    probes: int = 1
    distribution: Distribution = "orthonormal"
    solver: str | Solver = "direct"
    tol: InitVar[float | None] = None
    max_iter: InitVar[int | None] = None
    generator: torch.Generator | None = None
    tangent_dtype: TangentDtype = None
    _reported: dict[str, float] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self, tol: float | None, max_iter: int | None) -> None:
        if self.probes < 1:
            raise ValueError(f"expected probes ≥ 1; got {self.probes}")
        if self.distribution not in get_args(Distribution):
            raise ValueError(
                f"expected a distribution among {', '.join(get_args(Distribution))}; got {self.distribution!r}"
            )
        check_tangent_dtype(self.tangent_dtype)
        solver = as_solver(self.solver, tol=tol, max_iter=max_iter)
        if isinstance(solver, Direct) and self.tangent_dtype is not None:
            solver = Direct(self.tangent_dtype)
        object.__setattr__(self, "solver", solver)

    def __call__(self, flow: HasLayers | Injection, z: Tensor) -> tuple[Tensor, Tensor]:
        """(f(z), a surrogate whose gradient estimates that of L) for z of shape (B, d)."""
        core, tail = core_and_tail(flow, z)
        core, z = local_chart(core, z)
        if not core:  # isometric altogether
            return forward_through(tail, z), z.new_zeros(z.shape[:1])
        x, tangent_map = linearize_through(core, z)
        count = min(self.probes, z.shape[1]) if self.distribution == "orthonormal" else self.probes
        probes = draw_probes(z, count, self.distribution, self.generator)
        pushed = rounded(tangent_map, self.tangent_dtype)(probes)
        check_jacobian(pushed)
        with torch.no_grad():
            weighted, _ = as_solver(self.solver)(core, z, x, tangent_map, probes)
        pushed = guarded_products(
            pushed,
            weighted,
            z.shape[1],
            lambda rows: push_through(core, z[rows], probes[rows])[1],
            self.tangent_dtype,
            self._reported,
        )
        surrogate = (weighted * pushed).flatten(2).sum(dim=2).mean(dim=1)
        return forward_through(tail, x), surrogate


def draw_probes(z: Tensor, count: int, distribution: Distribution, generator: torch.Generator | None = None) -> Tensor:
    """Random ε with E[εεᵀ] = I, (B, K, d), independent from point to point.

    Orthonormal probes come in sets of at most d; more than d of them are several independent sets.
    """
    d = z.shape[-1]
    normal = draw_normal((z.shape[0], count, d), z, generator)
    if distribution == "gaussian":
        return normal
    if distribution == "rademacher":
        return torch.where(normal < 0, -torch.ones_like(normal), torch.ones_like(normal))
    if count == 1:
        return normal * (d**0.5 / normal.norm(dim=-1, keepdim=True))
    sets = []
    for group in normal.split(d, dim=1):
        Q, R = torch.linalg.qr(group.mT)
        signs = R.diagonal(dim1=-2, dim2=-1).sign()  # makes the columns uniformly distributed
        sets.append((Q * signs.unsqueeze(-2)).mT * d**0.5)
    return torch.cat(sets, dim=1)
