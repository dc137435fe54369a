"""Outlier detection on labelled sets, against what a user would pick instead.

``RNF_DATA=FOLDER python -m benchmarks.outliers --out outliers.json`` takes every .npz file of FOLDER/outliers (``X``, and
``y`` with 1 for an anomaly): half of the normal rows to train on, the rest and the anomalies to judge by, at most 10,000
rows each. Labels are used for the final figures only. Ours is ``RectangularFlowOutlierDetector()`` with its defaults.
Columns that are constant in the training rows are left out, for every method alike. Results are kept after every set;
``--table`` prints them.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

from rectangular_flows import RectangularFlowOutlierDetector
from rectangular_flows.data.download import data_root

from .kept import keep, markdown, mean_ranks, read_kept
from .peers import Rows, outlier_scores

OURS, MOST, NEURAL_SECONDS = "rectangular flow", 10_000, 10.0
CONTAMINATION = 0.1


def split(path: Path, seed: int) -> tuple[np.ndarray[Any, Any], ...]:
    """Training rows, test rows, and which of these are anomalies."""
    with np.load(path, allow_pickle=False) as file:
        rows, labels = file["X"].astype(np.float64), file["y"]
    random = np.random.default_rng(seed)
    normal, odd = (random.permutation(np.flatnonzero(labels == kind)) for kind in (0, 1))
    train = normal[: len(normal) // 2][:MOST]
    test = random.permutation(np.concatenate([normal[len(normal) // 2 :], odd]))[:MOST]
    varies = np.ptp(rows[train], axis=0) > 0
    return rows[train][:, varies], rows[test][:, varies], labels[test]


def judge(path: Path, seed: int) -> dict[str, Any]:
    """AUROC and seconds of every method, and our share of false alarms."""
    train, test, labels = split(path, seed)
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        detector = RectangularFlowOutlierDetector(random_state=seed, contamination=CONTAMINATION).fit(train)
    seconds = time.process_time() - start
    ours = np.nan_to_num(-detector.score_samples(test), posinf=1e300)
    false = float((detector.predict(test)[labels == 0] == -1).mean())
    mean, scale = train.mean(axis=0), train.std(axis=0)
    known, judged = ((rows - mean) / scale for rows in (train, test))
    cut = max(1, len(known) // 10)
    rows = Rows(known[cut:], known[:cut], judged)
    peers = outlier_scores(rows, detector.latent_dim_, seed, min(seconds, NEURAL_SECONDS))
    found = {OURS: (ours, seconds), **peers}
    return {
        "auroc": {name: float(roc_auc_score(labels, scores)) for name, (scores, _) in found.items()},
        "seconds": {name: spent for name, (_, spent) in found.items()},
        "false_alarms": false,
        "rows": len(train),
        "columns": train.shape[1],
        "latent_dim": detector.latent_dim_,
    }


def table(kept: dict[str, Any]) -> str:
    """Mean AUROC, mean rank over sets and seeds, and seconds; then AUROC by set, mean over seeds."""
    methods = list(next(iter(kept.values()))["auroc"])
    values = np.array([[case["auroc"][name] for name in methods] for case in kept.values()])
    seconds = np.array([[case["seconds"][name] for name in methods] for case in kept.values()])
    ranks = mean_ranks(values)
    order = np.argsort(-values.mean(axis=0))
    rows = [(methods[i], f"{values[:, i].mean():.3f}", f"{ranks[i]:.2f}", f"{seconds[:, i].mean():.1f}") for i in order]
    sets = sorted({key.split("/")[0] for key in kept})
    false = {name: [case["false_alarms"] for key, case in kept.items() if key.split("/")[0] == name] for name in sets}
    by_set = []
    for name in sets:
        mine = values[[key.split("/")[0] == name for key in kept]].mean(axis=0)
        by_set.append([name, *(f"{v:.3f}" for v in mine), f"{np.mean(false[name]):.3f}", f"{np.max(false[name]):.3f}"])
    share = np.mean([np.mean(v) for v in false.values()])
    return "\n\n".join(
        [
            markdown(("method", "mean AUROC", "mean rank", "CPU seconds"), rows),
            f"False alarms of unseen normal rows at contamination {CONTAMINATION}: {share:.3f} on average over sets.",
            markdown(("set", *methods, "false alarms", "largest"), by_set),
        ]
    )


def main() -> None:
    """Every set and seed that is not kept yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("outliers.json"))
    parser.add_argument("--seeds", type=int, nargs="*", default=list(range(5)))
    parser.add_argument("--sets", nargs="*", help="names of sets (default: all)")
    parser.add_argument("--table", action="store_true", help="print the table of what is kept, and stop")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if not arguments.table:
        files = sorted((data_root() / "outliers").glob("*.npz"))
        for seed in arguments.seeds:
            for path in files:
                key = f"{path.stem}/{seed}"
                if (arguments.sets and path.stem not in arguments.sets) or key in read_kept(arguments.out):
                    continue
                found = judge(path, seed)
                keep(arguments.out, key, found)
                best = max(found["auroc"].items(), key=lambda item: item[1])
                print(f"{key}: {found['auroc'][OURS]:.3f} in {found['seconds'][OURS]:.0f} s; best {best}", flush=True)
    print(table(read_kept(arguments.out)))


if __name__ == "__main__":
    main()
