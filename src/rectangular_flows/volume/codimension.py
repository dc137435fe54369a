r"""The codimension identity: the volume of a hypersurface from its normals.

With M = ∂f̃ at pad(z) and B the rows of M⁻¹ that belong to the D − d dropped coordinates,

.. math:: \log\det J^\top J = 2\log|\det M| + \log\det B B^\top,

which costs D − d products instead of d. At d = D nothing is left of B, and the density is exactly that of the square flow.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..errors import RankDeficientError, in_transform
from ..flows.injection import Bijection, Injection, TangentMap, composed
from ..flows.pad import Pad
from .bundle import basis, check_jacobian, graded_log_volume, log_volume, split_units, transpose, working_dtype


def codimension_of(core: list[Injection]) -> int | None:
    """D − d if the identity applies (a padding followed by bijections only), else None."""
    if core and isinstance(core[0], Pad) and all(isinstance(link, Bijection) for link in core[1:]):
        return core[0].codimension
    return None


def codimension_log_volume(core: list[Injection], z: Tensor, tail: Sequence[Injection] = ()) -> tuple[Tensor, Tensor]:
    """(f(z), ½ log det JᵀJ) by the identity above; needs ``codimension_of(core)`` to be a number. A tail may follow."""
    core, units = split_units(core, tail)
    pad, *square = core
    if not isinstance(pad, Pad):
        raise TypeError(f"expected a padding first; got {type(pad).__name__}")
    outputs, log_det = _through(square, pad(z))
    _check_log_det(log_det)
    y = outputs[-1]
    in_units, change = _through(units, y.double() if units else y)
    x, log_det = in_units[-1], log_det + change.to(log_det.dtype)
    if pad.codimension == 0:
        return x, log_det
    to_pad, to_model = _inverse_maps(square, outputs), _inverse_maps(units, in_units)

    def dropped(tangents: Tensor) -> Tensor:
        return pad.dropped_tangents(to_pad(tangents))

    covectors = basis(y.new_zeros(y.shape[0], pad.codimension))
    like = y.unsqueeze(1).expand(-1, pad.codimension, *y.shape[1:])
    normals = transpose(dropped, like)(covectors)
    L = log_volume(normals.flatten(2))
    if units:
        exact = normals.to(working_dtype(normals))
        in_data = transpose(to_model, exact.new_zeros(()).expand(*exact.shape[:2], *x.shape[1:]))(exact)
        L = graded_log_volume(in_data.flatten(2)).to(L.dtype)
    return x, log_det + L


def _through(links: list[Injection], x: Tensor) -> tuple[list[Tensor], Tensor]:
    """The values before and after each of the bijections, and the log-determinant of all."""
    values, log_det = [x], x.new_zeros(x.shape[:1])
    for link in links:
        if not isinstance(link, Bijection):
            raise TypeError(f"the codimension identity needs bijections after the padding; got {type(link).__name__}")
        x, term = link.forward_with_log_det(x)
        values.append(x)
        log_det = log_det + term
    return values, log_det


def _inverse_maps(links: list[Injection], values: list[Tensor]) -> TangentMap:
    """The tangent map of the way back, each link at the value where the forward pass was: rounding does not build up."""
    maps = [link.linearize_inverse(x)[1] for link, x in zip(links, values[1:], strict=True)]
    return composed(maps[::-1])


def _check_log_det(log_det: Tensor) -> None:
    if in_transform(log_det):
        return
    singular = log_det.detach() == -torch.inf
    if bool(singular.any()):
        rows = singular.nonzero().flatten()
        raise RankDeficientError(
            f"the square flow is singular at {len(rows)} of {len(log_det)} points (first rows: {rows[:5].tolist()}): "
            "log|det| is −∞. A linear layer has lost rank or a scale has underflowed; lower the learning rate, use LULinear "
            "instead of FreeLinear, or bound the log-scale (scale='tanh')."
        )
    check_jacobian(log_det)
