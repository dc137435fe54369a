"""How well each score of a model separates its own data from data from elsewhere.

Everything that a score needs is fitted on the run's own rows. Only the paper's decision stump sees rows from elsewhere.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.decomposition import PCA

from .._version import __version__
from ..atlas import Model
from ..data.datasets import place_of
from ..data.images import ImagesWarning, holds_images, load_images, picture_names
from ..data.rows import Rows, pick, shuffled, take
from ..errors import warn
from ..metrics.arrays import Array
from ..metrics.out_of_distribution import Detection, detect, stump_accuracy
from ..runs.display import WorkDisplay
from ..runs.prepared import prepare
from ..runs.saved import SavedRun
from ..settings import DataSettings
from ..storage.files import write_atomically
from ..storage.texts import as_json, read_json
from .scores import SCORES, Score, calibrate, score_rows

_SIDES = ("inside", "outside")
_RECALL = 0.95
_FEW = 20  # held-out rows that are too few to judge by
_BASELINE = 10_000  # training rows for what needs no model, however few are judged


class JudgedRows(NamedTuple):
    """The rows that are judged."""

    sets: dict[str, Rows]
    """inside_train, inside_held_out, inside_test, outside_train, outside_test → rows."""
    baseline: Rows
    """Training rows of the run for the plain baseline, more than are judged where those are few."""
    halves: bool
    """Whether the rows from elsewhere were cut in halves, for lack of a training part."""
    notes: list[str]
    """What the reader should know."""


@dataclass(frozen=True, eq=False)
class JudgedScore:
    """The values of one score for each set of rows, and how well it separates inside from outside."""

    score: Score
    train: Array
    test: Array
    outside: Array
    found: Detection
    threshold: float
    """Keeps 95 % of held-out rows of the run; needs nothing from elsewhere."""
    inside_kept: float
    """The share of the test rows on the usual side of it."""
    outside_caught: float
    """The share of the rows from elsewhere on the other side."""

    def numbers(self) -> dict[str, Any]:
        """For a file."""
        return {
            "name": self.score.label,
            **asdict(self.found),
            "threshold": self.threshold if math.isfinite(self.threshold) else None,
            "inside_kept": self.inside_kept,
            "outside_caught": self.outside_caught,
            "higher_is_usual": self.score.higher_is_usual,
        }


@dataclass(frozen=True, eq=False)
class Judged:
    """All scores of a run against one set from elsewhere."""

    inside: str
    outside: str
    latent_dim: int
    rows: dict[str, int]
    scores: dict[str, JudgedScore]
    notes: list[str]

    @property
    def chance(self) -> dict[str, float]:
        """What a score that knows nothing reaches."""
        share = self.rows["inside_test"] / (self.rows["inside_test"] + self.rows["outside_judged"])
        return {"auroc": 0.5, "aupr": share, "fpr95": _RECALL, "accuracy": 0.5}

    def numbers(self) -> dict[str, Any]:
        """Everything but the values, for a file."""
        scores = {name: judged.numbers() for name, judged in self.scores.items()}
        return {**vars(self), "recall": _RECALL, "chance": self.chance, "scores": scores, "version": __version__}


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
    """
    flow, chosen = run.flow, rows_to_judge(run, against, count, seed=seed, drop_invalid=drop_invalid)
    if display is not None:
        display.total = sum(len(rows) for rows in chosen.sets.values())
    tick = None if display is None else display.advance
    passes = {name: score_rows(flow, rows, tick=tick) for name, rows in chosen.sets.items()}
    calibration = run.calibration or calibrate(flow, run.data.validation)
    judged = {
        score.name: judge({name: score(part, calibration) for name, part in passes.items()}, chosen.halves, score)
        for score in SCORES.values()
        if (flow.unit_layers() or not score.model_units) and score.applies(flow, calibration)
    }
    unit = f"squared, {'pixels' if flow.kind == 'image' else 'model units'}"
    baseline = Score("pca", f"PCA residual, d = {flow.latent_dim}", unit, False, lambda *_: [])
    judged["pca"] = judge(_pca_residuals(flow, chosen.baseline, chosen.sets), chosen.halves, baseline)
    counts = {name: len(rows) for name, rows in chosen.sets.items()}
    counts["outside_judged"] = len(judged["pca"].outside)
    notes = list(chosen.notes)
    broken = sum(int((~part.log_prob.isfinite()).sum()) for part in passes.values())
    if broken:
        notes.append(f"{broken} rows have no finite log-density under the model; it counts as −∞")
    own = str(run.settings.data.data)
    if own == against or own == _source(against):
        notes.append("the run was trained on these data: the rows called outside are its own")
    return Judged(name_of(own), name_of(against), flow.latent_dim, counts, judged, notes)


def judge(parts: Mapping[str, Array], halves: bool, score: Score) -> JudgedScore:
    """How well one score separates inside from outside, by its values for the rows of each set of :class:`JudgedRows`.

    Of a set in ``halves``, the training rows are judged as well, since only the stump needs such.
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
    path = place_of(source)
    return Path(source).stem if path is None or not path.is_dir() else path.name


@torch.no_grad()
def _pca_residuals(flow: Model, train: Rows, sets: Mapping[str, Rows]) -> dict[str, Array]:
    """Squared distances from a linear subspace of dimension d: of pixels as they are, of columns in model units."""

    def plain(rows: Rows) -> Array:
        x = take(rows, slice(None), dtype=flow.row_dtype)
        values: Array = (x if x.dim() > 2 else flow.to_model_units(x)).flatten(1).double().numpy()
        return values

    def residuals(x: Array) -> Array:
        found: Array = np.square(x - pca.inverse_transform(pca.transform(x))).sum(axis=1)
        return found

    if len(train) <= flow.latent_dim:
        raise ValueError(f"expected more than d = {flow.latent_dim} training rows for the baseline; got {len(train)}")
    pca = PCA(flow.latent_dim, random_state=0).fit(plain(train))
    return {name: residuals(plain(rows)) for name, rows in sets.items()}


# --- the files


def folder_for(run: SavedRun, against: str) -> Path:
    """A folder of the run by the name of the data, with a number where other data of that name have it."""
    slug = re.sub(r"[^\w.-]+", "-", name_of(against)).strip("-.") or "data"
    for number in itertools.count(1):
        folder = run.path / (f"ood-{slug}" if number == 1 else f"ood-{slug}-{number}")
        file = folder / "ood.json"
        there = read_json(file, "Remove it").get("against") if file.exists() else None
        if there in (None, _source(against)):
            break
    return folder


def keep_judged(judged: Judged, folder: Path, against: str) -> Path:
    """Write the numbers to a folder; their file."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers = {**judged.numbers(), "against": _source(against)}
    write_atomically(folder / "ood.json", as_json(numbers))
    return folder / "ood.json"


def _source(against: str) -> str:
    """What the numbers say of the data: the full path of a file or folder, or the name of a known set."""
    path = place_of(against)
    return str(path.resolve()) if path is not None and path.exists() else against


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
    inside = {"inside_train": data.train, "inside_held_out": held_out, "inside_test": data.test}
    sets = {**inside, "outside_train": outside_train, "outside_test": outside_test}
    some = {name: _some(rows, count, seed) for name, rows in sets.items()}
    return JudgedRows(some, _some(data.train, max(count, _BASELINE), seed), bool(halves), notes)


def _some(rows: Rows, count: int, seed: int) -> Rows:
    """At most ``count`` rows, in random order, so that the first of them are a fair choice too."""
    return pick(rows, shuffled(len(rows), seed, 17)[:count].numpy())


def _outside(run: SavedRun, against: str, seed: int, drop_invalid: bool) -> tuple[Rows, Rows, str]:
    """Training and test rows from elsewhere; a note where a file had to be cut in halves for it."""
    images, path = run.flow.kind == "image", place_of(against)
    if holds_images(against) and not images:
        raise ValueError(f"{run.path} is a model of tables with {run.flow.ambient_dim} columns; {against} holds images")
    whole: Rows
    if images:
        whole, test = _images(against if path is None else path, run.flow.data_shape, seed)
        run.check_shape(whole, against)
        if len(test):
            return whole, test, ""
    elif path is None:
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
