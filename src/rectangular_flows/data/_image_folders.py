"""Folders of pictures: opened by Pillow, brought to one size and to grey or RGB."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from ._files import Array, DataError, listing
from ._image_parts import Part, Parts, part

# named one by one: Pillow also knows formats that other programs are started for
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
_GREY = ("1", "L", "LA")
_DEEP = ("I", "F", "I;16", "I;16B", "I;16L", "I;16N")
_ORIENTATION = 0x0112  # the tag of a camera's pictures
_PARTS = {"train": "train", "test": "test", "val": "validation", "valid": "validation", "validation": "validation"}

Size = tuple[int, int]


@contextmanager
def open_image(path: Path) -> Iterator[Image.Image]:
    """A picture; whatever is wrong with it, inside the block too, is a :class:`DataError` that names the file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path, formats=_FORMATS) as image:
                yield image
    except DataError:
        raise
    except Exception as error:  # whatever a damaged file leads to
        reason = "not a picture, or damaged" if isinstance(error, UnidentifiedImageError) else str(error)
        raise DataError(f"Expected a picture ({', '.join(_FORMATS)}); '{path}' cannot be read: {reason}.") from error


def read_image_folder(folder: Path, size: Size | None) -> Parts:
    """Pictures of a folder, in the order of their names; sub-folders are classes.

    With sub-folders 'train' and 'test' (and perhaps 'validation' or 'val') those are the parts, and each may have
    classes of its own.

    Args:
        folder: looked through to the bottom; names that begin with a dot are passed over.
        size: height and width that all pictures are brought to, cut to these proportions about the centre and then
            scaled. Without it, all must have one size.
    """
    files = image_files(folder)
    skipped = sum(others for _, _, others in files.values())
    notes = [f"{skipped} files that are no pictures were passed over."] if skipped else []
    everything = [file for _, pictures, _ in files.values() for file in pictures]
    if not everything:
        raise DataError(f"Expected pictures ({', '.join(SUFFIXES)}) in '{folder}'; there are none.")
    grey, shape, mixed, others = _survey(everything, size)
    if mixed:
        notes.append("Some pictures are grey and some are not: all were read as RGB.")
    if others:
        notes.append(f"Pictures of {listing(others, 3, mark='')} were cut and scaled to {shape[0]}×{shape[1]}.")
    labels = {which: _labels(pictures, root) for which, (root, pictures, _) in files.items()}
    classes = sorted({name for names in labels.values() for name in names or ()})
    parts: dict[str, Part] = {}
    for which, (root, pictures, _) in files.items():
        names = labels[which]
        numbers = None if names is None else np.array([classes.index(name) for name in names], dtype=np.int64)
        parts[which] = part(_decode(pictures, grey, shape), numbers, root)
    return Parts(parts["train"], parts.get("validation"), parts.get("test"), tuple(classes), tuple(notes))


def image_files(folder: Path) -> dict[str, tuple[Path, list[Path], int]]:
    """Part → its folder, its pictures in their order, and how many other files there are."""
    inner = {entry.name: entry for entry in _entries(folder) if entry.is_dir()}
    named = {_PARTS[name.lower()]: entry for name, entry in inner.items() if name.lower() in _PARTS}
    whole = not ({"train", "test"} <= set(named) and len(named) == len(inner))
    return {which: (root, *_pictures(root)) for which, root in ({"train": folder} if whole else named).items()}


def _entries(folder: Path) -> list[Path]:
    return sorted((entry for entry in folder.iterdir() if not entry.name.startswith(".")), key=lambda entry: entry.name)


def _pictures(folder: Path) -> tuple[list[Path], int]:
    """The pictures below a folder, in the order of their paths, and how many other files there are."""
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
    """The class of each picture, which is the first folder of its path; None where there are no sub-folders."""
    paths = [file.relative_to(root).parts for file in files]
    loose = [file for file, parts in zip(files, paths, strict=True) if len(parts) == 1]
    if len(loose) == len(files):
        return None
    if loose:
        raise DataError(
            f"Expected pictures either in '{root}' itself or in sub-folders, which are their classes; got both: "
            f"{listing([file.name for file in loose], 3)} lie beside sub-folders. Move them."
        )
    return [parts[0] for parts in paths]


def _survey(files: list[Path], size: Size | None) -> tuple[bool, Size, bool, list[str]]:
    """From the headers: whether all are grey, (height, width), whether some are grey and some not, other sizes there are."""
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
            lying = image.getexif().get(_ORIENTATION, 1) in (5, 6, 7, 8)  # a camera's picture, to be turned
            shapes.setdefault((image.width, image.height) if lying else (image.height, image.width), file)
    if size is None and len(shapes) > 1:
        found = [f"{height}×{width} ('{file}')" for (height, width), file in shapes.items()]
        height, width = next(iter(shapes))
        raise DataError(
            f"Expected pictures of one size; got {listing(found, 3, mark='')}. Say which to bring them to: "
            f"--image-size {height},{width} (size=({height}, {width}) in Python)."
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
                        f"Expected a picture without transparency; parts of '{file}' show through. Flatten it."
                    )
            image = image.convert("L" if grey else "RGB")
            if image.size != (width, height):
                image = ImageOps.fit(image, (width, height), Image.Resampling.LANCZOS)
            row[...] = np.asarray(image).reshape(height, width, -1).transpose(2, 0, 1)
    return images


__all__ = ["SUFFIXES", "Size", "image_files", "open_image", "read_image_folder"]
