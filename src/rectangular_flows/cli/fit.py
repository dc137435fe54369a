"""``rnf fit``: train on a table, on images or on a known data set, or go on with a run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ..runs.display import describe, duration
from ..runs.launch import run_settings
from ..runs.saved import SavedRun
from ..settings import FitSettings, read_preset
from ..training import Run
from .options import FitRequest
from .score import write_calibration

_FEW_STEPS = 100


def fit_command(request: FitRequest) -> int:
    """Do what was asked; say where everything is and what can be done with it."""
    console = Console()
    if request.resume is not None:
        _refuse_changes(request.given)
        settings = SavedRun(request.resume).settings
    else:
        settings = FitSettings.from_flat(request.settings)
    out = request.resume or request.out or Path("runs") / _name(request, settings)
    run, data = run_settings(
        settings,
        out,
        console=console,
        name=out.name,
        resume=request.resume is not None,
        overwrite=request.overwrite,
        quiet=request.quiet,
        tensorboard=request.tensorboard,
    )
    write_calibration(run.flow, data.validation, out, settings.training.validation_rows)
    if not request.quiet:
        _tell(console, run, out, data.note)
    return 0


def _tell(console: Console, run: Run, out: Path, note: str) -> None:
    judged = [line for line in run.history if line.epoch == run.best_epoch]
    best = judged[0] if judged else run.history[-1]
    which = f"the best weights are those of epoch {best.epoch}" if judged else "no epoch was judged; the last weights"
    target, images = run.config.target_error, run.flow.kind == "image"
    notes = [note] if note else []
    if target is not None and best.reconstruction > 1.05 * target:
        notes.append(
            f"the tolerance was not met: error {best.reconstruction:.3g}, target {target:.3g}. Train longer, or relax it"
        )
    if run.progress.step < _FEW_STEPS and run.config.whole_epochs > 1:
        notes.append(
            f"{run.progress.step} steps in all, which is few: there are few rows. More --epochs may help; the best of them "
            "are kept"
        )
    place = shlex.quote(str(out))
    lines = [
        f"{run.finished}, in {duration(run.seconds)}; {which}:",
        f"  {describe(best)}  (validation rows, units of the model)",
        *(f"  note: {text}" for text in notes),
        f"everything is in {out}. Next:",
        f"  rnf report {place}",
        f"  rnf sample {place} {'-n 100 -o samples.png' if images else '-n 1000 -o samples.csv'}",
        f"  rnf score {place} DATA -o scores.csv",
    ]
    console.print("\n".join(lines), highlight=False, soft_wrap=True, markup=False)


def _name(request: FitRequest, settings: FitSettings) -> str:
    source = Path(str(request.settings["data"] or "run")).name.split(".")[0]
    if request.preset is None:
        return f"{source}-d{settings.model.latent_dim}"
    own = read_preset(request.preset).get("data")  # a preset of one data set has its name already
    return request.preset if own == request.settings["data"] else f"{source}-{request.preset}"


def _refuse_changes(given: Sequence[str]) -> None:
    if given:
        flags = ", ".join(f"--{name.replace('_', '-')}" if name != "data" else "DATA" for name in given)
        raise ValueError(
            f"--resume goes on with the settings of the run, which are in its config.toml; leave out {flags}. To train "
            "with others, start a new run: --config RUN/config.toml and what is to change."
        )


__all__ = ["fit_command"]
