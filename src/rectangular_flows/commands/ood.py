"""``rnf ood``: whether a model can tell data from elsewhere, by which score, and how well.

Everything that a score needs is fitted on the run's own rows. Only the paper's decision stump sees rows from elsewhere.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich import box
from rich.console import Console
from rich.table import Table
from sklearn.decomposition import PCA

from .._version import __version__
from ..data.images import holds_images, load_images
from ..data.registry import DATASETS
from ..data.tables import DataError
from ..errors import NumericalError
from ..experiment import open_run, prepare, rows_for, settings_of, sphere_columns
from ..manifold import RectangularFlow
from ..metrics.out_of_distribution import CombinedScore, Detection, detect, stump_accuracy, typicality
from ..plots.detection import Histogram, draw_detection
from ..progress import WorkDisplay, say_where, wide_console
from ..settings import DataSettings
from ..storage import write_atomically
from ..training.rows import Rows, pick, shuffled, take

Array = NDArray[np.float64]
Tick = Callable[[int], None]

_SIDES = ("inside", "outside")
_RECALL = 0.95
_FEW = 20  # held-out rows that are too few to judge by
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


def ood_command(run: Path, against: str, count: int, output: Path | None, seed: int, drop_invalid: bool) -> int:
    """Score, judge, print, draw."""
    console = wide_console()
    with WorkDisplay(console, "scoring") as display:
        judged = judge_run(run, against, count, seed=seed, drop_invalid=drop_invalid, display=display)
    folder = output or run / f"ood-{_slug(against)}"
    folder.mkdir(parents=True, exist_ok=True)
    places = {"figures": folder / "ood.json", "picture": folder / "ood.png"}
    write_atomically(places["figures"], json.dumps(judged.figures(), indent=1, allow_nan=False) + "\n")
    panels = {score.name: score.histogram() for score in judged.scores.values()}
    file = io.BytesIO()
    draw_detection(panels, judged.inside, judged.outside).savefig(file, format="png", dpi=160)
    write_atomically(places["picture"], file.getvalue())
    _tell(console, judged)
    say_where(console, places)
    return 0


def judge_run(
    run: Path,
    against: str,
    count: int = 10_000,
    *,
    seed: int = 0,
    drop_invalid: bool = False,
    display: WorkDisplay | None = None,
) -> Judged:
    """Every score of a run's own rows and of rows from elsewhere, and how well each tells them apart.

    Args:
        run: folder of a run, on a table or on images.
        against: a file, a folder of pictures, or the name of a known data set.
        count: at most so many rows of each set, by seed.
        seed: of that choice and of the halves of a file.
        drop_invalid: leave out rows of a file with missing or infinite values.
        display: shows how far it is.

    Raises:
        ValueError: the data cannot be had, or are of another shape.
    """
    if count < 2:
        raise ValueError(f"expected at least two rows of each set; got -n {count}")
    flow, columns = open_run(run)
    settings = settings_of(run)
    data = prepare(settings.data, settings.model.latent_dim, settings.training.seed)
    outside_train, outside_test, halves = _outside(run, flow, columns, against, seed, drop_invalid)
    notes = [halves] if halves else []
    if len(data.test) < 10:
        raise ValueError(f"expected at least 10 test rows to judge by; got {len(data.test)}. See --test-fraction")
    held_out: Rows = data.validation
    if len(held_out) < _FEW:
        held_out = data.train
        notes.append(f"thresholds are from training rows: there are {len(data.validation)} validation rows only")
    sets = {
        "inside_train": _some(data.train, count, seed),
        "inside_held_out": _some(held_out, count, seed),
        "inside_test": _some(data.test, count, seed),
        "outside_train": _some(outside_train, count, seed),
        "outside_test": _some(outside_test, count, seed),
    }
    if display is not None:
        display.total = sum(len(rows) for rows in sets.values())
    baseline = _baseline(flow, sets["inside_train"])
    values = {name: _values(flow, baseline, rows, display.advance if display else None) for name, rows in sets.items()}
    broken = sum(int((~np.isfinite(part["log_density"])).sum()) for part in values.values())
    if broken:
        notes.append(f"{broken} rows have no finite log-density under the model; it counts as −∞")
    rows = {name: len(part) for name, part in sets.items()}
    rows["outside_judged"] = rows["outside_test"] + (rows["outside_train"] if halves else 0)
    scores = _judge(flow, values, bool(halves))
    name = Path(str(settings.data.data)).stem
    return Judged(name, Path(against).stem, flow.latent_dim, rows, scores, notes)


def _judge(flow: RectangularFlow, values: dict[str, dict[str, Array]], halves: bool) -> dict[str, Score]:
    """All scores from the four values of each row."""
    held_out = values["inside_held_out"]
    # beside errors in the model's units belongs the density in those: what training has to do with
    own_density = "log_density_model" if "log_density_model" in held_out else "log_density"
    fine = np.isfinite(held_out[own_density]) & np.isfinite(held_out["error"])
    if fine.sum() < 2:
        raise ValueError(f"expected held-out rows with finite scores; {int(fine.sum())} of {len(fine)} have them")
    combined = CombinedScore().fit(held_out[own_density][fine], held_out["error"][fine])
    usual = float(held_out[own_density][fine].mean())
    images = len(flow.data_shape) == 3
    pixels, own = ("pixels" if images else "the data"), "units of the model"
    what: dict[str, tuple[str, str, bool, Callable[[dict[str, Array]], Array]]] = {
        "log_density": ("log-density", f"nats, units of {pixels}", False, lambda v: v["log_density"]),
        "log_density_model": ("log-density, model units", f"nats, {own}", False, lambda v: v["log_density_model"]),
        "reconstruction_error": ("reconstruction error", f"squared distance, {own}", True, lambda v: -v["error"]),
        "combined": ("both combined", "outlier score", True, lambda v: combined(v[own_density], v["error"])),
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
        threshold = float(np.quantile(parts["inside_held_out"], 1 - _RECALL, method="lower"))
        test, outside = parts["inside_test"], parts["outside_test"]
        if halves:  # only the stump needs rows to be trained on
            outside = np.concatenate([parts["outside_train"], outside])
        # as many of either kind, as in the paper: a stump answers with the commoner one where it cannot tell
        few, fewer = (min(len(parts[f"{side}_{kind}"]) for side in _SIDES) for kind in ("train", "test"))
        balanced = (parts[f"{side}_train"][:few] for side in _SIDES), (parts[f"{side}_test"][:fewer] for side in _SIDES)
        accuracy = stump_accuracy(*balanced[0], *balanced[1])
        found = replace(detect(test, outside), accuracy=accuracy)
        kept, caught = float(np.mean(test >= threshold)), float(np.mean(outside < threshold))
        train = parts["inside_train"]
        scores[key] = Score(name, unit, train, test, outside, found, threshold, kept, caught, negative)
    return scores


@torch.no_grad()
def _values(flow: RectangularFlow, baseline: PCA, rows: Rows, tick: Tick | None) -> dict[str, Array]:
    """Log-density, error in model units and residual of PCA for each row; where the model overflows, −∞ and ∞."""
    dtype = next((p.dtype for p in flow.parameters()), torch.float32)
    step = min(_AT_ONCE, flow.rows_at_once())
    other_units = len(flow.layers()) > len(flow.layers(model_units=True))
    found: dict[str, list[Array]] = {}
    for start in range(0, len(rows), step):
        x = take(rows, slice(start, start + step), dtype=dtype)
        y = flow.to_model_units(x)
        part = {
            "log_density": _log_density(flow, x, model_units=False),
            "error": flow.reconstruction_error(y, model_units=True).double().numpy(),
            "pca": _residual(baseline, _plain(flow, x)),
        }
        if other_units:
            part["log_density_model"] = _log_density(flow, y, model_units=True)
        part["error"] = np.nan_to_num(part["error"], nan=np.inf, posinf=np.inf)
        for name, value in part.items():
            found.setdefault(name, []).append(value)
        if tick is not None:
            tick(len(x))
    return {name: np.concatenate(parts) for name, parts in found.items()}


def _log_density(flow: RectangularFlow, rows: torch.Tensor, *, model_units: bool) -> Array:
    """−∞ where the model overflows or its manifold has collapsed: rows from elsewhere may be anywhere."""
    try:
        value = flow.log_prob(rows, model_units=model_units, check=False).double().numpy()
    except NumericalError:
        if len(rows) == 1:
            return np.array([-np.inf])
        middle = len(rows) // 2
        return np.concatenate(
            [_log_density(flow, part, model_units=model_units) for part in rows.tensor_split([middle])]
        )
    return np.where(np.isfinite(value), value, -np.inf)


def _baseline(flow: RectangularFlow, train: Rows) -> PCA:
    if len(train) <= flow.latent_dim:
        raise ValueError(f"expected more than d = {flow.latent_dim} training rows for the baseline; got {len(train)}")
    dtype = next((p.dtype for p in flow.parameters()), torch.float32)
    rows = _plain(flow, take(train, slice(None), dtype=dtype))
    return PCA(flow.latent_dim, random_state=0).fit(rows)


def _plain(flow: RectangularFlow, x: torch.Tensor) -> Array:
    """What PCA sees: pixels as they are, columns as the model sees them."""
    return (x if x.dim() > 2 else flow.to_model_units(x)).flatten(1).double().numpy()


def _residual(baseline: PCA, rows: Array) -> Array:
    return np.square(rows - baseline.inverse_transform(baseline.transform(rows))).sum(axis=1)


def _some(rows: Rows, count: int, seed: int) -> Rows:
    """At most so many rows, in an order by seed, so that the first of them are a fair choice too."""
    return pick(rows, shuffled(len(rows), seed, 17)[:count].numpy())


def _outside(
    run: Path, flow: RectangularFlow, columns: tuple[str, ...], against: str, seed: int, drop_invalid: bool
) -> tuple[Rows, Rows, str]:
    """Training and test rows from elsewhere; a note where a file had to be cut in halves for it."""
    images, path = len(flow.data_shape) == 3, Path(against).expanduser()
    if holds_images(against) and not images:
        raise ValueError(f"{run} is a model of tables with {flow.ambient_dim} columns; {against} holds images")
    if images and path.is_file() and path.suffix.lower() not in (".npy", ".npz"):
        wanted = "×".join(map(str, flow.data_shape))
        raise ValueError(
            f"{run} is a model of images of {wanted}; {against} holds none. Give a set of images, a folder of pictures, "
            "or a .npy or .npz file"
        )
    whole: Rows
    if images:
        train, test = _images(path if path.exists() else against, flow.data_shape, seed)
        if len(test):
            return _same_shape(run, flow, train, against), _same_shape(run, flow, test, against), ""
        whole = _same_shape(run, flow, train, against)
    elif against in ("circle", *DATASETS) and not path.exists():
        data = prepare(DataSettings(against), None, seed)
        return _same_shape(run, flow, data.train, against), _same_shape(run, flow, data.test, against), ""
    else:
        whole, _ = rows_for(flow, columns, path, drop_invalid, sphere=sphere_columns(run))
    if len(whole) < 4:
        raise ValueError(f"expected at least 4 rows to compare with; got {len(whole)} in {against}")
    order = shuffled(len(whole), seed, 18).numpy()
    first, second = order[: len(order) // 2], order[len(order) // 2 :]
    text = f"{against} has no training part: one half of it, by seed, trains the stump, the other half judges it"
    return pick(whole, first), pick(whole, second), text


def _images(source: str | Path, shape: tuple[int, ...], seed: int) -> tuple[Rows, Rows]:
    """Training and test images; no test images where the files set none apart. Pictures of a folder are resized."""
    options: dict[str, Any] = {"validation_fraction": 0.0, "test_fraction": 0.0, "seed": seed}
    if isinstance(source, Path) and source.is_dir():
        try:
            splits = load_images(source, size=(shape[1], shape[2]), **options)
        except DataError:  # not plain pictures: a published set has its own size
            splits = load_images(source, **options)
    else:
        splits = load_images(source, **options)
    train, _, test = splits.rows((seed + 1) % 2**31)  # unrelated to the noise of the run's own images
    return train, test


def _same_shape(run: Path, flow: RectangularFlow, rows: Rows, against: str) -> Rows:
    shape = tuple(rows.shape[1:])
    if shape == tuple(flow.data_shape):
        return rows
    wanted, got = ("×".join(map(str, each)) for each in (flow.data_shape, shape))
    if len(flow.data_shape) == 3:
        advice = (
            "Bring them to that shape, as a .npy file or a folder (whose pictures are resized), or choose another set."
        )
        raise ValueError(
            f"expected images of {wanted}, as {run} was trained on; those of {against} are {got}. {advice}"
        )
    raise ValueError(
        f"expected {wanted} columns, as {run} was trained on; {against} has {got}. Choose a set with as many."
    )


def _tell(console: Console, judged: Judged) -> None:
    rows = judged.rows
    title = (
        f"{judged.inside} (inside, {rows['inside_test']:,} test rows) against {judged.outside} "
        f"(outside, {rows['outside_judged']:,} rows)"
    )
    table = Table(title=title, box=box.SIMPLE)
    headings = ("score", "AUROC", "AUPR", "FPR at 95 %", "stump accuracy", "inside kept", "outside caught")
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "score" else "right")
    chance = judged.figures()["chance"]
    for score in judged.scores.values():
        found = score.found
        cells = [f"{found.auroc:.3f}", f"{found.aupr:.3f}", f"{found.fpr95:.1%}", f"{found.accuracy or 0:.1%}"]
        table.add_row(score.name, *cells, f"{score.inside_kept:.1%}", f"{score.outside_caught:.1%}")
    cells = [f"{chance['auroc']:.3f}", f"{chance['aupr']:.3f}", f"{chance['fpr95']:.1%}", f"{chance['accuracy']:.1%}"]
    table.add_row("chance", *cells, "95.0%", "5.0%", style="dim")
    console.print(table)
    own = {key: score for key, score in judged.scores.items() if key != "pca"}
    best = max(own.values(), key=lambda score: score.found.auroc)
    pca = judged.scores["pca"].found
    lines = [
        "inside kept, outside caught: by the threshold that keeps 95 % of held-out rows, fitted on nothing from outside",
        f"the plain baseline, a linear PCA with d = {judged.latent_dim} on the same training rows, reaches AUROC "
        f"{pca.auroc:.3f} by its residual alone; the model's best score, {best.name}, {best.found.auroc:.3f}",
        *(f"note: {note}" for note in judged.notes),
    ]
    console.print("\n".join(lines), highlight=False, soft_wrap=True, markup=False)


def _slug(against: str) -> str:
    return re.sub(r"[^\w.-]+", "-", Path(against).stem).strip("-.") or "data"


__all__ = ["Judged", "Score", "judge_run", "ood_command"]
