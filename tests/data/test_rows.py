import numpy as np
import pytest
import torch

from rectangular_flows.data import ImageRows, dequantise
from rectangular_flows.data.rows import Picked, check, mix, pick, shuffled, split, take
from rectangular_flows.errors import NonFiniteError
from rectangular_flows.storage import files

from .made import pixels


@pytest.fixture(params=["tensor", "array", "memmap", "images"])
def rows_and_values(request, tmp_path):
    """Rows of each kind, and the array they stand for."""
    values = np.arange(80, dtype=np.float32).reshape(20, 1, 2, 2)
    if request.param == "images":
        images = pixels(20, 1, 2, 2)
        return ImageRows(images, 3), dequantise(images, 3)
    if request.param == "memmap":
        np.save(tmp_path / "a.npy", values)
        return np.load(tmp_path / "a.npy", mmap_mode="r"), values
    return torch.from_numpy(values) if request.param == "tensor" else values, values


def test_rows_are_taken_and_picked(rows_and_values):
    rows, values = rows_and_values
    check(rows, "data", (1, 2, 2))
    assert torch.equal(take(rows, torch.tensor([3, 17])), torch.from_numpy(values[[3, 17]]))
    assert torch.equal(take(rows, slice(2, 5), dtype=torch.float64), torch.from_numpy(values[2:5]).double())
    picked = pick(rows, np.array([8, 2, 5]))
    assert isinstance(picked, Picked) == isinstance(rows, np.memmap | ImageRows)
    assert tuple(picked.shape) == (3, 1, 2, 2)
    np.testing.assert_array_equal(take(picked, slice(None)), values[[8, 2, 5]])
    np.testing.assert_array_equal(take(pick(picked, np.array([2, 0])), slice(None)), values[[5, 8]])


def test_a_tenth_is_held_out_by_seed(rows_and_values):
    rows, values = rows_and_values
    train, held_out = (take(part, slice(None)).numpy() for part in split(rows, None, (1, 2, 2), 5))
    order = shuffled(20, 5, -1).numpy()
    np.testing.assert_array_equal(held_out, values[order[:2]])
    np.testing.assert_array_equal(train, values[np.sort(order[2:])])  # in the order of the data


def test_given_validation_rows_are_kept():
    train, validation = np.zeros((5, 2)), np.ones((3, 2))
    assert split(train, validation, (2,), 0)[0] is train
    assert split(train, validation, (2,), 0)[1] is validation


def test_what_cannot_be_trained_on(monkeypatch):
    with pytest.raises(ValueError, match=r"expected data of shape \(N, 3\); got \(4, 2\)"):
        check(np.zeros((4, 2)), "data", (3,))
    with pytest.raises(ValueError, match="at least two rows of validation; got 1"):
        split(np.zeros((4, 2)), np.zeros((1, 2)), (2,), 0)
    values = np.zeros((50, 2))
    values[[3, 30, 49], [0, 1, 0]] = np.nan, np.inf, -np.inf
    monkeypatch.setattr(files, "CHUNK_BYTES", 7 * 16)  # seven rows at a time
    with pytest.raises(NonFiniteError, match="3 of 50 rows of data"):
        check(values, "data", (2,))


def test_parts_cover_the_rows_once(monkeypatch):
    monkeypatch.setattr(files, "CHUNK_BYTES", 100)
    parts = list(files.parts_of(np.zeros((10, 3))))
    assert [(part.start, part.stop) for part in parts] == [(0, 4), (4, 8), (8, 12)]
    assert len(list(files.parts_of(torch.zeros(3, 1000)))) == 3  # a row at least


def test_orders_are_functions_of_the_seeds():
    assert torch.equal(shuffled(50, 1, 2), shuffled(50, 1, 2))
    assert not torch.equal(shuffled(50, 1, 2), shuffled(50, 2, 1))
    assert sorted(shuffled(50, 7).tolist()) == list(range(50))
    assert mix(0) == int(np.random.SeedSequence([0]).generate_state(1, np.uint64)[0] >> np.uint64(1))
    assert len({mix(i, j) for i in range(-2, 3) for j in range(5)}) == 25
