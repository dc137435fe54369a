"""Folders of pictures: opened with Pillow and converted to one size, in grey or RGB."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from ..storage.limits import check_bytes
from ._files import Array, DataError, by, listing, reading

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
    with reading(path, f"a picture ({', '.join(_FORMATS)})"), warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        with Image.open(path, formats=_FORMATS) as image:
            yield image


def read_image_folder(folder: Path, size: Size | None) -> tuple[dict[str, Array], str]:
    """Pictures of a folder and of its sub-folders, in the order of their paths; and a note on what was done to them.

    Sub-folders 'train' and 'test' (and perhaps 'validation' or 'val') are the parts; any others are only looked through.
    With a size, pictures are cropped to its proportions about the centre, then scaled; without, all must have one size.
    """
    files, skipped = image_files(folder)
    everything = [file for pictures in files.values() for file in pictures]
    if not everything:
        raise DataError(f"Expected pictures ({', '.join(SUFFIXES)}) in '{folder}'; there are none.")
    heads = [_head(file) for file in everything]
    shapes: dict[Size, Path] = {}
    for (shape, _), file in zip(heads, everything, strict=True):
        shapes.setdefault(shape, file)
    wanted = size or next(iter(shapes))
    others = [by(shape) for shape in shapes if shape != wanted]
    if others and size is None:
        found = [f"{by(shape)} ('{file}')" for shape, file in shapes.items()]
        height, width = wanted
        raise DataError(
            f"Expected pictures of one size; got {listing(found, 3, mark='')}. Choose a size "
            f"to scale them to: --image-size {height},{width} (size=({height}, {width}) in Python)."
        )
    grey = [each for _, each in heads]
    notes = {
        f"Files skipped because they are not pictures: {skipped}.": skipped > 0,
        "Some pictures are grey and some in colour: all were read as RGB.": any(grey) and not all(grey),
        f"Pictures of {listing(others, 3, mark='')} were cropped and scaled to {by(wanted)}.": bool(others),
    }
    parts = {which: _decode(pictures, all(grey), wanted) for which, pictures in files.items()}
    return parts, " ".join(note for note, applies in notes.items() if applies)


def image_files(folder: Path) -> tuple[dict[str, list[Path]], int]:
    """Part → its pictures in the order of their paths; and the number of other files."""
    inner = [entry for entry in _entries(folder) if entry.is_dir()]
    roots = {_PARTS.get(entry.name.lower(), ""): entry for entry in inner}
    if not {"train", "test"} <= set(roots) or "" in roots or len(roots) < len(inner):
        roots = {"train": folder}
    files = {which: _files(root) for which, root in roots.items()}
    parts = {which: [file for file in found if file.suffix.lower() in SUFFIXES] for which, found in files.items()}
    return parts, sum(map(len, files.values())) - sum(map(len, parts.values()))


def _entries(folder: Path) -> list[Path]:
    return sorted((entry for entry in folder.iterdir() if not entry.name.startswith(".")), key=lambda entry: entry.name)


def _files(folder: Path) -> list[Path]:
    """All files below a folder, in the order of their paths."""
    return [file for entry in _entries(folder) for file in (_files(entry) if entry.is_dir() else [entry])]


def _head(file: Path) -> tuple[Size, bool]:
    """(height, width) and whether it is grey, from the header of a picture."""
    with open_image(file) as image:
        if image.mode in _DEEP:
            raise DataError(f"Expected 8 bits a channel; '{file}' has more (mode {image.mode}). Convert it.")
        frames = getattr(image, "n_frames", 1)
        if frames > 1:
            raise DataError(f"Expected one picture; '{file}' holds {frames}. Take one out of it.")
        lying = image.getexif().get(_ORIENTATION, 1) in (5, 6, 7, 8)  # to be turned by a quarter
        return (image.width, image.height) if lying else (image.height, image.width), image.mode in _GREY


def _decode(files: list[Path], grey: bool, shape: Size) -> Array:
    height, width = shape
    check_bytes(len(files) * (1 if grey else 3) * height * width, f"{len(files)} pictures of {by(shape)} pixels")
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
