"""Images: known data sets, or a user's own folder or array; as bytes (N, C, H, W), split by a seed.

MNIST and Fashion-MNIST are read from idx files, CIFAR-10 from its binary or PNG files, SVHN from MATLAB files, each in
a folder of its name below the data folder. :mod:`.pixels` turns bytes into what a model is trained on.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np

from ..errors import warn
from ..spelling import nearest
from ._arrays import read_image_array
from ._files import Array, DataError, MissingFileError, by, listing
from ._image_folders import SUFFIXES, Size, image_files, read_image_folder
from ._npy import array_heads
from ._published import published_reader
from .datasets import DATASETS, Dataset, Splits, find_dataset, place_of
from .pixels import ImageRows
from .tables import split_rows

_SIZE = "--image-size (size=) is for folders of pictures; the images of '{}' all have one size already."


@dataclass(frozen=True, eq=False)
class ImageSplits(Splits):
    """Images in three parts, each (N, C, H, W) of uint8; the name is that of the data set, or the path as given."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(C, H, W)."""
        return tuple(self.train.shape[1:])

    def rows(self, seed: int = 0) -> tuple[ImageRows, ImageRows, ImageRows]:
        """Training, validation and test images, dequantised when asked for, by a seed and with unrelated noise.

        Example:
            >>> bytes_ = np.zeros((4, 1, 2, 2), np.uint8)
            >>> train, validation, test = ImageSplits("black", bytes_, bytes_, bytes_).rows(seed=0)
            >>> bool((train[:] == test[:]).any())
            False
        """
        return ImageRows(self.train, (seed, 0)), ImageRows(self.validation, (seed, 1)), ImageRows(self.test, (seed, 2))


def load_images(
    name_or_path: str | Path,
    root: str | Path | None = None,
    validation_fraction: float = 0.1,
    seed: int = 0,
    *,
    test_fraction: float = 0.1,
    size: int | Size | None = None,
) -> ImageSplits:
    """Read images and split them.

    Validation images are drawn from the training images by seed; a published test set stays as it is. Without one (a
    folder, an array), ``test_fraction`` of the images is drawn for it as well.

    Args:
        name_or_path: the name of a known data set, such as 'mnist'; or a path ('./mnist' is one): a folder in the layout
            of MNIST, CIFAR-10 or SVHN, a folder of pictures, or a .npy or .npz file of uint8, (N, H, W), (N, H, W, C) or
            (N, C, H, W).
        root: the folder that holds 'mnist', 'cifar10', …; by default :func:`~rectangular_flows.data.download.data_root`.
        validation_fraction: of the images that the files do not set apart for test.
        seed: of the split.
        test_fraction: see above.
        size: height and width, or one number for both, to which the pictures of a folder are scaled.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "mine.npy"
        ...     np.save(path, np.zeros((100, 8, 8, 3), np.uint8))
        ...     splits = load_images(path)
        >>> splits.train.shape, len(splits.validation), len(splits.test)
        ((80, 3, 8, 8), 10, 10)
    """
    entry = find_dataset(name_or_path) if isinstance(name_or_path, str) else None
    if entry is not None and entry.kind != "image":
        raise DataError(f"Expected images, one of {_known()}; '{name_or_path}' is of kind '{entry.kind}'.")
    if entry is None:
        parts, note = _read_path(Path(name_or_path).expanduser(), size)
        return _split(str(name_or_path), parts, validation_fraction, test_fraction, seed, note)
    if size is not None:
        raise DataError(_SIZE.format(entry.name))
    options = {"seed": seed, "validation_fraction": validation_fraction}
    return cast(ImageSplits, entry.load(root, **{name: options[name] for name in entry.options}))


def load_published(entry: Dataset, root: Path, *, seed: int = 0, validation_fraction: float = 0.1) -> ImageSplits:
    """The loader of a known data set in the format of MNIST, CIFAR-10 or SVHN, in a folder of its name."""
    folder = root / entry.name
    read = published_reader(folder)
    if read is None:
        raise MissingFileError(f"Expected the files of {entry.name} in '{folder}'; there are none.")
    splits = _split(entry.name, read(), validation_fraction, 0.0, seed)
    if splits.shape != entry.shape:
        got = f"those in '{folder}' are {by(splits.shape)}"
        raise DataError(f"Expected images of {by(entry.shape)} for {entry.name}; {got}.")
    return splits


def holds_images(name_or_path: str | Path) -> bool:
    """Whether :func:`load_images` can read it: a known set of images, a folder, or a .npy or .npz file of images.

    An array is one of images if it has four dimensions, or three and is of bytes or alone in its file; only its header
    is read. A single picture counts too: :func:`load_images` then says what to give in its place.
    """
    entry, path = find_dataset(str(name_or_path)), Path(name_or_path).expanduser()
    if isinstance(name_or_path, str) and entry is not None:
        return entry.kind == "image"
    if not path.exists():
        return False
    if path.is_dir() or path.suffix.lower() in SUFFIXES:
        return True
    heads = array_heads(path)
    return any(len(shape) + (kind == np.uint8 or len(heads) == 1) >= 4 for shape, kind in heads)


def images_like(name_or_path: str | Path, shape: tuple[int, ...]) -> Array:
    """Images for a model of images of that shape, (C, H, W): the test images where the files set some apart, or all.

    They are as :func:`load_images` reads them, (N, C, H, W) of uint8; pictures of a folder are scaled.
    """
    path = place_of(name_or_path)
    pictures = path is not None and _holds_pictures(path)
    size = (shape[1], shape[2]) if pictures else None
    splits = load_images(name_or_path if path is None else path, validation_fraction=0.0, test_fraction=0.0, size=size)
    if splits.shape != tuple(shape):
        raise DataError(
            f"Expected images of {by(shape)}; those of '{name_or_path}' are {by(splits.shape)}. Convert them to that "
            "shape, as a .npy file or a folder (whose pictures are scaled)."
        )
    if pictures and splits.note:
        warn(ImagesWarning, f"'{name_or_path}': {splits.note}")
    return splits.test if len(splits.test) else np.concatenate([splits.train, splits.validation])


def picture_names(name_or_path: str | Path) -> list[str] | None:
    """The files of the images from :func:`images_like`, relative to their folder; None where they are not pictures."""
    path = place_of(name_or_path)
    if path is None or not _holds_pictures(path):
        return None
    files, _ = image_files(path)
    chosen = files.get("test") or [*files["train"], *files.get("validation", [])]
    return [file.relative_to(path).as_posix() for file in chosen]


class ImagesWarning(UserWarning):
    """Images for a model were scaled or converted, or some files were skipped."""


def _known() -> str:
    return ", ".join(entry.name for entry in DATASETS.values() if entry.kind == "image")


def _holds_pictures(path: Path) -> bool:
    return path.is_dir() and published_reader(path) is None


def _read_path(path: Path, size: int | Size | None) -> tuple[dict[str, Array], str]:
    if _holds_pictures(path):
        wanted = (size, size) if isinstance(size, int) else size
        if wanted is not None and (len(wanted) != 2 or min(wanted) < 1):
            raise DataError(f"Expected a size of height and width, both at least 1; got {size}.")
        return read_image_folder(path, wanted)
    if size is not None and path.exists():
        raise DataError(_SIZE.format(path))
    if read := published_reader(path):
        return read(), ""
    if path.is_file() and path.suffix.lower() in (".npy", ".npz"):
        return read_image_array(path), ""
    if not path.exists():
        beside = sorted(entry.name for entry in path.parent.iterdir()) if path.parent.is_dir() else []
        raise MissingFileError(
            f"Expected one of {_known()}, or a folder of pictures, or a .npy or .npz file; got '{path}', which does not "
            f"exist.{nearest(path.name, [*DATASETS, *beside])}"
        )
    one = " Give the folder that holds it." if path.suffix.lower() in SUFFIXES else ""
    raise DataError(f"Expected a folder of pictures, or a .npy or .npz file; got '{path}'.{one}")


def _split(
    name: str, parts: dict[str, Array], validation: float, test: float, seed: int, note: str = ""
) -> ImageSplits:
    """All three parts: those that the files lack are drawn from the training images."""
    shapes = [by(images.shape[1:]) for images in parts.values()]
    if len(set(shapes)) > 1:
        raise DataError(
            f"Expected the parts of '{name}' to hold images of one shape; got {listing(shapes)} ({', '.join(parts)})."
        )
    for which, images in parts.items():
        if 0 in images.shape:
            raise DataError(f"Expected images in '{name}', part '{which}'; got none (shape {images.shape}).")
    whole = parts["train"]
    shares = {name: 0.0 if name in parts else share for name, share in (("validation", validation), ("test", test))}
    # each in the order of the files: what is held out is drawn, the order is not
    drawn = [whole[np.sort(rows)] for rows in split_rows(len(whole), **shares, seed=seed)]
    given = (drawn[0], parts.get("validation", drawn[1]), parts.get("test", drawn[2]))
    train, held_out, tested = map(np.ascontiguousarray, given)
    return ImageSplits(name, train, held_out, tested, note=note)
