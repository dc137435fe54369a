"""Sets of images beside samples of several models, and projections: one row a set, one panel a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from ..plots.images import DPI, Bytes, Images, as_bytes, beside, mosaic, show_picture
from ..plots.style import INK

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
        pairs = beside([as_bytes(self.real)[: len(right)], right], 0)
        found[f"image | projection, {self.projected_by}"] = mosaic(pairs, _SIDE // 2, gap=(1, 3))
        return found


def draw_gallery(sets: Sequence[Gallery]) -> Figure:
    """A row for each set: real images, samples of each method, and images beside their projections.

    Every image pixel is a whole number of dots at :data:`~rectangular_flows.plots.images.DPI`.

    Args:
        sets: one or more.
    """
    if not sets:
        raise ValueError("expected at least one set to draw; got none")
    rows = [(each.name, each.panels()) for each in sets]
    scales = [max(1, _PANEL // max(p.shape[1] for p in panels.values())) for _, panels in rows]
    sizes = [
        [(scale * p.shape[0], scale * p.shape[1]) for p in panels.values()]
        for scale, (_, panels) in zip(scales, rows, strict=True)
    ]
    heights = [max(high for high, _ in row) for row in sizes]
    width = max(wide for row in sizes for _, wide in row)
    columns = max(map(len, sizes))
    across, up = 2 * _MARGIN + columns * (width + _APART) - _APART, _MARGIN + sum(heights) + len(rows) * _HEAD
    figure = Figure(figsize=(across / DPI, up / DPI), dpi=DPI, facecolor="white")
    top = up
    for (name, panels), row, height in zip(rows, sizes, heights, strict=True):
        top -= _HEAD
        figure.text(_MARGIN / across, (top + 40) / up, name, fontsize=12, color=INK, fontweight="bold")
        for i, ((text, picture), (high, wide)) in enumerate(zip(panels.items(), row, strict=True)):
            left = _MARGIN + i * (width + _APART)
            axis = figure.add_axes((left / across, (top - high) / up, wide / across, high / up))
            show_picture(axis, picture, text)
        top -= height
    return figure
