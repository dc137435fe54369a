"""The rows that ``rnf ood`` compares: the run's own, and those from elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..data.datasets import find_dataset
from ..data.images import ImagesWarning, holds_images, load_images
from ..data.rows import Rows, pick, shuffled
from ..data.tables import DataError
from ..errors import warn
from ..runs.prepared import prepare
from ..runs.saved import SavedRun
from ..settings import DataSettings

_FEW = 20  # held-out rows that are too few to judge by
_BASELINE = 10_000  # training rows for what needs no model, however few are judged


@dataclass(frozen=True, eq=False)
class JudgedRows:
    """Five sets of rows.

    Attributes:
        sets: inside_train, inside_held_out, inside_test, outside_train, outside_test → rows.
        baseline: training rows of the run for the plain baseline, more than are judged where those are few.
        halves: whether the rows from elsewhere were cut in halves, for lack of a training part.
        notes: what should be said of them.
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


def check_count(count: int) -> None:
    """Complain about too few rows to judge by."""
    if count < 2:
        raise ValueError(f"expected at least two rows of each set; got -n {count}")


def rows_to_judge(run: SavedRun, against: str, count: int, *, seed: int = 0, drop_invalid: bool = False) -> JudgedRows:
    """The run's own rows and those from elsewhere, at most so many of each.

    Args:
        run: a run, on a table or on images.
        against: a file, a folder of pictures, or the name of a known data set.
        count: at most so many rows of each set, by seed.
        seed: of that choice and of the halves of a file.
        drop_invalid: leave out rows of a file with missing or infinite values.

    Raises:
        ValueError: the data cannot be had, or are of another shape.
    """
    check_count(count)
    data = run.data
    outside_train, outside_test, halves = _outside(run, against, seed, drop_invalid)
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
    return JudgedRows(sets, _some(data.train, max(count, _BASELINE), seed), bool(halves), notes)


def _some(rows: Rows, count: int, seed: int) -> Rows:
    """At most so many rows, in an order by seed, so that the first of them are a fair choice too."""
    return pick(rows, shuffled(len(rows), seed, 17)[:count].numpy())


def _outside(run: SavedRun, against: str, seed: int, drop_invalid: bool) -> tuple[Rows, Rows, str]:
    """Training and test rows from elsewhere; a note where a file had to be cut in halves for it."""
    flow = run.flow
    images, path = flow.kind == "image", Path(against).expanduser()
    if holds_images(against) and not images:
        raise ValueError(f"{run.path} is a model of tables with {flow.ambient_dim} columns; {against} holds images")
    if images and path.is_file() and path.suffix.lower() not in (".npy", ".npz"):
        wanted = "×".join(map(str, flow.data_shape))
        raise ValueError(
            f"{run.path} is a model of images of {wanted}; {against} holds none. Give a set of images, a folder of "
            "pictures, or a .npy or .npz file"
        )
    whole: Rows
    if images:
        train, test = _images(path if path.exists() else against, flow.data_shape, seed)
        if len(test):
            return _same_shape(run, train, against), _same_shape(run, test, against), ""
        whole = _same_shape(run, train, against)
    elif find_dataset(against) is not None and not path.exists():
        data = prepare(DataSettings(against), None, seed)
        return _same_shape(run, data.train, against), _same_shape(run, data.test, against), ""
    else:
        whole = run.rows(path, drop_invalid)
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
            if splits.note:
                warn(ImagesWarning, f"'{source}': {splits.note}")
        except DataError:  # not plain pictures: a published set has its own size
            splits = load_images(source, **options)
    else:
        splits = load_images(source, **options)
    train, _, test = splits.rows((seed + 1) % 2**31)  # unrelated to the noise of the run's own images
    return train, test


def _same_shape(run: SavedRun, rows: Rows, against: str) -> Rows:
    flow = run.flow
    shape = tuple(rows.shape[1:])
    if shape == tuple(flow.data_shape):
        return rows
    wanted, got = ("×".join(map(str, each)) for each in (flow.data_shape, shape))
    if flow.kind == "image":
        advice = (
            "Bring them to that shape, as a .npy file or a folder (whose pictures are resized), or choose another set."
        )
        raise ValueError(
            f"expected images of {wanted}, as {run.path} was trained on; those of {against} are {got}. {advice}"
        )
    raise ValueError(
        f"expected {wanted} columns, as {run.path} was trained on; {against} has {got}. Choose a set with as many."
    )


__all__ = ["JudgedRows", "check_count", "rows_to_judge"]
