"""How often the column that was changed is named first: ``python benchmarks/explain.py TABLE.csv …``.

One column of every usual test row is moved by some deviations, or takes the value of another row. The results are in
docs/how-to/explain.md.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rectangular_flows import RectangularFlowOutlierDetector
from rectangular_flows.data.tables import read_table

Array = NDArray[np.float64]


def usable(X: Array, count: int) -> Array:
    """Shuffled rows, without columns that repeat another or have fewer than three values among the first ``count``."""
    X = X[np.random.default_rng(0).permutation(len(X))]
    X = X[:, [len(np.unique(column)) > 2 for column in X[:count].T]]
    alike = np.abs(np.corrcoef(X.T)) > 1 - 1e-6
    return X[:, [not alike[j, :j].any() for j in range(X.shape[1])]]


def planted(X: Array, shift: float, rows: int, random: np.random.Generator) -> tuple[Array, NDArray[np.int64]]:
    """Rows with one value moved by so many deviations, either way, or (0) taken from another row; and its column."""
    made, columns = X[random.choice(len(X), rows)], random.integers(X.shape[1], size=rows)
    for row, column in zip(made, columns, strict=True):
        step = random.choice([-shift, shift]) * X[:, column].std()
        row[column] = row[column] + step if shift else X[random.integers(len(X)), column]
    return made, columns


def main() -> None:
    """Fit, plant, explain, and print a line for each table and change."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="+", type=Path)
    parser.add_argument("--rows", type=int, default=150, help="planted rows for each change")
    parser.add_argument("--train", type=int, default=1500, help="most rows to train on")
    parser.add_argument("--epochs", default="auto")
    given = parser.parse_args()
    for path in given.tables:
        values = read_table(path).values
        count = min(given.train, int(0.7 * len(values)))
        X = usable(values, count)
        epochs = given.epochs if given.epochs == "auto" else int(given.epochs)
        detector = RectangularFlowOutlierDetector(epochs=epochs, random_state=0).fit(X[:count])
        test = X[count : count + 600]
        usual, random = test[detector.p_value(test) > 0.1], np.random.default_rng(1)
        for shift in (6.0, 10.0, 0.0):
            rows, columns = planted(usual, shift, given.rows, random)
            started = time.perf_counter()
            found = detector.explain(rows)
            each = (time.perf_counter() - started) / len(rows)
            clear = found.p_value <= 0.01
            first = (found.contributions.argmax(axis=1) == columns)[clear].mean() if clear.any() else np.nan
            what = f"moved by {shift:g} deviations" if shift else "of another row"
            print(f"{path.name}, {X.shape[1]} columns, {what}: p ≤ 0.01 in {clear.mean():.0%}, ", end="")
            print(f"the column is first in {first:.1%} of these; {1e3 * each:.0f} ms a row", flush=True)


if __name__ == "__main__":
    main()
