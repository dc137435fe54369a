from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from rectangular_flows.data import (
    ClippedPixelsWarning,
    DataError,
    ImageRows,
    dequantise,
    load_images,
    to_bytes,
)
from rectangular_flows.data.rows import take
from rectangular_flows.flows import Logit

EVERY = np.arange(256, dtype=np.uint8)


def pixels(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def noise(images, seed=0):
    return 256 * dequantise(images, seed).astype(np.float64) - images


def test_dequantised_images_stay_in_their_step():
    images = np.tile(EVERY, (4000, 1))  # a million pixels: white ones that plain float32 would round to 1 among them
    y = dequantise(images, 0)
    assert y.dtype == np.float32
    assert y.shape == images.shape
    assert y.min() > 0
    assert y.max() < 1
    np.testing.assert_array_equal(np.floor(256 * y), images)
    naive = (np.float32(255) + np.random.default_rng(0).random(images.shape, np.float32)) / np.float32(256)
    assert naive.max() == 1  # or the assertion above would prove little


def test_noise_is_uniform_and_independent():
    u = noise(pixels(2000, 1, 9, 11))
    assert stats.kstest(u.ravel(), "uniform").pvalue > 1e-3
    flat = u.reshape(2000, -1)
    error = 5 / np.sqrt(flat.size)
    for a, b in (
        (flat[1:], flat[:-1]),
        (flat[:, 1:], flat[:, :-1]),
        (flat[:, 4:], flat[:, :-4]),
        (flat[::2], flat[1::2]),
    ):
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 1.5 * error
    other = noise(pixels(2000, 1, 9, 11), seed=1).reshape(2000, -1)
    assert abs(np.corrcoef(flat.ravel(), other.ravel())[0, 1]) < error
    counts = np.histogram(flat, 64, (0, 1))[0]
    assert stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize("seed", [0, 1, -1, 2**63, (0, 1)])
def test_noise_is_a_function_of_seed_and_row(seed):
    images = pixels(50, 3, 5, 5)
    whole = dequantise(images, seed)
    rows = ImageRows(images, seed)
    index = np.array([49, 0, 7, 7])
    np.testing.assert_array_equal(rows[index], whole[index])
    np.testing.assert_array_equal(rows[10:20:3], whole[10:20:3])
    np.testing.assert_array_equal(rows[index - 50], whole[index])
    np.testing.assert_array_equal(dequantise(images[:7], seed), whole[:7])
    assert (dequantise(images, 5) != whole).mean() > 0.99


def test_noise_does_not_depend_on_the_machine():
    """SplitMix64 of seed 0 begins with these numbers; they are those of its authors' program."""
    from rectangular_flows.data.pixels import _noise

    words = _noise(np.arange(1), 12, np.zeros(1, np.uint64)).astype("<u2").view("<u8")
    assert [f"{word:016x}" for word in words.ravel()] == ["e220a8397b1dcdaf", "6e789e6aa1b965f4", "06c45d188009454f"]


def test_conversion_in_parts(monkeypatch):
    images = pixels(50, 1, 4, 4)
    whole = dequantise(images, 0)
    monkeypatch.setattr("rectangular_flows.data.pixels._AT_ONCE", 100)
    np.testing.assert_array_equal(dequantise(images, 0), whole)


def test_nothing_is_changed():
    images = pixels(5, 1, 4, 4)
    kept = images.copy()
    images.flags.writeable = False
    values = dequantise(images)
    before = values.copy()
    values.flags.writeable = False
    to_bytes(values)
    np.testing.assert_array_equal(values, before)
    np.testing.assert_array_equal(images, kept)


def test_bytes_undo_both_conversions():
    images = np.tile(EVERY, (200, 1))
    for back in (
        to_bytes(dequantise(images, 0)),
        to_bytes(images / 255),
        to_bytes((images / 255).astype(np.float32)),
    ):
        assert back.dtype == np.uint8
        np.testing.assert_array_equal(back, images)
    np.testing.assert_array_equal(to_bytes(torch.tensor([0.0, 1.0])), [0, 255])


def test_bytes_are_clipped_aloud():
    values = np.full(1000, 0.5, np.float32)
    values[:10] = -3, *[2] * 9
    assert to_bytes(values)[:2].tolist() == [0, 255]  # 1 %: quietly
    values[10] = 1.5
    with pytest.warns(ClippedPixelsWarning, match=r"1\.1% .* \(from -3 to 2\)"):
        to_bytes(values)
    with pytest.warns(ClippedPixelsWarning):
        assert to_bytes(np.full(3, 60_000, np.float16)).tolist() == [255] * 3


def test_no_images():
    assert ImageRows(pixels(4, 1, 2, 2)[:0])[:].shape == (0, 1, 2, 2)


def test_what_is_refused():
    with pytest.raises(DataError, match="2 of 3 values are NaN or infinite"):
        to_bytes([np.nan, 0.5, np.inf])
    with pytest.raises(DataError, match="Bytes need no conversion"):
        to_bytes(EVERY)
    for wrong in (EVERY / 255, np.array(3, np.uint8), EVERY):
        with pytest.raises(DataError, match="of uint8"):
            dequantise(wrong)
    with pytest.raises(TypeError, match="row numbers"):
        ImageRows(pixels(5, 1, 2, 2))[3]


@pytest.mark.parametrize("margin", [1e-6, 0.05])
def test_the_logit_layer_takes_dequantised_images(margin):
    splits = load_images(Path(__file__).parent / "samples" / "mnist-300.npz")
    train, validation, test = splits.rows(seed=3)
    x = take(train, slice(None))
    layer = Logit(splits.shape, margin=margin)
    z, log_det = layer.inverse_with_log_det(x)
    assert torch.isfinite(z).all()
    assert torch.isfinite(log_det).all()
    np.testing.assert_array_equal(to_bytes(layer(z.double())), splits.train)
    assert not (validation[:5] * 256 % 1 == test[:5] * 256 % 1).mean() > 0.01
