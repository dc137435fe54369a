"""Street-view house numbers: two MATLAB files (Netzer et al., 2011; http://ufldl.stanford.edu/housenumbers/)."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from ._files import Array, DataError, MissingFileError

FILES = {"train": "train_32x32.mat", "test": "test_32x32.mat"}


def read_svhn(folder: Path) -> dict[str, Array]:
    """Both parts."""
    lacking = [name for name in FILES.values() if not (folder / name).is_file()]
    if lacking:
        raise MissingFileError(f"Expected {' and '.join(map(repr, lacking))} in '{folder}'.")
    return {which: _read(folder / name) for which, name in FILES.items()}


def _read(file: Path) -> Array:
    loadmat: Any = importlib.import_module("scipy.io").loadmat  # slow to import, and for this set only

    try:
        content = loadmat(file, variable_names=["X"])
    except NotImplementedError as error:  # version 7.3, which is HDF5
        raise DataError(
            f"Expected a MATLAB file of version 7 or older in '{file}'; got version 7.3. Save it with "
            "save(…, '-v7'), or get the published file."
        ) from error
    except Exception as error:  # whatever a damaged file leads to
        raise DataError(
            f"Expected a MATLAB file; cannot read '{file}' ({type(error).__name__}: {error}). Get it again."
        ) from error
    images = content.get("X")
    if images is None:
        raise DataError(f"Expected the variable X in '{file}'; there is none.")
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[2] != 3:
        raise DataError(
            f"Expected X as (height, width, 3, N) of uint8 in '{file}'; got {images.shape} of {images.dtype}."
        )
    return np.ascontiguousarray(images.transpose(3, 2, 0, 1))
