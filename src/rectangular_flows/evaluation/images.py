"""How good the samples of a run on images are: compared as bytes with real images, by their Inception features."""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console

from ..atlas import Model
from ..data.images import load_images
from ..data.pixels import ImageRows, to_bytes
from ..data.tables import MissingFileError
from ..metrics.image_quality import Compared, ImageQuality, compare_images
from ..metrics.inception import INCEPTION_SHA256, FeatureNetwork, Protocol, features, load_inception
from ..runs.display import WorkDisplay
from ..runs.kept import kept
from ..runs.saved import SavedRun

Bytes = NDArray[np.uint8]

SAMPLES = 5_000
"""Generated images that are compared unless another number is asked for."""
_LEAST = 10  # images in each set


def draw_bytes(flow: Model, count: int, seed: int, scatter: bool = False) -> Bytes:
    """Samples of a model of images as images are stored: bytes, (count, C, H, W); pixels beyond the range at its ends."""
    samples = flow.sample(count, generator=torch.Generator().manual_seed(seed), scatter=scatter)
    return to_bytes(samples.clamp(0, 1).numpy())


def check_amount(count: int, name: str) -> None:
    """Refuse too few images to compare."""
    if count < _LEAST:
        raise ValueError(f"expected at least {_LEAST} images to compare; got {name} {count}")


def real_images(run: SavedRun) -> tuple[Bytes, Bytes]:
    """All test and all training images of a run, in the order of the files: features kept by content are found again."""
    source, size = str(run.settings.data.data), run.settings.data.height_and_width
    whole = load_images(source, validation_fraction=0.0, test_fraction=0.0, size=size)
    # without test images in the files, those of the run were drawn out of the others
    test, train = (rows.images for rows in (run.data.test, run.data.train) if isinstance(rows, ImageRows))
    return test, whole.train if len(whole.test) else train


def choose_reference(test: Bytes, train: Bytes, count: int, protocol: Protocol = "fid") -> dict[str, Bytes]:
    """What samples are compared with, then what the floor is made of, by name: at most ``count`` images each.

    FID is between samples and the first test images, the floor between the first training images and these. Under the
    published protocol samples were compared with the whole training set; a part of it has to be drawn to stand for the
    whole, since files need not be in random order, and others drawn make the floor.
    """
    if protocol == "published":
        order = np.random.default_rng(0).permutation(len(train))
        count = min(count, len(order) // 2)
        return {"training images": train[order[:count]], "other training images": train[order[count : 2 * count]]}
    count = min(count, len(test), len(train))
    return {"test images": test[:count], "training images": train[:count]}


def find_network(
    path: Path | None = None, sha256: str | None = None, skip: bool = False
) -> tuple[FeatureNetwork | None, str]:
    """The network for features and "", or None and what is missing: the rest of an evaluation does without.

    A file that ``path`` names has to be there. Its checksum is ``sha256``, by default that of the network of FID.
    """
    if skip:
        return None, ""
    try:
        return load_inception(path, sha256=sha256 or INCEPTION_SHA256), ""
    except MissingFileError as error:
        if path is not None:
            raise
        return None, f"no FID, KID, precision and recall of samples: {error}"


def quality_of(
    run: SavedRun,
    network: FeatureNetwork,
    count: int = SAMPLES,
    *,
    seed: int = 0,
    protocol: Protocol = "fid",
    console: Console | None = None,
    title: str = "",
) -> ImageQuality:
    """Samples of a run against real images, beside other real images against these: see :func:`choose_reference`.

    The result is kept in the folder, features in the cache of :func:`~rectangular_flows.metrics.features`: a smaller
    ``count`` takes the first of the same samples, and computes no feature again. The console shows the progress, under
    ``title``.
    """
    real = choose_reference(*real_images(run), count, protocol)
    name, count = next(iter(real)), min(map(len, real.values()))
    check_amount(count, "real images")
    digest = hashlib.sha256(" ".join(str(images.shape) for images in real.values()).encode() + b"\n")
    for images in real.values():
        digest.update(np.ascontiguousarray(images).tobytes())
    used = f"network {network.sha256[:12]}, images {digest.hexdigest()[:12]}"
    key = f"{protocol}, against {name}, n {count}, seed {seed}, {used}"

    def compute() -> dict[str, Any]:
        # at least SAMPLES are drawn: fewer draws need not be the first of more, nor decoded to the very same bytes
        samples = draw_bytes(run.flow, max(count, SAMPLES), seed)[:count]
        found = []
        for name, images in {"samples": samples, **real}.items():
            text = f"{title and title + ': '}features of {count:,} {name}"
            with WorkDisplay(console or Console(quiet=True), text) as display:
                found.append(features(images, network, protocol=protocol, progress=display.at))
        return asdict(compare_images(*found, seed=0))

    stored = kept(run.path, "quality.json", key, compute)
    values: dict[str, Any] = {name: Compared(**v) if isinstance(v, dict) else v for name, v in stored.items()}
    return ImageQuality(**values)
