"""What the readers of image files share: the parts they return and the checks of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ._files import Array, DataError

Part = tuple[Array, Array | None]  # images (N, C, H, W), uint8, and their labels (N,), int64


@dataclass(frozen=True, eq=False)
class Parts:
    """What the files hold, before anything is held out.

    Attributes:
        train: images and labels.
        validation: the same, where the files have such a part.
        test: the same.
        classes: the names of labels 0, 1, …
        notes: sentences for the user.
    """

    train: Part
    validation: Part | None = None
    test: Part | None = None
    classes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def part(images: Array, labels: Array | None, source: Path, classes: int | None = None) -> Part:
    """Images with their labels as int64, after checking that there are images, and a label in range for each.

    Args:
        images: (N, C, H, W).
        labels: (N,) or (N, 1), whole numbers of any type.
        source: for the message.
        classes: labels must lie in 0 … classes − 1.
    """
    if not len(images) or 0 in images.shape:
        raise DataError(f"Expected images in '{source}'; got none (shape {images.shape}).")
    if labels is None:
        return images, None
    whole = labels.dtype.kind in "iu" or (
        labels.dtype.kind == "f" and bool((np.isfinite(labels) & (np.floor(labels) == labels)).all())
    )
    if not whole or labels.size != len(labels):
        raise DataError(
            f"Expected one whole number for each image as labels of '{source}'; got type {labels.dtype} and shape "
            f"{labels.shape}."
        )
    if len(labels) != len(images):
        raise DataError(
            f"Expected a label for each image of '{source}'; got {len(images):,} images and {len(labels):,} labels. "
            "The files belong to different sets, or one is damaged."
        )
    low, high = int(labels.min()), int(labels.max())
    if classes is not None and not 0 <= low <= high < classes:
        raise DataError(
            f"Expected labels from 0 to {classes - 1} for '{source}'; got {low} to {high}. The file is damaged or not "
            "of this set."
        )
    return images, labels.reshape(-1).astype(np.int64)
