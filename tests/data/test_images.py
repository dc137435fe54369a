import gzip
import os
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from rectangular_flows.data import DATASETS, DataError, MissingFileError, load_images
from rectangular_flows.data._published import read_idx

from .made import idx, pixels, put, put_idx, put_picture, put_svhn

REAL = Path(os.environ.get("RNF_DATA", Path(__file__).parents[3] / "shared" / "data"))
SAMPLES = Path(__file__).parent / "samples"


def rows_of(images):
    return {image.tobytes() for image in images}


# --- splitting ---------------------------------------------------------------------------------------------------------


def test_validation_images_come_out_of_the_training_images_by_seed(tmp_path):
    made = put_idx(tmp_path / "mnist")
    splits = load_images("mnist", tmp_path)
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (36, 4, 7)
    np.testing.assert_array_equal(splits.test[:, 0], made["test"])
    number = {image.tobytes(): i for i, image in enumerate(made["train"])}
    train, held_out = ([number[image.tobytes()] for image in images] for images in (splits.train, splits.validation))
    assert sorted(train + held_out) == list(range(40))
    assert train == sorted(train)  # in the order of the files
    assert held_out == sorted(held_out) != list(range(4))
    assert splits.train.dtype == np.uint8
    again, other = load_images("mnist", tmp_path), load_images("mnist", tmp_path, seed=1)
    np.testing.assert_array_equal(again.validation, splits.validation)
    assert rows_of(other.validation) != rows_of(splits.validation)
    np.testing.assert_array_equal(other.test, splits.test)


def test_fractions(tmp_path):
    put_idx(tmp_path / "mnist")
    assert len(load_images("mnist", tmp_path, validation_fraction=0.5).validation) == 20
    assert load_images("mnist", tmp_path, validation_fraction=0).validation.shape == (0, 1, 28, 28)
    np.save(tmp_path / "a.npy", pixels(50, 8, 8))
    splits = load_images(tmp_path / "a.npy", validation_fraction=0.2, test_fraction=0.3)
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (25, 10, 15)
    with pytest.raises(DataError, match="fraction"):
        load_images("mnist", tmp_path, validation_fraction=1)


# --- MNIST's format ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "fmnist", "MNIST"])
def test_idx(tmp_path, packed, name):
    folder = "mnist" if name.lower() == "mnist" else "fashion-mnist"
    put_idx(tmp_path / folder, packed=packed)
    splits = load_images(name, tmp_path)
    assert splits.name == folder
    assert splits.shape == (1, 28, 28)
    assert splits.note == (
        "These files are not the published ones. Published: 60,000 / 0 / 10,000 rows (training / validation / test) of "
        "1×28×28 values; here: 40 / 0 / 7 rows (training / validation / test) of 1×28×28 values."
    )


def test_gzip_is_told_by_content_and_names_may_have_a_dot(tmp_path):
    made = put_idx(tmp_path, packed=True)
    (tmp_path / "t10k-images-idx3-ubyte.gz").rename(tmp_path / "t10k-images.idx3-ubyte")
    np.testing.assert_array_equal(load_images(tmp_path).test[:, 0], made["test"])


def test_idx_of_another_size_is_read_by_path_but_is_not_mnist(tmp_path):
    put_idx(tmp_path / "mnist", shape=(8, 6))
    assert load_images(tmp_path / "mnist").shape == (1, 8, 6)
    with pytest.raises(DataError, match=r"Expected images of 1×28×28 for mnist; .* are 1×8×6"):
        load_images("mnist", tmp_path)


GOOD = idx(pixels(3, 4, 5))


HUGE = b"\0\0\x08\x03" + b"\xff" * 12 + bytes(100)  # memory for what it says must not be asked for
DAMAGED = {
    "cut off": (GOOD[:-1], r"Expected 60 values .* 3×4×5; got 59"),
    "too long": (GOOD + b"x", "got 61"),
    "floats": (b"\0\0\x0d\x03" + GOOD[4:], "begins with 00000d03"),
    "one dimension": (idx(pixels(60)), "begins with 00000801"),
    "two bytes": (b"\0\0", "begins with 0000"),
    "nothing": (b"", "begins with nothing"),
    "zip": (b"PK\x03\x04" + bytes(20), "Is it another file"),
    "huge": (HUGE, "got 100"),
    "huge, gzip": (gzip.compress(HUGE), "got 100"),
    "gzip, cut off": (gzip.compress(GOOD)[:-9], "cannot read"),
    "gzip, damaged": (gzip.compress(GOOD)[:10] + b"\xff" * 40, "cannot read"),
    "gzip, wrong sum": (gzip.compress(GOOD)[:-8] + bytes(8), "cannot read"),
    "gzip, hardly": (b"\x1f\x8b nonsense", "cannot read"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_idx(tmp_path, case):
    content, message = DAMAGED[case]
    with pytest.raises(DataError, match=message):
        read_idx(put(tmp_path / "f", content))


def test_missing_files_say_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("RNF_DATA", str(tmp_path))
    for name in ("mnist", "cifar10", "svhn"):
        with pytest.raises(MissingFileError, match=f"rnf data get {name}.*RNF_DATA"):
            load_images(name)
        (tmp_path / name).mkdir()
        with pytest.raises(FileNotFoundError, match=f"rnf data get {name}.*RNF_DATA"):
            load_images(name)
    put_idx(tmp_path / "mnist")
    (tmp_path / "mnist" / "t10k-images-idx3-ubyte").unlink()
    with pytest.raises(MissingFileError, match="Expected 't10k-images-idx3-ubyte' in"):
        load_images("mnist")


# --- SVHN --------------------------------------------------------------------------------------------------------------


def test_svhn(tmp_path):
    made = put_svhn(tmp_path / "svhn")
    splits = load_images("svhn", tmp_path, validation_fraction=0)
    np.testing.assert_array_equal(splits.train, made["train"])
    np.testing.assert_array_equal(splits.test, made["test"])
    assert load_images(tmp_path / "svhn").shape == (3, 32, 32)


def test_damaged_svhn(tmp_path):
    put_svhn(tmp_path)
    file = tmp_path / "test_32x32.mat"
    whole = file.read_bytes()
    bad = [
        (whole[:2000], "cannot read"),
        (b"nothing of the kind", "cannot read"),
        (b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM" + bytes(100), r"version 7 or older.*v7\.3"),
    ]
    for content, message in bad:
        file.write_bytes(content)
        with pytest.raises(DataError, match=message):
            load_images(tmp_path)
    for content, message in (
        ({"y": pixels(4)}, "Expected the variable X"),
        ({"X": pixels(32, 32, 4)}, r"Expected X as \(height, width, 3, N\)"),
        ({"X": pixels(32, 32, 3, 4) / 255}, "got .* of float64"),
    ):
        savemat(file, content)
        with pytest.raises(DataError, match=message):
            load_images(tmp_path)
    file.unlink()
    with pytest.raises(MissingFileError, match=r"Expected 'test_32x32\.mat' in"):
        load_images(tmp_path)


def test_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MissingFileError, match="Did you mean 'mnist'"):
        load_images("mnits")
    with pytest.raises(DataError, match="'power' is of kind 'table'"):
        load_images("power")
    put_picture(tmp_path / "power" / "1.png", pixels(4, 4))
    assert load_images("./power", validation_fraction=0, test_fraction=0).shape == (1, 4, 4)
    put_idx(tmp_path / "mnist", shape=(8, 8))
    assert load_images("./mnist").shape == (1, 8, 8)


# --- the real ones -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_samples(name):
    splits = load_images(SAMPLES / f"{name}-300.npz")
    assert splits.train.shape == (240, 1, 28, 28)
    if (REAL / name / "train-images-idx3-ubyte.gz").is_file():
        with np.load(SAMPLES / f"{name}-300.npz") as sample:
            whole = load_images(name, REAL, validation_fraction=0)
            np.testing.assert_array_equal(whole.train[:300, 0], sample["images"])


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10", "svhn"])
def test_the_published_files(name):
    try:
        splits = load_images(name, REAL)
    except MissingFileError as error:
        pytest.skip(str(error))
    count, _, tested = DATASETS[name].rows
    assert splits.note == ""
    assert len(splits.train) + len(splits.validation) == count
    assert (len(splits.validation), len(splits.test)) == (count // 10, tested)
