"""Latent densities of the zuko library."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..flows.linear import Whitening
from .base import Density

_ZUKO = ("BPF", "CNF", "GF", "GMM", "MAF", "NAF", "NCSF", "NICE", "NSF", "RealNVP", "SOSPF", "UNAF")


class ZukoDensity(Density):
    """Any zuko flow (spline flows in coupling form, MAF, mixtures, …) after a whitening affine map.

    The whitening is there because rational-quadratic splines are the identity outside a box: on coordinates of another
    scale they learn nothing. It starts as the identity and takes its values from data by ``initialise``.

    Args:
        flow: the name of a class in ``zuko.flows``, which is made with ``settings`` and can be saved with the model; or a
            zuko flow without context that you made yourself, such as ``zuko.flows.NSF(features=3, passes=2)``.
        whiten: whether to put the (trained) whitening before it.
        settings: arguments of the named class.

    Example:
        >>> import torch
        >>> h = ZukoDensity("NSF", features=2, transforms=1, passes=2)
        >>> h.log_prob(torch.zeros(3, 2)).shape, h.sample(5).shape
        (torch.Size([3]), torch.Size([5, 2]))
    """

    def __init__(self, flow: nn.Module | str, whiten: bool = True, **settings: Any):
        super().__init__()
        if settings and not isinstance(flow, str):
            raise ValueError(f"settings are for a flow given by name; got {', '.join(settings)} and a ready flow")
        self.flow: nn.Module = _zuko_class(flow)(**settings) if isinstance(flow, str) else flow
        shape = tuple(_distribution(self.flow).event_shape)
        if len(shape) != 1:
            raise ValueError(f"expected a latent density on vectors; got event shape {shape}")
        self.features = shape[0]
        self.whitening = Whitening(self.features) if whiten else None
        self.register_buffer("_where", torch.zeros(()), persistent=False)

    def log_prob(self, z: Tensor) -> Tensor:
        u, log_det = (z, 0.0) if self.whitening is None else self.whitening.inverse_with_log_det(z)
        with z.device:  # zuko makes some tensors on the default device
            value: Tensor = _distribution(self.flow).log_prob(u)
        return value + log_det

    def sample(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        where: Tensor = self._where  # type: ignore[assignment]
        devices = [where.device] if where.device.type == "cuda" else []
        # zuko draws from the global generator: lend it ours for the while
        with torch.random.fork_rng(devices, enabled=generator is not None), where.device:
            if generator is not None:
                torch.manual_seed(torch.randint(2**62, (), device=generator.device, generator=generator).item())
            u: Tensor = _distribution(self.flow).sample((count,))
        return u if self.whitening is None else self.whitening(u)

    def initialise(self, z: Tensor) -> None:
        if self.whitening is not None:
            self.whitening.initialise(z)


def _zuko_class(name: str) -> Any:
    import zuko.flows

    if name not in _ZUKO:
        raise ValueError(f"expected the name of a zuko flow among {', '.join(_ZUKO)}; got {name!r}")
    return getattr(zuko.flows, name)


def _distribution(flow: nn.Module) -> Any:
    return flow()
