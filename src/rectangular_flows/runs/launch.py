"""From settings to a trained model: the data opened, the flow built, the run shown."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from ..atlas import Model
from ..data.datasets import place_of
from ..data.discrete import Levels
from ..data.repeats import MOST, warn_of_repeats
from ..data.rows import take
from ..settings import FitSettings
from ..training import Run, fit
from ..training.distributed import World
from ..training.setup import threads_for
from ..training.sharing import same_model
from .build import build_flow, without_reconstruction
from .display import TrainingDisplay, between_and_after, say
from .prepared import Prepared, prepare, some_rows
from .saved import SavedRun
from .shared import open_once

_AT_ONCE = 50_000  # rows to look for distinct values in


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
    """Do all that the settings say, showing it; the run and its data.

    Of several processes that torchrun started the first builds the model, shows and writes; all return the same.
    """
    world, seed = World(settings.training.device), settings.training.seed
    known = SavedRun(out).known if resume and out is not None else None
    with world.open():
        data = open_once(world, lambda: prepare(settings.data, settings.model.latent_dim, seed, known=known))
        flow = None
        if world.first and data.note and not quiet:
            say(f"note: {data.note}", console=console)
        if world.first and not resume and data.image_shape is None:
            warn_of_repeats(take(data.train, slice(MOST)).double().numpy())
        if world.first:
            settings, flow = _model(settings, data, None if quiet else console)
        flow, settings = same_model(world, flow), _same_settings(world, settings)
        between, after = between_and_after(len(data.train), len(data.validation))
        make_writer = _tensorboard() if tensorboard else None
        writer: Any = None
        with (
            TrainingDisplay(console, name, quiet, between=between, afterwards=after) as display,
            threads_for(flow, settings.training.batch_size),
        ):

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
                on_scatter=display.on_scatter,
                settings=_with_periods(with_full_paths(settings), data).flat(),
                facts=_facts(settings, data),
            )
        if writer is not None:
            writer.close()
    return run, data


def _model(settings: FitSettings, data: Prepared, console: Console | None) -> tuple[FitSettings, Model]:
    """The settings with the latent dimension that was chosen, and the flow that they describe."""
    seed, dtype = settings.training.seed, getattr(torch, settings.training.dtype or "float32")
    if settings.model.latent_dim == "auto":
        from .dimension import choose_dimension, estimated  # slow to import, and every job is a process of its own

        if data.image_shape is not None:
            found = estimated(some_rows(data.train, seed), seed)
        else:
            found = choose_dimension(settings.model, data.train, seed, dtype, data.periodic)
        settings = replace(settings, model=replace(settings.model, latent_dim=found.value))
        if console is not None:
            say(f"latent dimension {found.value}: {found.reason}", console=console)
    if data.periodic:
        whole = without_reconstruction(settings.training, settings.model.latent_dim, len(data.columns))
        settings = replace(settings, training=whole)
    if settings.model.charts == "auto":
        from .charts import choose_charts

        if console is not None and not data.periodic:
            say("choosing the number of charts: pieces, loops and closed surfaces of the data", console=console)
        chosen = choose_charts(settings, data.train, seed, data.periodic)
        settings = replace(settings, model=replace(settings.model, charts=chosen.count))
        if console is not None:
            say(f"{chosen.count} chart{'s' if chosen.count > 1 else ''}: {chosen.reason}", console=console)
    options: dict[str, Any] = {"dtype": dtype, "columns": data.columns, "periodic": data.periodic}
    start_latent = not settings.training.start_latent
    return settings, build_flow(settings.model, data.train, seed, start_latent=start_latent, **options)


def with_full_paths(settings: FitSettings) -> FitSettings:
    """So that a run can be resumed from anywhere."""
    files = {name: getattr(settings.data, name) for name in ("data", "validation_data", "test_data")}
    full: dict[str, Any] = {
        name: str(place.resolve())
        for name, path in files.items()
        if path is not None and (place := place_of(path)) is not None and place.exists()
    }
    return replace(settings, data=replace(settings.data, **full))


def _with_periods(settings: FitSettings, data: Prepared) -> FitSettings:
    """With those that were guessed."""
    spelled = tuple(column.spelled for column in data.periodic)
    return replace(settings, data=replace(settings.data, periodic=spelled)) if spelled else settings


def _same_settings(world: World, settings: FitSettings) -> FitSettings:
    """Process 0's, which decides what is left to the data."""
    if world.size == 1:
        return settings
    return FitSettings.from_flat(json.loads(world.from_first(json.dumps(settings.flat()).encode())))


def _facts(settings: FitSettings, data: Prepared) -> dict[str, Any]:
    """What is kept with the model."""
    facts: dict[str, Any] = {"columns": list(data.columns), "note": data.note, "source": _kind_of(settings.data.data)}
    if settings.data.sphere:
        facts["sphere"] = list(data.degrees)
    if data.image_shape is not None:
        facts["image"] = list(data.image_shape)
    if data.whole is not None:
        facts["whole"] = data.whole.listed()
    if data.image_shape is None and not settings.data.sphere:
        angles = {found.column for found in data.periodic}
        parts = (slice(start, start + _AT_ONCE) for start in range(0, len(data.train), _AT_ONCE))
        facts["levels"] = Levels.of_parts((take(data.train, part).double().numpy() for part in parts), angles).listed()
    return facts


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
