"""From settings to a trained model: the data opened, the flow built, the run shown. What the commands share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from torch import Tensor

from ..data import von_mises_circle
from ..data.benchmarks import load_benchmark
from ..data.images import holds_images, images_like, load_images
from ..data.pixels import ImageRows
from ..data.registry import DATASETS
from ..data.sphere import SphereTable, read_more, read_sphere
from ..data.tables import DataError, MissingFileError, Table, check_table, match_columns, read_table, split_rows
from ..errors import warn
from ..manifold import RectangularFlow
from ..metrics import estimate_dimension
from .build import build_flow
from .display import TrainingDisplay
from ..settings import DataSettings, FitSettings, check_keys
from ..spelling import nearest
from ..storage.files import fingerprint
from ..storage.models import load_model, read_description
from ..training import Run, fit
from ..training.folder import read_config
from ..training.rows import Rows, pick, shuffled, take
from ..training.setup import threads_for


@dataclass(frozen=True)
class Prepared:
    """Data ready for training: three splits, the names of the columns, and on the sphere those in the user's file.

    Images are rows (N, C, H, W), dequantised, in (0, 1), and have no names of columns.
    """

    train: Rows
    validation: Rows
    test: Rows
    columns: tuple[str, ...]
    note: str = ""
    degrees: tuple[str, ...] = ()

    @property
    def image_shape(self) -> tuple[int, ...] | None:
        """(C, H, W) of images; None for a table."""
        return tuple(self.train.shape[1:]) if len(self.train.shape) == 4 else None


def prepare(settings: DataSettings, latent_dim: int | str | None, seed: int) -> Prepared:
    """Open the data that the settings name, check them and split them.

    Raises:
        ValueError: the data cannot be trained on; the message says where and why.
    """
    if settings.data is None:
        raise ValueError("no data: give a file or the name of a data set (rnf data list), or a preset that names one")
    if settings.sphere and settings.data in ("circle", *DATASETS) and not Path(settings.data).exists():
        raise ValueError(
            f"sphere is for a file with latitudes and longitudes; got the data set {settings.data}. Leave out --sphere"
        )
    if settings.data == "circle" and not Path("circle").exists():
        noise = settings.radius_noise
        train, validation, test = (
            von_mises_circle(count, seed=seed + offset, radius_noise=noise)
            for count, offset in ((10_000, 0), (1_000, 10_000), (5_000, 20_000))
        )
        return Prepared(train, validation, test, ("x", "y"), "von Mises on the unit circle, κ = 1, centred at π/2")
    if holds_images(settings.data):
        return _images(settings, seed)
    if settings.data in DATASETS and not Path(settings.data).exists():
        return _benchmark(settings.data)
    if not Path(settings.data).exists() and not Path(settings.data).suffix:
        raise MissingFileError(
            f"There is no file, folder or data set '{settings.data}'.{nearest(settings.data, ['circle', *DATASETS])}"
        )
    options = {"columns": settings.columns, "exclude": settings.exclude, "drop_invalid": settings.drop_invalid}
    table = (read_sphere if settings.sphere else read_table)(settings.data, **options)  # type: ignore[arg-type]
    degrees = table.degrees if isinstance(table, SphereTable) else ()
    check_table(table, latent_dim if isinstance(latent_dim, int) else None)
    parts = {name: getattr(settings, f"{name}_data") for name in ("validation", "test")}
    given = {
        name: (
            read_more(path, degrees, settings.drop_invalid)
            if settings.sphere
            else _matching(path, table.columns, settings.drop_invalid)
        ).values
        for name, path in parts.items()
        if path is not None
    }
    if "validation" in given and len(given["validation"]) < 2:
        raise ValueError(
            f"expected at least two rows to validate with; '{settings.validation_data}' has 1. Give more rows"
        )
    shares = {name: 0.0 if name in given else getattr(settings, f"{name}_fraction") for name in parts}
    train_rows, validation_rows, test_rows = split_rows(len(table.values), **shares, seed=seed)
    dropped = f"{table.dropped} rows with missing or infinite values were dropped" if table.dropped else ""
    unnamed = "" if table.named or degrees or Path(settings.data).suffix.lower() == ".npy" else "no header was found"
    unnamed = unnamed and f"{unnamed}: the columns are {table.columns[0]} to {table.columns[-1]}"
    return Prepared(
        pick(table.values, train_rows),
        given["validation"] if "validation" in given else pick(table.values, validation_rows),
        given["test"] if "test" in given else pick(table.values, test_rows),
        table.columns,
        "; ".join(text for text in (table.note if isinstance(table, SphereTable) else "", unnamed, dropped) if text),
        degrees,
    )


def _images(settings: DataSettings, seed: int) -> Prepared:
    for name in ("columns", "exclude", "sphere"):
        if getattr(settings, name):
            raise ValueError(f"--{name} is for tables; {settings.data} holds images")
    parts = {name: getattr(settings, f"{name}_data") for name in ("validation", "test")}
    shares = {f"{name}_fraction": getattr(settings, f"{name}_fraction") * (parts[name] is None) for name in parts}
    source = Path(str(settings.data))
    splits = load_images(
        source if source.exists() else str(settings.data), seed=seed, size=settings.height_and_width, **shares
    )
    rows = dict(zip(("train", "validation", "test"), splits.rows(seed), strict=True))
    for i, (name, path) in enumerate(parts.items()):
        if path is not None:
            rows[name] = ImageRows(images_like(path, splits.shape), (seed, 3 + i))
    return Prepared(rows["train"], rows["validation"], rows["test"], (), splits.note)


def _benchmark(name: str) -> Prepared:
    splits = load_benchmark(name)
    return Prepared(splits.train, splits.validation, splits.test, splits.columns, splits.note)


def run_settings(
    settings: FitSettings,
    out: Path | None,
    *,
    console: Console,
    name: str = "fit",
    resume: bool = False,
    overwrite: bool = False,
    quiet: bool = False,
    tensorboard: bool = False,
) -> tuple[Run, Prepared]:
    """Do all that the settings say, showing it; the run and its data."""
    seed = settings.training.seed
    data = prepare(settings.data, settings.model.latent_dim, seed)
    if settings.model.latent_dim == "auto":
        found = estimate_dimension(some_rows(data.train, seed), seed=seed)
        settings = replace(settings, model=replace(settings.model, latent_dim=found.suggestion))
        if not quiet:
            console.print(f"latent dimension {found.suggestion}, by its estimates", highlight=False)
    flow = build_flow(
        settings.model,
        data.train,
        seed,
        start_latent=not settings.training.start_latent,
        dtype=getattr(torch, settings.training.dtype or "float32"),
        columns=data.columns,
    )
    files = {name: getattr(settings.data, name) for name in ("data", "validation_data", "test_data")}
    full: dict[str, Any] = {
        name: str(Path(path).resolve()) for name, path in files.items() if path is not None and Path(path).exists()
    }
    settings = replace(settings, data=replace(settings.data, **full))  # so that a run can be resumed from anywhere
    facts: dict[str, Any] = {"columns": list(data.columns), "note": data.note}
    if settings.data.sphere:
        facts["sphere"] = list(data.degrees)
    if data.image_shape is not None:
        facts["image"] = list(data.image_shape)
    make_writer = _tensorboard() if tensorboard else None
    writer: Any = None
    with TrainingDisplay(console, name, quiet) as display, threads_for(flow, settings.training.batch_size):

        def on_epoch(run: Run) -> None:
            nonlocal writer
            display.on_epoch(run)
            if make_writer is not None:
                writer = writer or make_writer(str((out or Path()) / "tensorboard"))
                line = run.history[-1].flat()
                for key, value in line.items():
                    writer.add_scalar(key, value, line["epoch"])

        run = fit(
            flow,
            data.train,
            settings.training,
            validation=data.validation,
            out=out,
            resume=resume,
            overwrite=overwrite,
            on_step=display.on_step,
            on_epoch=on_epoch,
            settings=settings.flat(),
            facts=facts,
        )
    if writer is not None:
        writer.close()
    return run, data


def _matching(path: str | Path, columns: tuple[str, ...], drop_invalid: bool) -> Table:
    """The columns of a model in another file; what else is in it does not matter."""
    try:
        return match_columns(read_table(path, columns=columns, drop_invalid=drop_invalid), columns)
    except MissingFileError:
        raise
    except DataError as error:
        try:  # a file without names, or one that lacks a column: both are told apart by the whole of it
            whole = read_table(path, drop_invalid=drop_invalid)
        except DataError:
            raise error from None
        return match_columns(whole, columns)


def some_rows(rows: Rows, seed: int, most: int = 20_000) -> np.ndarray[Any, Any]:
    """At most so many of the rows, by seed, as float64; images are laid flat."""
    return take(rows, shuffled(len(rows), seed)[:most]).flatten(1).double().numpy()


def settings_of(folder: Path) -> FitSettings:
    """The settings that a run was made with."""
    config = read_config(folder)
    config.pop("record", None)
    check_keys(config, str(folder / "config.toml"))
    return FitSettings.from_flat(config)


class ChangedDataWarning(UserWarning):
    """The data of a run have changed since it was trained: its parts are others, and test rows may have been trained on."""


def data_of(folder: Path) -> Prepared:
    """The data that a run was trained on, split as they were then; a warning where their files have changed."""
    settings = settings_of(folder)
    source = settings.data.data
    if source is None:
        raise ValueError(
            f"{folder} does not say what it was trained on: it was made in Python, not by rnf fit. "
            f"Use rnf score {folder} DATA with rows of your own, or rnf sample"
        )
    data = prepare(settings.data, settings.model.latent_dim, settings.training.seed)
    before = read_config(folder).get("record", {}).get("train_sha256")
    if before is not None and Path(source).exists() and fingerprint(data.train) != before:
        text = f"'{source}' has changed since {folder} was trained on it: some rows called test rows here may have been"
        warn(ChangedDataWarning, f"{text} trained on. Score the new rows with rnf score, or train anew")
    return data


def open_run(folder: Path) -> tuple[RectangularFlow, tuple[str, ...]]:
    """The model of a run and the names of its columns; those of images are numbered."""
    flow = load_model(folder)
    facts = read_description(folder)["facts"]
    columns = facts.get("columns") or facts.get("estimator", {}).get("feature_names_in")
    return flow, tuple(columns or [f"x{i + 1}" for i in range(flow.ambient_dim)])


def sphere_columns(folder: Path) -> tuple[str, ...] | None:
    """For a run on latitudes and longitudes their names in its data, if they had any; for any other run None."""
    names = read_description(folder)["facts"].get("sphere")
    return None if names is None else tuple(names)


def rows_for(
    flow: RectangularFlow,
    columns: tuple[str, ...],
    path: str | Path,
    drop_invalid: bool = False,
    *,
    sphere: tuple[str, ...] | None = None,
) -> tuple[Tensor, np.ndarray[Any, Any] | None, int]:
    """The rows of a file in the order and precision of a model's columns; ``sphere`` is what sphere_columns says.

    Also the numbers, from 1, of the rows that are left where some were dropped, and how many were.

    For a model of images: those of a known set, a folder or an array, see :func:`~.data.images.images_like`.
    """
    dtype = flow.dtype
    if flow.kind == "image":
        return torch.from_numpy(ImageRows(images_like(path, flow.data_shape))[:]).to(dtype), None, 0
    table = _matching(path, columns, drop_invalid) if sphere is None else read_more(path, sphere, drop_invalid)
    return torch.from_numpy(np.array(table.values)).to(dtype), table.kept, table.dropped


def _tensorboard() -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ValueError("TensorBoard is not installed: pip install 'rectangular-flows[tensorboard]'") from error
    return SummaryWriter


__all__ = [
    "ChangedDataWarning",
    "Prepared",
    "build_flow",
    "data_of",
    "open_run",
    "prepare",
    "rows_for",
    "run_settings",
    "settings_of",
    "some_rows",
    "sphere_columns",
]
