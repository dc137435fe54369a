from pathlib import Path

import numpy as np

from rectangular_flows.data.pixels import ImageRows
from rectangular_flows.data.rows import Picked
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
