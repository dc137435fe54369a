"""Training from the outside: :func:`fit` checks what it is given, sets the stage and starts the loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from ..atlas import Atlas, Model
from ..data.rows import Rows, split, take
from ..errors import warn
from .budget import PLANNED, ShortTimeWarning, least_seconds, within
from .config import TrainingConfig
from .distributed import World
from .evaluation import Metric, metrics_for
from .loop import Loop, Watcher
from .run import Run
from .sharing import same_model


def fit(
    flow: Model,
    data: Rows,
    config: TrainingConfig | None = None,
    *,
    validation: Rows | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    metrics: Mapping[str, Metric] | None = None,
    on_step: Watcher | None = None,
    on_epoch: Watcher | None = None,
    on_scatter: Callable[[int, int], None] | None = None,
    settings: Mapping[str, Any] | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Run:
    """Train a flow in place; it ends with the weights that were best on the validation rows.

    Every random draw is a function of ``config.seed`` and of the step, so that a run that was stopped and resumed gives
    the same weights, bit by bit, as one that was not (on the same machine). The global generator is left alone.

    Args:
        flow: the model; initialise it from data first if it has layers that need that (``flow.initialise(data)``).
        data: rows, (N, *data_shape), a tensor, a NumPy array (which may be memory-mapped) or an
            :class:`~rectangular_flows.data.ImageRows`.
        config: the settings.
        validation: rows for choosing the best weights and for stopping early; a tenth of the data, held out by seed,
            unless given.
        out: folder for configuration, history, model and checkpoints. With one, Ctrl-C and SIGTERM save and stop.
        resume: continue from the checkpoint in ``out``.
        overwrite: replace a run that is in ``out``.
        metrics: more to compute at each validation, name → function of the flow and the validation rows.
        on_step: called with the run after every step.
        on_epoch: called with the run after every validation; ``run.history[-1]`` is the new line.
        on_scatter: called while the density of the columns trains, last of all, with its steps so far and in all.
        settings: more for ``config.toml`` (what made the model and the data).
        facts: more for ``model.json``, such as column names.

    Raises:
        NonFiniteError: the loss or its gradient became NaN or infinite; the flow is left with its best weights so far.
        Interrupted: a signal came; the state is in ``out``.

    Example:
        >>> from rectangular_flows import RectangularFlow, flows
        >>> from rectangular_flows.data import von_mises_circle
        >>> flow = RectangularFlow(flows.RealNVP(2, layers=2), flows.Identity(1))
        >>> run = fit(flow, von_mises_circle(200, seed=0), TrainingConfig(epochs=2, batch_size=50))
        >>> [line.epoch for line in run.history]
        [1, 2]
    """
    config = config or TrainingConfig()
    if out is not None and not str(out):
        raise ValueError("expected the name of a folder for out; got an empty one")
    chosen, begun = metrics_for(config, metrics), time.perf_counter()
    world = World(config.device)
    if world.size > 1 and isinstance(flow, Atlas):
        raise ValueError(
            "an atlas trains in one process; got several. Start rnf fit without torchrun, or leave out --charts"
        )
    devices = [world.device] if world.device.type == "cuda" else []
    with world.open(), torch.random.fork_rng(devices):
        flow.set_scatter(None)  # of other weights
        flow.set_nearest(0)
        flow.to(world.device, None if config.dtype is None else getattr(torch, config.dtype)).train()
        same_model(world, flow).train()
        train, rest = split(data, validation, flow.data_shape, config.seed, read=world.first)
        timed = config.time is not None and config.epochs == "auto" and not resume
        config = config.for_rows(len(train), flow.ambient_dim, len(flow.charts))
        whole = slice(config.validation_rows)  # for process 0, which judges by it; the others read their shares
        own = whole if world.first else slice(world.rank, config.validation_rows, world.size)
        held_out = take(rest, own, world.device, flow.row_dtype)
        parts = chosen, None if out is None else Path(out), facts or {}
        loop = Loop(flow, train, held_out, config, world, *parts)
        record = {**config.settings(), **(settings or {})}
        if timed:
            seconds = loop.seconds_per_step()
            used = world.agree(time.perf_counter() - begun)
            least = least_seconds(config, seconds, used)
            if world.first and config.time is not None and least > config.time:
                few = f"time = {config.time:g} seconds are too few for this model: the shortest training takes about"
                warn(ShortTimeWarning, f"{few} {least:.0f}, and it is taken")
            config = within(config, len(train), seconds, used)
            record |= {name: getattr(config, name) for name in PLANNED}
            loop = Loop(flow, train, held_out, config, world, *parts)
        try:
            loop.open(record, resume, overwrite)
            run = loop.run_to_the_end(on_step, on_epoch, on_scatter)
        finally:
            loop.close()
        del loop
    return run
