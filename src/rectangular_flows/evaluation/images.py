"""How good the samples of a run on images are: compared as bytes with real images, by their Inception features."""

from __future__ import annotations

import hashlib
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
from ..metrics.image_quality import Compared, ImageQuality, compare_images
from ..metrics.inception import INCEPTION_SHA256, FeatureNetwork, Protocol, features, load_inception
from ..runs.display import WorkDisplay
from ..runs.kept import kept
from ..runs.saved import SavedRun

Bytes = NDArray[np.uint8]

SAMPLES = 5_000
"""Generated images that are compared unless another number is asked for."""

LEAST = 10
"""Images in each set, below which nothing is compared."""

_FILE = "quality.json"


def draw_bytes(flow: RectangularFlow, count: int, seed: int, scatter: bool = False) -> Bytes:
    """Samples of a model of images as images are stored: bytes, (count, C, H, W); pixels beyond the range at its ends."""
    samples = flow.sample(count, generator=torch.Generator().manual_seed(seed), scatter=scatter)
    return to_bytes(samples.clamp(0, 1).numpy())


def check_amount(count: int, name: str) -> None:
    """Refuse too few images to compare."""
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

    @classmethod
    def of(cls, run: SavedRun) -> RealImages:
        """Those of a run; training images before they were split, where that is possible."""
        source, size = str(run.settings.data.data), run.settings.data.height_and_width
        path = Path(source)
        whole = load_images(path if path.exists() else source, validation_fraction=0.0, test_fraction=0.0, size=size)
        # without test images in the files, those of the run were drawn out of the others
        return cls(_bytes_of(run.data.test), whole.train if len(whole.test) else _bytes_of(run.data.train))

    def reference(self, count: int, protocol: Protocol = "fid") -> Reference:
        """What samples are compared with: ``count`` images, or as many as there are.

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
    run: SavedRun,
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
        run: on images.
        network: for the features.
        count: samples, and images of each kind; fewer where there are fewer real ones.
        seed: of the samples.
        protocol: see :func:`~rectangular_flows.metrics.features`.
        console: shows the progress.
        title: of the run, for the progress.
    """
    check_amount(count, "count")
    some = RealImages.of(run).reference(count, protocol)
    count = len(some.images)
    check_amount(count, "real images")
    used = f"network {network.sha256[:12]}, images {some.fingerprint}"
    key = f"{protocol}, against {some.name}, n {count}, seed {seed}, {used}"

    def compute() -> dict[str, Any]:
        # at least SAMPLES are drawn: fewer draws need not be the first of more, nor decoded to the very same bytes
        samples = draw_bytes(run.flow, max(count, SAMPLES), seed)[:count]
        found = []
        for name, images in (("samples", samples), (some.name, some.images), (some.floor_name, some.floor)):
            text = f"{title and title + ': '}features of {count:,} {name}"
            with WorkDisplay(console or Console(quiet=True), text) as display:
                found.append(features(images, network, protocol=protocol, progress=display.at))
        return asdict(compare_images(*found, seed=0))

    stored = kept(run.path, _FILE, key, compute)
    values: dict[str, Any] = {name: Compared(**v) if isinstance(v, dict) else v for name, v in stored.items()}
    return ImageQuality(**values)


def _bytes_of(rows: Any) -> Bytes:
    if not isinstance(rows, ImageRows):
        raise ValueError(f"expected a run on images; got rows of {type(rows).__name__}")
    return rows.images
