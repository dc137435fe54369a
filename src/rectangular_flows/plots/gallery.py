"""Sets of images beside the samples of several models, and projections: one row a set, one panel a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from .images import DPI, Bytes, Images, mosaic
from .images import _bytes as as_bytes
from .images import _coloured as coloured
from .style import INK, MUTED

_SIDE = 6  # images along a panel
_PANEL = 440  # dots of a panel, about
_MARGIN, _APART, _HEAD = 20, 36, 84


@dataclass(frozen=True, eq=False)
class Gallery:
    """What is shown of one set.

    Attributes:
        name: of the set.
        real: (N, C, H, W), bytes or floats in [0, 1]; the first 36 are shown.
        samples: method → (N, C, H, W), likewise.
        projected_by: the method whose projections are shown.
        projections: of the first images of ``real``, (M, C, H, W); the first 18 are shown.
    """

    name: str
    real: Images
    samples: Mapping[str, Images]
    projected_by: str
    projections: Images

    def panels(self) -> dict[str, Bytes]:
        """Label → picture."""
        found = {"test images": mosaic(self.real[: _SIDE**2], _SIDE)}
        found |= {f"samples, {name}": mosaic(images[: _SIDE**2], _SIDE) for name, images in self.samples.items()}
        right = as_bytes(self.projections)[: _SIDE**2 // 2]
        left = as_bytes(self.real)[: len(right)]
        pairs = np.stack([left, right], axis=1).reshape(-1, *left.shape[1:])  # an image, then its projection
        found[f"image | projection, {self.projected_by}"] = _paired(pairs)
        return found


def draw_gallery(sets: Sequence[Gallery]) -> Figure:
    """A row for each set: real images, samples of each method, and images beside their projections.

    Every image pixel is a whole number of dots at :data:`~rectangular_flows.plots.images.DPI`.

    Args:
        sets: one or more.
    """
    if not sets:
        raise ValueError("expected at least one set to draw")
    rows = [(each.name, each.panels()) for each in sets]
    scales = [max(1, _PANEL // max(p.shape[1] for p in panels.values())) for _, panels in rows]
    columns = max(len(panels) for _, panels in rows)
    width = max(scale * p.shape[1] for scale, (_, panels) in zip(scales, rows, strict=True) for p in panels.values())
    heights = [
        scale * max(p.shape[0] for p in panels.values()) for scale, (_, panels) in zip(scales, rows, strict=True)
    ]
    size = 2 * _MARGIN + columns * width + (columns - 1) * _APART, _MARGIN + sum(heights) + len(rows) * _HEAD
    figure = Figure(figsize=(size[0] / DPI, size[1] / DPI), dpi=DPI, facecolor="white")
    top = size[1]
    for (name, panels), scale, height in zip(rows, scales, heights, strict=True):
        top -= _HEAD
        figure.text(_MARGIN / size[0], (top + 40) / size[1], name, fontsize=12, color=INK, fontweight="bold")
        for i, (label, picture) in enumerate(panels.items()):
            left, (high, wide) = _MARGIN + i * (width + _APART), (scale * n for n in picture.shape[:2])
            axis = figure.add_axes((left / size[0], (top - high) / size[1], wide / size[0], high / size[1]))
            _show(axis, picture, label)
        top -= height
    return figure


def _paired(images: Bytes) -> Bytes:
    """Pairs in rows of three, about as wide as six images: white lines part pairs, nothing their halves."""
    count, channels, height, width = images.shape
    pairs = images.reshape(count // 2, 2, channels, height, width)
    together = np.concatenate([pairs[:, 0], pairs[:, 1]], axis=3)
    return mosaic(together, _SIDE // 2, gap=(1, 3))


def _show(axis: Any, picture: Bytes, label: str) -> None:
    axis.imshow(coloured(picture), interpolation="nearest", aspect="auto")
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set_visible(False)
    axis.annotate(
        label,
        (0, 1),
        (0, 4),
        xycoords="axes fraction",
        textcoords="offset points",
        va="bottom",
        fontsize=9,
        color=MUTED,
    )


__all__ = ["Gallery", "draw_gallery"]
