r"""How lines, circles and spheres are embedded, the factors of a latent space; every map acts on the last dimension.

.. math:: \theta \mapsto (\cos\theta, \sin\theta), \qquad
          (\theta, \varphi) \mapsto \bigl((1 + r\cos\varphi)\cos\theta,\ (1 + r\cos\varphi)\sin\theta,\ r\sin\varphi\bigr),

the second for two circles where there is no room for four dimensions. A point of a sphere has three coordinates, those of
a unit vector, so that no place on it is singular; its tangents have an orthonormal basis of two.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from ..errors import NoNearestPointWarning, in_transform, warn
from .injection import TangentMap


def wrap(angle: Tensor) -> Tensor:
    """The same angle in [−π, π)."""
    return torch.remainder(angle + math.pi, 2 * math.pi) - math.pi


def unit(v: Tensor) -> Tensor:
    """v/‖v‖, (…, n)."""
    return v / v.norm(dim=-1, keepdim=True)


def sphere_frame(z: Tensor) -> Tensor:
    """Two orthonormal tangents at points of a sphere, (B, 2, 3), without a pole.

    Reference: Duff et al., Building an orthonormal basis, revisited, JCGT 6 (2017).
    """
    x, y, h = unit(z).unbind(-1)
    sign = torch.where(h < 0, -torch.ones_like(h), torch.ones_like(h))
    a = -1 / (sign + h)
    b = x * y * a
    first = torch.stack((1 + sign * x.square() * a, sign * b, -sign * x), dim=-1)
    second = torch.stack((b, sign + y.square() * a, -y), dim=-1)
    return torch.stack((first, second), dim=-2)


class Block(ABC):
    """Some factors of one kind: the map, its left inverse (the nearest point), and coordinates around it."""

    isometric = True
    coordinates: int
    dimension: int
    embedded: int

    @abstractmethod
    def forward(self, z: Tensor) -> Tensor:
        """Embedded points of coordinates."""

    @abstractmethod
    def inverse(self, v: Tensor) -> Tensor:
        """Coordinates of the nearest points."""

    @abstractmethod
    def tangent(self, z: Tensor) -> TangentMap:
        """The derivative of the map at z."""

    @abstractmethod
    def inverse_tangent(self, v: Tensor) -> TangentMap:
        """The derivative of the left inverse at v."""

    @abstractmethod
    def offsets(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Where v is beside the space, (B, embedded − dimension), and log|det ∂(z, offsets)/∂v|, (B,)."""

    @abstractmethod
    def place(self, z: Tensor, offsets: Tensor) -> Tensor:
        """The point with nearest point z and these offsets; zero on the space itself."""


class Lines(Block):
    """As they are."""

    def __init__(self, count: int):
        self.coordinates = self.dimension = self.embedded = count

    def forward(self, z: Tensor) -> Tensor:
        return z

    def inverse(self, v: Tensor) -> Tensor:
        return v

    def tangent(self, z: Tensor) -> TangentMap:
        return lambda tangents: tangents

    def inverse_tangent(self, v: Tensor) -> TangentMap:
        return lambda tangents: tangents

    def offsets(self, v: Tensor) -> tuple[Tensor, Tensor]:
        return v[..., :0], v.new_zeros(v.shape[:-1])

    def place(self, z: Tensor, offsets: Tensor) -> Tensor:
        return z


class Circles(Block):
    """Angles to pairs (cos, sin), one after the other; log r is the offset."""

    def __init__(self, count: int):
        self.coordinates = self.dimension = count
        self.embedded = 2 * count

    def forward(self, z: Tensor) -> Tensor:
        return torch.stack((z.cos(), z.sin()), dim=-1).flatten(-2)

    def inverse(self, v: Tensor) -> Tensor:
        x, y = _away(v.unflatten(-1, (-1, 2)), "circle").unbind(-1)
        return torch.atan2(y, x)

    def tangent(self, z: Tensor) -> TangentMap:
        along = torch.stack((-z.sin(), z.cos()), dim=-1).unsqueeze(1)
        return lambda tangents: (tangents.unsqueeze(-1) * along).flatten(-2)

    def inverse_tangent(self, v: Tensor) -> TangentMap:
        pairs = _away(v.unflatten(-1, (-1, 2)), "circle")
        across = torch.stack((-pairs[..., 1], pairs[..., 0]), dim=-1) / pairs.square().sum(-1, keepdim=True)
        return lambda tangents: (tangents.unflatten(-1, (-1, 2)) * across.unsqueeze(1)).sum(-1)

    def offsets(self, v: Tensor) -> tuple[Tensor, Tensor]:
        log_r = _log_norm(v.unflatten(-1, (-1, 2)))
        return log_r, -2 * log_r.sum(-1)  # dx dy = r² dθ d(log r)

    def place(self, z: Tensor, offsets: Tensor) -> Tensor:
        return (self.forward(z).unflatten(-1, (-1, 2)) * offsets.exp().unsqueeze(-1)).flatten(-2)


class Ring(Block):
    """Two angles to a torus in R³; log(t/r), of the distance t from the circle inside, is the offset."""

    isometric = False
    coordinates = dimension = 2
    embedded = 3
    radius = 0.4

    def forward(self, z: Tensor) -> Tensor:
        return self._at(z, self.radius)

    def _at(self, z: Tensor, t: float | Tensor) -> Tensor:
        theta, phi = z.unbind(-1)
        ring = 1 + t * phi.cos()
        return torch.stack((ring * theta.cos(), ring * theta.sin(), t * phi.sin()), dim=-1)

    def inverse(self, v: Tensor) -> Tensor:
        flat, tube = self._parts(v)
        return torch.stack((torch.atan2(flat[..., 1], flat[..., 0]), torch.atan2(tube[..., 1], tube[..., 0])), dim=-1)

    def _parts(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """(x, y), and the place in the half plane through the axis, from the circle inside."""
        flat = _away(v[..., :2], "axis of a torus")
        tube = torch.stack((flat.norm(dim=-1) - 1, v[..., 2]), dim=-1)
        return flat, _away(tube, "circle inside a torus")

    def tangent(self, z: Tensor) -> TangentMap:
        (a, b), r = z.unsqueeze(1).unbind(-1), self.radius
        ring = 1 + r * b.cos()
        along = torch.stack((-ring * a.sin(), ring * a.cos(), torch.zeros_like(a)), dim=-1)
        around = r * torch.stack((-b.sin() * a.cos(), -b.sin() * a.sin(), b.cos()), dim=-1)
        return lambda t: t[..., :1] * along + t[..., 1:] * around

    def inverse_tangent(self, v: Tensor) -> TangentMap:
        (x, y), (off, height) = (part.unsqueeze(1).unbind(-1) for part in self._parts(v))
        rho = (x.square() + y.square()).sqrt()
        t2 = off.square() + height.square()

        def apply(tangents: Tensor) -> Tensor:
            dx, dy, dz = tangents.unbind(-1)
            outwards = (x * dx + y * dy) / rho
            return torch.stack(((x * dy - y * dx) / rho.square(), (off * dz - height * outwards) / t2), dim=-1)

        return apply

    def offsets(self, v: Tensor) -> tuple[Tensor, Tensor]:
        flat, tube = self._parts(v)
        log_t, log_rho = _log_norm(tube), _log_norm(flat)
        # dx dy dz = ρ t² dθ dφ d(log t)
        return (log_t - math.log(self.radius)).unsqueeze(-1), -2 * log_t - log_rho

    def place(self, z: Tensor, offsets: Tensor) -> Tensor:
        return self._at(z, self.radius * offsets[..., 0].exp())


class Sphere(Block):
    """Unit vectors of R³ to themselves; log r is the offset."""

    isometric = False  # on its tangents it is, but not on all of R³
    coordinates = embedded = 3
    dimension = 2

    def forward(self, z: Tensor) -> Tensor:
        return unit(z)

    def inverse(self, v: Tensor) -> Tensor:
        return unit(_away(v, "sphere"))

    def tangent(self, z: Tensor) -> TangentMap:
        u, r = unit(z).unsqueeze(1), z.norm(dim=-1, keepdim=True).unsqueeze(1)
        return lambda tangents: (tangents - u * (u * tangents).sum(-1, keepdim=True)) / r

    def inverse_tangent(self, v: Tensor) -> TangentMap:
        return self.tangent(_away(v, "sphere"))

    def offsets(self, v: Tensor) -> tuple[Tensor, Tensor]:
        log_r = _log_norm(v).unsqueeze(-1)
        return log_r, -3 * log_r[..., 0]  # dv = r³ dA d(log r)

    def place(self, z: Tensor, offsets: Tensor) -> Tensor:
        return unit(z) * offsets.exp()


def _log_norm(v: Tensor) -> Tensor:
    """log‖v‖, (…, n) → (…,); finite at 0."""
    return v.square().sum(-1).clamp_min(torch.finfo(v.dtype).tiny).log() / 2


def _away(v: Tensor, what: str) -> Tensor:
    """v, (…, n), moved off the centre, from which no point of the space is the nearest; with a warning."""
    centre = v.detach().abs().amax(dim=-1, keepdim=True) <= torch.finfo(v.dtype).tiny ** 0.5
    if not in_transform(v) and bool(centre.any()):
        count = int(centre.flatten(1).any(dim=1).sum())
        warn(
            NoNearestPointWarning,
            f"{count} of {len(v)} points lie at the centre of the latent space (the {what}), where no point of it is the "
            "nearest: their first angle is taken as 0. Their coordinates and densities mean nothing.",
        )
    first = torch.zeros_like(v)
    first[..., 0] = 1
    return torch.where(centre, first, v)
