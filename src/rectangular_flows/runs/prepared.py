"""Data ready for training: opened, checked, matched by column names, and split in three."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..data.columns import WholeTable
from ..data.datasets import DATASETS, find_dataset, place_of
from ..data.images import holds_images, images_like, load_images
from ..data.periodic import PeriodicColumn, notes_on, periodic_columns
from ..data.pixels import ImageRows
from ..data.rows import Rows, pick, shuffled, take
from ..data.sphere import SphereTable, read_more, read_sphere
from ..data.tables import (
    DataError,
    MissingFileError,
    Table,
    check_table,
    match_columns,
    read_table,
    split_rows,
    used_columns,
)
from ..settings import DataSettings
from ..spelling import nearest


@dataclass(frozen=True)
class Prepared:
    """Data ready for training: three parts, the names of the columns, and on the sphere those in the user's file.

    ``periodic`` are the columns that are angles; ``whole`` says what the file has beside ``columns``, where some are left
    out because they hold one value or repeat another.

    Images are rows (N, C, H, W), dequantised, in (0, 1), and have no names of columns.
    """

    train: Rows
    validation: Rows
    test: Rows
    columns: tuple[str, ...]
    note: str = ""
    degrees: tuple[str, ...] = ()
    periodic: tuple[PeriodicColumn, ...] = ()
    whole: WholeTable | None = None

    @property
    def image_shape(self) -> tuple[int, ...] | None:
        """(C, H, W) of images; None for a table."""
        return tuple(self.train.shape[1:]) if len(self.train.shape) == 4 else None


@dataclass(frozen=True)
class Known:
    """The columns a model was trained on: files are matched with them by name.

    Attributes:
        columns: of a table.
        degrees: on the sphere, the names of latitude and longitude in the file, () if it had none; None elsewhere.
        whole: all columns of its table, where some of them are not the model's.
    """

    columns: tuple[str, ...]
    degrees: tuple[str, ...] | None = None
    whole: WholeTable | None = None


def prepare(settings: DataSettings, latent_dim: int | str | None, seed: int, *, known: Known | None = None) -> Prepared:
    """Open the data that the settings name, check them and split them.

    Args:
        settings: of the data.
        latent_dim: d, for the checks; None or "auto" where it is still to be chosen.
        seed: of the split.
        known: the columns of a model trained on these data before: the file may have been reordered since.

    Raises:
        ValueError: the data cannot be trained on; the message says where and why.
    """
    if settings.data is None:
        raise ValueError("no data: give a file or the name of a data set (rnf data list), or a preset that names one")
    entry = find_dataset(settings.data) if place_of(settings.data) is None else None
    if settings.sphere and entry is not None:
        raise ValueError(
            f"sphere is for a file with latitudes and longitudes; got the data set {settings.data}. Leave out --sphere"
        )
    if holds_images(settings.data):
        return _images(settings, seed)
    if entry is not None:
        given = {"seed": seed, **vars(settings)}
        splits = entry.load(**{name: given[name] for name in entry.options})
        return Prepared(splits.train, splits.validation, splits.test, splits.columns, splits.note)
    if entry is None and not Path(settings.data).exists() and not Path(settings.data).suffix:
        raise MissingFileError(
            f"There is no file, folder or data set '{settings.data}'.{nearest(settings.data, DATASETS)}"
        )
    return _table(settings, latent_dim, seed, known)


def _table(settings: DataSettings, latent_dim: int | str | None, seed: int, known: Known | None) -> Prepared:
    table = whole = _first_table(settings, known)
    parts = {name: getattr(settings, f"{name}_data") for name in ("validation", "test")}
    shares = {name: 0.0 if path is not None else getattr(settings, f"{name}_fraction") for name, path in parts.items()}
    split = dict(zip(("train", *parts), split_rows(len(table.values), **shares, seed=seed), strict=True))
    kept = None if known is None else known.whole
    if known is None and not settings.sphere and not settings.periodic:  # angles are named: their user means them
        table, kept = used_columns(table, split["train"])
    degrees = table.degrees if isinstance(table, SphereTable) else ()
    periodic = (
        periodic_columns(settings.periodic, table.values, table.columns, f"'{table.source}'")
        if settings.periodic
        else ()
    )
    if kept is not None and len(kept.seen) < 2:
        raise DataError(
            f"Expected at least 2 columns that vary and differ from each other; in '{table.source}' "
            f"{kept.used.reasons(kept.names)}, and only '{kept.seen[0]}' is left."
        )
    check_table(table, latent_dim if isinstance(latent_dim, int) else None, bool(periodic))
    known = Known(table.columns, degrees if settings.sphere else None)
    given = {
        name: read_matching(path, known, settings.drop_invalid).values
        for name, path in parts.items()
        if path is not None
    }
    if "validation" in given and len(given["validation"]) < 2:
        raise ValueError(
            f"expected at least two rows to validate with; '{settings.validation_data}' has 1. Give more rows"
        )
    rows = {name: given[name] if name in given else pick(table.values, index) for name, index in split.items()}
    dropped = f"{table.dropped} rows with missing or infinite values were dropped" if table.dropped else ""
    unnamed = "" if table.named or degrees or Path(table.source).suffix.lower() == ".npy" else "no header was found"
    unnamed = unnamed and f"{unnamed}: the columns are {whole.columns[0]} to {whole.columns[-1]}"
    left_out = "" if kept is None else f"columns left out of the model: {kept.used.reasons(kept.names)}"
    notes = [table.note if isinstance(table, SphereTable) else "", unnamed, dropped, left_out]
    notes += notes_on(periodic)
    note = "; ".join(filter(None, notes))
    return Prepared(**rows, columns=table.columns, note=note, degrees=degrees, periodic=periodic, whole=kept)


def _first_table(settings: DataSettings, known: Known | None) -> Table:
    """The file to train on; of a run that was trained on it before, by the names of its columns."""
    if known is not None and (not settings.sphere or known.degrees):
        return read_matching(str(settings.data), known, settings.drop_invalid)
    options: dict[str, Any] = {name: getattr(settings, name) for name in ("columns", "exclude", "drop_invalid")}
    return (read_sphere if settings.sphere else read_table)(str(settings.data), **options)


def _images(settings: DataSettings, seed: int) -> Prepared:
    for name in ("columns", "exclude", "sphere"):
        if getattr(settings, name):
            raise ValueError(f"--{name} is for tables; {settings.data} holds images")
    parts = {name: getattr(settings, f"{name}_data") for name in ("validation", "test")}
    shares = {f"{name}_fraction": getattr(settings, f"{name}_fraction") * (parts[name] is None) for name in parts}
    splits = load_images(str(settings.data), seed=seed, size=settings.height_and_width, **shares)
    rows: dict[str, Any] = dict(zip(("train", *parts), splits.rows(seed), strict=True))
    for i, (name, path) in enumerate(parts.items()):
        if path is not None:
            rows[name] = ImageRows(images_like(path, splits.shape), (seed, 3 + i))
    return Prepared(**rows, columns=(), note=splits.note)


def read_matching(path: str | Path, known: Known, drop_invalid: bool = False) -> Table:
    """The columns of a model in another file, in its order; other columns are ignored.

    Raises:
        DataError: a column is missing; or the file has no names and another number of columns.
    """
    if known.degrees is not None:
        return read_more(path, known.degrees, drop_invalid)
    try:
        return match_columns(read_table(path, columns=known.columns, drop_invalid=drop_invalid), known.columns)
    except MissingFileError:
        raise
    except DataError as error:
        try:  # the file has no names, or lacks a column: read all of it to find out
            whole = read_table(path, drop_invalid=drop_invalid)
        except DataError:
            raise error from None
        return match_columns(whole, known.columns)


def some_rows(rows: Rows, seed: int, most: int = 20_000) -> np.ndarray[Any, Any]:
    """At most ``most`` rows, drawn by seed, as float64; images are flattened."""
    return take(rows, shuffled(len(rows), seed)[:most]).flatten(1).double().numpy()
