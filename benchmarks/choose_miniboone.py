"""How the settings of the preset ``miniboone`` were chosen: by rows of ``val.npy`` alone, never by the test rows.

``python -m benchmarks.choose_miniboone --out FOLDER`` splits the published validation rows into three parts. Every candidate
is trained three times, on two parts (a tenth of them says when to stop), and judged on the third. Questions are asked in a
fixed order: settings of the density are chosen by the FID-like score, those of the manifold by the mean squared distance
from it of the farthest hundredth of the rows, each a mean over the three parts. (The largest distance, which the first
version of this rule used, depends on one row in each part.) Takes an hour on one core, and resumes where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from rectangular_flows.data.download import data_root
from rectangular_flows.metrics.frechet import fid_like
from rectangular_flows.runs.launch import run_settings
from rectangular_flows.settings import FitSettings, read_preset
from rectangular_flows.storage.files import write_atomically
from rectangular_flows.storage.models import load_model

PARTS = 3
SAMPLES = 50_000

COUPLINGS = {
    "latent": "realnvp",
    "latent_layers": 4,
    "latent_hidden": [32, 32],
    "latent_epochs": 0,
    "restart_latent": False,
}
START = {"bound": 0.25, "pca_tail": 0.0, "tail_weight": 0.0, "beta": 50.0}
# what is asked, what decides, the candidates: the first is the answer until a better one is found
QUESTIONS: tuple[tuple[str, str, tuple[Mapping[str, Any], ...]], ...] = (
    ("h", "fid_like", (*({"latent_components": count} for count in (12, 6, 24)), COUPLINGS)),
    ("rows far out", "farthest", ({}, {"pca_tail": 1.5, "tail_weight": 0.75})),
    ("bound of log-scales", "farthest", ({}, {"bound": 2.0}, {"bound": 0.03})),
    ("β", "fid_like", ({}, {"beta": 10.0, "clip": 20.0})),
)


@dataclass(frozen=True)
class Judged:
    """One candidate on rows that it has not seen: means over the parts."""

    fid_like: float
    farthest: float
    largest: float
    distance: float
    seconds: float


def judge(settings: Mapping[str, Any], folder: Path) -> Judged:
    """Train on two parts, judge on the third, three times; finished parts are not repeated."""
    rows = np.load(data_root() / "miniboone" / "val.npy", allow_pickle=False)
    order = np.random.default_rng(0).permutation(len(rows))
    found = []
    for part, unseen in enumerate(np.array_split(order, PARTS)):
        kept = folder / f"part-{part}" / "judged.json"
        if not kept.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            result = _judge_part(settings, rows[np.setdiff1d(order, unseen)], rows[unseen], kept.parent)
            write_atomically(kept, json.dumps(asdict(result)))
        found.append(json.loads(kept.read_text()))
    return Judged(**{name: float(np.mean([one[name] for one in found])) for name in Judged.__annotations__})


def _judge_part(settings: Mapping[str, Any], seen: np.ndarray, unseen: np.ndarray, folder: Path) -> Judged:
    np.save(folder / "seen.npy", seen)
    np.save(folder / "unseen.npy", unseen)
    flat = {**settings, "data": str(folder / "seen.npy"), "test_data": str(folder / "unseen.npy"), "seed": 0}
    began = time.perf_counter()
    run_settings(FitSettings.from_flat(flat), folder / "run", console=Console(quiet=True), overwrite=True, quiet=True)
    seconds = time.perf_counter() - began
    flow = load_model(folder / "run")
    with torch.no_grad():
        errors = flow.reconstruction_error(torch.from_numpy(unseen).float())
    samples = flow.sample(SAMPLES, generator=torch.Generator().manual_seed(0)).double().numpy()
    farthest = torch.topk(errors, max(1, len(errors) // 100)).values.mean().item()
    return Judged(fid_like(samples, unseen), farthest, errors.max().item(), errors.mean().item(), seconds)


def main() -> None:
    """Ask all questions, one after the other, and print the answers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/choose-miniboone"))
    out = parser.parse_args().out
    settings = {**read_preset("miniboone"), **START}
    for question, rule, candidates in QUESTIONS:
        judged = []
        for candidate in candidates:
            tried = {**settings, **candidate}
            changed = {name: tried[name] for name in sorted(tried) if tried[name] != read_preset("miniboone").get(name)}
            name = ",".join(f"{key}={value}" for key, value in changed.items()) or "preset"
            judged.append(judge(tried, out / name.replace(" ", "")))
            print(question, dict(candidate), judged[-1], flush=True)
        best = min(range(len(judged)), key=lambda i: getattr(judged[i], rule))
        settings = {**settings, **candidates[best]}
        print(f"{question}: {dict(candidates[best])}, by {rule}\n", flush=True)


if __name__ == "__main__":
    main()
