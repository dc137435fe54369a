"""Known manifolds with known densities that are not uniform: how near the learned density comes, and what the verdict says.

``python -m benchmarks.known --out known.json`` draws 4,000 rows from each manifold, with and without noise of 5 % of their
spread, and fits ``RectangularFlowEstimator`` with its defaults and the true latent dimension. Without noise the log-density
of 2,000 other points is compared with the truth: their correlation, and the mean difference, an estimate of
KL(true‖model). A verdict is right where it is good and the
fit is near the truth, or where neither is so. Near means |KL| below 0.1, a mean distance of true points below 5 % of their
spread, and no more than 5 % of the samples farther than 10 % of the spread from all of 20,000 true points.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import KDTree

from rectangular_flows import RectangularFlowEstimator
from rectangular_flows.data.datasets import dataset
from rectangular_flows.evaluation.verdict import Verdict

from .kept import keep, markdown, read_kept

Array = NDArray[Any]
TRAIN, TEST, NOISE = 4_000, 2_000, 0.05
TRUE, FAR, FEW = 20_000, 0.1, 0.05


class Manifold(NamedTuple):
    """Its latent dimension, and a function that draws points with their true log-densities on it."""

    latent_dim: int
    draw: Callable[[int, np.random.Generator], tuple[Array, Array]]


def _truth(name: str) -> Manifold:
    """A data set of :mod:`rectangular_flows` whose truth is known."""
    truth = dataset(name).known_truth()
    assert truth is not None

    def draw(count: int, random: np.random.Generator) -> tuple[Array, Array]:
        points = truth.place(truth.draw(count, random))
        return points, truth.log_density(points)

    return Manifold(truth.latent_dim, draw)


def _helix(count: int, random: np.random.Generator) -> tuple[Array, Array]:
    t = random.normal(0, 2, count)
    points = np.stack([np.cos(t), np.sin(t), 0.3 * t], axis=1)
    return points, -0.5 * (t / 2) ** 2 - np.log(2 * np.sqrt(2 * np.pi)) - 0.5 * np.log(1 + 0.09)


def _two_moons(count: int, random: np.random.Generator) -> tuple[Array, Array]:
    which, s = random.random(count) < 0.5, random.beta(2, 2, count)
    t = np.pi * s
    upper, lower = np.stack([np.cos(t), np.sin(t)], axis=1), np.stack([1 - np.cos(t), 0.5 - np.sin(t)], axis=1)
    return np.where(which[:, None], upper, lower), np.log(0.5 * 6 * s * (1 - s) / np.pi)


def _two_rings(count: int, random: np.random.Generator) -> tuple[Array, Array]:
    which, t = random.random(count) < 0.5, random.vonmises(0, 1, count)
    radius = np.where(which, 1.0, 2.2)
    points = radius[:, None] * np.stack([np.cos(t), np.sin(t)], axis=1)
    return points, np.cos(t) - np.log(2 * np.pi * np.i0(1)) - np.log(2 * radius)


def _plane_with_hole(count: int, random: np.random.Generator) -> tuple[Array, Array]:
    radius, angle = 1 + 1.5 * random.beta(1.5, 2, count), random.uniform(0, 2 * np.pi, count)
    plane = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    points = plane @ np.array([[1.0, 0.5, 0.0], [0.0, 0.5, 1.0]])
    s = (radius - 1) / 1.5
    beta = 4 / 15  # B(3/2, 2)
    log_p = 0.5 * np.log(s) + np.log(1 - s) - np.log(beta * 1.5) - np.log(2 * np.pi * radius)
    gram = np.array([[1.25, 0.25], [0.25, 1.25]])
    return points, log_p - 0.5 * np.log(np.linalg.det(gram))


MANIFOLDS = {
    "swiss roll": _truth("swiss-roll"),
    "torus": _truth("torus"),
    "sphere": _truth("sphere"),
    "helix": Manifold(1, _helix),
    "two moons": Manifold(1, _two_moons),
    "two rings": Manifold(1, _two_rings),
    "plane with a hole": Manifold(2, _plane_with_hole),
}


def judge(name: str, noise: float, seed: int) -> dict[str, Any]:
    """The fit, its numbers against the truth, and its verdict."""
    manifold, random = MANIFOLDS[name], np.random.default_rng(seed)
    train, test = (manifold.draw(count, random) for count in (TRAIN, TEST))
    width = noise * float(np.sqrt(train[0].var(axis=0).mean()))
    rows = train[0] + width * random.standard_normal(train[0].shape)
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = RectangularFlowEstimator(latent_dim=manifold.latent_dim, random_state=seed).fit(rows)
    verdict = model.summary()
    found: dict[str, Any] = {"seconds": time.process_time() - start, "verdict": verdict.numbers()}
    learned = model.score_samples(test[0])
    fine = np.isfinite(learned)
    found["correlation"] = float(np.corrcoef(learned[fine], test[1][fine])[0, 1])
    found["kl"] = float((test[1] - learned)[fine].mean())
    found["spread"] = float(np.sqrt(test[0].var(axis=0).mean()))
    found["distance"] = float(np.sqrt(model.reconstruction_error(test[0])).mean())
    samples = model.flow_.sample(TEST, generator=torch.Generator().manual_seed(seed), scatter=False).double().numpy()
    true, _ = manifold.draw(TRUE, np.random.default_rng(seed + 1_000))
    away, _ = KDTree(true).query(samples)  # type: ignore[no-untyped-call]
    found["far"] = float((away > FAR * found["spread"]).mean())
    return found


def near(found: dict[str, Any]) -> bool:
    """Whether a fit is near the truth."""
    return bool(abs(found["kl"]) < 0.1 and found["distance"] < NOISE * found["spread"] and found["far"] <= FEW)


def table(kept: dict[str, Any]) -> str:
    """A row a manifold and noise, means over seeds, and what the verdicts say."""
    cases: dict[str, list[dict[str, Any]]] = {}
    for key, found in kept.items():
        cases.setdefault(key.rsplit("/", 1)[0], []).append(found)
    names, rows = ("correlation", "kl", "distance", "far", "seconds"), []
    for case, many in cases.items():
        judged = [(Verdict.from_numbers(one["verdict"]), one) for one in many]
        said = Counter("good" if v.good else ", ".join(fault.name for fault in v.faults) for v, _ in judged)
        right = sum(v.good == near(one) for v, one in judged)
        means = (f"{np.mean([found[n] for found in many]):.3g}" for n in names)
        rows.append(
            [case, *means, "; ".join(f"{count} × {text}" for text, count in said.items()), f"{right} of {len(many)}"]
        )
    texts = [f"- {case}: {Verdict.from_numbers(many[0]['verdict']).sentences}" for case, many in cases.items()]
    return markdown(("manifold, noise", *names, "verdict", "right"), rows) + "\n\n" + "\n".join(texts)


def main() -> None:
    """Every manifold, noise and seed that is not kept yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("known.json"))
    parser.add_argument("--seeds", type=int, nargs="*", default=list(range(5)))
    parser.add_argument("--table", action="store_true", help="print the table of what is kept, and stop")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for seed in [] if arguments.table else arguments.seeds:
        for name in MANIFOLDS:
            for noise in (0.0, NOISE):
                key = f"{name}, {noise:.0%}/{seed}"
                if key not in read_kept(arguments.out):
                    keep(arguments.out, key, judge(name, noise, seed))
                    print(key, {k: v for k, v in read_kept(arguments.out)[key].items() if k != "verdict"}, flush=True)
    print(table(read_kept(arguments.out)))


if __name__ == "__main__":
    main()
