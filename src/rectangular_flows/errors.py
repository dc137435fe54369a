"""Numerical trouble as typed results: what happened, how large it is, what to do. Nothing is repaired silently."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor


class NumericalError(ArithmeticError):
    """A computation has no trustworthy result. Every error of this module derives from it."""


class RankDeficientError(NumericalError):
    """The Jacobian of the manifold map lost rank: the log-volume is −∞ and the density undefined there."""


class NonFiniteError(NumericalError):
    """An infinity or NaN turned up where a finite number is needed."""


class NotConvergedWarning(UserWarning):
    """Conjugate gradients stopped before its tolerance: the gradient of the log-volume is biased by that much."""


class NoNearestPointWarning(UserWarning):
    """Points lie where no point of a closed latent space is the nearest: their coordinates mean nothing."""


class PrecisionWarning(UserWarning):
    """Rows were computed again because a lower precision would not do for them: it saves less time than it might."""


class RoundTripWarning(UserWarning):
    """The left inverse does not invert the map to working precision: coordinates and densities are off by that much."""


def in_transform(*tensors: Tensor) -> bool:
    """Whether values cannot be looked at: inside torch.compile, a torch.func transform, or on the meta device."""
    if torch.compiler.is_compiling():
        return True
    functorch = torch._C._functorch
    return any(functorch.is_functorch_wrapped_tensor(t) or t.device.type == "meta" for t in tensors)


def check_finite(values: Tensor, what: str, advice: str) -> None:
    """Raise :class:`NonFiniteError` if any entry is NaN or infinite, with counts and the rows concerned.

    Args:
        values: a tensor whose first dimension is the batch.
        what: the name of the quantity, for the message.
        advice: what the user can do about it.
    """
    if in_transform(values):
        return
    finite = torch.isfinite(values)
    if bool(finite.all()):
        return
    bad = ~finite.flatten(1).all(dim=1) if values.dim() > 1 else ~finite
    rows = bad.nonzero().flatten()
    raise NonFiniteError(
        f"{what}: {int((~finite).sum())} of {values.numel()} values are NaN or infinite, in {len(rows)} of "
        f"{values.shape[0]} rows (first rows: {rows[:5].tolist()}). {advice}"
    )


def warn(category: type[Warning], message: str) -> None:
    """Warn from the caller's caller, so that the line shown is the user's."""
    warnings.warn(message, category, stacklevel=3)


class ScatterWarning(UserWarning):
    """The density of rows around a manifold could not be fitted; the manifold and the density on it are there."""


class OverflowWarning(UserWarning):
    """Rows are so far from the data that the model overflows: they get the most extreme answer there is."""


class LeftOutWarning(UserWarning):
    """Columns hold one value or repeat another, and the model leaves them out; or rows differ in them after all."""


class TroubleWarning(UserWarning):
    """Training met numerical trouble again and again, and ended with the best weights that it had found."""
