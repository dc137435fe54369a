r"""Densities on the latent space R^d: what h contributes, whoever wrote it.

.. math:: \log p_h(z) = \log \mathcal N(h^{-1}(z); 0, I) + \log|\det \partial h^{-1}/\partial z| .

h needs a density and samples only, never a Jacobian product, so any density estimator on R^d will do.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from .description import Described
from .injection import Bijection
from .linear import Whitening

_ZUKO = ("BPF", "CNF", "GF", "GMM", "MAF", "NAF", "NCSF", "NICE", "NSF", "RealNVP", "SOSPF", "UNAF")


class Density(Described, nn.Module, ABC):
    """A probability density on R^d with samples."""

    features: int

    @abstractmethod
    def log_prob(self, z: Tensor) -> Tensor:
        """log p(z), (B, d) → (B,)."""

    @abstractmethod
    def sample(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Independent draws, (count, d)."""

    @abstractmethod
    def initialise(self, z: Tensor) -> None:
        """Set whatever is taken from data, such as the whitening."""


class FlowDensity(Density):
    """A standard Gaussian pushed through one of our bijections.

    Example:
        >>> import torch
        >>> from rectangular_flows.flows import Identity
        >>> FlowDensity(Identity(2)).log_prob(torch.zeros(1, 2))
        tensor([-1.8379])
    """

    def __init__(self, flow: Bijection):
        super().__init__()
        if len(flow.in_shape) != 1 or flow.in_shape != flow.out_shape:
            raise ValueError(f"expected a map of R^d to itself as h; got {flow.in_shape} to {flow.out_shape}")
        self.flow = flow
        self.features = flow.in_shape[0]
        self.register_buffer("_where", torch.zeros(()), persistent=False)  # device and dtype of samples

    def log_prob(self, z: Tensor) -> Tensor:
        u, log_det = self.flow.inverse_with_log_det(z)
        return standard_normal_log_prob(u) + log_det

    def sample(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        u: Tensor = self.flow(draw_normal((count, self.features), self._where, generator))  # type: ignore[arg-type]
        return u

    def initialise(self, z: Tensor) -> None:
        self.flow.initialise(z)


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
            raise ValueError(f"expected a density on vectors as h; got event shape {shape}")
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


def as_density(latent: Density | Bijection | nn.Module) -> Density:
    """The density that h stands for: one of our bijections, a zuko flow, or a ready :class:`Density`."""
    if isinstance(latent, Density):
        return latent
    if isinstance(latent, Bijection):
        return FlowDensity(latent)
    if any(base.__module__.split(".")[0] == "zuko" for base in type(latent).__mro__):
        return ZukoDensity(latent)
    raise TypeError(
        f"expected h to be a Bijection of rectangular_flows, a zuko flow or a Density; got {type(latent).__name__}. "
        "For another library, subclass rectangular_flows.flows.Density: log_prob, sample, initialise."
    )


def standard_normal_log_prob(u: Tensor) -> Tensor:
    """log N(u; 0, I), (B, d) → (B,)."""
    return -0.5 * (u.square().sum(dim=-1) + u.shape[-1] * math.log(2 * math.pi))


def draw_normal(shape: tuple[int, ...], like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Standard normal draws with the dtype and device of ``like``, from the generator's own device if there is one."""
    device = like.device if generator is None else generator.device
    return torch.randn(shape, dtype=like.dtype, device=device, generator=generator).to(like.device)


def _zuko_class(name: str) -> Any:
    import zuko.flows

    if name not in _ZUKO:
        raise ValueError(f"expected the name of a zuko flow among {', '.join(_ZUKO)}; got {name!r}")
    return getattr(zuko.flows, name)


def _distribution(flow: nn.Module) -> Any:
    return flow()


__all__ = ["Density", "FlowDensity", "ZukoDensity", "as_density"]
