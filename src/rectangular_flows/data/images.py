"""Images: the sets of the paper, a user's own folder or array; as bytes (N, C, H, W), split by a seed.

MNIST and Fashion-MNIST are read from idx files, CIFAR-10 from its binary, Python or PNG files, SVHN from MATLAB files, each
in a folder of its name below the data folder. See :mod:`.pixels` for the way from bytes to what a model is trained on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from ..errors import warn
from ..spelling import nearest
from . import _cifar
from ._files import Array, DataError, MissingFileError, listing
from ._idx import find_idx, read_idx_folder
from ._image_arrays import array_heads, read_image_array
from ._image_folders import SUFFIXES, Size, image_files, read_image_folder
from ._image_parts import Part, Parts
from ._mat import FILES as SVHN_FILES
from ._mat import read_svhn
from .download import data_root
from .pixels import ImageRows
from .registry import DATASETS, Dataset
from .tables import split_rows

_ALIASES = {"fmnist": "fashion-mnist", "fashion_mnist": "fashion-mnist", "cifar-10": "cifar10"}
_SIZE = "--image-size (size=) is for folders of pictures; the images of '{}' all have one size already."
_CLOTHES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")


@dataclass(frozen=True, eq=False)
class ImageSplits:
    """Images, ready to be turned into what a model is trained on.

    Attributes:
        name: of the set, or the path as given.
        train: (N, C, H, W), uint8.
        validation: (N', C, H, W), uint8.
        test: (N'', C, H, W), uint8.
        train_labels: (N,), int64; None where the files have no labels. So for the others.
        validation_labels: (N',).
        test_labels: (N'',).
        classes: the names of labels 0, 1, …; empty where they have none.
        note: what should be known about the files; empty where they are as published.
    """

    name: str
    train: Array
    validation: Array
    test: Array
    train_labels: Array | None = None
    validation_labels: Array | None = None
    test_labels: Array | None = None
    classes: tuple[str, ...] = ()
    note: str = ""

    @property
    def shape(self) -> tuple[int, ...]:
        """(C, H, W)."""
        return tuple(self.train.shape[1:])

    def rows(self, seed: int = 0) -> tuple[ImageRows, ImageRows, ImageRows]:
        """Training, validation and test images dequantised by seed, with unrelated noise; as floats only when asked for.

        Example:
            >>> bytes_ = np.zeros((4, 1, 2, 2), np.uint8)
            >>> train, validation, test = ImageSplits("black", bytes_, bytes_, bytes_).rows(seed=0)
            >>> bool((train[:] == test[:]).any())
            False
        """
        parts = (self.train, self.validation, self.test)
        train, validation, test = (ImageRows(images, (seed, i)) for i, images in enumerate(parts))
        return train, validation, test


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

    The images to validate on are drawn by seed out of the training images; a published test set stays as it is. Where
    there is none (a folder, an array), ``test_fraction`` of the images is drawn for it as well.

    Args:
        name_or_path: 'mnist', 'fashion-mnist' (or 'fmnist'), 'cifar10', 'svhn'; or a path ('./mnist' is one): a folder in
            the layout of one of these, a folder of pictures of which sub-folders are the classes, or a .npy or .npz
            file of uint8, (N, H, W), (N, H, W, C) or (N, C, H, W).
        root: the folder that holds 'mnist', 'cifar10', …; by default :func:`~rectangular_flows.data.download.data_root`.
        validation_fraction: of the images that are not for test in the files.
        seed: of the split.
        test_fraction: as said above.
        size: height and width, or both in one, that the pictures of a folder are brought to.

    Raises:
        DataError: unknown name, missing file (also a ``FileNotFoundError``), or a file that is not what it should be.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "mine.npy"
        ...     np.save(path, np.zeros((100, 8, 8, 3), np.uint8))
        ...     splits = load_images(path)
        >>> splits.train.shape, len(splits.validation), len(splits.test)
        ((80, 3, 8, 8), 10, 10)
    """
    entry = _known(name_or_path)
    if entry is None:
        parts = _read_path(Path(name_or_path).expanduser(), size)
        name = str(name_or_path)
    else:
        name = entry.name
        if size is not None:
            raise DataError(_SIZE.format(name))
        folder = (data_root() if root is None else Path(root)) / name
        advice = f" Get it with 'rnf data get {name}', or set RNF_DATA to the folder that holds '{name}'."
        if not folder.is_dir():
            raise MissingFileError(f"Expected the folder '{folder}'; there is none.{advice}")
        parts = _READERS[name](folder, advice)
        _check_published(entry, parts, folder)
    return _split(name, parts, validation_fraction, test_fraction, seed, _note(entry, parts))


def holds_images(name_or_path: str | Path) -> bool:
    """Whether it is for :func:`load_images` to read: a known set of images, a folder, or a .npy or .npz file of images.

    An array is one of images if it has four dimensions, or three and is of bytes or alone in its file; only its head is
    read. A picture counts too, so that it is said what to give in its place.

    Example:
        >>> holds_images("mnist"), holds_images("power")
        (True, False)
    """
    path = Path(name_or_path).expanduser()
    if not path.exists():
        lowered = str(name_or_path).lower()
        entry = DATASETS.get(_ALIASES.get(lowered, lowered))
        return entry is not None and entry.kind == "image"
    if path.is_dir() or path.suffix.lower() in SUFFIXES:
        return True
    heads = array_heads(path)
    return any(len(shape) + (kind == np.uint8 or len(heads) == 1) >= 4 for shape, kind in heads)


def images_like(name_or_path: str | Path, shape: tuple[int, ...], root: str | Path | None = None) -> Array:
    """Images that a model of such images can be asked about: those for test, where the files set some apart, or all.

    Args:
        name_or_path: as for :func:`load_images`; pictures of a folder are brought to the size.
        shape: (C, H, W).
        root: as for :func:`load_images`.

    Returns:
        (N, C, H, W), uint8.

    Raises:
        DataError: the images have another shape, or there are none.
    """
    path = Path(name_or_path).expanduser()
    pictures = path.is_dir() and _reader(path) is None
    size = (shape[1], shape[2]) if pictures else None
    splits = load_images(path if path.exists() else name_or_path, root, 0.0, test_fraction=0.0, size=size)
    if splits.shape != tuple(shape):
        expected, got = ("×".join(map(str, each)) for each in (shape, splits.shape))
        raise DataError(
            f"Expected images of {expected}; those of '{name_or_path}' are {got}. Bring them to that shape, as a .npy "
            "file or a folder (whose pictures are resized)."
        )
    if pictures and splits.note:
        warn(ImagesWarning, f"'{name_or_path}': {splits.note}")
    return splits.test if len(splits.test) else np.concatenate([splits.train, splits.validation])


def picture_names(name_or_path: str | Path) -> list[str] | None:
    """The files of the images that :func:`images_like` gives, relative to their folder; None where they are not pictures."""
    path = Path(name_or_path).expanduser()
    if not path.is_dir() or _reader(path) is not None:
        return None
    files = {which: pictures for which, (_, pictures, _) in image_files(path).items()}
    chosen = files["test"] if "test" in files else [*files["train"], *files.get("validation", [])]
    return [file.relative_to(path).as_posix() for file in chosen]


class ImagesWarning(UserWarning):
    """Images that a model is asked about were changed on the way, or some files were passed over."""


def _known(name: str | Path) -> Dataset | None:
    """The set of that name; None if it is a path."""
    if not isinstance(name, str):
        return None
    lowered = name.lower()
    entry = DATASETS.get(_ALIASES.get(lowered, lowered))
    if entry is None or entry.kind == "image":
        return entry
    if Path(name).exists():
        return None
    raise DataError(f"Expected images, one of {', '.join(_READERS)}; '{name}' is of kind '{entry.kind}'.")


def _read_path(path: Path, size: int | Size | None) -> Parts:
    reader = _reader(path)
    if path.is_dir() and reader is None:
        wanted = (size, size) if isinstance(size, int) else size
        if wanted is not None and (len(wanted) != 2 or min(wanted) < 1):
            raise DataError(f"Expected a size of height and width, both at least 1; got {size}.")
        return read_image_folder(path, wanted)
    if size is not None and path.exists():
        raise DataError(_SIZE.format(path))
    if reader is not None:
        return reader(path, "")
    if path.is_file() and path.suffix.lower() in (".npy", ".npz"):
        return read_image_array(path)
    options = [*_READERS, *_ALIASES]
    if not path.exists():
        beside = sorted(entry.name for entry in path.parent.iterdir()) if path.parent.is_dir() else []
        raise MissingFileError(
            f"Expected one of {', '.join(_READERS)}, or a folder of pictures, or a .npy or .npz file; got '{path}', which "
            f"is neither.{nearest(path.name, [*options, *beside])}"
        )
    one = " Give the folder that holds it." if path.suffix.lower() in SUFFIXES else ""
    raise DataError(f"Expected a folder of pictures, or a .npy or .npz file; got '{path}'.{one}")


def _reader(folder: Path) -> Callable[[Path, str], Parts] | None:
    """The reader of the published set whose files a folder holds, if it does."""
    if any(find_idx(folder, part, "images") for part in ("train", "test")):
        return read_idx_folder
    if _cifar.find_cifar(folder) is not None:
        return _cifar.read_cifar
    return read_svhn if any((folder / name).is_file() for name in SVHN_FILES.values()) else None


_READERS: dict[str, Callable[[Path, str], Parts]] = {
    "mnist": partial(read_idx_folder, classes=10),
    "fashion-mnist": partial(read_idx_folder, classes=10),
    "cifar10": _cifar.read_cifar,
    "svhn": read_svhn,
}
_CLASSES = {"mnist": tuple("0123456789"), "fashion-mnist": _CLOTHES}


def _check_published(entry: Dataset, parts: Parts, folder: Path) -> None:
    for images, _ in (part for part in (parts.train, parts.test) if part is not None):
        if images.shape[1:] != entry.shape:
            got, expected = ("×".join(map(str, shape)) for shape in (images.shape[1:], entry.shape))
            raise DataError(f"Expected images of {expected} for {entry.name}; those in '{folder}' are {got}.")


def _note(entry: Dataset | None, parts: Parts) -> str:
    notes = list(parts.notes)
    got = (len(parts.train[0]), 0 if parts.test is None else len(parts.test[0]))
    if entry is not None and got != (entry.rows[0], entry.rows[2]):
        notes.append(
            f"These files are not the published ones: {entry.rows[0]:,} images to train on and {entry.rows[2]:,} to test "
            f"were published; here are {got[0]:,} and {got[1]:,}."
        )
    return " ".join(notes)


def _split(name: str, parts: Parts, validation: float, test: float, seed: int, note: str) -> ImageSplits:
    shares = {
        "validation": 0.0 if parts.validation is not None else validation,
        "test": 0.0 if parts.test is not None else test,
    }
    count = len(parts.train[0])
    # each in the order of the files: what is held out is drawn, the order is not
    train, held_out, tested = (np.sort(rows) for rows in split_rows(count, **shares, seed=seed))
    chosen = (
        _pick(parts.train, train),
        parts.validation or _pick(parts.train, held_out),
        parts.test or _pick(parts.train, tested),
    )
    shapes = [images.shape[1:] for images, _ in chosen]
    if len(set(shapes)) > 1:
        found = ["×".join(map(str, shape)) for shape in shapes]
        raise DataError(
            f"Expected the parts of '{name}' to hold images of one shape; got {listing(found)} (training, validation, "
            "test)."
        )
    images = [np.ascontiguousarray(images) for images, _ in chosen]
    labels = [labels for _, labels in chosen]
    classes = parts.classes or _CLASSES.get(name, ())
    return ImageSplits(name, images[0], images[1], images[2], labels[0], labels[1], labels[2], classes, note)


def _pick(part: Part, rows: Array) -> Part:
    images, labels = part
    return images[rows], None if labels is None else labels[rows]


__all__ = ["ImageSplits", "ImagesWarning", "holds_images", "images_like", "load_images", "picture_names"]
