"""Manifolds that close up, with known densities: how near the learned density comes with the right latent space or charts.

``python -m benchmarks.topology --out topology.json`` draws 10,000 rows from each (40,000 of the Klein bottle), fits with
the settings of ``rnf fit`` and the latent space or the number of charts named, and compares by quadrature over the true
manifold: KL(true‖model), the model's mass, the correlation of log-densities over points drawn from the truth, and the
largest distance of the true manifold from the learned one. :mod:`benchmarks.pieces` does separate pieces.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from rectangular_flows.data.periodic import PeriodicColumn, periodic_columns
from rectangular_flows.runs.build import build_flow, without_reconstruction
from rectangular_flows.settings import FitSettings, read_preset
from rectangular_flows.training import fit

from .kept import keep, markdown, read_kept

Array = NDArray[Any]
TRAIN, TEST = 10_000, 2_000
MORE = {"Klein bottle in R⁴": 40_000}  # rows: ten charts overlap, and each has a density of its own to learn
NAMES = ("kl", "mass", "correlation", "largest_distance", "seconds")


class Grid(NamedTuple):
    """Points of the manifold, their log-densities and their shares of its length or area."""

    points: Array
    log_density: Array
    weights: Array


def _circle() -> Grid:
    t = 2 * np.pi * np.arange(2_000) / 2_000
    log_p = np.cos(t - np.pi / 2) - np.log(2 * np.pi * np.i0(1))
    return Grid(np.stack([np.cos(t), np.sin(t)], axis=1), log_p, np.full(len(t), 2 * np.pi / len(t)))


def _angles(side: int) -> tuple[Array, Array, Array]:
    line = 2 * np.pi * np.arange(side) / side
    a, b = (part.ravel() for part in np.meshgrid(line, line))
    return a, b, np.full(side**2, (2 * np.pi / side) ** 2)


def _ring_torus() -> Grid:
    a, b, cell = _angles(150)
    ring = 2 + 0.7 * np.cos(b)
    points = np.stack([ring * np.cos(a), ring * np.sin(a), 0.7 * np.sin(b)], axis=1)
    log_p = np.cos(a) + 0.5 * np.cos(b - 1) - np.log(2 * np.pi * np.i0(1)) - np.log(2 * np.pi * np.i0(0.5))
    return Grid(points, log_p - np.log(0.7 * ring), cell * 0.7 * ring)


def _flat_torus() -> Grid:
    """The angles depend on each other."""
    a, b, cell = _angles(150)
    points = np.stack([np.cos(a), np.sin(a), np.cos(b), np.sin(b)], axis=1)
    log_p = np.cos(a) + 0.5 * np.cos(b - 1) + 0.8 * np.cos(a - b)
    return Grid(points, log_p - np.log((np.exp(log_p) * cell).sum()), cell)


def _sphere() -> Grid:
    """Four von Mises–Fisher densities and a uniform floor."""
    height, angle = (2 * np.arange(120) + 1) / 120 - 1, 2 * np.pi * np.arange(240) / 240
    h, a = (part.ravel() for part in np.meshgrid(height, angle))
    ring = np.sqrt(1 - h**2)
    points = np.stack([ring * np.cos(a), ring * np.sin(a), h], axis=1)
    centres = np.array([[1, 0, 0], [0, 1, 0.5], [-1, -1, 0.5], [0, 0.3, -1]], dtype=float)
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    density = np.full(len(h), 0.1 / (4 * np.pi))
    for centre, kappa, share in zip(centres, (10, 5, 15, 8), (0.3, 0.25, 0.2, 0.15), strict=True):
        density += share * kappa / (4 * np.pi * np.sinh(kappa)) * np.exp(kappa * points @ centre)
    return Grid(points, np.log(density), np.full(len(h), 4 * np.pi / len(h)))


_MEANS = np.random.default_rng(7).uniform(-np.pi, np.pi, (3, 7))
_WIDTHS = np.random.default_rng(8).uniform(0.25, 0.6, (3, 7))
_SHARES = np.array([0.5, 0.3, 0.2])


def _seven_angles() -> Grid:
    """A mixture of wrapped Gaussians, as (cos, sin) of every angle; no grid has seven dimensions, so that draws stand in."""
    random = np.random.default_rng(9)
    which = random.choice(3, 4_000, p=_SHARES)
    angles = random.normal(_MEANS[which], _WIDTHS[which])
    turns = 2 * np.pi * np.arange(-2, 3)
    off = (angles[:, None, :, None] - _MEANS[None, :, :, None] + np.pi) % (2 * np.pi) - np.pi + turns
    widths = _WIDTHS[None, :, :, None]
    one = np.exp(-0.5 * (off / widths) ** 2).sum(axis=3) / (widths[..., 0] * np.sqrt(2 * np.pi))
    log_p = np.log((_SHARES * one.prod(axis=2)).sum(axis=1))
    return Grid(_pairs(angles), log_p, np.exp(-log_p) / len(log_p))


def _seven_columns() -> Grid:
    """The same with the angles themselves, in degrees, as seven periodic columns."""
    grid, degree = _seven_angles(), np.pi / 180
    return Grid(_degrees(grid.points), grid.log_density + 7 * np.log(degree), grid.weights / degree**7)


def _degrees(pairs: Array) -> Array:
    found: Array = np.degrees(np.arctan2(pairs[:, 1::2], pairs[:, ::2]))
    return found


def _pairs(angles: Array) -> Array:
    return np.stack([np.cos(angles), np.sin(angles)], axis=2).reshape(len(angles), -1)


def _klein_bottle() -> Grid:
    a, b, cell = _angles(150)
    ring = 2 + np.cos(b)
    log_p = 0.8 * np.cos(a) + 0.6 * np.cos(b) - np.log(2 * np.pi * np.i0(0.8)) - np.log(2 * np.pi * np.i0(0.6))
    area = np.sqrt(ring**2 + np.sin(b) ** 2 / 4)
    return Grid(_klein(a, b), log_p - np.log(area), cell * area)


def _klein(a: Array, b: Array) -> Array:
    """Of two angles, of which (a + 2π, −b) is the same point."""
    ring = 2 + np.cos(b)
    twist = np.stack([np.sin(b) * np.cos(a / 2), np.sin(b) * np.sin(a / 2)], axis=1)
    return np.concatenate([np.stack([ring * np.cos(a), ring * np.sin(a)], axis=1), twist], axis=1)


MANIFOLDS: dict[str, tuple[str, Callable[[], Grid]]] = {
    "circle": ("circle", _circle),
    "torus in R³": ("torus:2", _ring_torus),
    "flat torus in R⁴": ("torus:2", _flat_torus),
    "sphere": ("sphere", _sphere),
    "seven angles in R¹⁴": ("torus:7", _seven_angles),
    "seven periodic columns": ("torus:7", _seven_columns),
    "circle of charts": ("3 charts", _circle),
    "sphere of charts": ("2 charts", _sphere),
    "sphere of more charts": ("4 charts", _sphere),
    "Klein bottle in R⁴": ("10 charts", _klein_bottle),
}


def draw(name: str, count: int, random: np.random.Generator) -> Array:
    """Points from the truth itself, not from its grid."""
    if name.startswith("circle"):
        t = random.vonmises(np.pi / 2, 1, count)
        return np.stack([np.cos(t), np.sin(t)], axis=1)
    if name == "torus in R³":
        a, b = random.vonmises(0, 1, count), random.vonmises(1, 0.5, count)
        ring = 2 + 0.7 * np.cos(b)
        return np.stack([ring * np.cos(a), ring * np.sin(a), 0.7 * np.sin(b)], axis=1)
    if name == "flat torus in R⁴":
        found = np.empty((0, 2))
        while len(found) < count:
            t = random.uniform(0, 2 * np.pi, (4 * count, 2))
            height = np.cos(t[:, 0]) + 0.5 * np.cos(t[:, 1] - 1) + 0.8 * np.cos(t[:, 0] - t[:, 1])
            found = np.concatenate([found, t[random.random(len(t)) < np.exp(height - 2.3)]])
        a, b = found[:count].T
        return np.stack([np.cos(a), np.sin(a), np.cos(b), np.sin(b)], axis=1)
    if name.startswith("Klein"):
        return _klein(random.vonmises(0, 0.8, count), random.vonmises(0, 0.6, count))
    if name.startswith("seven"):
        which = random.choice(3, count, p=_SHARES)
        pairs = _pairs(random.normal(_MEANS[which], _WIDTHS[which]))
        return pairs if name.startswith("seven angles") else _degrees(pairs)
    centres = np.array([[1, 0, 0], [0, 1, 0.5], [-1, -1, 0.5], [0, 0.3, -1]], dtype=float)
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    which = random.choice(5, count, p=[0.3, 0.25, 0.2, 0.15, 0.1])
    kappa = np.array([10, 5, 15, 8, 1e-6])[which]
    height = 1 + np.log1p((1 - random.random(count)) * np.expm1(-2 * kappa)) / kappa
    centre = np.concatenate([centres, [[0.0, 0.0, 1.0]]])[which]
    side = random.normal(size=(count, 3))
    side -= (side * centre).sum(axis=1, keepdims=True) * centre
    side /= np.linalg.norm(side, axis=1, keepdims=True)
    return height[:, None] * centre + np.sqrt(np.maximum(0, 1 - height**2))[:, None] * side


def judge(name: str, seed: int) -> dict[str, float]:
    """The fit, and its numbers against the truth."""
    space, grid, random = MANIFOLDS[name][0], MANIFOLDS[name][1](), np.random.default_rng(seed)
    rows = torch.from_numpy(draw(name, MORE.get(name, TRAIN), random)).float()
    given: dict[str, Any] = {"latent_space": space}
    if space.endswith("charts"):
        given = {"charts": int(space.split()[0]), "latent_dim": 1 if "circle" in name else 2}
    settings = FitSettings.from_flat({**given, "seed": seed, "scatter": False}, read_preset("table"))
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        periodic: tuple[PeriodicColumn, ...] = ()
        training = settings.training
        if name == "seven periodic columns":
            periodic = periodic_columns("all:degrees", rows.numpy(), [f"x{i}" for i in range(1, 8)], name)
            training = without_reconstruction(training, 7, 7)
        flow = build_flow(settings.model, rows, seed, start_latent=not training.start_latent, periodic=periodic)
        fit(flow, rows, training)
    seconds = time.process_time() - start
    flow = flow.double()
    at = torch.from_numpy(grid.points)
    with torch.no_grad():
        learned = flow.log_prob(at, check=False).numpy()
        distance = flow.reconstruction_error(at).sqrt().numpy()
    true = np.exp(grid.log_density) * grid.weights
    chosen = random.choice(len(true), TEST, p=true / true.sum())
    return {
        "kl": float((true * (grid.log_density - learned)).sum()),
        "mass": float((np.exp(learned) * grid.weights).sum()),
        "correlation": float(np.corrcoef(learned[chosen], grid.log_density[chosen])[0, 1]),
        "largest_distance": float(distance.max()),
        "seconds": seconds,
    }


def table(kept: dict[str, Any]) -> str:
    """A row a manifold, means over seeds."""
    cases: dict[str, list[dict[str, Any]]] = {}
    for key, found in kept.items():
        cases.setdefault(key.rsplit("/", 1)[0], []).append(found)
    rows = [
        [f"{case}, {MANIFOLDS[case][0]}", len(many), *(f"{np.mean([found[n] for found in many]):.3g}" for n in NAMES)]
        for case, many in cases.items()
    ]
    return markdown(("manifold, latent space", "seeds", *NAMES), rows)


def main() -> None:
    """Every manifold and seed that is not kept yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("topology.json"))
    parser.add_argument("--seeds", type=int, nargs="*", default=list(range(5)))
    parser.add_argument("--only", nargs="*", choices=list(MANIFOLDS), default=list(MANIFOLDS))
    parser.add_argument("--table", action="store_true", help="print the table of what is kept, and stop")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for seed in [] if arguments.table else arguments.seeds:
        for name in arguments.only:
            key = f"{name}/{seed}"
            if key not in read_kept(arguments.out):
                keep(arguments.out, key, judge(name, seed))
                print(key, read_kept(arguments.out)[key], flush=True)
    print(table(read_kept(arguments.out)))


if __name__ == "__main__":
    main()
