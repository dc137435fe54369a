"""Densities, samples and reconstructions of tables, against what a user would pick instead.

``RNF_DATA=FOLDER python -m benchmarks.tables --out tables.json`` takes every table of FOLDER/tables: 80 % of the rows to
train on, of which a tenth validates, the rest to judge by, at most 20,000 rows to train on and 5,000 to judge by. Columns
with few distinct values get uniform noise of one step, for every method alike; constant ones are left out. Log-densities
are per row, in standardised units. Ours is ``RectangularFlowEstimator()`` with its defaults; neural peers train as long as
it did.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rectangular_flows import RectangularFlowEstimator
from rectangular_flows.data.discrete import dequantised, discrete_steps
from rectangular_flows.data.download import data_root
from rectangular_flows.data.tables import read_table
from rectangular_flows.metrics.two_sample import classifier_two_sample

from .kept import keep, markdown, read_kept
from .peers import Rows, autoencoder_errors, mixture_density, pca_errors, spline_density

OURS = "rectangular flow"
TRAIN, TEST, SAMPLES = 20_000, 5_000, 5_000


def split(path: Path, seed: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Standardised rows to train on and to judge by."""
    rows = torch.from_numpy(np.array(read_table(path).values, dtype=np.float64))
    rows = dequantised(rows, discrete_steps(rows), seed)
    order = np.random.default_rng(seed).permutation(len(rows))
    cut = round(0.8 * len(rows))
    train, test = (rows[index].numpy() for index in (order[:cut][:TRAIN], order[cut:][:TEST]))
    varies = np.ptp(train, axis=0) > 0
    mean, scale = train[:, varies].mean(axis=0), train[:, varies].std(axis=0)
    return (train[:, varies] - mean) / scale, (test[:, varies] - mean) / scale


def judge(path: Path, seed: int) -> dict[str, Any]:
    """Log-density, accuracy of a classifier, reconstruction error, and seconds of every method."""
    train, test = split(path, seed)
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = RectangularFlowEstimator(random_state=seed).fit(train)
    seconds = time.process_time() - start
    samples = model.flow_.sample(SAMPLES, generator=torch.Generator().manual_seed(seed), scatter=True).double().numpy()
    density = {OURS: float(model.score(test))}
    classifier = {OURS: classifier_two_sample(samples, test, seed=seed)}
    spent = {OURS: seconds}
    cut = max(1, len(train) // 10)
    rows = Rows(train[cut:], train[:cut], test)
    for name, method in (("Gaussian mixture", mixture_density), ("zuko NSF", spline_density)):
        start = time.process_time()
        found = method(rows, seed, seconds)
        spent[name] = time.process_time() - start
        density[name] = float(found.log_prob.mean())
        classifier[name] = classifier_two_sample(np.nan_to_num(found.sample(SAMPLES)), test, seed=seed)
    errors = {
        OURS: float(model.reconstruction_error(test).mean()),
        "PCA": float(pca_errors(rows, model.latent_dim_).mean()),
        "autoencoder": float(autoencoder_errors(rows, model.latent_dim_, seed, seconds).mean()),
    }
    return {
        "log_density": density,
        "classifier": {**classifier, "floor": classifier_two_sample(train[: len(test)], test, seed=seed)},
        "error": errors,
        "seconds": spent,
        "verdict": model.summary().numbers()["text"],
        "rows": len(train),
        "columns": train.shape[1],
        "latent_dim": model.latent_dim_,
    }


def table(kept: dict[str, Any]) -> str:
    """Means over seeds, a row a table."""
    names = sorted({key.split("/")[0] for key in kept})
    sections = []
    for title, what, digits in (
        ("Mean log-density of test rows (higher is better)", "log_density", 2),
        ("Accuracy of a classifier, scattered samples or test rows (0.5: cannot tell)", "classifier", 3),
        ("Squared reconstruction error at the same latent dimension", "error", 4),
        ("Seconds", "seconds", 1),
    ):
        methods = list(next(iter(kept.values()))[what])
        rows = []
        for name in names:
            cases = [case for key, case in kept.items() if key.split("/")[0] == name]
            first = f"{name} ({cases[0]['rows']} × {cases[0]['columns']}, d {cases[0]['latent_dim']})"
            rows.append([first, *(f"{np.mean([case[what][m] for case in cases]):.{digits}f}" for m in methods)])
        sections.append(f"**{title}**\n\n{markdown(('table', *methods), rows)}")
    sections.append("\n".join(f"- {key}: {case['verdict']}" for key, case in kept.items() if "verdict" in case))
    return "\n\n".join(sections)


def main() -> None:
    """Every table and seed that is not kept yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("tables.json"))
    parser.add_argument("--seeds", type=int, nargs="*", default=list(range(5)))
    parser.add_argument("--tables", nargs="*", help="names of tables (default: all)")
    parser.add_argument("--table", action="store_true", help="print the table of what is kept, and stop")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if not arguments.table:
        for seed in arguments.seeds:
            for path in sorted((data_root() / "tables").glob("*.csv*")):
                name = path.name.split(".")[0]
                key = f"{name}/{seed}"
                if (arguments.tables and name not in arguments.tables) or key in read_kept(arguments.out):
                    continue
                found = judge(path, seed)
                keep(arguments.out, key, found)
                print(key, found["log_density"], found["classifier"], found["error"], found["seconds"], flush=True)
    print(table(read_kept(arguments.out)))


if __name__ == "__main__":
    main()
