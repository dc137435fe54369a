r"""The exact method: the whole Jacobian from one bundle of d tangents, its volume by QR.

Reference: the paper's Algorithm 2 (exact method), with the tangents bundled instead of one by one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ..flows.injection import Injection, forward_through, linearize_through, push_through
from ..flows.local_chart import local_chart
from .bundle import HasLayers, basis, core_and_tail, log_volume, log_volume_in_units, split_units
from .codimension import codimension_log_volume, codimension_of
from .precision import TangentDtype, check_tangent_dtype, guarded_factors, in_precision, rounded

_NORMAL = 6  # tangents that take as long as a normal: its two passes are backward through tangents of the inverse


@dataclass(frozen=True)
class Exact:
    r"""L = ½ log det JᵀJ and its exact gradient, with x̂ = f(z) from the same pass.

    Costs one primal pass and d tangents forward and backward; memory grows with d unless ``bundle_size`` bounds it.

    Args:
        bundle_size: tangents carried at a time while a graph is built. Each group's graph is made again in the backward
            pass, so that memory is that of one group and time about 4/3; value and gradient are the same.
        codimension: whether to use the codimension identity, which costs D − d products instead of d: "auto" where it
            applies, 6 (D − d) ≤ d, D − d ≤ ``bundle_size``, and no layer saturates (a logit layer's inverse is inaccurate
            next to 0 and 1); "always" (an error where it does not apply), or "never".
        tangent_dtype: "bfloat16" carries the tangents through the networks in that precision, for training on processors
            and GPUs that have instructions for it; rows with a badly conditioned Jacobian are computed again without it.
            The codimension identity keeps its precision.

    Example:
        >>> import torch
        >>> import rectangular_flows as rnf
        >>> flow = rnf.RectangularFlow(ambient=rnf.flows.RealNVP(5), latent=rnf.flows.RealNVP(2))
        >>> x_hat, L = Exact()(flow, torch.randn(7, 2))
        >>> x_hat.shape, L.shape
        (torch.Size([7, 5]), torch.Size([7]))
    """

    bundle_size: int | None = None
    codimension: Literal["auto", "always", "never"] = "auto"
    tangent_dtype: TangentDtype = None
    _reported: dict[str, float] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.bundle_size is not None and self.bundle_size < 1:
            raise ValueError(f"expected bundle_size ≥ 1 or None; got {self.bundle_size}")
        if self.codimension not in ("auto", "always", "never"):
            raise ValueError(f"expected codimension 'auto', 'always' or 'never'; got {self.codimension!r}")
        check_tangent_dtype(self.tangent_dtype)

    def __call__(self, flow: HasLayers | Injection, z: Tensor) -> tuple[Tensor, Tensor]:
        """(f(z), ½ log det J(z)ᵀJ(z)) for z of shape (B, d)."""
        core, tail = core_and_tail(flow, z)
        core, z = local_chart(core, z)
        if not core:  # isometric altogether
            return forward_through(tail, z), z.new_zeros(z.shape[:1])
        if self._use_codimension(core, z.shape[-1]):
            x, L = codimension_log_volume(core, z, tail)
        else:
            core, units = split_units(core, tail)
            x, tangents = self._tangents(core, z)
            tangents, (L, _, _) = guarded_factors(
                tangents.flatten(2),
                lambda rows: replace(self, tangent_dtype=None)._tangents(core, z[rows])[1].flatten(2),
                self.tangent_dtype,
                self._reported,
            )
            if units:
                x, L = forward_through(units, x.double()), log_volume_in_units(tangents, units, x)
        return forward_through(tail, x), L

    def _use_codimension(self, core: list[Injection], d: int) -> bool:
        codimension = codimension_of(core)
        if self.codimension == "always" and codimension is None:
            raise ValueError(
                "the codimension identity needs a padding followed by bijections only; this flow has other injections "
                "(a multi-scale split, an embedding before another layer). Use codimension='auto'."
            )
        if codimension is None or self.codimension == "never":
            return False
        if self.codimension == "always" or codimension == 0:
            return True
        if any(link.saturates for link in core):  # their inverse is inaccurate where they are flat; tangents are not
            return False
        return _NORMAL * codimension <= d and codimension <= (self.bundle_size or d)

    def _tangents(self, core: list[Injection], z: Tensor) -> tuple[Tensor, Tensor]:
        d = z.shape[-1]
        size = self.bundle_size or d
        if size >= d:
            with in_precision(self.tangent_dtype, z.device):
                return push_through(core, z, basis(z))
        x, tangent_map = linearize_through(core, z)
        tangent_map = rounded(tangent_map, self.tangent_dtype)
        groups = []
        for start in range(0, d, size):
            group = basis(z, start, start + size)
            if torch.is_grad_enabled():
                groups.append(checkpoint(tangent_map, group, use_reentrant=False, preserve_rng_state=False))
            else:
                groups.append(tangent_map(group))
        return x, torch.cat(groups, dim=1)


@torch.no_grad()
def two_log_volumes(whole: HasLayers, model: HasLayers, z: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(x̂, L, ŷ, L′): points and log-volumes of a chain and of its first links, its tangents pushed once.

    Args:
        whole: the chain with its unit layers.
        model: the same without them.
        z: coordinates, (B, d).
    """
    exact = Exact()
    core, tail = core_and_tail(model, z)
    units = whole.layers()[len(core) + len(tail) :]
    if not units:
        x, L = exact(model, z)
        return x, L, x, L
    if not core or any(exact._use_codimension(links, z.shape[1]) for links in (core, whole.layers())):
        return *exact(whole, z), *exact(model, z)
    core, z = local_chart(core, z)
    y, tangents = push_through(core, z, basis(z))
    model_L = log_volume(tangents.flatten(2))
    y, tangents = push_through(tail, y, tangents)
    inner, units = split_units(units)
    x, tangents = push_through(inner, y, tangents)
    L = log_volume_in_units(tangents.flatten(2), units, x) if units else log_volume(tangents.flatten(2))
    return forward_through(units, x.double() if units else x), L, y, model_L
