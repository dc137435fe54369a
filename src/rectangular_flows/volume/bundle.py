r"""What every volume method shares: bundles of tangents, their transposes, and the log-volume of a bundle.

For tangents t_1 … t_K (the rows of T = Jᵀ), QR and not Cholesky:

.. math:: J = QR, \quad L = \tfrac12\log\det J^\top J = \sum_i \log|r_{ii}|, \quad
          \partial L/\partial J = Q R^{-\top} = J (J^\top J)^{-1} .

Cholesky of JᵀJ squares the condition number: in float32 it fails at cond(J) ≈ 3·10³. QR loses eps·cond(J), which in
float32 would still be 1 % at cond(J) = 10⁵; so the small factorisation (d columns a point, next to the network nothing) is
done in float64 where the device has it. In float64 the Gram matrix is good to cond(J) ≈ 10⁵ again, and for d ≥ 64 its
Cholesky factor R, with Q = JR⁻¹, is faster; where R says that it may not be good, QR it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, Protocol

import torch
from torch import Tensor

from ..errors import RankDeficientError, check_finite, in_transform
from ..flows.injection import Injection, TangentMap, check_shape, links_of, push_through
from ..flows.tangents import weights_held


class HasLayers(Protocol):
    """What the volume needs to know of a rectangular flow: the links of f, in generative order."""

    def layers(self) -> list[Injection]:
        """Pad, f̃, and the outer injections."""


def core_and_tail(flow: HasLayers | Injection, z: Tensor) -> tuple[list[Injection], list[Injection]]:
    """The links of f as (core, tail), with the shape of z checked against the first.

    The tail is the longest run of isometric links at the data end, which changes no volume; the core is empty if f is
    isometric altogether.
    """
    links = links_of(flow) if isinstance(flow, Injection) else flow.layers()
    check_shape(z, links[0].in_shape)
    cut = len(links)
    while cut and links[cut - 1].isometric:
        cut -= 1
    return links[:cut], links[cut:]


def basis(z: Tensor, start: int = 0, stop: int | None = None) -> Tensor:
    """The standard basis vectors start … stop of R^d as a bundle, (B, stop − start, d)."""
    eye = torch.eye(z.shape[-1], dtype=z.dtype, device=z.device)[start:stop]
    return eye.expand(z.shape[0], *eye.shape)


def transpose(tangent_map: TangentMap, like: Tensor) -> TangentMap:
    """The transposed map of covectors, Jᵀ, by reverse mode through the tangent map, whose graph is built once.

    Args:
        tangent_map: linear, (B, K, *in) → (B, K, *out).
        like: any bundle of the map's input shape.
    """
    at = torch.zeros_like(like)
    if in_transform(at):
        pullback: Callable[[Tensor], tuple[Tensor]] = torch.func.vjp(tangent_map, at)[1]
        return lambda covectors: pullback(covectors)[0]
    # the same by autograd, without torch.func, whose first call of this kind loads torch's compiler: two seconds
    keeps_graph = torch.is_grad_enabled()
    with torch.enable_grad(), nullcontext() if keeps_graph else weights_held():
        at.requires_grad_()
        out = tangent_map(at)

    def pull(covectors: Tensor) -> Tensor:
        return torch.autograd.grad(out, at, covectors, retain_graph=True, create_graph=keeps_graph)[0]

    return pull


class _LogVolume(torch.autograd.Function):
    """T ↦ (L, Q, R) with ∂L/∂T = R⁻¹Qᵀ: one factorisation, in working precision, serves forward and backward."""

    @staticmethod
    def forward(tangents: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return _plain_log_volume(tangents)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, Tensor, Tensor]) -> None:
        _, Q, R = output
        ctx.mark_non_differentiable(Q, R)
        ctx.save_for_backward(*inputs, Q, R)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _q: Tensor, _r: Tensor) -> Tensor:
        tangents, Q, R = ctx.saved_tensors
        if torch.is_grad_enabled() and tangents.requires_grad:  # asked for a second derivative
            Q, R = _qr(tangents)
        W = Q.mT / R if R.shape[-1] == 1 else torch.linalg.solve_triangular(R, Q.mT, upper=True)
        return grad[..., None, None] * W.to(tangents.dtype)


def _plain_log_volume(tangents: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    Q, R = _qr(tangents)
    L = R.diagonal(dim1=-2, dim2=-1).abs().log().sum(dim=-1)
    return L.to(tangents.dtype), Q, R


_GRAM = 64  # tangents from which the Gram matrix is tried
_GOOD = 1e-3  # smallest |r_ii| relative to the largest for which it is taken


def _qr(tangents: Tensor) -> tuple[Tensor, Tensor]:
    columns = tangents.mT.to(working_dtype(tangents))
    if columns.shape[-1] >= _GRAM and columns.dtype == torch.float64 and not in_transform(columns):
        R, failed = torch.linalg.cholesky_ex(columns.mT @ columns, upper=True)
        diagonal = R.diagonal(dim1=-2, dim2=-1).abs()
        if not bool((failed > 0).any()) and bool((diagonal.amin(dim=-1) > _GOOD * diagonal.amax(dim=-1)).all()):
            return torch.linalg.solve_triangular(R, columns, upper=True, left=False), R
    if columns.shape[-1] != 1:
        return torch.linalg.qr(columns)
    length = torch.linalg.vector_norm(columns, dim=-2, keepdim=True)  # of a curve; many times faster than a call of QR
    return columns / length, length


def working_dtype(tangents: Tensor) -> torch.dtype:
    """Float64, but for Apple's GPUs, which have none."""
    return tangents.dtype if tangents.device.type == "mps" else torch.float64


def check_jacobian(values: Tensor) -> None:
    """Raise :class:`NonFiniteError` if a Jacobian, or products with it, are not finite."""
    check_finite(
        values,
        "Jacobian",
        "The flow overflowed: lower the learning rate, clip gradients, bound the log-scale (scale='tanh'), or use float64.",
    )


def factorise(tangents: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(L, Q, R) of a bundle of K tangents in R^D, (B, K, D) with K ≤ D; differentiable in L. Q and R are in float64.

    Raises:
        NonFiniteError: the tangents are not finite.
        RankDeficientError: some r_ii is zero to working precision; L would be −∞.
    """
    if tangents.shape[-2] > tangents.shape[-1]:
        raise ValueError(f"expected at most D tangents in R^D; got {tangents.shape[-2]} in R^{tangents.shape[-1]}")
    if in_transform(tangents):  # torch.func and torch.compile see plain operations
        return _plain_log_volume(tangents)
    check_jacobian(tangents)
    L, Q, R = _LogVolume.apply(tangents)  # type: ignore[no-untyped-call]
    _check_rank(tangents, R)
    return L, Q, R


def log_volume(tangents: Tensor) -> Tensor:
    """½ log det TTᵀ of a bundle of tangents, (B, K, D) → (B,).

    Example:
        >>> import torch
        >>> log_volume(torch.tensor([[[3.0, 0.0, 4.0]]])).exp().round(decimals=4)  # the length of a vector
        tensor([5.])
    """
    return factorise(tangents)[0]


def log_volume_in_units(tangents: Tensor, units: Sequence[Injection], y: Tensor) -> Tensor:
    """½ log det of tangents at y, (B, K, *model), once carried through layers between the model's units and the user's."""
    exact = tangents.unflatten(2, y.shape[1:]).to(working_dtype(tangents))
    return graded_log_volume(push_through(units, y, exact)[1].flatten(2)).to(tangents.dtype)


def graded_log_volume(tangents: Tensor) -> Tensor:
    """½ log det TTᵀ in the user's units, (B, K, D) → (B,), for tangents in float64 whose rank was judged in the model's.

    Columns may differ by many orders of magnitude there. With the largest first, and tangents turned so that none is zero
    in it but for chance, that costs QR no digits.
    """
    check_jacobian(tangents)
    order = tangents.detach().abs().amax(dim=1, keepdim=True).argsort(dim=2, descending=True)
    falling = _turned(tangents.take_along_dim(order, dim=2))
    return _plain_log_volume(falling)[0] if in_transform(falling) else _LogVolume.apply(falling)[0]  # type: ignore


def _turned(tangents: Tensor) -> Tensor:
    """By a fixed orthogonal matrix that has nothing to do with them, which changes no volume."""
    place = torch.arange(1, tangents.shape[1] + 1, dtype=tangents.dtype, device=tangents.device)
    scattered = torch.sin(2**0.5 * place[:, None].square() * place)  # no random numbers, which transforms refuse
    return torch.linalg.qr(scattered)[0] @ tangents


def split_units(links: list[Injection], tail: Sequence[Injection] = ()) -> tuple[list[Injection], list[Injection]]:
    """Links, and the trailing ones that change units and are best taken in float64, if they are the last of the flow."""
    cut = len(links)
    while cut and not tail and links[cut - 1].takes_float64:
        cut -= 1
    return links[:cut], links[cut:]


def _check_rank(tangents: Tensor, R: Tensor) -> None:
    if R.shape[-1] == 0:
        return
    with torch.no_grad():
        diagonal = R.diagonal(dim1=-2, dim2=-1).abs()
        ratio = diagonal.amin(dim=-1) / diagonal.amax(dim=-1)
        threshold = torch.finfo(tangents.dtype).eps * min(max(tangents.shape[-2:]), 32)
        bad = ~(ratio > threshold)
        if not bool(bad.any()):
            return
        rows = bad.nonzero().flatten()
    raise RankDeficientError(
        f"the Jacobian has lost rank at {len(rows)} of {tangents.shape[0]} points (first rows: {rows[:5].tolist()}): "
        f"smallest |r_ii| relative to the largest is {ratio.min():.1e}, below {threshold:.1e} for {tangents.dtype}. The "
        "manifold is folded or collapsed there. Try float64, a smaller latent dimension, a bounded log-scale "
        "(scale='tanh'), or more weight on the likelihood, which penalises collapse."
    )
