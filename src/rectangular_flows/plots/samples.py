"""Samples of a run, in the form of its data: a table, latitudes and longitudes, or images."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.image import imsave

from ..data.discrete import Levels, in_double
from ..data.sphere import DEGREES, to_degrees
from ..data.tables import check_room, write_parts
from ..errors import warn
from ..evaluation.images import Bytes, draw_bytes
from ..flows import Standardise
from ..metrics.arrays import Array
from ..runs.saved import SavedRun
from ..storage.files import write_atomically
from ..storage.limits import check_bytes
from .images import mosaic

_IMAGES = (".npy", ".npz", ".png")
_FAR_FROM_SPHERE = 0.05
_AT_ONCE = 20_000  # rows of a table: more than that are drawn and written part by part
_FEWEST = 10_000  # numbers of single precision in a standard deviation: with fewer, samples are written in double


class OffSphereWarning(UserWarning):
    """Samples of a model of the sphere are far from it: only their directions mean something."""


def write_samples(
    run: SavedRun,
    output: Path,
    count: int,
    seed: int,
    *,
    scatter: bool | None = None,
    rounded: bool | None = None,
    tick: Callable[[int], None] | None = None,
) -> tuple[str, ...]:
    """Draw samples and write them: a table by the suffix of its file, images as .npy, .npz or one .png.

    Returns the names of the columns that were rounded.

    Args:
        run: a run, or a saved estimator.
        output: the file.
        count: how many.
        seed: of the draws.
        scatter: whether they scatter around the manifold as data do; None: of a table with a density in all columns, they
            do; images and points on the sphere lie on the manifold.
        rounded: whether columns with few distinct values in the data take the nearest of these; None: if they scatter.
        tick: called with the number of rows after each part of a table.

    Raises:
        ValueError: fewer than one sample is asked for, or images cannot be written under that name.
    """
    if count < 1:
        raise ValueError(f"expected at least one sample; got -n {count}")
    images = run.flow.kind == "image"
    if images and output.suffix.lower() not in _IMAGES:
        raise ValueError(f"images are written as {', '.join(_IMAGES)}; got {output}. Use -o samples.png")
    output.parent.mkdir(parents=True, exist_ok=True)
    if images:
        check_room(output, count * prod(run.flow.data_shape))
        check_bytes(count * prod(run.flow.data_shape), f"{count:,} images")
        _write_images(output, draw_bytes(run.flow, count, seed, bool(scatter)))
        return ()
    columns, kind = _columns(run), np.dtype(np.float64 if _in_double(run) else np.float32)
    if scatter is None:
        scatter = run.flow.scatter is not None and run.sphere is None
    levels = run.levels if (scatter if rounded is None else rounded) else Levels()
    kind = levels.precision(kind)
    if run.whole is not None:
        kind = run.whole.used.precision(kind)
    with write_parts(output, columns, count, kind) as write:
        for part in _sampled(run, count, seed, scatter, levels, kind):
            write(part, {})
            if tick is not None:
                tick(len(part))
    return tuple(run.columns[i] for i in levels.columns)


def _in_double(run: SavedRun) -> bool:
    """Whether samples take double precision: angles do, models in it, and columns that single precision would spoil."""
    if run.sphere is not None or run.flow.dtype == torch.float64:
        return True
    scaled = [layer for layer in run.flow.unit_layers() if isinstance(layer, Standardise)]
    coarse = [(layer.steps(torch.float32) < _FEWEST) | layer.out_of_range(torch.float32) for layer in scaled]
    return any(bool(columns.any()) for columns in coarse)


def _columns(run: SavedRun) -> tuple[str, ...]:
    if run.sphere is not None:
        return DEGREES
    return run.columns if run.whole is None else run.whole.names


def _sampled(
    run: SavedRun, count: int, seed: int, scatter: bool, levels: Levels, kind: np.dtype[Any]
) -> Iterator[Array]:
    """The samples, part by part, in the form of the data and a precision that has the values of all columns."""
    generator, off = torch.Generator().manual_seed(seed), 0.0
    for start in range(0, count, _AT_ONCE):
        values = run.flow.sample(min(_AT_ONCE, count - start), generator=generator, scatter=scatter).numpy()
        if run.sphere is not None:
            off += float(np.abs(np.linalg.norm(values.astype(np.float64), axis=1) - 1).sum()) / count
            values = to_degrees(values)
        values = levels.nearest(in_double(values) if kind == np.float64 else values.astype(kind))
        yield values if run.whole is None else run.whole.used.restore(values)
    if off > _FAR_FROM_SPHERE:
        text = f"the samples are {off:.3g} from the unit sphere on average, more than {_FAR_FROM_SPHERE:g}"
        warn(OffSphereWarning, f"{text}; their directions are written. Train longer, or with a larger beta.")


def _write_images(output: Path, images: Bytes) -> None:
    """Bytes (N, C, H, W) as an array, or as one picture of rows and columns."""
    file = io.BytesIO()
    if output.suffix.lower() == ".png":
        side = max(images.shape[2:])
        scale = max(2 if side <= 64 else 1, 56 // side)  # small images would be hard to see
        imsave(file, mosaic(images, columns=math.ceil(math.sqrt(len(images))), scale=scale), format="png")
    elif output.suffix.lower() == ".npz":
        np.savez_compressed(file, images=images)
    else:
        np.save(file, images)
    write_atomically(output, file.getvalue())
