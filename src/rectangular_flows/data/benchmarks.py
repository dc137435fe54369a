r"""The tables of the density-estimation benchmark, prepared as its authors prepared them.

POWER, GAS, HEPMASS, MINIBOONE and BSDS300, after Papamakarios, Pavlakou and Murray, `Masked autoregressive flow
<https://arxiv.org/abs/1705.07057>`_, 2017. Each is split into training, validation and test rows and standardised,
:math:`x \mapsto (x - \mu) / \sigma`; which rows give μ and σ differs from set to set and is said below.

Files lie under one folder in the published layout::

    power/data.npy (or .npy.xz)          gas/ethylene_CO.pickle (or UCI's ethylene_CO.txt)
    hepmass/1000_train.csv, 1000_test.csv (or .csv.gz)
    miniboone/data.npy (or train.npy, val.npy, test.npy, standardised)      BSDS300/BSDS300.hdf5
"""

from __future__ import annotations

import gzip
import importlib
import lzma
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..spelling import nearest
from ._arrays import load_npy
from ._files import Array, DataError, MissingFileError
from .download import data_root
from .safe_pickle import read_frame


@dataclass(frozen=True, eq=False)
class Splits:
    """A benchmark, ready to train on.

    Attributes:
        name: of the benchmark.
        train: (N, D), float32.
        validation: (N', D), float32.
        test: (N'', D), float32.
        columns: D names.
        note: where these rows differ from the published ones; empty where they do not.
    """

    name: str
    train: Array
    validation: Array
    test: Array
    columns: tuple[str, ...]
    note: str = ""


# rows for training, validation and test, and columns, as published
PUBLISHED = {
    "power": (1_659_917, 184_435, 204_928, 6),
    "gas": (852_174, 94_685, 105_206, 8),
    "hepmass": (315_123, 35_013, 174_987, 21),
    "miniboone": (29_556, 3_284, 3_648, 43),
    "bsds300": (1_000_000, 50_000, 250_000, 63),
}
_HEPMASS_ROWS = {"1000_train": 700_000, "1000_test": 350_000}  # the benchmark holds the first tenth of UCI's rows


def load_benchmark(name: str, root: Path | None = None, seed: int = 42) -> Splits:
    """Read a benchmark from its files and prepare it.

    Args:
        name: 'power', 'gas', 'hepmass', 'miniboone' or 'bsds300'.
        root: the folder that holds 'power', 'gas', …; by default :func:`~rectangular_flows.data.download.data_root`.
        seed: of POWER's shuffle and noise (42 is the benchmark's), and of rows held out where a split is missing.

    Raises:
        DataError: unknown name, missing file (also a ``FileNotFoundError``), or a file of another layout.
    """
    loader = _LOADERS.get(name.lower())
    if loader is None:
        options = ", ".join(_LOADERS)
        raise DataError(f"Expected one of {options}; got '{name}'.{nearest(name, list(_LOADERS))}")
    name = name.lower()
    train, validation, test, columns, note = loader(data_root() if root is None else Path(root), seed)
    train, validation, test = (np.ascontiguousarray(part, dtype=np.float32) for part in (train, validation, test))
    got = (len(train), len(validation), len(test), train.shape[1])
    if not note and got != PUBLISHED[name]:
        note = "These files are not the published ones."
    if got != PUBLISHED[name]:
        facts = "{:,} / {:,} / {:,} rows (training / validation / test) of {} columns"
        note += f" Published: {facts.format(*PUBLISHED[name])}; here: {facts.format(*got)}."
    return Splits(name, train, validation, test, columns, note.strip())


_Parts = tuple[Array, Array, Array, tuple[str, ...], str]


def _power(root: Path, seed: int) -> _Parts:
    """Shuffled; without reactive power and intensity; uniform noise as wide as the meters' steps.

    One ``RandomState(seed)`` draws, in the benchmark's order: the permutation, the noise of the voltage (0.01), of the
    active power (0.001), of the three sub-meters (1 each); the time gets none. μ and σ are those of the training and
    validation rows.
    """
    file = _find(root, "power", "power/data.npy", "power/data.npy.xz")
    if file.suffix == ".xz":
        try:
            with lzma.open(file) as stream:
                data = np.load(stream, allow_pickle=False)
        except (lzma.LZMAError, EOFError, ValueError) as error:
            raise DataError(
                f"Expected a numpy array compressed by xz in '{file}'; it cannot be read: {error}"
            ) from error
    else:
        data = load_npy(file)
    _expect_columns(data, 8, file)
    random = np.random.RandomState(seed)
    order = np.arange(len(data))
    random.shuffle(order)  # the same draws as shuffling the rows themselves, and faster
    data = data[order][:, [0, 2, 4, 5, 6, 7]].astype(np.float64, copy=False)
    count = len(data)
    data[:, 1:2] += 0.01 * random.rand(count, 1)
    data[:, 0:1] += 0.001 * random.rand(count, 1)
    data[:, 2:5] += random.rand(count, 3)
    columns = ("active_power", "voltage", "sub_metering_1", "sub_metering_2", "sub_metering_3", "minute")
    return *_standardised(*_tails(data), fit_validation=True), columns, ""


def _gas(root: Path, seed: int) -> _Parts:
    """Without the concentrations and the time; while two columns correlate by more than 0.98, the first of them goes.

    The authors standardise by all rows, the test rows among them; here by the training rows.
    """
    file = _find(root, "gas", "gas/ethylene_CO.pickle", "gas/ethylene_CO.txt")
    note = ""
    if file.suffix == ".pickle":
        names, data = read_frame(file)
        missing = [name for name in ("Meth", "Eth", "Time") if name not in names]
        if missing:
            raise DataError(f"Expected columns Meth, Eth and Time in '{file}'; it lacks {', '.join(missing)}.")
        kept = [i for i, name in enumerate(names) if name not in ("Meth", "Eth", "Time")]
        data, columns = data[:, kept], [names[i] for i in kept]
    else:
        with open(file, encoding="latin1") as text:
            data = _loadtxt(text, file, skiprows=1)
        _expect_columns(data, 19, file)
        data, columns = data[:, 3:], [f"R{i}" for i in range(1, 17)]
        note = "Read from UCI's own text file, all rows; the published pickle holds about every fourth."
    with np.errstate(invalid="ignore", divide="ignore"):  # a constant column correlates with nothing
        alike = np.corrcoef(data, rowvar=False) > 0.98
    np.fill_diagonal(alike, False)
    kept = list(range(len(columns)))
    while (first := next((i for i in kept if alike[i, kept].any()), None)) is not None:
        kept.remove(first)
    parts = _standardised(*_tails(data[:, kept]), fit_validation=False)
    return *parts, tuple(columns[i] for i in kept), note


def _hepmass(root: Path, seed: int) -> _Parts:
    """Rows of class 1, without the label; features in which a value occurs more than 5 times are dropped.

    The test file has one column more than the training file: its last, which is dropped too. μ and σ are those of the
    training file, out of which the last 10 % are for validation.
    """
    parts = {}
    for stem, limit in _HEPMASS_ROWS.items():
        file = _find(root, "hepmass", f"hepmass/{stem}.csv", f"hepmass/{stem}.csv.gz")
        opener: Callable[..., IO[str]] = gzip.open if file.suffix == ".gz" else open
        with opener(file, "rt", encoding="utf-8-sig") as text:
            header, first = text.readline().lstrip("# "), text.readline()  # '# label,f0,f1,…'
            names = [name.strip('" \r\n') for name in header.rstrip("\r\n, ").split(",")]
            width = min(len(names), len(first.rstrip("\r\n, ").split(",")))  # they need not agree
            data = _loadtxt(chain([first], text), file, delimiter=",", max_rows=limit, usecols=range(width))
        parts[stem] = data[data[:, 0] == 1, 1:], names[1:]
    (train, names), (test, _) = parts.values()
    if test.shape[1] < train.shape[1] or not len(train) or not len(test):
        raise DataError(
            f"Expected rows of class 1, and in the test file no fewer columns than in the training file; got shapes "
            f"{train.shape} and {test.shape} in '{root / 'hepmass'}'."
        )
    test = test[:, : train.shape[1]]
    kept = [i for i in range(train.shape[1]) if np.unique(train[:, i], return_counts=True)[1].max() <= 5]
    if not kept:
        raise DataError(f"Expected continuous features in '{root / 'hepmass'}'; in each, a value occurs over 5 times.")
    train, test = train[:, kept], test[:, kept]
    mean, deviation = train.mean(axis=0), train.std(axis=0, ddof=1)
    train, test = (train - mean) / deviation, (test - mean) / deviation
    count = int(0.1 * len(train))
    return train[: len(train) - count], train[len(train) - count :], test, tuple(names[i] for i in kept), ""


def _miniboone(root: Path, seed: int) -> _Parts:
    """The last 10 % for test, the last 10 % of the rest for validation; μ and σ of training and validation rows."""
    folder = root / "miniboone"
    note = ""
    if (folder / "data.npy").is_file() or not (folder / "test.npy").is_file():
        data = load_npy(_find(root, "miniboone", "miniboone/data.npy"))
        _expect_columns(data, None, folder / "data.npy")
        train, validation, test = _standardised(*_tails(data.astype(np.float64)), fit_validation=True)
    else:
        test = load_npy(folder / "test.npy")
        validation = load_npy(_find(root, "miniboone", "miniboone/val.npy"))
        if (folder / "train.npy").is_file():
            train = load_npy(folder / "train.npy")
        else:
            order = np.random.default_rng(seed).permutation(len(validation))
            held = len(validation) // 10
            train, validation = validation[order[held:]], validation[order[:held]]
            note = "The training split is missing: trained on the published validation rows, less 10 % for validation."
        for part, file in ((train, "train.npy or val.npy"), (validation, "val.npy"), (test, "test.npy")):
            _expect_columns(part, test.shape[-1], folder / file)
    return train, validation, test, tuple(f"f{i}" for i in range(test.shape[1])), note


def _bsds300(root: Path, seed: int) -> _Parts:
    """Patches of natural images as published: split, and the mean of each taken off, by the authors."""
    file = _find(root, "bsds300", "BSDS300/BSDS300.hdf5")
    try:
        h5py: Any = importlib.import_module("h5py")
    except ImportError as error:
        raise DataError("BSDS300 is an HDF5 file, which needs the h5py package: pip install h5py.") from error
    try:
        with h5py.File(file, "r") as archive:
            train, validation, test = (archive[part][:] for part in ("train", "validation", "test"))
    except (OSError, KeyError) as error:
        raise DataError(f"Expected 'train', 'validation' and 'test' in '{file}'; it cannot be read: {error}") from error
    return train, validation, test, tuple(f"pixel{i}" for i in range(train.shape[1])), ""


_LOADERS: dict[str, Callable[[Path, int], _Parts]] = {
    "power": _power,
    "gas": _gas,
    "hepmass": _hepmass,
    "miniboone": _miniboone,
    "bsds300": _bsds300,
}


def _find(root: Path, name: str, *options: str) -> Path:
    for option in options:
        if (root / option).is_file():
            return root / option
    raise MissingFileError(
        f"Expected {' or '.join(repr(option) for option in options)} in the data folder '{root}'; there is none. "
        f"Get it with 'rnf data get {name}', or set RNF_DATA to the folder that holds '{options[0].split('/')[0]}'."
    )


def _expect_columns(data: Array, width: int | None, file: Path) -> None:
    if data.ndim != 2 or (width is not None and data.shape[1] != width):
        raise DataError(f"Expected an array (rows, {width or 'columns'}) in '{file}'; got shape {data.shape}.")
    if len(data) < 20:
        raise DataError(f"Expected at least 20 rows in '{file}'; got {len(data)}.")


def _loadtxt(text: Iterable[str], file: Path, **options: Any) -> Array:
    try:
        return np.loadtxt(text, dtype=np.float64, ndmin=2, **options)
    except (ValueError, EOFError, OSError) as error:
        raise DataError(f"Expected rows of numbers in '{file}'; they cannot be read: {error}") from error


def _tails(data: Array) -> tuple[Array, Array, Array]:
    """The last 10 % for test, the last 10 % of the rest for validation."""
    held = int(0.1 * len(data))
    rest, test = data[: len(data) - held], data[len(data) - held :]
    held = int(0.1 * len(rest))
    return rest[: len(rest) - held], rest[len(rest) - held :], test


def _standardised(train: Array, validation: Array, test: Array, *, fit_validation: bool) -> tuple[Array, Array, Array]:
    fitted = np.concatenate([train, validation]) if fit_validation else train
    mean, deviation = fitted.mean(axis=0), fitted.std(axis=0)
    return (train - mean) / deviation, (validation - mean) / deviation, (test - mean) / deviation


__all__ = ["PUBLISHED", "Splits", "load_benchmark"]
