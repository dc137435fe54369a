r"""Latent spaces that close up: products of lines, circles and 2-spheres, and their embeddings.

.. math:: \theta \mapsto (\cos\theta, \sin\theta), \qquad
          (\theta, \varphi) \mapsto \bigl((1 + r\cos\varphi)\cos\theta,\ (1 + r\cos\varphi)\sin\theta,\ r\sin\varphi\bigr),

the second for two circles where there is no room for four dimensions. A point of a sphere has three coordinates, those of
a unit vector, so that no place on it is singular; its tangents have an orthonormal basis of two.

Reference: Rezende et al., Normalizing flows on tori and spheres, arXiv:2002.02428.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from ..errors import NoNearestPointWarning, in_transform, warn
from .injection import Injection, TangentMap

_COORDINATES, _DIMENSIONS = {"line": 1, "circle": 1, "sphere": 3}, {"line": 1, "circle": 1, "sphere": 2}
EMBEDDED = {"line": 1, "circle": 2, "sphere": 3}
"""Dimensions that a factor takes where it is flat."""
_EXAMPLES = "'circle', 'torus:2', 'sphere', 'line:3', 'line*circle'"


@dataclass(frozen=True)
class Space:
    """A product of lines, circles and spheres.

    Attributes:
        factors: "line", "circle" or "sphere" each, in the order of the coordinates.

    Example:
        >>> space = Space.of("line*torus:2")
        >>> space.factors, space.dimension, str(space)
        (('line', 'circle', 'circle'), 3, 'line*torus:2')
    """

    factors: tuple[str, ...]

    @classmethod
    def of(cls, text: str | Space) -> Space:
        """From its name: factors joined by ``*``, each with how many of it there are: ``line:2*circle``.

        Raises:
            ValueError: there is no such space.
        """
        if isinstance(text, Space):
            return text
        factors: list[str] = []
        for part in str(text).split("*"):
            found = re.fullmatch(r"\s*(line|circle|torus|sphere)\s*(?::\s*(\d+)\s*)?", part)
            count = int(found[2]) if found and found[2] else 1
            if not found or count < 1 or (found[1] == "torus" and not found[2]):
                how = " A torus needs its dimension: torus:2." if part.strip() == "torus" else ""
                raise ValueError(f"expected a latent space such as {_EXAMPLES}; got {text!r}.{how}")
            factors += ["circle" if found[1] == "torus" else found[1]] * count
        return cls(tuple(factors))

    @classmethod
    def lines(cls, count: int) -> Space:
        """R^d."""
        return cls(("line",) * count)

    def __str__(self) -> str:
        groups = [(name, len(list(group))) for name, group in groupby(self.factors)]
        names = {name: "torus" if name == "circle" else name for name in _COORDINATES}
        return "*".join(name if count == 1 else f"{names[name]}:{count}" for name, count in groups)

    @property
    def flat(self) -> bool:
        """Whether it is R^d."""
        return set(self.factors) == {"line"}

    @property
    def dimension(self) -> int:
        """d."""
        return sum(_DIMENSIONS[factor] for factor in self.factors)

    @property
    def coordinates(self) -> int:
        """Numbers that stand for a point: d, and one more for every sphere."""
        return sum(_COORDINATES[factor] for factor in self.factors)

    def places(self, sizes: Mapping[str, int] = _COORDINATES) -> list[tuple[str, slice]]:
        """Every factor, and where its coordinates are; with ``EMBEDDED``, those of its embedding."""
        found, start = [], 0
        for factor in self.factors:
            found.append((factor, slice(start, start + sizes[factor])))
            start += sizes[factor]
        return found

    def difference(self, a: Tensor, b: Tensor) -> Tensor:
        """a − b, (B, coordinates), with angles the short way round."""
        return self._on_circles(a - b, wrap)

    def between(self, a: Tensor, b: Tensor, share: float = 0.5) -> Tensor:
        """The point on the way from a to b, the short way round; (B, coordinates)."""
        value = self._on_circles(a + share * self.difference(b, a), wrap)
        parts = [unit(value[..., place]) if name == "sphere" else value[..., place] for name, place in self.places()]
        return torch.cat(parts, dim=-1) if "sphere" in self.factors else value

    def _on_circles(self, values: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        if "circle" not in self.factors:
            return values
        parts = [function(values[..., at]) if name == "circle" else values[..., at] for name, at in self.places()]
        return torch.cat(parts, dim=-1)


def wrap(angle: Tensor) -> Tensor:
    """The same angle in [−π, π)."""
    return torch.remainder(angle + math.pi, 2 * math.pi) - math.pi


def unit(v: Tensor) -> Tensor:
    """v/‖v‖, (…, n)."""
    return v / v.norm(dim=-1, keepdim=True)


def _log_norm(v: Tensor) -> Tensor:
    """log‖v‖, (…, n) → (…,); finite at 0."""
    return v.square().sum(-1).clamp_min(torch.finfo(v.dtype).tiny).log() / 2


# --- how each kind of factor is embedded; all act on the last dimension


class _Block(ABC):
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


class _Lines(_Block):
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


class _Circles(_Block):
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


class _Ring(_Block):
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


class _Sphere(_Block):
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


_KINDS: dict[str, Callable[[int], _Block]] = {"line": _Lines, "circle": _Circles}


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


class Embedding(Injection):
    """A closed latent space in Euclidean space: the first link of a chain, before the padding.

    The left inverse gives the nearest point, with angles in (−π, π]; at the centre of a circle, where there is none, it
    warns.

    Args:
        space: its name, such as "circle" or "line*torus:2"; see :class:`Space`.
        ring: two circles as a torus in R³ instead of R⁴.

    Example:
        >>> import torch
        >>> Embedding("circle")(torch.tensor([[0.0]])), Embedding("torus:2", ring=True).out_shape
        (tensor([[1., 0.]]), (3,))
    """

    def __init__(self, space: str, ring: bool = False):
        self.space, self.ring = Space.of(space), ring
        if ring and self.space.factors.count("circle") != 2:
            raise ValueError(f"expected two circles for a ring; got {self.space}")
        self._blocks: list[_Block] = []
        groups = [(name, len(list(group))) for name, group in groupby(self.space.factors)]
        if ring and ("circle", 2) not in groups:
            raise ValueError(f"expected two circles side by side for a ring, such as torus:2; got {self.space}")
        for name, count in groups:
            if name == "sphere":
                self._blocks += [_Sphere() for _ in range(count)]
            else:
                self._blocks.append(_Ring() if ring and name == "circle" else _KINDS[name](count))
        size = sum(block.embedded for block in self._blocks)
        super().__init__((self.space.coordinates,), (size,))

    @classmethod
    def within(cls, space: Space, size: int) -> Embedding:
        """The embedding of a space in R^size: flat if there is room, as a ring torus if that takes one dimension less.

        Raises:
            ValueError: there is too little room.
        """
        wanted = sum(EMBEDDED[factor] for factor in space.factors)
        if size >= wanted:
            return cls(str(space))
        ring = [len(list(group)) for name, group in groupby(space.factors) if name == "circle"] == [2]
        if ring and size >= wanted - 1:
            return cls(str(space), ring=True)
        raise ValueError(
            f"the latent space {space} needs at least {wanted - ring} dimensions to lie in; the data have {size}. Choose a "
            "smaller space, or leave it out for a flat one"
        )

    @property
    def isometric(self) -> bool:  # type: ignore[override]
        """Whether all parts are: not a ring, nor a sphere on all of R³."""
        return all(block.isometric for block in self._blocks)

    def _split(self, values: Tensor, sizes: str) -> Sequence[tuple[_Block, Tensor]]:
        parts = values.split([getattr(block, sizes) for block in self._blocks], dim=-1)
        return list(zip(self._blocks, parts, strict=True))

    def forward(self, z: Tensor) -> Tensor:
        return torch.cat([block.forward(part) for block, part in self._split(z, "coordinates")], dim=-1)

    def inverse(self, x: Tensor) -> Tensor:
        return torch.cat([block.inverse(part) for block, part in self._split(x, "embedded")], dim=-1)

    def linearize(self, z: Tensor) -> tuple[Tensor, TangentMap]:
        maps = [block.tangent(part) for block, part in self._split(z, "coordinates")]
        return self.forward(z), self._joined(maps, "coordinates")

    def linearize_inverse(self, x: Tensor) -> tuple[Tensor, TangentMap]:
        maps = [block.inverse_tangent(part) for block, part in self._split(x, "embedded")]
        return self.inverse(x), self._joined(maps, "embedded")

    def _joined(self, maps: list[TangentMap], sizes: str) -> TangentMap:
        def apply(tangents: Tensor) -> Tensor:
            parts = self._split(tangents, sizes)
            return torch.cat([each(part) for each, (_, part) in zip(maps, parts, strict=True)], dim=-1)

        return apply

    # --- around the space

    def offsets(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Where points are beside the space, (B, out − d), zero on it; and log|det ∂(z, offsets)/∂x|, (B,)."""
        found = [block.offsets(part) for block, part in self._split(x, "embedded")]
        return torch.cat([offset for offset, _ in found], dim=-1), sum((each for _, each in found), x.new_zeros(len(x)))

    def place(self, z: Tensor, offsets: Tensor) -> Tensor:
        """The point with these coordinates and offsets: the inverse of (:meth:`inverse`, :meth:`offsets`)."""
        sizes = [block.embedded - block.dimension for block in self._blocks]
        parts = zip(self._split(z, "coordinates"), offsets.split(sizes, dim=-1), strict=True)
        return torch.cat([block.place(part, offset) for (block, part), offset in parts], dim=-1)

    # --- tangents of a sphere

    def frame(self, z: Tensor) -> Tensor | None:
        """An orthonormal basis of the tangent space at z, (B, d, coordinates); None where the standard one will do."""
        if "sphere" not in self.space.factors:
            return None
        frame = z.new_zeros(len(z), self.space.dimension, self.space.coordinates)
        row = 0
        for name, place in self.space.places():
            size = _DIMENSIONS[name]
            frame[:, row : row + size, place] = sphere_frame(z[:, place]) if name == "sphere" else 1.0
            row += size
        return frame


class LocalChart(Injection):
    """s ↦ z + Fᵀs: coordinates of the tangent space at a point z, by a basis F of it, (B, d, coordinates).

    The volume puts it before a chain whose points have more coordinates than dimensions, and takes J at s = 0.
    """

    isometric = True

    def __init__(self, z: Tensor, frame: Tensor):
        super().__init__((frame.shape[1],), (frame.shape[2],))
        self.z, self.frame = z, frame

    def forward(self, s: Tensor) -> Tensor:
        return self.z + self._push(s.unsqueeze(1)).squeeze(1)

    def inverse(self, x: Tensor) -> Tensor:
        return ((x - self.z).unsqueeze(1) @ self.frame.mT).squeeze(1)

    def _push(self, tangents: Tensor) -> Tensor:
        return tangents @ self.frame

    def linearize(self, s: Tensor) -> tuple[Tensor, TangentMap]:
        return self.forward(s), self._push

    def linearize_inverse(self, x: Tensor) -> tuple[Tensor, TangentMap]:
        return self.inverse(x), lambda tangents: tangents @ self.frame.mT


def local_chart(links: list[Injection], z: Tensor) -> tuple[list[Injection], Tensor]:
    """Links and point whose coordinates number d: the same, or with a :class:`LocalChart` before them."""
    frame = links[0].frame(z) if links and isinstance(links[0], Embedding) else None
    if frame is None:
        return links, z
    return [LocalChart(unit_spheres(links[0], z), frame), *links], z.new_zeros(frame.shape[:2])


def unit_spheres(link: Injection, z: Tensor) -> Tensor:
    """z with the coordinates on every sphere of norm 1, as the embedding takes them."""
    return link.inverse(link(z))


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
