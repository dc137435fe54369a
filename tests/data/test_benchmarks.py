import gzip
import lzma
import os
from pathlib import Path

import numpy as np
import pytest

from rectangular_flows.data import DataError, load_benchmark

from .made import array, frame, gas_values, hepmass_text, index, power_rows, put_gas, python2, rows

REAL = Path(os.environ.get("RNF_DATA", Path(__file__).parents[3] / "shared" / "data"))


@pytest.fixture
def put(tmp_path):
    def put(name, content):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        if isinstance(content, np.ndarray):
            np.save(path, content)
        else:
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return put


def as_published(data):
    """POWER in the steps of the benchmark's own program."""
    random = np.random.RandomState(42)
    data = data.copy()
    random.shuffle(data)
    data = np.delete(np.delete(data, 3, axis=1), 1, axis=1)
    count = len(data)
    voltage, active, meters = 0.01 * random.rand(count, 1), 0.001 * random.rand(count, 1), random.rand(count, 3)
    data += np.hstack([active, voltage, meters, np.zeros((count, 1))])
    n_test = int(0.1 * count)
    test, data = data[-n_test:], data[:-n_test]
    n_validation = int(0.1 * len(data))
    mean, deviation = data.mean(axis=0), data.std(axis=0)
    data = (data - mean) / deviation
    return data[:-n_validation], data[-n_validation:], (test - mean) / deviation


@pytest.mark.parametrize("compressed", [False, True])
def test_power_is_prepared_as_published(put, tmp_path, compressed):
    path = put("power/data.npy", power_rows())
    if compressed:
        put("power/data.npy.xz", lzma.compress(path.read_bytes()))
        path.unlink()
    splits = load_benchmark("POWER", tmp_path)
    for got, wanted in zip((splits.train, splits.validation, splits.test), as_published(power_rows()), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-6)
        assert got.dtype == np.float32
    assert splits.columns[1] == "voltage"
    assert "Published: 1,659,917 / 184,435 / 204,928" in splits.note
    assert "here: 162 / 18 / 20 rows" in splits.note


def test_power_itself():
    if not any((REAL / "power" / name).is_file() for name in ("data.npy", "data.npy.xz")):
        pytest.skip(f"no power/data.npy in {REAL}: set RNF_DATA")
    splits = load_benchmark("power", REAL)
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (1_659_917, 184_435, 204_928)
    assert splits.note == ""
    fitted = np.concatenate([splits.train, splits.validation]).astype(np.float64)
    np.testing.assert_allclose(fitted.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(fitted.std(axis=0), 1, atol=1e-5)
    assert np.isfinite(splits.test).all()


def test_power_refuses_what_it_is_not(put, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"'power/data.npy' or .*rnf data get power.*RNF_DATA"):
        load_benchmark("power", tmp_path)
    put("power/data.npy", np.ones((30, 7)))
    with pytest.raises(DataError, match=r"\(rows, 8\).*\(30, 7\)"):
        load_benchmark("power", tmp_path)
    put("power/data.npy", b"nonsense")
    with pytest.raises(DataError, match="cannot read"):
        load_benchmark("power", tmp_path)
    put("power/data.npy", np.ones((3, 8)))
    with pytest.raises(DataError, match="at least 20 rows"):
        load_benchmark("power", tmp_path)


def test_gas_from_a_pickle(tmp_path):
    put_gas(tmp_path / "gas")
    splits = load_benchmark("gas", tmp_path)
    # a, b and e are alike: a goes, then b; e stays alone
    assert splits.columns == ("c", "d", "e", "f")
    wanted = gas_values()[:, [2, 3, 4, 5]]
    train = wanted[:324]
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [324, 36, 40]
    np.testing.assert_allclose(splits.test, (wanted[360:] - train.mean(0)) / train.std(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(splits.train, (train - train.mean(0)) / train.std(0), rtol=1e-5, atol=1e-6)


def test_gas_from_a_hostile_pickle(put, tmp_path):
    put("gas/ethylene_CO.pickle", b"cos\nsystem\n(S'touch made'\ntR.")
    with pytest.raises(DataError, match=r"asks for 'os.system'"):
        load_benchmark("gas", tmp_path)


def test_gas_without_its_columns(put, tmp_path):
    axes = [index(["Time", "x"]), rows(400)]
    put("gas/ethylene_CO.pickle", python2(frame((axes, [array(np.ones((2, 400)))], [index(["Time", "x"])]))))
    with pytest.raises(DataError, match="lacks Meth, Eth"):
        load_benchmark("gas", tmp_path)


def test_gas_from_the_text_of_uci(put, tmp_path):
    random = np.random.default_rng(1)
    table = np.hstack([np.arange(300.0).reshape(100, 3), random.standard_normal((100, 16))])
    table[:, 3] = 7.0  # constant: correlates with nothing
    table[:, 3] += 1e-3 * random.standard_normal(100)
    head = "Time (seconds), CO conc (ppm), Ethylene conc (ppm), sensor readings (16 channels)\n"
    put("gas/ethylene_CO.txt", head + "\n".join("  ".join(f"{cell:.4f}" for cell in row) for row in table) + "\n")
    splits = load_benchmark("gas", tmp_path)
    assert splits.train.shape == (81, 16)
    assert splits.columns[0] == "R1"
    assert "UCI" in splits.note
    assert "Published: 852,174" in splits.note
    put("gas/ethylene_CO.txt", head + "1 2 three\n")
    with pytest.raises(DataError, match="Expected rows of numbers"):
        load_benchmark("gas", tmp_path)


@pytest.mark.parametrize("comma", ["", ","])
@pytest.mark.parametrize("compressed", [False, True])
def test_hepmass(put, tmp_path, compressed, comma):
    train_text, train = hepmass_text(300, False, 0, comma)
    test_text, test = hepmass_text(200, True, 1, comma)
    for name, text in (("1000_train.csv", train_text), ("1000_test.csv", test_text)):
        if compressed:
            put(f"hepmass/{name}.gz", gzip.compress(text.encode()))
        else:
            put(f"hepmass/{name}", text)
    splits = load_benchmark("hepmass", tmp_path)
    mean, deviation = train.mean(0), train.std(0, ddof=1)
    held = int(0.1 * len(train))
    assert splits.columns == ("f0", "f1", "f3")
    np.testing.assert_allclose(splits.train, ((train - mean) / deviation)[:-held], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(splits.validation, ((train - mean) / deviation)[-held:], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(splits.test, (test - mean) / deviation, rtol=1e-5, atol=1e-6)


def test_hepmass_reads_no_more_than_the_benchmark_holds(put, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "rectangular_flows.data.benchmarks._HEPMASS_ROWS", {"1000_train": 100, "1000_test": 50}, raising=True
    )
    text, _ = hepmass_text(300, False, 0)
    put("hepmass/1000_train.csv", text)
    put("hepmass/1000_test.csv", text)
    splits = load_benchmark("hepmass", tmp_path)
    labels = np.array([float(line.split(",")[0]) for line in text.splitlines()[1:]])
    assert len(splits.train) + len(splits.validation) == labels[:100].sum()
    assert len(splits.test) == labels[:50].sum()


def test_hepmass_wrong(put, tmp_path):
    put("hepmass/1000_train.csv", hepmass_text(50, True, 0)[0])
    with pytest.raises(FileNotFoundError, match="1000_test"):
        load_benchmark("hepmass", tmp_path)
    put("hepmass/1000_test.csv", hepmass_text(50, False, 0)[0])
    with pytest.raises(DataError, match="at least as many columns"):
        load_benchmark("hepmass", tmp_path)


def test_miniboone(put, tmp_path):
    data = np.random.default_rng(0).normal(5, 3, (100, 4))
    put("miniboone/data.npy", data)
    splits = load_benchmark("miniboone", tmp_path)
    mean, deviation = data[:90].mean(0), data[:90].std(0)
    np.testing.assert_allclose(splits.train, ((data - mean) / deviation)[:81], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(splits.validation, ((data - mean) / deviation)[81:90], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(splits.test, ((data - mean) / deviation)[90:], rtol=1e-5, atol=1e-6)


def test_miniboone_from_standardised_splits(put, tmp_path):
    random = np.random.default_rng(0)
    train, validation, test = (random.standard_normal((n, 4)).astype(np.float32) for n in (90, 200, 30))
    put("miniboone/val.npy", validation)
    put("miniboone/test.npy", test)
    splits = load_benchmark("miniboone", tmp_path)
    assert "training split is missing" in splits.note
    assert splits.train.shape == (180, 4)
    assert splits.validation.shape == (20, 4)
    both = np.concatenate([splits.train, splits.validation])
    np.testing.assert_array_equal(np.sort(both, axis=0), np.sort(validation, axis=0))
    np.testing.assert_array_equal(load_benchmark("miniboone", tmp_path).train, splits.train)
    put("miniboone/train.npy", train)
    splits = load_benchmark("miniboone", tmp_path)
    np.testing.assert_array_equal(splits.train, train)
    np.testing.assert_array_equal(splits.test, test)
    assert "missing" not in splits.note
    put("miniboone/train.npy", train[:, :3])
    with pytest.raises(DataError, match=r"\(rows, 4\)"):
        load_benchmark("miniboone", tmp_path)


def test_miniboone_itself():
    if not (REAL / "miniboone" / "test.npy").is_file():
        pytest.skip(f"no miniboone/test.npy in {REAL}: set RNF_DATA")
    splits = load_benchmark("miniboone", REAL)
    assert splits.test.shape == (3648, 43)
    assert np.isfinite(splits.train).all()


def test_unknown_benchmark(tmp_path):
    with pytest.raises(DataError, match=r"Expected one of circle, sphere, .*power, gas.*Did you mean 'hepmass'"):
        load_benchmark("hepmas", tmp_path)
    with pytest.raises(DataError, match=r"Expected a table, one of power, gas, hepmass, miniboone; 'mnist' is of kind"):
        load_benchmark("mnist", tmp_path)


def test_default_root(put, tmp_path, monkeypatch):
    put("power/data.npy", power_rows())
    monkeypatch.setenv("RNF_DATA", str(tmp_path))
    assert load_benchmark("power").train.shape == (162, 6)
