from pathlib import Path

import numpy as np
import pytest

from rectangular_flows.data.periodic import PeriodicColumn
from rectangular_flows.data.pixels import ImageRows
from rectangular_flows.data.rows import Picked
from rectangular_flows.runs import shared
from rectangular_flows.runs.prepared import Prepared
from rectangular_flows.runs.shared import _mapped, _on_disk, _written


def test_rows_that_are_mapped_are_those_that_were_written(tmp_path, monkeypatch):
    """Tables and images, with the noise of each image; no rows at all are possible."""
    table, empty = np.random.default_rng(0).normal(size=(7, 3)), np.zeros((0, 3))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = _mapped(Path(_written(Prepared(table, table[:2], empty, ("a", "b", "c"), "a note", ("a", "b")))))
    assert isinstance(found.train, np.memmap)
    assert found.columns == ("a", "b", "c")
    assert found.degrees == ("a", "b")
    assert found.note == "a note"
    assert len(found.test) == 0
    np.testing.assert_array_equal(found.train, table)
    images = [ImageRows(np.random.default_rng(i).integers(0, 256, (4, 1, 3, 3), np.uint8), (5, i)) for i in range(3)]
    back = _mapped(Path(_written(Prepared(*images, ()))))
    for name, rows in zip(("train", "validation", "test"), images, strict=True):
        np.testing.assert_array_equal(getattr(back, name)[:], rows[:])
    assert back.image_shape == (1, 3, 3)


def test_files_that_are_mapped_already_are_not_copied(tmp_path):
    np.save(tmp_path / "rows.npy", np.zeros((5, 2)))
    mapped, there = np.load(tmp_path / "rows.npy", mmap_mode="r"), np.zeros((2, 2))
    assert _on_disk(Prepared(Picked(mapped, np.arange(3)), there, there, ("a", "b")))
    assert not _on_disk(Prepared(there, there, there, ("a", "b")))


# --- several processes


class Machines:
    """What a process of several sees: who it is, and what the others say."""

    def __init__(self, size, rank, local_rank, said=None):
        self.size, self.rank, self.local_rank, self.said, self.waited = size, rank, local_rank, said or {}, []

    def texts(self, own):
        self.own = own
        return [own if i == self.rank else self.said.get(i, "") for i in range(self.size)]

    def wait(self):
        self.waited.append(bool(self.own) and Path(self.own).exists())


def rows(note=""):
    values = np.random.default_rng(1).normal(size=(6, 2))
    hour = PeriodicColumn(1, "hour", 24.0, -1.5, 30.0, True, "a note")
    return Prepared(values, values[:2], values[:1], ("a", "hour"), note, periodic=(hour,))


def test_one_process_writes_nothing(monkeypatch):
    monkeypatch.setattr(shared, "_written", lambda _: pytest.fail("nobody to share with"))
    data = rows()
    assert shared.open_once(Machines(1, 0, 0), lambda: data) is data


@pytest.mark.parametrize("rank", [0, 2])
def test_the_first_of_a_machine_writes_and_all_of_it_map(tmp_path, monkeypatch, rank):
    """Two machines of two; the folder is there until all have waited, and gone then."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    first = Machines(4, rank, 0, {2 - rank: "elsewhere"})
    found = shared.open_once(first, rows)
    assert first.waited == [True]
    assert list(tmp_path.iterdir()) == []
    assert isinstance(found.train, np.memmap)
    np.testing.assert_array_equal(found.train, rows().train)
    assert found.periodic == rows().periodic
    place = shared._written(rows("ärger"))
    second = Machines(4, rank + 1, 1, {rank: place, 2 - rank: "elsewhere"})
    found = shared.open_once(second, lambda: pytest.fail("it was opened already"))
    assert (second.own, second.waited, found.note) == ("", [False], "ärger")
    np.testing.assert_array_equal(found.validation, rows().validation)
    assert Path(place).exists()  # which is the first one's to remove


@pytest.mark.parametrize("rank", [0, 1])
def test_files_on_disk_are_opened_by_each_process(tmp_path, monkeypatch, rank):
    monkeypatch.setattr(shared, "_written", lambda _: pytest.fail("nothing to copy"))
    np.save(tmp_path / "rows.npy", np.zeros((5, 2)))
    plain, opened = np.zeros((2, 2)), []

    def prepare():
        opened.append(Prepared(plain, plain, np.load(tmp_path / "rows.npy", mmap_mode="r"), ("a", "b")))
        return opened[-1]

    world = Machines(2, rank, rank)
    assert shared.open_once(world, prepare) is opened[0]
    assert len(opened) == len(world.waited) == 1


def test_nothing_is_left_behind_if_another_process_fails(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    world = Machines(2, 0, 0)
    monkeypatch.setattr(world, "wait", lambda: Path("nowhere").stat())
    with pytest.raises(FileNotFoundError):
        shared.open_once(world, rows)
    assert list(tmp_path.iterdir()) == []


def test_images_keep_the_seed_of_their_noise(tmp_path, monkeypatch):
    """A number or several; images that are mapped into memory count as being on disk."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    images = np.random.default_rng(0).integers(0, 256, (3, 1, 2, 2), np.uint8)
    data = Prepared(ImageRows(images, 7), ImageRows(images, (7, 1)), ImageRows(images), ())
    assert not _on_disk(data)
    found = _mapped(Path(_written(data)))
    assert [part.seed for part in (found.train, found.validation, found.test)] == [7, (7, 1), 0]
    assert _on_disk(found)
