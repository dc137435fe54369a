"""Scores of a run's own rows and of rows from elsewhere, and how well each tells them apart.

Everything that a score needs is fitted on the run's own rows. Only the paper's decision stump sees rows from elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from .._version import __version__
from ..data.rows import Rows, take
from ..errors import NumericalError
from ..manifold import Manifold, RectangularFlow
from ..metrics.off_manifold import noisy_log_density
from ..metrics.out_of_distribution import Detection, detect, stump_accuracy, typicality
from ..plots.detection import Histogram
from ..runs.display import WorkDisplay
from ..runs.saved import SavedRun
from .ood_rows import rows_to_judge

Array = NDArray[np.float64]
Tick = Callable[[int], None]

DENSITIES = {"log_density": "log-density", "log_density_model": "log-density, model units"}
"""Scores that are log-densities, and their names for people."""

_SIDES = ("inside", "outside")
_RECALL = 0.95
_AT_ONCE = 500  # rows between two signs of progress


@dataclass(frozen=True, eq=False)
class Score:
    """One score of every set, the higher the more in-distribution, and what came of it.

    Attributes:
        name: for people.
        unit: of the values in the picture.
        train: of the run's training rows.
        test: of its test rows.
        outside: of the judged rows from elsewhere.
        found: how well it tells the last two apart.
        threshold: keeps 95 % of held-out rows of the run; needs nothing from elsewhere.
        inside_kept: share of the test rows at or above it.
        outside_caught: share of the rows from elsewhere below it.
        negative: whether the picture shows minus the score (an error, a distance).
    """

    name: str
    unit: str
    train: Array
    test: Array
    outside: Array
    found: Detection
    threshold: float
    inside_kept: float
    outside_caught: float
    negative: bool

    def histogram(self) -> Histogram:
        """What the picture shows."""
        sign = -1 if self.negative else 1
        values = sign * self.train, sign * self.test, sign * self.outside
        return Histogram(*values, found=self.found, threshold=sign * self.threshold, unit=self.unit)

    def figures(self) -> dict[str, Any]:
        """The numbers, for a file."""
        kept = {name: getattr(self, name) for name in ("threshold", "inside_kept", "outside_caught")}
        return {
            "name": self.name,
            **asdict(self.found),
            **{k: v if math.isfinite(v) else None for k, v in kept.items()},
        }


@dataclass(frozen=True, eq=False)
class Judged:
    """All scores of a run against one set from elsewhere."""

    inside: str
    outside: str
    latent_dim: int
    rows: dict[str, int]
    scores: dict[str, Score]
    notes: list[str] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        """Everything but the values, for a file."""
        share = self.rows["inside_test"] / (self.rows["inside_test"] + self.rows["outside_judged"])
        return {
            "inside": self.inside,
            "outside": self.outside,
            "latent_dim": self.latent_dim,
            "rows": self.rows,
            "recall": _RECALL,
            "chance": {"auroc": 0.5, "aupr": share, "fpr95": _RECALL, "accuracy": 0.5},
            "scores": {key: score.figures() for key, score in self.scores.items()},
            "notes": self.notes,
            "version": __version__,
        }


def judge_run(
    run: SavedRun,
    against: str,
    count: int = 10_000,
    *,
    seed: int = 0,
    drop_invalid: bool = False,
    display: WorkDisplay | None = None,
) -> Judged:
    """Every score of a run's own rows and of rows from elsewhere, and how well each tells them apart.

    Args:
        run: a run, on a table or on images.
        against: a file, a folder of pictures, or the name of a known data set.
        count: at most so many rows of each set, by seed.
        seed: of that choice and of the halves of a file.
        drop_invalid: leave out rows of a file with missing or infinite values.
        display: shows how far it is.

    Raises:
        ValueError: the data cannot be had, or are of another shape.
    """
    flow, chosen = run.flow, rows_to_judge(run, against, count, seed=seed, drop_invalid=drop_invalid)
    sets, notes = chosen.sets, list(chosen.notes)
    if display is not None:
        display.total = sum(len(rows) for rows in sets.values())
    baseline = _baseline(flow, chosen.baseline)
    values = {name: _values(flow, baseline, rows, display.advance if display else None) for name, rows in sets.items()}
    broken = sum(int((~np.isfinite(part["log_density"])).sum()) for part in values.values())
    if broken:
        notes.append(f"{broken} rows have no finite log-density under the model; it counts as −∞")
    scores = _judge(flow, values, chosen.halves)
    own = str(run.settings.data.data)
    if own == against or (Path(own).exists() and Path(own) == Path(against).expanduser().resolve()):
        notes.append("these are the data that the run was trained on: rows called outside are rows of its own")
    return Judged(name_of(own), name_of(against), flow.latent_dim, chosen.counts, scores, notes)


def name_of(source: str) -> str:
    """Of data, for people: that of a folder or of a known set, or of a file without its suffix."""
    path = Path(source)
    return path.name if path.expanduser().is_dir() else path.stem


def unit_names(images: bool) -> dict[str, str]:
    """Of :data:`DENSITIES`, for the pictures."""
    whose = {"log_density": "pixels" if images else "the data", "log_density_model": "the model"}
    return {name: f"nats, units of {unit}" for name, unit in whose.items()}


def _judge(flow: RectangularFlow, values: dict[str, dict[str, Array]], halves: bool) -> dict[str, Score]:
    """All scores from the four values of each row."""
    held_out = values["inside_held_out"]
    # beside errors in the model's units belongs the density in those: what training has to do with
    own_density = "log_density_model" if "log_density_model" in held_out else "log_density"
    fine = np.isfinite(held_out[own_density]) & np.isfinite(held_out["error"])
    if fine.sum() < 2:
        raise ValueError(f"expected held-out rows with finite scores; {int(fine.sum())} of {len(fine)} have them")
    mean_error, codimension = float(held_out["error"][fine].mean()), flow.ambient_dim - flow.latent_dim
    usual = float(held_out[own_density][fine].mean())
    images = flow.kind == "image"
    units, own = unit_names(images), "units of the model"
    what: dict[str, tuple[str, str, bool, Callable[[dict[str, Array]], Array]]] = {
        "log_density": (DENSITIES["log_density"], units["log_density"], False, lambda v: v["log_density"]),
        "log_density_model": (
            DENSITIES["log_density_model"],
            units["log_density_model"],
            False,
            lambda v: v["log_density_model"],
        ),
        "reconstruction_error": ("reconstruction error", f"squared distance, {own}", True, lambda v: -v["error"]),
        "combined": (
            "both combined",
            f"nats, with noise off the manifold, {own}",
            False,
            lambda v: noisy_log_density(v[own_density], v["error"], mean_error, codimension),
        ),
        "typicality": ("typicality", "|log p − mean|, nats", True, lambda v: typicality(v[own_density], usual)),
        "pca": (
            f"PCA residual, d = {flow.latent_dim}",
            f"squared distance, {'pixels' if images else own}",
            True,
            lambda v: -v["pca"],
        ),
    }
    if own_density == "log_density":
        del what["log_density_model"]
    scores = {}
    for key, (name, unit, negative, score) in what.items():
        parts = {name: score(part) for name, part in values.items()}
        scores[key] = score_of(parts, halves, name, unit, negative)
    return scores


def score_of(parts: Mapping[str, Array], halves: bool, name: str, unit: str, negative: bool = False) -> Score:
    """How well one score, the higher the more in-distribution, tells inside from outside.

    Args:
        parts: of the rows of each set of :func:`~.ood_rows.rows_to_judge`.
        halves: whether the training rows from elsewhere are judged as well, since only the stump needs such.
        name: for people.
        unit: of the values in the picture.
        negative: whether the picture shows minus the score.
    """
    threshold = float(np.quantile(parts["inside_held_out"], 1 - _RECALL, method="lower"))
    test, outside = parts["inside_test"], parts["outside_test"]
    if halves:
        outside = np.concatenate([parts["outside_train"], outside])
    # as many of either kind, as in the paper: a stump answers with the commoner one where it cannot tell
    few, fewer = (min(len(parts[f"{side}_{kind}"]) for side in _SIDES) for kind in ("train", "test"))
    balanced = (parts[f"{side}_train"][:few] for side in _SIDES), (parts[f"{side}_test"][:fewer] for side in _SIDES)
    found = replace(detect(test, outside), accuracy=stump_accuracy(*balanced[0], *balanced[1]))
    kept, caught = float(np.mean(test >= threshold)), float(np.mean(outside < threshold))
    return Score(name, unit, parts["inside_train"], test, outside, found, threshold, kept, caught, negative)


@torch.no_grad()
def _values(flow: RectangularFlow, baseline: PCA, rows: Rows, tick: Tick | None) -> dict[str, Array]:
    """Log-density, error in model units and residual of PCA for each row; where the model overflows, −∞ and ∞."""
    dtype = flow.dtype
    step = min(_AT_ONCE, flow.rows_at_once())
    other_units = bool(flow.unit_layers())
    found: dict[str, list[Array]] = {}
    for start in range(0, len(rows), step):
        x = take(rows, slice(start, start + step), dtype=dtype)
        y = flow.to_model_units(x)
        part = {
            "log_density": _log_density(flow, x),
            "error": flow.in_model_units.reconstruction_error(y).double().numpy(),
            "pca": _residual(baseline, _plain(flow, x)),
        }
        if other_units:
            part["log_density_model"] = _log_density(flow.in_model_units, y)
        part["error"] = np.nan_to_num(part["error"], nan=np.inf, posinf=np.inf)
        for name, value in part.items():
            found.setdefault(name, []).append(value)
        if tick is not None:
            tick(len(x))
    return {name: np.concatenate(parts) for name, parts in found.items()}


def _log_density(flow: Manifold, rows: torch.Tensor) -> Array:
    """−∞ where the model overflows or its manifold has collapsed: rows from elsewhere may be anywhere."""
    try:
        value = flow.log_prob(rows, check=False).double().numpy()
    except NumericalError:
        if len(rows) == 1:
            return np.array([-np.inf])
        middle = len(rows) // 2
        return np.concatenate([_log_density(flow, part) for part in rows.tensor_split([middle])])
    return np.where(np.isfinite(value), value, -np.inf)


def _baseline(flow: RectangularFlow, train: Rows) -> PCA:
    if len(train) <= flow.latent_dim:
        raise ValueError(f"expected more than d = {flow.latent_dim} training rows for the baseline; got {len(train)}")
    dtype = flow.dtype
    rows = _plain(flow, take(train, slice(None), dtype=dtype))
    return PCA(flow.latent_dim, random_state=0).fit(rows)


def _plain(flow: RectangularFlow, x: torch.Tensor) -> Array:
    """What PCA sees: pixels as they are, columns as the model sees them."""
    return (x if x.dim() > 2 else flow.to_model_units(x)).flatten(1).double().numpy()


def _residual(baseline: PCA, rows: Array) -> Array:
    return np.square(rows - baseline.inverse_transform(baseline.transform(rows))).sum(axis=1)


__all__ = ["DENSITIES", "Judged", "Score", "judge_run", "name_of", "score_of", "unit_names"]
