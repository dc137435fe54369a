"""Folders of pictures: opened with Pillow and converted to one size, in grey or RGB."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from ._files import Array, DataError, listing
from ._image_parts import Part, Parts, part

# named one by one: for some formats Pillow starts other programs
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
_GREY = ("1", "L", "LA")
_DEEP = ("I", "F", "I;16", "I;16B", "I;16L", "I;16N")
_ORIENTATION = 0x0112  # the EXIF tag
_PARTS = {"train": "train", "test": "test", "val": "validation", "valid": "validation", "validation": "validation"}

Size = tuple[int, int]


@contextmanager
def open_image(path: Path) -> Iterator[Image.Image]:
    """A picture; any error, also one inside the block, becomes a :class:`DataError` that names the file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path, formats=_FORMATS) as image:
                yield image
    except DataError:
        raise
    except Exception as error:  # whatever a damaged file leads to
        reason = "not a picture, or damaged" if isinstance(error, UnidentifiedImageError) else str(error)
        raise DataError(f"Expected a picture ({', '.join(_FORMATS)}); cannot read '{path}': {reason}.") from error


def read_image_folder(folder: Path, size: Size | None) -> Parts:
    """Pictures of a folder, in the order of their names; sub-folders are classes.

    With sub-folders 'train' and 'test' (and perhaps 'validation' or 'val') those are the parts, and each may have
    classes of its own.

    Args:
        folder: searched with all its sub-folders; names that begin with a dot are skipped.
        size: height and width of the result: pictures are cropped to these proportions about the centre, then scaled.
            Without it, all must have one size.
    """
    files = image_files(folder)
    skipped = sum(others for _, _, others in files.values())
    notes = [f"Files skipped because they are not pictures: {skipped}."] if skipped else []
    everything = [file for _, pictures, _ in files.values() for file in pictures]
    if not everything:
        raise DataError(f"Expected pictures ({', '.join(SUFFIXES)}) in '{folder}'; there are none.")
    grey, shape, mixed, others = _survey(everything, size)
    if mixed:
        notes.append("Some pictures are grey and some in colour: all were read as RGB.")
    if others:
        notes.append(f"Pictures of {listing(others, 3, mark='')} were cropped and scaled to {shape[0]}×{shape[1]}.")
    labels = {which: _labels(pictures, root) for which, (root, pictures, _) in files.items()}
    classes = sorted({name for names in labels.values() for name in names or ()})
    parts: dict[str, Part] = {}
    for which, (root, pictures, _) in files.items():
        names = labels[which]
        numbers = None if names is None else np.array([classes.index(name) for name in names], dtype=np.int64)
        parts[which] = part(_decode(pictures, grey, shape), numbers, root)
    return Parts(parts["train"], parts.get("validation"), parts.get("test"), tuple(classes), tuple(notes))


def image_files(folder: Path) -> dict[str, tuple[Path, list[Path], int]]:
    """Part → its folder, its pictures in order, and the number of other files."""
    inner = {entry.name: entry for entry in _entries(folder) if entry.is_dir()}
    named = {_PARTS[name.lower()]: entry for name, entry in inner.items() if name.lower() in _PARTS}
    whole = not ({"train", "test"} <= set(named) and len(named) == len(inner))
    return {which: (root, *_pictures(root)) for which, root in ({"train": folder} if whole else named).items()}


def _entries(folder: Path) -> list[Path]:
    return sorted((entry for entry in folder.iterdir() if not entry.name.startswith(".")), key=lambda entry: entry.name)


def _pictures(folder: Path) -> tuple[list[Path], int]:
    """The pictures below a folder, in the order of their paths, and the number of other files."""
    pictures: list[Path] = []
    others = 0
    for entry in _entries(folder):
        if entry.is_dir():
            inner, more = _pictures(entry)
            pictures, others = pictures + inner, others + more
        elif entry.suffix.lower() in SUFFIXES:
            pictures.append(entry)
        else:
            others += 1
    return pictures, others


def _labels(files: list[Path], root: Path) -> list[str] | None:
    """The class of each picture, the first folder of its path; None where there are no sub-folders."""
    paths = [file.relative_to(root).parts for file in files]
    loose = [file for file, parts in zip(files, paths, strict=True) if len(parts) == 1]
    if len(loose) == len(files):
        return None
    if loose:
        raise DataError(
            f"Expected pictures either in '{root}' itself or in sub-folders, one for each class; got both: "
            f"{listing([file.name for file in loose], 3)} lie beside sub-folders. Move them."
        )
    return [parts[0] for parts in paths]


def _survey(files: list[Path], size: Size | None) -> tuple[bool, Size, bool, list[str]]:
    """From the headers: whether all are grey, (height, width), whether grey and colour are mixed, other sizes."""
    shapes: dict[Size, Path] = {}
    grey = 0
    for file in files:
        with open_image(file) as image:
            if image.mode in _DEEP:
                raise DataError(f"Expected 8 bits a channel; '{file}' has more (mode {image.mode}). Convert it.")
            if getattr(image, "n_frames", 1) > 1:
                raise DataError(
                    f"Expected one picture; '{file}' holds {getattr(image, 'n_frames', 1)}. Take one out of it."
                )
            grey += image.mode in _GREY
            lying = image.getexif().get(_ORIENTATION, 1) in (5, 6, 7, 8)  # to be turned by a quarter
            shapes.setdefault((image.width, image.height) if lying else (image.height, image.width), file)
    if size is None and len(shapes) > 1:
        found = [f"{height}×{width} ('{file}')" for (height, width), file in shapes.items()]
        height, width = next(iter(shapes))
        raise DataError(
            f"Expected pictures of one size; got {listing(found, 3, mark='')}. Choose a size "
            f"to scale them to: --image-size {height},{width} (size=({height}, {width}) in Python)."
        )
    wanted = size or next(iter(shapes))
    others = [f"{height}×{width}" for height, width in shapes if (height, width) != wanted]
    return grey == len(files), wanted, 0 < grey < len(files), others


def _decode(files: list[Path], grey: bool, shape: Size) -> Array:
    height, width = shape
    images = np.empty((len(files), 1 if grey else 3, height, width), dtype=np.uint8)
    for row, file in zip(images, files, strict=True):
        with open_image(file) as opened:
            image = ImageOps.exif_transpose(opened)
            if image.has_transparency_data:
                image = image.convert("LA" if image.mode == "LA" else "RGBA")
                if image.getchannel("A").getextrema() != (255, 255):
                    raise DataError(
                        f"Expected a picture without transparency; '{file}' has transparent parts. Flatten it."
                    )
            image = image.convert("L" if grey else "RGB")
            if image.size != (width, height):
                image = ImageOps.fit(image, (width, height), Image.Resampling.LANCZOS)
            row[...] = np.asarray(image).reshape(height, width, -1).transpose(2, 0, 1)
    return images
