r"""The tables of the density-estimation benchmark, prepared as its authors prepared them.

POWER, GAS, HEPMASS and MINIBOONE, after Papamakarios, Pavlakou and Murray, `Masked autoregressive flow
<https://arxiv.org/abs/1705.07057>`_, 2017. Each is split into training, validation and test rows and standardised,
:math:`x \mapsto (x - \mu) / \sigma`; each loader states which rows give μ and σ.

The data folder has the published layout::

    power/data.npy (or .npy.xz)          gas/ethylene_CO.pickle (or UCI's ethylene_CO.txt)
    hepmass/1000_train.csv, 1000_test.csv (or .csv.gz)
    miniboone/data.npy (or train.npy, val.npy, test.npy, standardised)
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import IO

import numpy as np

from ._files import Array, DataError, MissingFileError, reading
from ._npy import load_arrays
from .datasets import DATASETS, Dataset, Splits, dataset
from .safe_pickle import read_frame

_Parts = tuple[Array, Array, Array]
_SEED = 42  # the benchmark's
_HEPMASS_ROWS = {"1000_train": 700_000, "1000_test": 350_000}  # the benchmark holds the first tenth of UCI's rows


def load_benchmark(name: str, root: Path | None = None) -> Splits:
    """Read a table of the benchmark from its files and prepare it.

    Args:
        name: 'power', 'gas', 'hepmass' or 'miniboone'.
        root: the folder that holds 'power', 'gas', …; by default :func:`~rectangular_flows.data.download.data_root`.
    """
    entry = dataset(name)
    if entry.kind != "table":
        tables = ", ".join(each.name for each in DATASETS.values() if each.kind == "table")
        raise DataError(f"Expected a table, one of {tables}; '{name}' is of kind '{entry.kind}'.")
    return entry.load(root)


def load_power(entry: Dataset, root: Path) -> Splits:
    """Shuffled; without reactive power and intensity; with uniform noise as wide as the meters' steps.

    One ``RandomState`` draws, in the benchmark's order: the permutation, the noise of the voltage (0.01), of the active
    power (0.001), of the three sub-meters (1 each); the time gets none. μ and σ are those of the training and validation
    rows.
    """
    data = _rows(_find(root, entry, "data.npy", "data.npy.xz"), 8)
    random = np.random.RandomState(_SEED)
    order = np.arange(len(data))
    random.shuffle(order)  # the same draws as shuffling the rows themselves, and faster
    data = data[order][:, [0, 2, 4, 5, 6, 7]].astype(np.float64, copy=False)
    count = len(data)
    data[:, 1:2] += 0.01 * random.rand(count, 1)
    data[:, 0:1] += 0.001 * random.rand(count, 1)
    data[:, 2:5] += random.rand(count, 3)
    columns = ("active_power", "voltage", "sub_metering_1", "sub_metering_2", "sub_metering_3", "minute")
    parts = _tails(data)
    return _splits(entry, parts, columns, by=np.concatenate(parts[:2]))


def load_gas(entry: Dataset, root: Path) -> Splits:
    """Without the concentrations and the time; while two columns correlate by more than 0.98, the first is dropped.

    The authors standardise by all rows, test rows included; here μ and σ are those of the training rows.
    """
    file = _find(root, entry, "ethylene_CO.pickle", "ethylene_CO.txt")
    note = ""
    if file.suffix == ".pickle":
        names, data = read_frame(file)
        left_out = ("Meth", "Eth", "Time")
        missing = [name for name in left_out if name not in names]
        if missing:
            raise DataError(f"Expected columns Meth, Eth and Time in '{file}'; it lacks {', '.join(missing)}.")
        kept = [i for i, name in enumerate(names) if name not in left_out]
        data, columns = data[:, kept], [names[i] for i in kept]
    else:
        with reading(file, "rows of numbers"):
            data = _checked(np.loadtxt(file, skiprows=1, encoding="latin1", ndmin=2), 19, file)[:, 3:]
        columns = [f"R{i}" for i in range(1, 17)]
        note = "Read from UCI's text file, all rows; the published pickle holds about every fourth."
    with np.errstate(invalid="ignore", divide="ignore"):  # a constant column correlates with nothing
        alike = np.corrcoef(data, rowvar=False) > 0.98
    np.fill_diagonal(alike, False)
    kept = list(range(len(columns)))
    while (first := next((i for i in kept if alike[i, kept].any()), None)) is not None:
        kept.remove(first)
    parts = _tails(data[:, kept])
    return _splits(entry, parts, [columns[i] for i in kept], note, by=parts[0])


def load_hepmass(entry: Dataset, root: Path) -> Splits:
    """Rows of class 1, without the label; features in which a value occurs more than 5 times are dropped.

    The test file has one column more than the training file, its last, which is dropped too. μ and σ are those of the
    training file, of which the last 10 % are for validation.
    """
    parts, folder = {}, root / entry.name
    for stem, limit in _HEPMASS_ROWS.items():
        file = _find(root, entry, f"{stem}.csv", f"{stem}.csv.gz")
        opener: Callable[..., IO[str]] = gzip.open if file.suffix == ".gz" else open
        with reading(file, "rows of numbers"), opener(file, "rt", encoding="utf-8-sig") as text:
            header, first = text.readline().lstrip("# "), text.readline()  # '# label,f0,f1,…'
            names = [name.strip('" \r\n') for name in header.rstrip("\r\n, ").split(",")]
            width = min(len(names), len(first.rstrip("\r\n, ").split(",")))  # they need not agree
            data = np.loadtxt(chain([first], text), delimiter=",", max_rows=limit, usecols=range(width), ndmin=2)
        parts[stem] = data[data[:, 0] == 1, 1:], names[1:]
    (train, names), (test, _) = parts.values()
    if test.shape[1] < train.shape[1] or not len(train) or not len(test):
        raise DataError(
            f"Expected rows of class 1 in both files, and in the test file at least as many columns as in the training "
            f"file; got shapes {train.shape} and {test.shape} in '{folder}'."
        )
    test = test[:, : train.shape[1]]
    kept = [i for i in range(train.shape[1]) if np.unique(train[:, i], return_counts=True)[1].max() <= 5]
    if not kept:
        raise DataError(f"Expected continuous features in '{folder}'; each has a value that occurs over 5 times.")
    train, test = train[:, kept], test[:, kept]
    count = len(train) - int(0.1 * len(train))
    return _splits(entry, (train[:count], train[count:], test), [names[i] for i in kept], by=train, ddof=1)


def load_miniboone(entry: Dataset, root: Path) -> Splits:
    """The last 10 % for test, the last 10 % of the rest for validation; μ and σ of training and validation rows."""
    folder = root / entry.name
    note, by = "", None
    if (folder / "data.npy").is_file() or not (folder / "test.npy").is_file():
        train, validation, test = _tails(_rows(_find(root, entry, "data.npy")).astype(np.float64))
        by = np.concatenate([train, validation])
    else:
        test = _rows(folder / "test.npy")
        width = test.shape[1]
        validation = _rows(_find(root, entry, "val.npy"), width)
        if (folder / "train.npy").is_file():
            train = _rows(folder / "train.npy", width)
        else:
            order = np.random.default_rng(_SEED).permutation(len(validation))
            held = len(validation) // 10
            train, validation = validation[order[held:]], validation[order[:held]]
            note = "The training split is missing: trained on the published validation rows, less 10 % for validation."
    return _splits(entry, (train, validation, test), [f"f{i}" for i in range(test.shape[1])], note, by=by)


def _find(root: Path, entry: Dataset, *names: str) -> Path:
    for file in (root / entry.name / name for name in names):
        if file.is_file():
            return file
    wanted = " or ".join(f"'{entry.name}/{name}'" for name in names)
    raise MissingFileError(f"Expected {wanted} in the data folder '{root}'; there is none.")


def _rows(file: Path, width: int | None = None) -> Array:
    """The rows of a .npy file."""
    return _checked(next(iter(load_arrays(file).values())), width, file)


def _checked(data: Array, width: int | None, file: Path) -> Array:
    if data.ndim != 2 or (width is not None and data.shape[1] != width):
        raise DataError(f"Expected an array (rows, {width or 'columns'}) in '{file}'; got shape {data.shape}.")
    if len(data) < 20:
        raise DataError(f"Expected at least 20 rows in '{file}'; got {len(data)}.")
    return data


def _tails(data: Array) -> _Parts:
    """The last 10 % for test, the last 10 % of the rest for validation."""
    held = int(0.1 * len(data))
    rest, test = data[: len(data) - held], data[len(data) - held :]
    held = int(0.1 * len(rest))
    return rest[: len(rest) - held], rest[len(rest) - held :], test


def _splits(
    entry: Dataset, parts: _Parts, columns: Sequence[str], note: str = "", by: Array | None = None, ddof: int = 0
) -> Splits:
    """The parts in float32, standardised by the rows ``by`` unless they are standardised already."""
    mean, deviation = (0.0, 1.0) if by is None else (by.mean(axis=0), by.std(axis=0, ddof=ddof))
    train, validation, test = (np.ascontiguousarray((part - mean) / deviation, dtype=np.float32) for part in parts)
    return Splits(entry.name, train, validation, test, tuple(columns), note)
