"""CIFAR-10, in each of its layouts."""

import numpy as np
import pytest
from PIL import Image

from rectangular_flows.data import DataError, MissingFileError, load_images

from .made import BATCHES, pixels, put, put_cifar


@pytest.mark.parametrize("layout", ["binary", "PNG"])
def test_cifar_is_the_same_from_every_layout(tmp_path, layout):
    made = put_cifar(tmp_path / "cifar10", layout)
    splits = load_images("cifar10", tmp_path, validation_fraction=0)
    np.testing.assert_array_equal(splits.train, np.concatenate([made[name] for name in BATCHES]))
    np.testing.assert_array_equal(splits.test, made["test_batch"])
    assert splits.train.flags.c_contiguous


def test_cifar_layouts_are_found(tmp_path):
    put_cifar(tmp_path / "a" / "cifar-10-batches-bin", "binary")
    assert load_images(tmp_path / "a").shape == (3, 32, 32)
    put_cifar(tmp_path / "b", "binary")
    put_cifar(tmp_path / "b", "PNG")
    (tmp_path / "b" / "data_batch_3.bin").unlink()  # the other layout is whole
    assert len(load_images(tmp_path / "b").test) == 4
    (tmp_path / "b" / "test_batch.png").unlink()
    (tmp_path / "b" / "data_batch_1.png").unlink()
    with pytest.raises(MissingFileError, match=r"Expected 'data_batch_3.bin' in '.*', beside the other files"):
        load_images(tmp_path / "b")


def test_damaged_cifar(tmp_path):
    put_cifar(tmp_path, "binary")
    file = tmp_path / "data_batch_2.bin"
    whole = file.read_bytes()
    for content in (whole[:-1], b""):
        file.write_bytes(content)
        with pytest.raises(DataError, match="images of 3,073 bytes each"):
            load_images(tmp_path)
    file.unlink()
    put_cifar(tmp_path, "PNG")
    for bad in (pixels(4, 1023, 3), pixels(4, 1024)):
        Image.fromarray(bad).save(tmp_path / "test_batch.png")
        with pytest.raises(DataError, match="1024 pixels wide"):
            load_images(tmp_path)
    put(tmp_path / "test_batch.png", b"no picture")
    with pytest.raises(DataError, match=r"cannot read '.*test_batch\.png'.*Is it damaged"):
        load_images(tmp_path)


@pytest.mark.parametrize("inner", ["", "cifar-10-batches-py"])
def test_the_pickle_for_python_is_not_read(tmp_path, inner):
    put(tmp_path / "cifar10" / inner / "data_batch_1", b"cos\nsystem\n(S'touch made'\ntR.")
    for source, root in (("cifar10", tmp_path), (tmp_path / "cifar10", None)):
        with pytest.raises(DataError, match=r"binary version of CIFAR-10.*rnf data get cifar10"):
            load_images(source, root)
