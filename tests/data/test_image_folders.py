"""Users' own images: folders of pictures, and arrays."""

import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from rectangular_flows.data import DataError, load_images

from .made import pixels, put, put_picture

# --- folders -----------------------------------------------------------------------------------------------------------


def test_a_folder_of_classes_in_the_order_of_names(tmp_path):
    images = pixels(6, 5, 7, 3)
    for name, image in zip(
        ("b/2.png", "a/9.bmp", "b/10.png", "a/deep/1.ppm", "a/1.png", "c/x.tif"), images, strict=True
    ):
        put_picture(tmp_path / name, image)
    put(tmp_path / ".hidden" / "x.png", b"no picture")
    put(tmp_path / "a" / ".y.png", b"no picture")
    put(tmp_path / "a" / "notes.txt", b"text")
    splits = load_images(tmp_path, validation_fraction=0, test_fraction=0)
    order = [4, 1, 3, 2, 0, 5]  # a/1, a/9, a/deep/1, b/10, b/2, c/x
    np.testing.assert_array_equal(splits.train, images[order].transpose(0, 3, 1, 2))
    assert splits.note == "Files skipped because they are not pictures: 1."
    assert splits.test.shape == (0, 3, 5, 7)


def test_a_flat_folder_has_no_labels_and_is_split(tmp_path):
    for i, image in enumerate(pixels(20, 4, 4)):
        put_picture(tmp_path / f"{i:02}.png", image)
    splits = load_images(str(tmp_path))
    assert (splits.train.shape, len(splits.validation), len(splits.test)) == ((16, 1, 4, 4), 2, 2)
    assert splits.name == str(tmp_path)


def test_parts_in_folders(tmp_path):
    for name in ("train/a/1.png", "train/b/1.png", "test/b/1.png", "val/a/1.png", "train/b/2.png"):
        put_picture(tmp_path / name, pixels(4, 4))
    splits = load_images(tmp_path)
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (3, 1, 1)
    put_picture(tmp_path / "other" / "1.png", pixels(4, 4))  # then they are folders like any other
    assert len(load_images(tmp_path, validation_fraction=0, test_fraction=0).train) == 6


def test_grey_and_colour(tmp_path):
    grey, colour = pixels(4, 4), pixels(4, 4, 3)
    put_picture(tmp_path / "a.png", grey)
    Image.fromarray(grey > 127).save(tmp_path / "b.png")
    splits = load_images(tmp_path, validation_fraction=0, test_fraction=0)
    np.testing.assert_array_equal(splits.train[:, 0], [grey, 255 * (grey > 127)])
    put_picture(tmp_path / "c.png", colour)
    Image.fromarray(colour).convert("P").save(tmp_path / "d.gif")
    Image.fromarray(np.dstack([colour, np.full((4, 4), 255, np.uint8)])).save(tmp_path / "e.png")
    splits = load_images(tmp_path, validation_fraction=0, test_fraction=0)
    assert splits.train.shape == (5, 3, 4, 4)
    np.testing.assert_array_equal(splits.train[0], np.stack([grey] * 3))
    np.testing.assert_array_equal(splits.train[[2, 4]], np.stack([colour.transpose(2, 0, 1)] * 2))
    assert "all were read as RGB" in splits.note


def test_sizes(tmp_path):
    put_picture(tmp_path / "a.png", pixels(6, 4))
    put_picture(tmp_path / "b.png", np.full((9, 12), 77, np.uint8))
    with pytest.raises(
        DataError, match=r"got 6×4 \('.*a.png'\), 9×12 \('.*b.png'\)\. .*--image-size 6,4 \(size=\(6, 4\)"
    ):
        load_images(tmp_path)
    splits = load_images(tmp_path, size=(3, 5), validation_fraction=0, test_fraction=0)
    assert splits.train.shape == (2, 1, 3, 5)
    assert splits.note == "Pictures of 6×4, 9×12 were cropped and scaled to 3×5."
    assert (splits.train[1] == 77).all()
    assert load_images(tmp_path, size=4, validation_fraction=0, test_fraction=0).shape == (1, 4, 4)
    np.save(tmp_path / "a.npy", pixels(20, 8, 8))
    with pytest.raises(DataError, match=r"\(size=\) is for folders"):
        load_images(tmp_path / "a.npy", size=4)
    with pytest.raises(DataError, match=r"\(size=\) is for folders"):
        load_images("mnist", tmp_path, size=4)
    for wrong in (0, (4, -1), (4,)):
        with pytest.raises(DataError, match="Expected a size"):
            load_images(tmp_path, size=wrong)


def test_a_cameras_picture_is_turned(tmp_path):
    values = pixels(4, 6)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter, clockwise
    put_picture(tmp_path / "a.png", values, exif=exif)
    put_picture(tmp_path / "b.png", np.rot90(values, -1))
    splits = load_images(tmp_path, validation_fraction=0, test_fraction=0)
    np.testing.assert_array_equal(splits.train[0], splits.train[1])


def test_pictures_that_cannot_be_used(tmp_path):
    good = tmp_path / "a.png"
    put_picture(good, pixels(20, 20))
    whole = good.read_bytes()
    bad = tmp_path / "b.png"
    for content in (b"", b"x", whole[:60], whole[:-30], b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"):
        put(bad, content)
        with pytest.raises(DataError, match=r"cannot read '.*b\.png'"):
            load_images(tmp_path)
    Image.fromarray(pixels(20, 20).astype(np.uint16)).save(bad)
    with pytest.raises(DataError, match="8 bits"):
        load_images(tmp_path)
    Image.fromarray(np.dstack([pixels(20, 20, 3), np.full((20, 20), 9, np.uint8)])).save(bad)
    with pytest.raises(DataError, match="without transparency"):
        load_images(tmp_path)
    bad.unlink()
    Image.fromarray(pixels(20, 20)).save(
        tmp_path / "b.gif", save_all=True, append_images=[Image.fromarray(pixels(20, 20, seed=1))]
    )
    with pytest.raises(DataError, match="holds 2"):
        load_images(tmp_path)


def test_a_bomb_is_not_opened(tmp_path):
    header = struct.pack(">II5B", 12_000, 12_000, 8, 0, 0, 0, 0)  # beyond what Pillow warns about
    chunk = b"IHDR" + header
    content = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
    put(tmp_path / "a.png", content + struct.pack(">I4s", 0, b"IDAT") + struct.pack(">I", zlib.crc32(b"IDAT")))
    with pytest.raises(DataError, match="decompression bomb"):
        load_images(tmp_path)


def test_folders_that_are_no_sets(tmp_path):
    with pytest.raises(DataError, match="there are none"):
        load_images(tmp_path)
    put_picture(tmp_path / "a.png", pixels(4, 4))
    with pytest.raises(DataError, match="Give the folder that holds it"):
        load_images(tmp_path / "a.png")
    put(tmp_path / "a.txt", b"text")
    with pytest.raises(DataError, match=r"Expected a folder of pictures, or a \.npy"):
        load_images(tmp_path / "a.txt")


# --- arrays ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((20, 8, 6), (1, 8, 6)), ((20, 8, 6, 3), (3, 8, 6)), ((20, 3, 8, 6), (3, 8, 6)), ((20, 8, 6, 1), (1, 8, 6))],
)
@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_arrays(tmp_path, shape, expected, suffix):
    values = pixels(*shape)
    path = tmp_path / f"mine.{suffix}"
    np.save(path, values) if suffix == "npy" else np.savez(path, anything=values)
    splits = load_images(path, validation_fraction=0, test_fraction=0)
    assert splits.shape == expected
    wanted = values.reshape(20, 1, 8, 6) if expected[0] == 1 else values
    if shape == (20, 8, 6, 3):
        wanted = values.transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(splits.train, wanted)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (pixels(20, 8), r"got shape \(20, 8\)"),
        (pixels(20, 8, 3), "looks like one picture"),
        (pixels(20, 3, 8, 3), r"with C = 1 or 3"),
        (pixels(20, 4, 8, 4), r"with C = 1 or 3"),
        (pixels(0, 8, 8), "got none"),
        (pixels(20, 8, 8) / 255, r"got type float64.*255 \* array"),
        (pixels(20, 8, 8).astype(np.int64), "got type int64.*astype"),
        (pixels(20, 8, 8) > 127, "got type bool"),
    ],
)
def test_arrays_that_are_no_images(tmp_path, values, message):
    np.save(tmp_path / "a.npy", values)
    with pytest.raises(DataError, match=message):
        load_images(tmp_path / "a.npy")


def test_archives(tmp_path):
    path, train, test = tmp_path / "a.npz", pixels(20, 8, 8), pixels(5, 8, 8)
    np.savez(path, x_train=train, y_train=np.arange(20), x_test=test, y_test=np.ones((5, 1)))
    splits = load_images(path)
    np.testing.assert_array_equal(splits.test[:, 0], test)
    assert len(splits.validation) == 2
    np.savez(path, train_images=train, val_images=test, test_images=test)
    assert len(load_images(path).validation) == 5
    np.savez(path, train=train, test=pixels(5, 8, 9))
    with pytest.raises(DataError, match=r"one shape; got '1×8×8', '1×8×9' \(train, test\)"):
        load_images(path)
    np.savez(path, a=train, b=test)
    with pytest.raises(DataError, match="'a \\(20, 8, 8\\)'"):
        load_images(path)
    np.savez(path, images=train, labels=np.arange(19) / 2)  # what is not images does not matter
    np.testing.assert_array_equal(load_images(path, test_fraction=0, validation_fraction=0).train[:, 0], train)
    np.savez(path, images=train, labels=np.array([{}] * 20))
    with pytest.raises(DataError, match="never read"):  # a pickle inside
        load_images(path)
    for content, message in ((b"PK\x03\x04", "cannot read"), (b"", "cannot read")):
        put(path, content)
        with pytest.raises(DataError, match=message):
            load_images(path)
    with open(path, "wb") as file:
        np.save(file, train)
    assert load_images(path).shape == (1, 8, 8)  # one array under the name of an archive
