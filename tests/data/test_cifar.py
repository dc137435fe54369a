"""CIFAR-10, in each of its layouts."""

import json
import pickle

import numpy as np
import pytest
from PIL import Image

from rectangular_flows.data import DataError, load_images
from rectangular_flows.data._cifar import CLASSES
from rectangular_flows.data._files import MissingFileError

from .test_images import digits, pixels, put
from .test_safe_pickle import Call, Name, array, hostile, python2, target  # noqa: F401

BATCHES = [f"data_batch_{i}" for i in range(1, 6)]


def cifar_batches(count=4):
    return {
        name: (pixels(count, 3, 32, 32, seed=i), digits(count, i)) for i, name in enumerate([*BATCHES, "test_batch"])
    }


def put_cifar(folder, layout):
    made = cifar_batches()
    for name, (images, labels) in made.items():
        flat = images.reshape(len(images), -1)
        if layout == "binary":
            put(folder / f"{name}.bin", np.column_stack([labels.astype(np.uint8), flat]).tobytes())
        elif layout == "python 2":  # as published
            batch = {
                "batch_label": b"b",
                "labels": labels.tolist(),
                "data": array(flat, "u1", "|"),
                "filenames": [b"a.png"],
            }
            put(folder / name, python2(batch).getvalue())
        elif layout.startswith("python 3"):
            batch = {b"data": flat, b"labels": labels.tolist(), b"filenames": [b"a.png"], b"batch_label": b"b"}
            put(folder / name, pickle.dumps(batch, protocol=int(layout[-1])))
        else:
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(images.transpose(0, 2, 3, 1).reshape(len(images), 1024, 3)).save(folder / f"{name}.png")
    if layout == "PNG":
        train = np.concatenate([made[name][1] for name in BATCHES])
        put(folder / "train_lables.json", json.dumps(train.tolist()).encode())
        put(folder / "test_lables.json", json.dumps(made["test_batch"][1].tolist()).encode())
    return made


@pytest.mark.parametrize("layout", ["binary", "PNG", "python 2", *(f"python 3, protocol {p}" for p in range(6))])
def test_cifar_is_the_same_from_every_layout(tmp_path, layout):
    made = put_cifar(tmp_path / "cifar10", layout)
    splits = load_images("cifar10", tmp_path, validation_fraction=0)
    np.testing.assert_array_equal(splits.train, np.concatenate([made[name][0] for name in BATCHES]))
    np.testing.assert_array_equal(splits.train_labels, np.concatenate([made[name][1] for name in BATCHES]))
    np.testing.assert_array_equal(splits.test, made["test_batch"][0])
    np.testing.assert_array_equal(splits.test_labels, made["test_batch"][1])
    assert splits.classes == CLASSES
    assert splits.train.flags.c_contiguous


def test_cifar_layouts_are_found(tmp_path):
    put_cifar(tmp_path / "a" / "cifar-10-batches-py", "python 2")
    assert load_images(tmp_path / "a").shape == (3, 32, 32)
    put_cifar(tmp_path / "b", "binary")
    put_cifar(tmp_path / "b", "PNG")
    (tmp_path / "b" / "data_batch_3.bin").unlink()  # the other layout is whole
    assert len(load_images(tmp_path / "b").test) == 4
    (tmp_path / "b" / "test_batch.png").unlink()
    (tmp_path / "b" / "data_batch_1.png").unlink()
    with pytest.raises(
        MissingFileError, match=r"all 6 files of CIFAR-10 in the binary layout .* lacks 'data_batch_3.bin'"
    ):
        load_images(tmp_path / "b")


def test_png_labels(tmp_path):
    put_cifar(tmp_path, "PNG")
    (tmp_path / "train_lables.json").rename(tmp_path / "train_labels.json")
    (tmp_path / "test_lables.json").unlink()
    splits = load_images(tmp_path)
    assert splits.train_labels is not None
    assert splits.test_labels is None
    assert "'test_lables.json'" in splits.note
    for content in (b"{}", b"[1, 2.5]", b"[1, -1]", b"[" * 100_000, b"\xff", b"[99999999999999999999]", b"[true]"):
        put(tmp_path / "test_lables.json", content)
        with pytest.raises(DataError, match="Expected a list of labels"):
            load_images(tmp_path)
    put(tmp_path / "test_lables.json", b"[1]")
    with pytest.raises(DataError, match="4 images and 1 labels"):
        load_images(tmp_path)


def test_damaged_cifar(tmp_path):
    put_cifar(tmp_path, "binary")
    file = tmp_path / "data_batch_2.bin"
    whole = file.read_bytes()
    for content in (whole[:-1], b""):
        file.write_bytes(content)
        with pytest.raises(DataError, match="images of 3,073 bytes each"):
            load_images(tmp_path)
    file.write_bytes(b"\x0b" + whole[1:])
    with pytest.raises(DataError, match="labels from 0 to 9"):
        load_images(tmp_path)
    file.unlink()
    put_cifar(tmp_path, "PNG")
    for bad in (pixels(4, 1023, 3), pixels(4, 1024)):
        Image.fromarray(bad).save(tmp_path / "test_batch.png")
        with pytest.raises(DataError, match="1024 pixels wide"):
            load_images(tmp_path)
    put(tmp_path / "test_batch.png", b"no picture")
    with pytest.raises(DataError, match=r"test_batch\.png' cannot be read: not a picture"):
        load_images(tmp_path)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"labels": [1]}, "Expected 'data' and 'labels'"),
        ({"data": pixels(4, 3072)}, "Expected 'data' and 'labels'"),
        ({"data": pixels(4, 3071), "labels": [1] * 4}, r"Expected data \(N, 3072\)"),
        ({"data": pixels(4, 3072).astype(np.int64), "labels": [1] * 4}, "of uint8"),
        ({"data": pixels(4, 3072), "labels": [1] * 3}, "images and"),
        ({"data": pixels(4, 3072), "labels": [2**70] * 4}, "OverflowError"),
        ([1, 2], "holds a 'list' instead"),
    ],
)
def test_damaged_python_batches(tmp_path, batch, message):
    put_cifar(tmp_path, "python 2")
    put(tmp_path / "data_batch_4", pickle.dumps(batch))
    with pytest.raises(DataError, match=message):
        load_images(tmp_path)


@pytest.mark.parametrize("case", [name for name, _ in hostile("x")])
def test_hostile_batches_do_nothing(tmp_path, case, target):  # noqa: F811
    folder = tmp_path / "cifar10"
    put_cifar(folder, "python 2")
    put(folder / "data_batch_4", dict(hostile(target))[case])
    with pytest.raises(DataError):
        load_images("cifar10", tmp_path)


def test_hostile_beside_good_arrays(tmp_path, target):  # noqa: F811
    put_cifar(tmp_path, "python 2")
    good = {"data": array(pixels(4, 3072), "u1", "|"), "labels": [0] * 4}
    bad = {**good, "more": Call(Name("posix", "system"), (f"touch {target}",))}
    put(tmp_path / "data_batch_4", python2(bad).getvalue())
    with pytest.raises(DataError, match=r"asks for 'posix\.system'"):
        load_images(tmp_path)
