"""How good the samples of a run on images are: drawn as bytes, compared with real images by their Inception features."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console

from ..data.images import load_images
from ..data.pixels import ImageRows, to_bytes
from ..data.tables import MissingFileError
from ..manifold import RectangularFlow
from ..metrics.image_quality import ImageQuality, compare_images
from ..metrics.inception import INCEPTION_SHA256, FeatureNetwork, Protocol, features, load_inception
from ..metrics.two_sample import Compared
from ..runs.display import WorkDisplay
from ..runs.kept import kept
from ..runs.prepared import Prepared
from ..settings import FitSettings

Bytes = NDArray[np.uint8]

SAMPLES = 5_000
"""Generated images that are compared unless another number is asked for."""

LEAST = 10
"""Images in each set, below which nothing is compared."""

_FILE = "quality.json"
_MEASURES = ("fid", "kid", "precision", "recall")


def draw_bytes(flow: RectangularFlow, count: int, seed: int) -> Bytes:
    """Samples of a model of images as images are stored: bytes, (count, C, H, W); pixels beyond the range at its ends."""
    samples = flow.sample(count, generator=torch.Generator().manual_seed(seed))
    return to_bytes(samples.clamp(0, 1).numpy())


def check_amount(count: int, name: str) -> None:
    """Complain about too few images to compare."""
    if count < LEAST:
        raise ValueError(f"expected at least {LEAST} images to compare; got {name} {count}")


@dataclass(frozen=True, eq=False)
class Reference:
    """Real images that samples are compared with, and as many others for the floor; what both are called."""

    name: str
    images: Bytes
    floor_name: str
    floor: Bytes

    @property
    def fingerprint(self) -> str:
        """Twelve digits of a checksum."""
        digest = hashlib.sha256(f"{self.images.shape} {self.floor.shape}\n".encode())
        for images in (self.images, self.floor):
            digest.update(np.ascontiguousarray(images).tobytes())
        return digest.hexdigest()[:12]


@dataclass(frozen=True, eq=False)
class RealImages:
    """The real images of a run, all of them, in the order of the files: features kept by content are found again."""

    test: Bytes
    train: Bytes

    def reference(self, count: int, protocol: Protocol = "fid") -> Reference:
        """What samples are compared with, so many images or as many as there are.

        FID is between samples and the first test images, the floor between the first training images and these. Under the
        published protocol samples were compared with the whole training set; a part of it has to be drawn to stand for
        the whole, since files need not be in random order, and others drawn make the floor.
        """
        if protocol == "published":
            order = np.random.default_rng(0).permutation(len(self.train))
            count = min(count, len(order) // 2)
            drawn, others = self.train[order[:count]], self.train[order[count : 2 * count]]
            return Reference("training images", drawn, "other training images", others)
        count = min(count, len(self.test), len(self.train))
        return Reference("test images", self.test[:count], "training images", self.train[:count])


def real_images(settings: FitSettings, data: Prepared) -> RealImages:
    """The images of a run to compare its samples with; training images before they were split, where that is possible.

    Args:
        settings: of the run.
        data: what :func:`~rectangular_flows.runs.prepared.prepare` made of them.
    """
    source, size = settings.data.data, settings.data.height_and_width
    path = Path(str(source))
    whole = load_images(path if path.exists() else str(source), validation_fraction=0.0, test_fraction=0.0, size=size)
    # without test images in the files, those of the run were drawn out of the others
    train = whole.train if len(whole.test) else _bytes_of(data.train)
    return RealImages(_bytes_of(data.test), train)


def find_network(
    path: Path | None = None, sha256: str | None = None, skip: bool = False
) -> tuple[FeatureNetwork | None, str]:
    """The network for features and "", or None and what is missing: the rest of an evaluation does without.

    Args:
        path: of the user's own file, which has to be there.
        sha256: of that file; by default that of the network of FID.
        skip: do without it.

    Raises:
        ValueError: a file was named that is not there; or a file has another checksum.
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
    folder: Path,
    flow: RectangularFlow,
    real: RealImages,
    network: FeatureNetwork,
    count: int = SAMPLES,
    *,
    seed: int = 0,
    protocol: Protocol = "fid",
    console: Console | None = None,
    title: str = "",
) -> ImageQuality:
    """Samples of a run against real images, beside other real images against these: see :meth:`RealImages.reference`.

    The result is kept in the folder, features in the cache of :func:`~rectangular_flows.metrics.features`: a smaller
    ``count`` takes the first of the same samples, and computes no feature again.

    Args:
        folder: of the run.
        flow: its model.
        real: all images to compare with.
        network: for the features.
        count: samples, and images of each kind; fewer where there are fewer real ones.
        seed: of the samples.
        protocol: see :func:`~rectangular_flows.metrics.features`.
        console: where to show how far it is.
        title: of the run, for that.
    """
    check_amount(count, "count")
    some = real.reference(count, protocol)
    count = len(some.images)
    check_amount(count, "real images")
    used = f"network {network.sha256[:12]}, images {some.fingerprint}"
    key = f"{protocol}, against {some.name}, n {count}, seed {seed}, {used}"

    def compute() -> dict[str, Any]:
        # at least SAMPLES are drawn: fewer draws need not be the first of more, nor decoded to the very same bytes
        samples = draw_bytes(flow, max(count, SAMPLES), seed)[:count]
        found = []
        for name, images in (("samples", samples), (some.name, some.images), (some.floor_name, some.floor)):
            text = f"{title and title + ': '}features of {count:,} {name}"
            with WorkDisplay(console or Console(quiet=True), text) as display:
                found.append(features(images, network, protocol=protocol, progress=display.at))
        return asdict(compare_images(*found, seed=0))

    return _quality(kept(folder, _FILE, key, compute))


def figures_of(quality: ImageQuality) -> dict[str, Any]:
    """As plain numbers, each floor as NAME_floor."""
    found: dict[str, Any] = {}
    for name in _MEASURES:
        both = getattr(quality, name)
        found |= {name: both.value, f"{name}_floor": both.floor}
    found |= {name: getattr(quality, name) for name in ("kid_standard_error", "kid_floor_standard_error")}
    return found


def _quality(stored: Mapping[str, Any]) -> ImageQuality:
    values: dict[str, Any] = {name: Compared(**v) if isinstance(v, dict) else v for name, v in stored.items()}
    return ImageQuality(**values)


def _bytes_of(rows: Any) -> Bytes:
    if not isinstance(rows, ImageRows):
        raise ValueError(f"expected a run on images; got rows of {type(rows).__name__}")
    return rows.images


__all__ = [
    "SAMPLES",
    "RealImages",
    "Reference",
    "check_amount",
    "draw_bytes",
    "figures_of",
    "find_network",
    "quality_of",
    "real_images",
]
