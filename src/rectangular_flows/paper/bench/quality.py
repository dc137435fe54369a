"""Time to quality: the validation score of a training against the CPU seconds it has taken so far."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import Any

from ...training.evaluation import fid_like
from ...training.run import Run

Row = dict[str, Any]
_NEAR = 1.05  # times the best score of the exact method: the level to reach
_EXACT = "ours, exact"
_STEPS = 10  # of the published settings between two validations


class _EnoughError(Exception):
    """The time is over."""


def quality(cases: Sequence[str], rounds: int) -> list[Row]:
    """A curve a method, then the seconds until each comes within 5 % of the best score of the exact one.

    Our presets train to their end, exact and with ``volume = "auto"``; the published settings for as long as exact took.

    Args:
        cases: with presets of their own.
        rounds: seeds.
    """
    rows: list[Row] = []
    for name in cases:
        for seed in range(rounds):
            exact = _curve(name, {"volume": "exact", "volume_fraction": 1.0}, seed)
            auto = _curve(name, {"volume": "auto"}, seed)
            published = _curve(f"{name}-published", {}, seed, exact[-1]["cpu"])
            level = _NEAR * min(line["fid_like"] for line in exact)
            for method, curve in {_EXACT: exact, "ours, auto": auto, "published settings": published}.items():
                found = {"case": name, "seed": seed}
                if seed == 0:
                    rows += [{**found, "method": method, **line} for line in curve]
                best = min(line["fid_like"] for line in curve)
                rows.append({**found, "level": level, "of": method, "seconds": _until(curve, level), "best": best})
    return rows


def _until(curve: Sequence[Row], level: float) -> float | None:
    """CPU seconds at which a curve first reaches the level; None if it does not."""
    return next((line["cpu"] for line in curve if line["fid_like"] <= level), None)


def _curve(preset: str, change: dict[str, Any], seed: int, most: float | None = None) -> list[Row]:
    """A line a validation, of a training that ends by itself or after so many CPU seconds."""
    from ...runs.build import build_flow
    from ...runs.prepared import prepare
    from ...settings import FitSettings, read_preset
    from ...training import fit

    values = dict(read_preset(preset))
    data = prepare(FitSettings.from_flat({"seed": seed}, values).data, values["latent_dim"], seed)
    if most is not None:  # the same training, validated more often than once in a pass
        steps = len(data.train) / values["batch_size"]
        anneal = tuple(epoch * steps for epoch in values.get("anneal", ()))
        change = {"epoch_rows": _STEPS * values["batch_size"], "epochs": 100_000}
        change |= {"anneal": anneal, "anneal_in": "steps"} if anneal else {}
    settings = FitSettings.from_flat({**change, "seed": seed}, values)
    training = settings.training
    flow = build_flow(settings.model, data.train, seed, start_latent=not training.start_latent)
    curve: list[Row] = []
    started = time.process_time()

    def note(run: Run) -> None:
        line, spent = run.history[-1], time.process_time() - started
        score = line.metrics["fid-like"]
        curve.append({"cpu": spent, "fid_like": score, "error": line.reconstruction})

    def watch(_: Run) -> None:
        if most is not None and curve and time.process_time() - started > most:
            raise _EnoughError

    with contextlib.suppress(_EnoughError):
        fit(
            flow,
            data.train,
            training,
            validation=data.validation,
            metrics={"fid-like": fid_like},
            on_epoch=note,
            on_step=watch,
        )
    return curve
