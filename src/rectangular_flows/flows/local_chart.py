"""Coordinates of the tangent space at a point, for latent spaces whose points have more coordinates than dimensions."""

from __future__ import annotations

from torch import Tensor

from .injection import Injection, TangentMap
from .spaces import Embedding


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
