r"""The stochastic method: a few random tangents carry an unbiased gradient of the log-volume.

Since ∂L = ⟨W, ∂J⟩ with W = J(JᵀJ)⁻¹, probes with E[εεᵀ] = I give the surrogate

.. math:: \hat L = \frac1K \sum_k \mathtt{stop\_gradient}(W\varepsilon_k)^\top J\varepsilon_k ,
          \qquad \mathbb E[\partial \hat L] = \partial L .

It has the gradient of the paper's estimator (its equation 12), and only K tangents carry gradients: no vector–Jacobian
product is differentiated. Wε comes from an explicit J built without a graph ("direct"), or from conjugate gradients on
JᵀJ by the forward–backward trick: Wε = J(JᵀJ)⁻¹ε, a product with JᵀJ being one push and one pull ("cg", "pcg").
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from ..densities.base import draw_normal
from ..errors import NotConvergedWarning, in_transform, warn
from ..flows.injection import Injection, TangentMap, linearize_inverse_through, linearize_through
from .bundle import HasLayers, basis, check_jacobian, core_and_tail, factorise, finish, transpose
from .conjugate_gradient import Solution, conjugate_gradient
from .exact import Exact

Distribution = Literal["orthonormal", "gaussian", "rademacher"]
Solver = Literal["direct", "cg", "pcg"]


@dataclass(frozen=True)
class Diagnostics:
    """What a stochastic volume did at a batch of points."""

    iterations: Tensor
    """Products with JᵀJ, (B, K); zero for the direct solver."""
    residuals: Tensor
    """True relative residuals ‖ε − JᵀJu‖/‖ε‖, (B, K)."""
    condition_numbers: Tensor
    """cond(J) at each point, (B,)."""
    gradient_norm: float
    """Norm of the exact gradient of the batch mean of L with respect to the parameters of f."""
    standard_error: float
    """Norm of the standard error of its stochastic estimate, from independent repetitions."""


@dataclass(frozen=True)
class Stochastic:
    r"""An unbiased estimate of the gradient of L = ½ log det JᵀJ, with x̂ = f(z) from the same pass.

    **The value returned is a surrogate with the right gradient, not a log-volume**: it is about d whatever the flow. For
    densities use ``flow.log_prob``, which is always exact.

    Args:
        probes: K, random tangents for each point. Of orthonormal ones d say all there is to say: no more are taken.
        distribution: "orthonormal" (√d times random orthonormal columns: less variance than Gaussian ones, and exact at
            K = d), "gaussian" (as published) or "rademacher" (best where JᵀJ is nearly diagonal).
        solver: how Wε is found. "direct" builds J without a graph (d tangents, no memory kept: best for small d, say up
            to some hundreds); "cg" is the paper's Algorithm 1; "pcg" preconditions with EEᵀ, E = ∂f†/∂x, for which at
            most min(d, D − d) + 1 iterations are needed in exact arithmetic: for badly conditioned flows of small
            codimension. "cg" and "pcg" stop on values, so that torch.compile cannot trace them.
        tol: relative residual at which "cg" and "pcg" stop; a loose one biases the gradient.
        max_iter: most iterations; 2d unless given (the paper stops at d).
        generator: source of the probes; torch's own unless given.

    Example:
        >>> import torch
        >>> import rectangular_flows as rnf
        >>> flow = rnf.RectangularFlow(ambient=rnf.flows.RealNVP(5), latent=rnf.flows.RealNVP(2))
        >>> x_hat, L = Stochastic(probes=1)(flow, torch.randn(7, 2))
        >>> L.mean().backward()
    """

    probes: int = 1
    distribution: Distribution = "orthonormal"
    solver: Solver = "direct"
    tol: float = 1e-5
    max_iter: int | None = None
    generator: torch.Generator | None = None
    _reported: dict[str, float] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.probes < 1:
            raise ValueError(f"expected probes ≥ 1; got {self.probes}")
        if self.distribution not in ("orthonormal", "gaussian", "rademacher"):
            raise ValueError(f"expected distribution orthonormal, gaussian or rademacher; got {self.distribution!r}")
        if self.solver not in ("direct", "cg", "pcg"):
            raise ValueError(f"expected solver direct, cg or pcg; got {self.solver!r}")
        if self.tol < 0 or (self.max_iter is not None and self.max_iter < 1):
            raise ValueError(f"expected tol ≥ 0 and max_iter ≥ 1; got {self.tol} and {self.max_iter}")

    def __call__(self, flow: HasLayers | Injection, z: Tensor) -> tuple[Tensor, Tensor]:
        """(f(z), a surrogate whose gradient estimates that of L) for z of shape (B, d)."""
        core, tail = core_and_tail(flow, z)
        if not core:  # isometric altogether
            return finish(tail, z), z.new_zeros(z.shape[:1])
        x, tangent_map = linearize_through(core, z)
        probes = self._draw(z)
        pushed = tangent_map(probes)
        check_jacobian(pushed)
        with torch.no_grad():
            weighted, solution = self._weigh(core, z, x, tangent_map, probes)
        if solution is not None:
            self._report(solution)
        surrogate = (weighted * pushed).flatten(2).sum(dim=2).mean(dim=1)
        return finish(tail, x), surrogate

    def _draw(self, z: Tensor) -> Tensor:
        count = min(self.probes, z.shape[1]) if self.distribution == "orthonormal" else self.probes
        return draw_probes(z, count, self.distribution, self.generator)

    def _weigh(
        self, core: list[Injection], z: Tensor, x: Tensor, tangent_map: TangentMap, probes: Tensor
    ) -> tuple[Tensor, Solution | None]:
        """Wε for every probe, (B, K, *out), and how the solver fared."""
        if self.solver == "direct":
            jacobian = tangent_map(basis(z))
            _, Q, R = factorise(jacobian.flatten(2))
            coordinates = torch.linalg.solve_triangular(R.mT, probes.mT.to(R.dtype), upper=False)
            return (Q @ coordinates).mT.to(z.dtype).unflatten(2, jacobian.shape[2:]), None
        solution = self._solve(core, x, tangent_map, probes)
        return tangent_map(solution.solution), solution

    def _solve(self, core: list[Injection], x: Tensor, tangent_map: TangentMap, probes: Tensor) -> Solution:
        pull = transpose(tangent_map, probes)
        preconditioner: TangentMap | None = None
        if self.solver == "pcg":
            _, inverse_map = linearize_inverse_through(core, x)
            like = x.unsqueeze(1).expand(-1, probes.shape[1], *x.shape[1:])
            inverse_pull = transpose(inverse_map, like)

            def preconditioner(r: Tensor) -> Tensor:
                return inverse_map(inverse_pull(r))

        return conjugate_gradient(
            lambda u: pull(tangent_map(u)),
            probes,
            tol=self.tol,
            max_iter=self.max_iter,
            preconditioner=preconditioner,
        )

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
            "the gradient of the log-volume is biased there. Use solver='direct' (small d) or 'pcg', float64, a larger "
            "max_iter or tol, or bound the log-scale of the flow.",
        )

    def diagnose(self, flow: HasLayers | Injection, z: Tensor, *, repeats: int = 8) -> Diagnostics:
        """Iterations, residuals, condition numbers, and the standard error of the gradient over probes.

        Costs about ``repeats`` training steps; for looking, not for every step.

        Args:
            flow: the rectangular flow.
            z: points, (B, d).
            repeats: independent estimates from which the standard error is taken; at least 2.
        """
        if repeats < 2:
            raise ValueError(f"expected repeats ≥ 2 for a standard error; got {repeats}")
        core, tail = core_and_tail(flow, z)
        core = core or tail  # isometric altogether: all of it, for the condition numbers
        z = z.detach()
        with torch.no_grad():
            x, tangent_map = linearize_through(core, z)
            probes = self._draw(z)
            jacobian = tangent_map(basis(z)).flatten(2)
            singular = torch.linalg.svdvals(jacobian)
            iterations = torch.zeros(probes.shape[:2], dtype=torch.long, device=z.device)
            if self.solver == "direct":
                _, _, R = factorise(jacobian)
                solved = torch.cholesky_solve(probes.mT.to(R.dtype), R, upper=True).mT.to(z.dtype)
            else:
                solution = self._solve(core, x, tangent_map, probes)
                solved, iterations = solution.solution, solution.iterations
            product = (solved @ jacobian) @ jacobian.mT
            residuals = (product - probes).norm(dim=-1) / probes.norm(dim=-1)
        parameters = [p for link in core for p in link.parameters() if p.requires_grad]
        with torch.enable_grad():
            draws = [self(flow, z)[1] for _ in range(repeats)]
            estimates = torch.stack([_gradient(draw, parameters) for draw in draws])
            exact = _gradient(Exact()(flow, z)[1], parameters)
        return Diagnostics(
            iterations,
            residuals,
            singular[:, 0] / singular[:, -1],
            float(exact.norm()),
            float(estimates.var(dim=0).sum().sqrt()),
        )


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


def _gradient(value: Tensor, parameters: list[torch.nn.Parameter]) -> Tensor:
    if not parameters or not value.requires_grad:
        return value.new_zeros(1)
    gradients = torch.autograd.grad(value.mean(), parameters, allow_unused=True)
    return torch.cat(
        [
            torch.zeros_like(p).flatten() if g is None else g.flatten()
            for p, g in zip(parameters, gradients, strict=True)
        ]
    )


__all__ = ["Diagnostics", "Stochastic", "draw_probes"]
