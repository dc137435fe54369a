"""How well each score of a model separates its own data from data from elsewhere.

Everything that a score needs is fitted on the run's own rows. Only the paper's decision stump sees rows from elsewhere.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.decomposition import PCA

from .._version import __version__
from ..data.datasets import find_dataset
from ..data.images import ImagesWarning, holds_images, load_images, picture_names
from ..data.rows import Rows, pick, shuffled, take
from ..errors import warn
from ..manifold import RectangularFlow
from ..metrics.arrays import Array
from ..metrics.out_of_distribution import Detection, detect, stump_accuracy
from ..runs.display import WorkDisplay
from ..runs.prepared import prepare
from ..runs.saved import SavedRun
from ..settings import DataSettings
from ..storage.files import write_atomically
from .scores import SCORES, Score, calibrate, score_rows

_SIDES = ("inside", "outside")
_RECALL = 0.95
_FEW = 20  # held-out rows that are too few to judge by
_BASELINE = 10_000  # training rows for what needs no model, however few are judged


@dataclass(frozen=True, eq=False)
class JudgedRows:
    """Five sets of rows.

    Attributes:
        sets: inside_train, inside_held_out, inside_test, outside_train, outside_test → rows.
        baseline: training rows of the run for the plain baseline, more than are judged where those are few.
        halves: whether the rows from elsewhere were cut in halves, for lack of a training part.
        notes: what the reader should know about them.
    """

    sets: dict[str, Rows]
    baseline: Rows
    halves: bool
    notes: list[str]

    @property
    def counts(self) -> dict[str, int]:
        """Rows of each set, and of those from elsewhere that are judged."""
        counts = {name: len(part) for name, part in self.sets.items()}
        counts["outside_judged"] = counts["outside_test"] + (counts["outside_train"] if self.halves else 0)
        return counts


@dataclass(frozen=True, eq=False)
class JudgedScore:
    """The values of one score, in its own units and direction, and how well it separates inside from outside.

    Attributes:
        score: which; its name, label, unit and direction.
        train: of the run's training rows.
        test: of its test rows.
        outside: of the judged rows from elsewhere.
        found: how well it separates the last two.
        threshold: keeps 95 % of held-out rows of the run; needs nothing from elsewhere.
        inside_kept: share of the test rows on the usual side of it.
        outside_caught: share of the rows from elsewhere on the other side.
    """

    score: Score
    train: Array
    test: Array
    outside: Array
    found: Detection
    threshold: float
    inside_kept: float
    outside_caught: float

    def numbers(self) -> dict[str, Any]:
        """For a file."""
        threshold = self.threshold if math.isfinite(self.threshold) else None
        shares = {"inside_kept": self.inside_kept, "outside_caught": self.outside_caught}
        direction = {"higher_is_usual": self.score.higher_is_usual}
        return {"name": self.score.label, **asdict(self.found), "threshold": threshold, **shares, **direction}


@dataclass(frozen=True, eq=False)
class Judged:
    """All scores of a run against one set from elsewhere."""

    inside: str
    outside: str
    latent_dim: int
    rows: dict[str, int]
    scores: dict[str, JudgedScore]
    notes: list[str] = field(default_factory=list)

    @property
    def chance(self) -> dict[str, float]:
        """What a score that knows nothing reaches."""
        share = self.rows["inside_test"] / (self.rows["inside_test"] + self.rows["outside_judged"])
        return {"auroc": 0.5, "aupr": share, "fpr95": _RECALL, "accuracy": 0.5}

    def numbers(self) -> dict[str, Any]:
        """Everything but the values, for a file."""
        return {
            "inside": self.inside,
            "outside": self.outside,
            "latent_dim": self.latent_dim,
            "rows": self.rows,
            "recall": _RECALL,
            "chance": self.chance,
            "scores": {name: judged.numbers() for name, judged in self.scores.items()},
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
    """Every score of a run's own rows and of rows from elsewhere, and how well each separates them.

    Args:
        run: a run, on a table or on images.
        against: a file, a folder of pictures, or the name of a known data set.
        count: most rows of each set, drawn by seed.
        seed: of the rows drawn, and of the halves of a file.
        drop_invalid: leave out rows of a file with missing or infinite values.
        display: shows the progress.

    Raises:
        ValueError: the data cannot be read, or have another shape.
    """
    flow, chosen = run.flow, rows_to_judge(run, against, count, seed=seed, drop_invalid=drop_invalid)
    if display is not None:
        display.total = sum(len(rows) for rows in chosen.sets.values())
    tick = None if display is None else display.advance
    passes = {name: score_rows(flow, rows, tick=tick) for name, rows in chosen.sets.items()}
    calibration = run.calibration or calibrate(flow, run.data.validation, run.data.train)
    judged = {
        score.name: judge({name: score(part, calibration) for name, part in passes.items()}, chosen.halves, score)
        for score in SCORES.values()
        if score.applies(flow, calibration) and (flow.unit_layers() or not score.model_units)
    }
    baseline = _Baseline(flow, chosen.baseline)
    residuals = {name: baseline.residuals(rows) for name, rows in chosen.sets.items()}
    judged["pca"] = judge(residuals, chosen.halves, baseline.score)
    notes = list(chosen.notes)
    broken = sum(int((~part.log_prob.isfinite()).sum()) for part in passes.values())
    if broken:
        notes.append(f"{broken} rows have no finite log-density under the model; it counts as −∞")
    own = str(run.settings.data.data)
    if own == against or (Path(own).exists() and Path(own) == Path(against).expanduser().resolve()):
        notes.append("the run was trained on these data: the rows called outside are its own")
    return Judged(name_of(own), name_of(against), flow.latent_dim, chosen.counts, judged, notes)


def judge(parts: Mapping[str, Array], halves: bool, score: Score) -> JudgedScore:
    """How well one score separates inside from outside.

    Args:
        parts: its values for the rows of each set of :func:`rows_to_judge`.
        halves: whether the training rows from elsewhere are judged as well, since only the stump needs such.
        score: which.
    """
    sign = 1 if score.higher_is_usual else -1
    usual = {name: sign * values for name, values in parts.items()}  # the higher, the more usual
    threshold = float(np.quantile(usual["inside_held_out"], 1 - _RECALL, method="lower"))
    test, outside = usual["inside_test"], usual["outside_test"]
    if halves:
        outside = np.concatenate([usual["outside_train"], outside])
    # as many of either kind, as in the paper: a stump answers with the commoner one where it cannot tell
    few, fewer = (min(len(usual[f"{side}_{kind}"]) for side in _SIDES) for kind in ("train", "test"))
    balanced = (usual[f"{side}_train"][:few] for side in _SIDES), (usual[f"{side}_test"][:fewer] for side in _SIDES)
    found = replace(detect(test, outside), accuracy=stump_accuracy(*balanced[0], *balanced[1]))
    kept, caught = float(np.mean(test >= threshold)), float(np.mean(outside < threshold))
    values = (sign * usual["inside_train"], sign * test, sign * outside)
    return JudgedScore(score, *values, found, sign * threshold, kept, caught)


def name_of(source: str) -> str:
    """A short name of data: that of a folder or of a known set, or of a file without its suffix."""
    path = Path(source)
    return path.name if path.expanduser().is_dir() else path.stem


class _Baseline:
    """Linear PCA of training rows, of the model's dimension: pixels as they are, columns as the model sees them."""

    def __init__(self, flow: RectangularFlow, train: Rows):
        if len(train) <= flow.latent_dim:
            raise ValueError(
                f"expected more than d = {flow.latent_dim} training rows for the baseline; got {len(train)}"
            )
        self._flow = flow
        unit = f"squared, {'pixels' if flow.kind == 'image' else 'model units'}"
        self.score = Score("pca", f"PCA residual, d = {flow.latent_dim}", unit, False, lambda *_: [])
        self._pca = PCA(flow.latent_dim, random_state=0).fit(self._plain(train))

    def residuals(self, rows: Rows) -> Array:
        """Squared distance of every row from the plane."""
        x = self._plain(rows)
        found: Array = np.square(x - self._pca.inverse_transform(self._pca.transform(x))).sum(axis=1)
        return found

    @torch.no_grad()
    def _plain(self, rows: Rows) -> Array:
        x = take(rows, slice(None), dtype=self._flow.dtype)
        plain: Array = (x if x.dim() > 2 else self._flow.to_model_units(x)).flatten(1).double().numpy()
        return plain


# --- the files

_SOURCE = "against"  # in the file of numbers: which data these were


def folder_for(run: SavedRun, against: str) -> Path:
    """A folder of the run by the name of the data, with a number where other data of that name have it."""
    slug = re.sub(r"[^\w.-]+", "-", name_of(against)).strip("-.") or "data"
    for number in itertools.count(1):
        folder = run.path / (f"ood-{slug}" if number == 1 else f"ood-{slug}-{number}")
        file = folder / "ood.json"
        there = json.loads(file.read_text(encoding="utf-8")).get(_SOURCE) if file.exists() else None
        if there in (None, _source(against)):
            break
    return folder


def keep_judged(judged: Judged, folder: Path, against: str) -> Path:
    """Write the numbers to a folder; their file."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers = {**judged.numbers(), _SOURCE: _source(against)}
    write_atomically(folder / "ood.json", json.dumps(numbers, indent=1, allow_nan=False) + "\n")
    return folder / "ood.json"


def _source(against: str) -> str:
    path = Path(against).expanduser()
    return str(path.resolve()) if path.exists() else against


# --- the rows


def check_count(count: int) -> None:
    """Refuse too few rows to judge by."""
    if count < 2:
        raise ValueError(f"expected at least two rows of each set; got -n {count}")


def rows_to_judge(run: SavedRun, against: str, count: int, *, seed: int = 0, drop_invalid: bool = False) -> JudgedRows:
    """The run's own rows and those from elsewhere; the arguments are those of :func:`judge_run`."""
    check_count(count)
    data = run.data
    outside_train, outside_test, halves = _outside(run, against, seed, drop_invalid)
    notes = [halves] if halves else []
    if len(data.test) < 10:
        raise ValueError(f"expected at least 10 test rows to judge by; got {len(data.test)}. See --test-fraction")
    held_out: Rows = data.validation
    if len(held_out) < _FEW:
        held_out = data.train
        notes.append(f"thresholds are from training rows: there are only {len(data.validation)} validation rows")
    sets = {
        "inside_train": data.train,
        "inside_held_out": held_out,
        "inside_test": data.test,
        "outside_train": outside_train,
        "outside_test": outside_test,
    }
    some = {name: _some(rows, count, seed) for name, rows in sets.items()}
    return JudgedRows(some, _some(data.train, max(count, _BASELINE), seed), bool(halves), notes)


def _some(rows: Rows, count: int, seed: int) -> Rows:
    """At most ``count`` rows, in random order, so that the first of them are a fair choice too."""
    return pick(rows, shuffled(len(rows), seed, 17)[:count].numpy())


def _outside(run: SavedRun, against: str, seed: int, drop_invalid: bool) -> tuple[Rows, Rows, str]:
    """Training and test rows from elsewhere; a note where a file had to be cut in halves for it."""
    images, path = run.flow.kind == "image", Path(against).expanduser()
    if holds_images(against) and not images:
        raise ValueError(f"{run.path} is a model of tables with {run.flow.ambient_dim} columns; {against} holds images")
    whole: Rows
    if images:
        whole, test = _images(path if path.exists() else against, run.flow.data_shape, seed)
        run.check_shape(whole, against)
        if len(test):
            return whole, test, ""
    elif find_dataset(against) is not None and not path.exists():
        data = prepare(DataSettings(against), None, seed)
        train, test = (run.match(rows, data.columns, against) for rows in (data.train, data.test))
        return train, test, ""
    else:
        whole = run.rows(path, drop_invalid)
    if len(whole) < 4:
        raise ValueError(f"expected at least 4 rows to compare with; got {len(whole)} in {against}")
    order = shuffled(len(whole), seed, 18).numpy()
    text = f"{against} has no training part: one half of it, by seed, trains the stump, the other half judges it"
    return pick(whole, order[: len(order) // 2]), pick(whole, order[len(order) // 2 :]), text


def _images(source: str | Path, shape: tuple[int, ...], seed: int) -> tuple[Rows, Rows]:
    """Training and test images; no test images where the files set none apart. Pictures of a folder are scaled."""
    size = (shape[1], shape[2]) if picture_names(source) is not None else None
    splits = load_images(source, size=size, validation_fraction=0.0, test_fraction=0.0, seed=seed)
    if size is not None and splits.note:
        warn(ImagesWarning, f"'{source}': {splits.note}")
    train, _, test = splits.rows((seed + 1) % 2**31)  # unrelated to the noise of the run's own images
    return train, test
