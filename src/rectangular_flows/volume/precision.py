"""Tangents in a lower precision, where the Jacobian is well conditioned; elsewhere they are computed again.

What is rounded is the inside of the networks, where the products are. The primal, what enters and leaves a network, the
factorisation and every density keep their precision. The error of the gradient grows with the condition number of J. Rows
where the triangular factor says that it is large are therefore computed again without rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor

from ..errors import PrecisionWarning, in_transform, warn
from ..flows.injection import TangentMap
from ..flows.tangents import tangents_in
from .bundle import factorise

TangentDtype = Literal["bfloat16"] | None

_MOST_CONDITION = 10.0  # up to there, errors of the gradient of about one in a hundred were measured


def check_tangent_dtype(name: TangentDtype) -> None:
    """Raise a ValueError for a precision that there is not."""
    if name not in (None, "bfloat16"):
        raise ValueError(f"expected tangent_dtype 'bfloat16' or None; got {name!r}")


_never: ContextVar[bool] = ContextVar("never", default=False)


@contextmanager
def never_rounded() -> Iterator[None]:
    """Within it, no tangents are carried in a lower precision."""
    token = _never.set(True)
    try:
        yield
    finally:
        _never.reset(token)


def in_precision(name: TangentDtype, device: torch.device) -> AbstractContextManager[None]:
    """A context in which networks carry tangents in that precision, where the device is quick at it.

    torch.compile sees none.
    """
    if name is None or torch.compiler.is_compiling() or _never.get() or (device.type == "cpu" and _slow_here()):
        return nullcontext()
    return tangents_in(torch.bfloat16)


@cache
def _slow_here() -> bool:
    """Whether this processor has no instructions for bfloat16: products are then twenty times slower, not faster."""
    known: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    slow = known.get("architecture") == "x86_64" and not (known.get("avx512_bf16") or known.get("amx_bf16"))
    if slow:
        warn(
            PrecisionWarning,
            "this processor has no instructions for bfloat16, which would make tangents slower: tangent_dtype is left out",
        )
    return slow


def rounded(tangent_map: TangentMap, name: TangentDtype) -> TangentMap:
    """The tangent map with its networks in that precision, whenever it is called; itself for None."""
    if name is None:
        return tangent_map

    def low(tangents: Tensor) -> Tensor:
        with in_precision(name, tangents.device):
            return tangent_map(tangents)

    return low


def guarded_factors(
    tangents: Tensor, again: Callable[[Tensor], Tensor], name: TangentDtype, reported: dict[str, float]
) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
    """(J as a bundle, its (L, Q, R)), with the rows computed again where a lower precision would not do.

    Args:
        tangents: all d of them, in that precision, (B, d, D).
        again: those of the rows of these numbers, without rounding.
        name: of the precision; None: nothing is looked at.
        reported: what was warned of so far; kept by the caller.
    """
    factors = factorise(tangents)
    if name is None or in_transform(tangents):
        return tangents, factors
    better = _mended(tangents, again, _condition(factors[2].detach()), name, reported)
    return (tangents, factors) if better is None else (better, factorise(better))


def guarded_products(
    pushed: Tensor,
    weighted: Tensor,
    d: int,
    again: Callable[[Tensor], Tensor],
    name: TangentDtype,
    reported: dict[str, float],
) -> Tensor:
    """Jε for probes, in that precision but for rows where it would not do: where ‖Jε‖‖Wε‖/d is large.

    Args:
        pushed: Jε in that precision, (B, K, *out).
        weighted: Wε, (B, K, *out).
        d: of ε.
        again: Jε of the rows of these numbers, without rounding.
        name: as in :func:`guarded_factors`.
        reported: likewise.
    """
    if name is None or in_transform(pushed):
        return pushed
    by_pushed, by_weighted = (v.detach().flatten(2).square().sum(dim=2).mean(dim=1) for v in (pushed, weighted))
    better = _mended(pushed, again, (by_pushed * by_weighted).sqrt() / d, name, reported)
    return pushed if better is None else better


def _mended(
    values: Tensor, again: Callable[[Tensor], Tensor], condition: Tensor, name: str, reported: dict[str, float]
) -> Tensor | None:
    """The values with badly conditioned rows computed again; None where there are none."""
    bad = torch.nonzero(~(condition <= _MOST_CONDITION)).flatten()
    if not len(bad):
        return None
    _report(len(bad), len(values), name, reported)
    better = again(bad)
    return better if len(bad) == len(values) else values.index_copy(0, bad, better)


def _condition(R: Tensor) -> Tensor:
    """‖R‖‖R⁻¹‖/d in Frobenius norms, (B,): by how much an error in J grows in J(JᵀJ)⁻¹, relatively; 1 for orthogonal J."""
    eye = torch.eye(R.shape[-1], dtype=R.dtype, device=R.device).expand_as(R)
    inverse = torch.linalg.solve_triangular(R, eye, upper=True)
    return torch.linalg.matrix_norm(R) * torch.linalg.matrix_norm(inverse) / R.shape[-1]


def _report(bad: int, rows: int, name: str, reported: dict[str, float]) -> None:
    """Warn the first time, and again where it becomes half of the rows."""
    share = bad / rows
    level = 1.0 if share < 0.5 else 2.0
    if reported.get("level", 0.0) >= level:
        return
    reported["level"] = level
    advice = "they cost more than without it" if level == 1 else "it saves no time here: leave tangent_dtype out"
    warn(
        PrecisionWarning,
        f"{bad} of {rows} rows have Jacobians too badly conditioned for tangents in {name}; theirs are computed again "
        f"without rounding, so that the gradient stays right, but {advice}.",
    )
