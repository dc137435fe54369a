"""Pictures of a flow on images: samples, projections, the latent plane, lines between images.

Every image pixel is a whole number of pixels of the figure at 160 dots an inch, and none is interpolated.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from matplotlib.figure import Figure
from matplotlib.image import imsave
from torch import Tensor

from ..data.pixels import to_bytes
from ..densities import FlowDensity
from ..flows import Identity
from ..manifold import RectangularFlow
from .style import INK, MUTED

Bytes = npt.NDArray[np.uint8]
Images = Tensor | npt.NDArray[Any]

DPI = 160
"""Dots an inch at which image pixels are whole: save these figures with it, or with a multiple of it."""

_WIDEST = 8.4  # inches of a picture
_NARROWEST = 4.6  # inches of a figure, so that its title fits
_MOST_MAGNIFIED = 6
_MARGIN, _HEAD = 20, 76  # dots
_TICKS = (0.05, 0.25, 0.5, 0.75, 0.95)


def mosaic(
    images: Images, columns: int = 10, *, gap: int | tuple[int, int] = 1, scale: int = 1, paper: int = 255
) -> Bytes:
    """Images in rows and columns as one picture, at the resolution of the images times ``scale``.

    Args:
        images: (N, C, H, W), C being 1 or 3: bytes, or floats in [0, 1]; what lies outside is shown as black or white.
        columns: images in a row; the last row may be shorter.
        gap: pixels of the images between them; two numbers: between rows and between columns.
        scale: dots of the picture for each pixel of the images, before which nothing is resampled.
        paper: the grey of gaps and of empty places.

    Returns:
        (height, width), or (height, width, 3) for images with colours.

    Example:
        >>> mosaic(np.zeros((5, 1, 8, 8), np.uint8), columns=3, gap=1).shape
        (17, 26)
    """
    pixels = _bytes(images)
    if columns < 1 or scale < 1:
        raise ValueError(f"expected columns ≥ 1 and scale ≥ 1; got {columns} and {scale}")
    count, channels, height, width = pixels.shape
    columns = min(columns, count)
    rows = -(-count // columns)
    between_rows, between_columns = (gap, gap) if isinstance(gap, int) else gap
    step = height + between_rows, width + between_columns
    picture = np.full((rows * step[0] - between_rows, columns * step[1] - between_columns, channels), paper, np.uint8)
    for i, image in enumerate(pixels):
        top, left = i // columns * step[0], i % columns * step[1]
        picture[top : top + height, left : left + width] = image.transpose(1, 2, 0)
    picture = picture.repeat(scale, axis=0).repeat(scale, axis=1)
    return picture[:, :, 0] if channels == 1 else picture


def png(picture: Bytes) -> bytes:
    """A picture, as :func:`mosaic` makes it, as the content of a PNG file: a dot a pixel, without title or margin.

    Example:
        >>> png(mosaic(np.zeros((4, 1, 8, 8), np.uint8), columns=2, scale=3))[1:4]
        b'PNG'
    """
    file = io.BytesIO()
    imsave(file, _coloured(picture), format="png")
    return file.getvalue()


def draw_samples(images: Images, columns: int = 10, *, heading: str = "Samples", detail: str = "") -> Figure:
    """Images in rows and columns.

    Args:
        images: (N, C, H, W): bytes, or floats in [0, 1].
        columns: images in a row.
        heading: of the figure.
        detail: a line under it.
    """
    return _sheet(mosaic(images, columns), heading, detail)[0]


def draw_reconstructions(
    originals: Images,
    projections: Images,
    errors: Sequence[float] | npt.ArrayLike | None = None,
    columns: int = 5,
    *,
    heading: str = "Images and their projections on the manifold",
) -> Figure:
    """Pairs: each image and, to its right, its projection on the manifold.

    Args:
        originals: (N, C, H, W): bytes, or floats in [0, 1].
        projections: the same number of the same shape.
        errors: (N,), a distance to write under each pair.
        columns: pairs in a row.
        heading: of the picture.
    """
    left, right = _bytes(originals), _bytes(projections)
    if left.shape != right.shape:
        raise ValueError(f"expected a projection for each image, of its shape; got {right.shape} for {left.shape}")
    count, channels, height, width = left.shape
    pairs = np.concatenate([left, np.full((count, channels, height, 1), 255, np.uint8), right], axis=3)
    apart = max(3, width // 5)
    below = apart if errors is None else max(apart, round(0.4 * height))
    figure, axis, magnified = _sheet(
        mosaic(pairs, columns, gap=(below, apart)),
        heading,
        "left: the image · right: its projection" + ("" if errors is None else " · below: the distance between them"),
        foot=0 if errors is None else below,
        foot_dots=_MARGIN if errors is None else 0,
    )
    if errors is not None:
        texts = np.asarray(errors, dtype=np.float64)
        if texts.shape != (count,):
            raise ValueError(f"expected an error for each of {count} images; got shape {texts.shape}")
        size = min(8.0, 0.62 * below * magnified * 72 / DPI)
        for i, value in enumerate(texts):
            row, column = divmod(i, columns)
            x = column * (2 * width + 1 + apart) + width
            y = row * (height + below) + height + 0.12 * below
            axis.text(
                x, y, f"{value:#.3g}".rstrip("."), ha="center", va="top", fontsize=size, color=MUTED, clip_on=False
            )
    return figure


@torch.no_grad()
def draw_latent_grid(flow: RectangularFlow, side: int = 20) -> Figure:
    """The manifold of a flow with d = 2: images at a grid of quantiles of its coordinates z₁ (rightwards), z₂ (upwards).

    Quantiles of the standard normal where h is the identity, and of 20,000 samples of h along each axis where it is not.

    Args:
        flow: a flow of images, d = 2.
        side: images along each axis.
    """
    if flow.latent_dim != 2:
        raise ValueError(f"expected a flow with d = 2 to draw its plane; got d = {flow.latent_dim}")
    if side < 2:
        raise ValueError(f"expected at least 2 images along each axis; got {side}")
    shares = (np.arange(side) + 0.5) / side
    across, up = _quantiles(flow, shares)
    grid = torch.cartesian_prod(up.flip(0), across).flip(1)  # row by row from above, the largest z₂ first
    picture = mosaic(_decoded(flow, grid), side, gap=0)
    heading = "The manifold along its two coordinates"
    figure, axis, _ = _sheet(
        picture, heading, f"{side} × {side} quantiles of the latent density", left=112, foot_dots=86
    )
    for name, label, size, upwards in (("x", "z₁", picture.shape[1], False), ("y", "z₂", picture.shape[0], True)):
        places = [(1 - share if upwards else share) * size - 0.5 for share in _TICKS]
        texts = [f"{100 * share:.0f} %" for share in _TICKS]
        getattr(axis, f"set_{name}ticks")(places, texts)
        getattr(axis, f"set_{name}label")(label, color=INK, fontsize=9, rotation=0)
    axis.yaxis.labelpad = 8
    axis.tick_params(colors=MUTED, labelsize=7, length=2, color=MUTED)
    return figure


@torch.no_grad()
def draw_interpolations(
    flow: RectangularFlow, first: Tensor, second: Tensor, steps: int = 10, *, heading: str = "Lines on the manifold"
) -> Figure:
    """A row for each pair of images: the first, a straight line between their coordinates on the manifold, the second.

    Args:
        flow: a flow of images.
        first: (N, C, H, W), as the flow takes them.
        second: the same number of them.
        steps: images on each line, the projections of both ends among them.
        heading: of the picture.
    """
    if first.shape != second.shape:
        raise ValueError(f"expected as many images on either end; got {tuple(first.shape)} and {tuple(second.shape)}")
    if steps < 2:
        raise ValueError(f"expected at least the two ends, steps ≥ 2; got {steps}")
    a, b = flow.encode(first), flow.encode(second)
    share = torch.linspace(0, 1, steps, dtype=a.dtype, device=a.device)[:, None]
    lines = (a[:, None] * (1 - share) + b[:, None] * share).flatten(0, 1)
    between = _bytes(_decoded(flow, lines)).reshape(len(first), steps, *first.shape[1:])
    count, channels, height, width = first.shape
    apart = max(3, width // 5)
    space = np.full((count, channels, height, apart), 255, np.uint8)
    thin = space[:, :, :, :1]
    parts = [_bytes(first), space]
    for i in range(steps):
        parts += [between[:, i]] if i == 0 else [thin, between[:, i]]
    parts += [space, _bytes(second)]
    picture = mosaic(np.concatenate(parts, axis=3), 1, gap=(2, 0))
    return _sheet(picture, heading, "outermost: two images · between: straight lines in z")[0]


def _sheet(
    picture: Bytes,
    heading: str,
    detail: str,
    *,
    left: int = _MARGIN,
    foot: int = 0,
    foot_dots: int = _MARGIN,
) -> tuple[Figure, Any, int]:
    """A figure with one picture, a heading above it, and how many dots a pixel has.

    Args:
        picture: what :func:`mosaic` gave.
        heading: in bold.
        detail: under it.
        left: dots beside the picture.
        foot: pixels of the picture that are left free under it,
        foot_dots: and dots.
    """
    height, width = picture.shape[:2]
    magnified = int(max(1, min(_MOST_MAGNIFIED, _WIDEST * DPI // width)))
    head = _HEAD if detail else _HEAD - 24
    bottom = foot * magnified + foot_dots
    size = max(left + magnified * width + _MARGIN, round(_NARROWEST * DPI)), bottom + magnified * height + head
    figure = Figure(figsize=(size[0] / DPI, size[1] / DPI), dpi=DPI, facecolor="white")
    box = (left / size[0], bottom / size[1], magnified * width / size[0], magnified * height / size[1])
    axis = figure.add_axes(box)
    axis.imshow(_coloured(picture), interpolation="nearest", aspect="auto")
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set_visible(False)
    place: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "va": "bottom"}
    above = 18 if detail else 6
    axis.annotate(heading, (0, 1), (0, above), fontsize=11, color=INK, fontweight="bold", **place)
    axis.annotate(detail, (0, 1), (0, 5), fontsize=9, color=MUTED, **place)
    return figure, axis, magnified


def _quantiles(flow: RectangularFlow, shares: npt.NDArray[np.float64]) -> tuple[Tensor, Tensor]:
    where = next((p for p in flow.parameters()), torch.zeros(()))
    probabilities = torch.from_numpy(shares)
    if isinstance(flow.latent, FlowDensity) and isinstance(flow.latent.flow, Identity):
        normal = torch.tensor([NormalDist().inv_cdf(share) for share in shares.tolist()])
        return normal.to(where), normal.to(where)
    samples = flow.latent.sample(20_000, torch.Generator().manual_seed(0)).double()
    both = torch.quantile(samples, probabilities.to(samples), dim=0).to(where)
    return both[:, 0], both[:, 1]


def _decoded(flow: RectangularFlow, z: Tensor) -> Tensor:
    return torch.cat([flow.decode(part) for part in z.split(flow.rows_at_once())])


def _coloured(picture: Bytes) -> Bytes:
    """Three channels, whatever the picture has: a map of greys would round them."""
    return picture if picture.ndim == 3 else np.repeat(picture[:, :, None], 3, axis=2)


def _bytes(images: Images) -> Bytes:
    """Images as bytes, (N, C, H, W); what lies outside [0, 1] is moved to its ends, as a screen would."""
    values = images.detach().cpu().numpy() if isinstance(images, Tensor) else np.asarray(images)
    if values.ndim != 4 or values.shape[1] not in (1, 3) or not values.size:
        raise ValueError(f"expected images of shape (N, C, H, W), C being 1 or 3 and N ≥ 1; got {values.shape}")
    return values if values.dtype == np.uint8 else to_bytes(np.clip(values, 0, 1))


__all__ = ["DPI", "draw_interpolations", "draw_latent_grid", "draw_reconstructions", "draw_samples", "mosaic", "png"]
