"""Separate pieces: whether samples lie where the data do, and whether ``--charts auto`` finds the pieces.

``python -m benchmarks.pieces --out pieces.json`` fits rings, moons and blobs on planes with ``--charts auto`` and with one
chart, and counts the samples of the manifold that are farther from the data's support than five times the data's noise.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import KDTree

from rectangular_flows.runs.build import build_flow
from rectangular_flows.runs.charts import choose_charts
from rectangular_flows.settings import FitSettings, read_preset
from rectangular_flows.training import fit

from .kept import keep, markdown, read_kept

Array = NDArray[Any]
TRAIN, SAMPLES, FAR = 3_000, 10_000, 5.0
NAMES = ("charts", "far", "seconds")


class Pieces(NamedTuple):
    """Rows, points that are dense in their support, the noise of the rows around it, and d."""

    rows: Array
    support: Array
    noise: float
    latent_dim: int


def rings(random: np.random.Generator) -> Pieces:
    """Of radius 1 and 2.2."""
    radius, t = np.where(np.arange(TRAIN) % 2, 2.2, 1.0), random.uniform(0, 2 * np.pi, TRAIN)
    points = np.stack([np.cos(t), np.sin(t)], axis=1)
    line = np.linspace(0, 2 * np.pi, 2_000)
    ring = np.stack([np.cos(line), np.sin(line)], axis=1)
    noisy = (radius + 0.1 * random.normal(size=TRAIN))[:, None] * points
    return Pieces(noisy, np.concatenate([ring, 2.2 * ring]), 0.1, 1)


def moons(random: np.random.Generator) -> Pieces:
    """Two half circles that reach into each other."""

    def place(t: Array, which: Array) -> Array:
        upper = np.stack([np.cos(t), np.sin(t)], axis=1)
        return np.where(which[:, None], np.stack([1 - np.cos(t), 0.5 - np.sin(t)], axis=1), upper)

    rows = place(random.uniform(0, np.pi, TRAIN), np.arange(TRAIN) % 2 == 1)
    line = np.tile(np.linspace(0, np.pi, 2_000), 2)
    support = place(line, np.arange(4_000) >= 2_000)
    return Pieces(rows + 0.05 * random.normal(size=rows.shape), support, 0.05, 1)


def planes(random: np.random.Generator) -> Pieces:
    """Three Gaussian blobs on different planes in R³; their support reaches to four deviations."""
    frames = [np.linalg.qr(np.random.default_rng(k).normal(size=(3, 3)))[0] for k in range(3)]
    centres = np.array([[0.0, 0.0, 0.0], [9.0, 0.0, 0.0], [0.0, 9.0, 4.0]])
    side = np.linspace(-4, 4, 81)
    disc = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    disc = disc[np.linalg.norm(disc, axis=1) <= 4]
    flat, thick = random.normal(size=(TRAIN, 2)), 0.05 * random.normal(size=(TRAIN, 1))
    which = np.arange(TRAIN) % 3
    rows = np.stack([centres[k] + frames[k] @ np.r_[flat[i], thick[i]] for i, k in enumerate(which)])
    return Pieces(rows, np.concatenate([centres[k] + disc @ frames[k][:, :2].T for k in range(3)]), 0.05, 2)


CASES = {"two rings": rings, "two moons": moons, "three planes": planes}


def judge(name: str, charts: str, seed: int) -> dict[str, Any]:
    """The fit, and the share of its samples that are far from the support."""
    random = np.random.default_rng(seed)
    data = CASES[name](random)
    rows = torch.from_numpy(random.permutation(data.rows)).float()
    chosen = {"latent_dim": data.latent_dim, "charts": charts, "seed": seed, "scatter": False}
    settings = FitSettings.from_flat(chosen, read_preset("table"))
    start, reason = time.process_time(), ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if settings.model.charts == "auto":
            found = choose_charts(settings, rows, seed)
            reason = found.reason
            settings = FitSettings.from_flat({**chosen, "charts": found.count}, read_preset("table"))
        flow = build_flow(settings.model, rows, seed, start_latent=not settings.training.start_latent)
        fit(flow, rows, settings.training)
    seconds = time.process_time() - start
    samples = flow.sample(SAMPLES, generator=torch.Generator().manual_seed(seed)).numpy()
    tree: Any = KDTree(data.support)  # type: ignore[no-untyped-call]
    far = float((tree.query(samples)[0] > FAR * data.noise).mean())
    return {"charts": len(flow.charts), "far": far, "seconds": seconds, "reason": reason}


def main() -> None:
    """Every case and seed that is not kept yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("pieces.json"))
    parser.add_argument("--seeds", type=int, nargs="*", default=[0])
    parser.add_argument("--charts", nargs="*", default=["auto", "1"])
    parser.add_argument("--only", nargs="*", choices=list(CASES), default=list(CASES))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for seed in arguments.seeds:
        for charts in arguments.charts:
            for name in arguments.only:
                key = f"{name}/{charts}/{seed}"
                if key not in read_kept(arguments.out):
                    keep(arguments.out, key, judge(name, charts, seed))
                    print(key, read_kept(arguments.out)[key], flush=True)
    kept = read_kept(arguments.out)
    rows = [[key, *(f"{found[name]:.3g}" for name in NAMES), found["reason"]] for key, found in kept.items()]
    print(markdown(("case", *NAMES, "why"), rows))


if __name__ == "__main__":
    main()
