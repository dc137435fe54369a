"""Densities on the Earth: mean negative log-likelihood of test rows per steradian, over random splits 80/10/10.

``python -m benchmarks.earth FOLDER --out earth.json`` fits ``--preset earth`` to every .csv file of FOLDER. Places that a
training row has too are counted apart, since memory does for them.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rectangular_flows.data.rows import take
from rectangular_flows.metrics.sphere import sphere_mass
from rectangular_flows.runs.build import build_flow
from rectangular_flows.runs.prepared import prepare
from rectangular_flows.settings import FitSettings, read_preset
from rectangular_flows.training import fit

from .kept import keep, markdown, read_kept

NAMES = ("nll", "nll_new_places", "repeated", "mass", "seconds")


def judge(path: Path, seed: int) -> dict[str, Any]:
    """Of one split."""
    settings = FitSettings.from_flat({"data": str(path), "seed": seed}, read_preset("earth"))
    data = prepare(settings.data, 2, seed)
    start = time.process_time()
    flow = build_flow(settings.model, data.train, seed)
    fit(flow, data.train, settings.training, validation=data.validation)
    seconds = time.process_time() - start
    known = {tuple(row) for row in np.asarray(data.train).tolist()}
    repeated = np.array([tuple(row) in known for row in np.asarray(data.test).tolist()])
    with torch.no_grad():
        nll = -flow.log_prob(take(data.test, slice(None), dtype=flow.dtype)).double().numpy()
    return {
        "nll": float(nll.mean()),
        "nll_new_places": float(nll[~repeated].mean()),
        "repeated": float(repeated.mean()),
        "mass": sphere_mass(flow, take(data.train, slice(None), dtype=flow.dtype)),
        "seconds": seconds,
        "test_rows": len(nll),
    }


def table(kept: dict[str, Any]) -> str:
    """A row a file: mean and standard deviation over splits."""
    cases: dict[str, list[dict[str, Any]]] = {}
    for key, found in kept.items():
        cases.setdefault(key.rsplit("/", 1)[0], []).append(found)
    rows = []
    for case, many in cases.items():
        values = [[found[name] for found in many] for name in NAMES]
        rows.append([case, len(many), *(f"{np.mean(v):.3g} ± {np.std(v):.2g}" for v in values)])
    return markdown(("places", "splits", *NAMES), rows)


def main() -> None:
    """Every file and split that is not kept yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path("earth.json"))
    parser.add_argument("--seeds", type=int, nargs="*", default=list(range(5)))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for seed in arguments.seeds:
        for path in sorted(arguments.folder.glob("*.csv")):
            key = f"{path.stem}/{seed}"
            if key not in read_kept(arguments.out):
                keep(arguments.out, key, judge(path, seed))
                print(key, read_kept(arguments.out)[key], flush=True)
    print(table(read_kept(arguments.out)))


if __name__ == "__main__":
    main()
