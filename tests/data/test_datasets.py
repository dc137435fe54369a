"""Every known data set: a well-formed entry that loads; and one that a third party adds."""

import os
import re
from pathlib import Path

import numpy as np
import pytest

from rectangular_flows.data import (
    DATASETS,
    DataError,
    Dataset,
    ImageRows,
    MissingFileError,
    RemoteFile,
    Splits,
    find_dataset,
    load_images,
    register_dataset,
    von_mises_circle,
)
from rectangular_flows.data.datasets import dataset
from rectangular_flows.runs.prepared import prepare
from rectangular_flows.settings import DataSettings

from .made import hepmass_text, power_rows, put, put_cifar, put_gas, put_idx, put_svhn

REAL = Path(os.environ.get("RNF_DATA", Path(__file__).parents[3] / "shared" / "data"))


def put_hepmass(folder):
    for name, extra in (("1000_train.csv", False), ("1000_test.csv", True)):
        put(folder / name, hepmass_text(300, extra, 0)[0].encode())


def put_array(folder, values):
    folder.mkdir()
    np.save(folder / "data.npy", values)


MAKERS = {
    "power": lambda folder: put_array(folder, power_rows()),
    "gas": put_gas,
    "hepmass": put_hepmass,
    "miniboone": lambda folder: put_array(folder, np.random.default_rng(0).standard_normal((200, 43))),
    "mnist": put_idx,
    "fashion-mnist": put_idx,
    "cifar10": put_cifar,
    "svhn": put_svhn,
}


@pytest.mark.parametrize("entry", list(DATASETS.values()), ids=lambda entry: entry.name)
def test_entries_are_well_formed(entry):
    for name in (entry.name, *entry.aliases):
        assert find_dataset(name) is find_dataset(name.upper()) is entry
    assert entry.description
    assert len(entry.shape) == (3 if entry.kind == "image" else 1)
    assert min(*entry.shape, entry.rows[0], entry.rows[2]) > 0
    assert bool(entry.files) == (entry.kind != "synthetic")
    known = {"seed", *vars(DataSettings("x"))}
    assert set(entry.options) <= known
    for file in entry.files:
        assert file.url.startswith(("http://", "https://"))
        assert re.fullmatch("md5:[0-9a-f]{32}|sha256:[0-9a-f]{64}", file.checksum)


@pytest.mark.parametrize("entry", list(DATASETS.values()), ids=lambda entry: entry.name)
def test_entries_load(entry, tmp_path):
    root = tmp_path
    if entry.files and entry.name in MAKERS:
        MAKERS[entry.name](root / entry.name)
    elif entry.files:
        root = REAL
        missing = [path for file in entry.files for path in file.targets if not (root / path).is_file()]
        if missing:
            pytest.skip(f"no {missing[0]} in {root}: set RNF_DATA, or make a small one in MAKERS")
    splits = entry.load(root)
    assert splits.name == entry.name
    for part in (splits.train, splits.validation, splits.test):
        assert len(part)
        assert part.shape[1:] == splits.train.shape[1:]
        assert part.dtype == (np.uint8 if entry.kind == "image" else np.float32)
        assert part.flags.c_contiguous
        assert np.isfinite(part).all()
    assert len(splits.columns) == (0 if entry.kind == "image" else splits.train.shape[1])
    if entry.files and root == tmp_path:
        assert "Published: " in splits.note  # the small files are not the published ones
        assert f"here: {len(splits.train) + (0 if entry.rows[1] else len(splits.validation)):,} /" in splits.note
    else:
        assert "Published: " not in splits.note
    if entry.kind == "image":
        rows = splits.rows(seed=5)
        assert [len(part) for part in rows] == [len(splits.train), len(splits.validation), len(splits.test)]
        assert [part.seed for part in rows] == [(5, 0), (5, 1), (5, 2)]
        assert all(isinstance(part, ImageRows) for part in rows)


@pytest.mark.parametrize("entry", [entry for entry in DATASETS.values() if entry.files], ids=lambda entry: entry.name)
def test_missing_files_say_what_to_do(entry, tmp_path):
    with pytest.raises(MissingFileError, match=f"rnf data get {entry.name}', or set RNF_DATA .* '{entry.name}'"):
        entry.load(tmp_path)


def test_the_circle_is_an_ordinary_entry():
    entry = dataset("circle")
    splits = entry.load(seed=4, radius_noise=0.01)
    parts = ((splits.train, 10_000, 0), (splits.validation, 1_000, 10_000), (splits.test, 5_000, 20_000))
    for part, count, offset in parts:
        np.testing.assert_array_equal(part, von_mises_circle(count, seed=4 + offset, radius_noise=0.01))
    assert splits.columns == ("x", "y")
    data = prepare(DataSettings("circle", radius_noise=0.01), 1, 4)
    np.testing.assert_array_equal(data.train, splits.train)
    assert data.note == splits.note == "von Mises on the unit circle, κ = 1, centred at π/2"


def test_names():
    assert dataset("cifar-10").name == "cifar10"
    assert find_dataset("nowhere") is None
    with pytest.raises(DataError, match=r"Expected one of circle, .*power.*got 'svnh'\. Did you mean 'svhn'"):
        dataset("svnh")


@pytest.fixture
def spiral():
    """A data set as a third party adds it."""

    def load(entry, root, *, seed=0):
        values = np.loadtxt(root / "spiral.txt", dtype=np.float32) + np.float32(seed)
        return Splits(entry.name, values[:6], values[6:8], values[8:], ("a", "b"))

    entry = Dataset("spiral", "table", "a spiral", (2,), (6, 2, 2), load, ("seed",), aliases=("helix",))
    register_dataset(entry)
    yield entry
    del DATASETS["spiral"]


def test_a_registered_data_set_is_used_by_name(spiral, tmp_path, monkeypatch):
    monkeypatch.setenv("RNF_DATA", str(tmp_path))
    values = np.arange(20.0).reshape(10, 2)
    np.savetxt(tmp_path / "spiral.txt", values)
    assert spiral.load().note == ""
    data = prepare(DataSettings("helix"), 1, 3)
    np.testing.assert_array_equal(data.test, values[8:] + 3)
    assert data.columns == ("a", "b")
    np.savetxt(tmp_path / "spiral.txt", values[:9])
    assert spiral.load().note == (
        "These files are not the published ones. Published: 6 / 2 / 2 rows (training / validation / test) of 2 values; "
        "here: 6 / 2 / 1 rows (training / validation / test) of 2 values."
    )


@pytest.mark.parametrize(
    "names", [("power", ()), ("new", ("mnist",)), ("new", ("fmnist",)), ("helix", ()), ("New", ())]
)
def test_names_are_taken_once(spiral, names):
    with pytest.raises(DataError, match="Expected a new name in lower case"):
        register_dataset(Dataset(names[0], "table", "", (2,), (1, 1, 1), lambda entry, root: None, aliases=names[1]))
    assert "new" not in DATASETS


def test_a_set_of_images_in_a_known_format_is_one_entry(tmp_path, request):
    files = (RemoteFile("https://example.org/a", "kana/train-images-idx3-ubyte", "md5:" + "0" * 32),)
    known = dataset("mnist")
    entry = Dataset("kana", "image", "", (1, 8, 6), (40, 0, 7), known.loader, known.options, files)
    register_dataset(entry)
    request.addfinalizer(lambda: DATASETS.pop("kana"))
    made = put_idx(tmp_path / "kana", shape=(8, 6))
    splits = load_images("kana", tmp_path, validation_fraction=0.25)
    assert (len(splits.train), len(splits.validation)) == (30, 10)
    np.testing.assert_array_equal(splits.test[:, 0], made["test"])
    assert splits.note == ""
