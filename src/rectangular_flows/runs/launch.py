"""From settings to a trained model: the data opened, the flow built, the run shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from ..data.datasets import place_of
from ..settings import FitSettings
from ..training import Run, fit
from ..training.setup import threads_for
from .build import build_flow, without_reconstruction
from .display import TrainingDisplay, say
from .prepared import Prepared, prepare, some_rows
from .saved import SavedRun


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
    known = SavedRun(out).known if resume and out is not None else None
    data = prepare(settings.data, settings.model.latent_dim, seed, known=known)
    if settings.model.latent_dim == "auto":
        from .dimension import choose_dimension, estimated  # slow to import, and every job is a process of its own

        images = data.image_shape is not None
        found = (
            estimated(some_rows(data.train, seed), seed)
            if images
            else choose_dimension(
                settings.model,
                data.train,
                seed,
                getattr(torch, settings.training.dtype or "float32"),
                data.periodic,
            )
        )
        settings = replace(settings, model=replace(settings.model, latent_dim=found.value))
        if not quiet:
            say(f"latent dimension {found.value}: {found.reason}", console=console)
    if data.periodic:
        whole = without_reconstruction(settings.training, settings.model.latent_dim, len(data.columns))
        settings = replace(settings, training=whole)
    if settings.model.charts == "auto":
        from .charts import choose_charts

        chosen = choose_charts(settings, data.train, seed, data.periodic)
        settings = replace(settings, model=replace(settings.model, charts=chosen.count))
        if not quiet:
            say(f"{chosen.count} chart{'s' if chosen.count > 1 else ''}: {chosen.reason}", console=console)
    flow = build_flow(
        settings.model,
        data.train,
        seed,
        start_latent=not settings.training.start_latent,
        dtype=getattr(torch, settings.training.dtype or "float32"),
        columns=data.columns,
        periodic=data.periodic,
    )
    files = {name: getattr(settings.data, name) for name in ("data", "validation_data", "test_data")}
    full: dict[str, Any] = {
        name: str(place.resolve())
        for name, path in files.items()
        if path is not None and (place := place_of(path)) is not None and place.exists()
    }
    if data.periodic:  # with the periods that were guessed
        full["periodic"] = tuple(column.spelled for column in data.periodic)
    settings = replace(settings, data=replace(settings.data, **full))  # so that a run can be resumed from anywhere
    facts: dict[str, Any] = {"columns": list(data.columns), "note": data.note, "source": _kind_of(settings.data.data)}
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


def _kind_of(source: str | None) -> str:
    """What kind of data a run was trained on."""
    place = None if source is None else place_of(source)
    return "data set" if place is None else "folder" if place.is_dir() else "file"


def _tensorboard() -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ValueError("TensorBoard is not installed: pip install 'rectangular-flows[tensorboard]'") from error
    return SummaryWriter
