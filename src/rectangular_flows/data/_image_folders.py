"""Folders of pictures: opened with Pillow and converted to one size, in grey or RGB."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from ._files import Array, DataError, listing

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


def read_image_folder(folder: Path, size: Size | None) -> tuple[dict[str, Array], str]:
    """Pictures of a folder and of its sub-folders, in the order of their paths; and a note on what was done to them.

    Sub-folders 'train' and 'test' (and perhaps 'validation' or 'val') are the parts; any others are only looked through.

    Args:
        folder: searched with all its sub-folders; names that begin with a dot are skipped.
        size: height and width of the result: pictures are cropped to these proportions about the centre, then scaled.
            Without it, all must have one size.
    """
    files, skipped = image_files(folder)
    notes = [f"Files skipped because they are not pictures: {skipped}."] if skipped else []
    everything = [file for pictures in files.values() for file in pictures]
    if not everything:
        raise DataError(f"Expected pictures ({', '.join(SUFFIXES)}) in '{folder}'; there are none.")
    grey, shape, mixed, others = _survey(everything, size)
    if mixed:
        notes.append("Some pictures are grey and some in colour: all were read as RGB.")
    if others:
        notes.append(f"Pictures of {listing(others, 3, mark='')} were cropped and scaled to {shape[0]}×{shape[1]}.")
    return {which: _decode(pictures, grey, shape) for which, pictures in files.items()}, " ".join(notes)


def image_files(folder: Path) -> tuple[dict[str, list[Path]], int]:
    """Part → its pictures in order; and the number of other files."""
    inner = {entry.name: entry for entry in _entries(folder) if entry.is_dir()}
    named = {_PARTS[name.lower()]: entry for name, entry in inner.items() if name.lower() in _PARTS}
    whole = not ({"train", "test"} <= set(named) and len(named) == len(inner))
    found = {which: _pictures(root) for which, root in ({"train": folder} if whole else named).items()}
    return {which: pictures for which, (pictures, _) in found.items()}, sum(others for _, others in found.values())


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
