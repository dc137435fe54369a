r"""Latent spaces that close up: products of lines, circles and 2-spheres, and their embeddings.

How each factor is embedded: :mod:`.factors`.

Reference: Rezende et al., Normalizing flows on tori and spheres, arXiv:2002.02428.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from .factors import Block, Circles, Lines, Ring, Sphere
from .factors import sphere_frame as sphere_frame
from .factors import unit as unit
from .factors import wrap as wrap
from .injection import Injection, TangentMap

_COORDINATES, _DIMENSIONS = {"line": 1, "circle": 1, "sphere": 3}, {"line": 1, "circle": 1, "sphere": 2}
EMBEDDED = {"line": 1, "circle": 2, "sphere": 3}
"""Dimensions that a factor takes where it is flat."""
_KINDS: dict[str, Callable[[int], Block]] = {"line": Lines, "circle": Circles}
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
        self._blocks: list[Block] = []
        groups = [(name, len(list(group))) for name, group in groupby(self.space.factors)]
        if ring and ("circle", 2) not in groups:
            raise ValueError(f"expected two circles side by side for a ring, such as torus:2; got {self.space}")
        for name, count in groups:
            if name == "sphere":
                self._blocks += [Sphere() for _ in range(count)]
            else:
                self._blocks.append(Ring() if ring and name == "circle" else _KINDS[name](count))
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

    def _split(self, values: Tensor, sizes: str) -> Sequence[tuple[Block, Tensor]]:
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
