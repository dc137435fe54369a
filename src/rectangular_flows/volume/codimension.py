r"""The codimension identity: the volume of a hypersurface from its normals.

With M = ∂f̃ at pad(z) and B the rows of M⁻¹ that belong to the D − d dropped coordinates,

.. math:: \log\det J^\top J = 2\log|\det M| + \log\det B B^\top,

which costs D − d products instead of d. At d = D nothing is left of B, and the density is exactly that of the square flow.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import RankDeficientError, in_transform
from ..flows.injection import Bijection, Injection
from ..flows.pad import Pad
from .bundle import basis, check_jacobian, log_volume, transpose


def codimension_of(core: list[Injection]) -> int | None:
    """D − d if the identity applies (a padding followed by bijections only), else None."""
    if core and isinstance(core[0], Pad) and all(isinstance(link, Bijection) for link in core[1:]):
        return core[0].codimension
    return None


def codimension_log_volume(core: list[Injection], z: Tensor) -> tuple[Tensor, Tensor]:
    """(f(z), ½ log det JᵀJ) by the identity above; needs ``codimension_of(core)`` to be a number."""
    pad, *square = core
    if not isinstance(pad, Pad):
        raise TypeError(f"expected a padding first; got {type(pad).__name__}")
    x = pad(z)
    log_det = z.new_zeros(z.shape[:1])
    outputs = []
    for link in square:
        if not isinstance(link, Bijection):
            raise TypeError(f"the codimension identity needs bijections after the padding; got {type(link).__name__}")
        x, term = link.forward_with_log_det(x)
        log_det = log_det + term
        outputs.append(x)
    _check_log_det(log_det)
    if pad.codimension == 0:
        return x, log_det
    # each inverse at the point where the forward pass was, so that rounding does not build up on the way back
    maps = [link.linearize_inverse(y)[1] for link, y in zip(square, outputs, strict=True)]

    def dropped(tangents: Tensor) -> Tensor:
        for inverse_map in reversed(maps):
            tangents = inverse_map(tangents)
        return pad.dropped_tangents(tangents)

    covectors = basis(x.new_zeros(x.shape[0], pad.codimension))
    like = x.unsqueeze(1).expand(-1, pad.codimension, *x.shape[1:])
    normals = transpose(dropped, like)(covectors)
    return x, log_det + log_volume(normals.flatten(2))


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
