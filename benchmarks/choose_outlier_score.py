"""How ``outlier_score`` was chosen: on held-out rows of nine tables against synthetic outliers, without labels.

``RNF_DATA=FOLDER python -m benchmarks.choose_outlier_score --out outlier-score.json`` trains on at most 2,000 rows of every
table in FOLDER/tables, d about half of D, two seeds. A fifth of the rows is held out: one half calibrates the scores, the
other half is judged against two kinds of outliers made from training rows: every column permuted independently, and noise of
one standard deviation added to a fifth of the columns. A quarter of an hour on one core; finished fits are not repeated.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rectangular_flows import RectangularFlowEstimator
from rectangular_flows.data.download import data_root
from rectangular_flows.data.tables import read_table
from rectangular_flows.manifold import Scores
from rectangular_flows.metrics.out_of_distribution import CombinedScore, detect
from rectangular_flows.storage.files import write_atomically

Array = NDArray[Any]

ROWS, SEEDS = 2_000, 2
SETTINGS: dict[str, Any] = {"epochs": 100, "batch_size": 200}
KINDS = ("permuted", "noisy")
CANDIDATES = {
    "fisher_data": "tail probabilities, data units",
    "fisher_model": "tail probabilities, model units",
    "noisy_density": "log-density with noise off the manifold, model units",
}


def candidates(usual: Scores, judged: Scores, codimension: int) -> dict[str, Array]:
    """Each candidate on the judged rows, the higher the more usual, calibrated on the usual ones."""

    def pair(scores: Scores, *names: str) -> list[Array]:
        return [getattr(scores, name).double().numpy() for name in names]

    data, model = ("log_prob", "squared_distance"), ("model_log_prob", "model_squared_distance")
    density, error = pair(judged, *model)
    mean_error = pair(usual, *model)[1].mean()
    return {
        "fisher_data": CombinedScore(*pair(usual, *data))(*pair(judged, *data)),
        "fisher_model": CombinedScore(*pair(usual, *model))(density, error),
        # log p(x̂) − (D − d)/2 · (e/ē + const.): data are points of the manifold with Gaussian noise at right angles to it
        "noisy_density": density - codimension / 2 * error / mean_error,
    }


def outliers(train: Array, kind: str, seed: int) -> Array:
    """As many rows as those given, made from them."""
    random = np.random.default_rng([seed, KINDS.index(kind)])
    if kind == "permuted":
        return np.stack([random.permutation(column) for column in train.T], axis=1)
    count = max(1, round(0.2 * train.shape[1]))
    which = np.argsort(random.random(train.shape), axis=1) < count
    return train + which * random.standard_normal(train.shape) * train.std(axis=0)


def judge(path: Path, seed: int) -> dict[str, dict[str, float]]:
    """AUROC of every candidate against both kinds of outliers of one table."""
    values = read_table(path).values
    order = np.random.default_rng(seed).permutation(len(values))[:ROWS]
    train, calibration, held_out = np.split(values[order], [int(0.8 * len(order)), int(0.9 * len(order))])
    varies = [i for i in range(train.shape[1]) if np.ptp(train[:, i]) > 0]
    _, first = np.unique(train[:, varies], axis=1, return_index=True)  # without columns that repeat others
    kept = [varies[i] for i in sorted(first)]
    train, calibration, held_out = (part[:, kept] for part in (train, calibration, held_out))
    flow = RectangularFlowEstimator(latent_dim=max(1, len(kept) // 2), random_state=seed, **SETTINGS).fit(train).flow_

    def score(rows: Array) -> Scores:
        return flow.score(torch.from_numpy(rows).to(flow.dtype), check=False)

    usual, codimension = score(calibration), flow.ambient_dim - flow.latent_dim
    inside = candidates(usual, score(held_out), codimension)
    some = train[: len(held_out)]
    found: dict[str, dict[str, float]] = {}
    for kind in KINDS:
        outside = candidates(usual, score(outliers(some, kind, seed)), codimension)
        found[kind] = {name: detect(inside[name], outside[name]).auroc for name in CANDIDATES}
    return found


def main() -> None:
    """Judge every table with every seed, and print the means as a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("outlier-score.json"), help="file of results")
    out = parser.parse_args().out
    torch.set_num_threads(1)
    results: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {}
    for path in sorted((data_root() / "tables").glob("*.csv.gz")):
        for seed in range(SEEDS):
            key = f"{path.name.split('.')[0]}, seed {seed}"
            if key not in results:
                results[key] = judge(path, seed)
                write_atomically(out, json.dumps(results, indent=1) + "\n")
    print("| table | outliers |", " | ".join(CANDIDATES.values()), "|")
    print("|---|---|" + "---|" * len(CANDIDATES))
    tables = list(dict.fromkeys(key.split(",")[0] for key in results))
    for names, label in [*(((name,), name) for name in tables), (tuple(tables), "mean")]:
        for kinds in [*((kind,) for kind in KINDS), *([KINDS] if label == "mean" else [])]:
            chosen = [r[kind] for key, r in results.items() if key.split(",")[0] in names for kind in kinds]
            cells = [f"{np.mean([one[name] for one in chosen]):.4f}" for name in CANDIDATES]
            print(f"| {label} | {' and '.join(kinds)} |", " | ".join(cells), "|")


if __name__ == "__main__":
    main()
