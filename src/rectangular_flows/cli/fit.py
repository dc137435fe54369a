"""``rnf fit``: train on a table, on images or on a known data set, or continue a run."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from ..settings import FitSettings, read_preset
from .options import add_arguments as add_arguments
from .options import refuse_changes, settings_in

if TYPE_CHECKING:
    from ..runs.prepared import Prepared
    from ..training import Run

_FEW_STEPS = 100


def run(arguments: argparse.Namespace) -> int:
    """Train; say where everything is and what can be done with it."""
    for option in ("out", "resume"):
        if getattr(arguments, option) == "":
            raise ValueError(f"expected a folder after --{option}; got an empty name")
    if not arguments.resume:
        settings = settings_in(arguments)
        out = Path(arguments.out or Path("runs") / _name(arguments.preset, settings))

    from ..evaluation.scores import calibrate
    from ..runs.display import PlainConsole, say
    from ..runs.launch import run_settings
    from ..runs.saved import SavedRun
    from ..storage.lock import acquire, keeping_locks, release
    from ..training.distributed import World
    from ..training.folder import RunFolder, is_run

    if arguments.resume:
        refuse_changes(arguments)
        out = Path(arguments.resume)
        settings = SavedRun(out).settings
    console = PlainConsole()
    options = {name: getattr(arguments, name) for name in ("overwrite", "quiet", "tensorboard")}
    first = World("cpu").first  # of several processes
    with keeping_locks():  # nobody may replace the model before it is calibrated
        if first and not arguments.resume:
            RunFolder(out).check_vacant(arguments.overwrite)
        if first and is_run(out):  # taken now, and not only when the data are read
            acquire(out)
            release(out)
        run, data = run_settings(
            settings, out, console=console, name=out.name, resume=bool(arguments.resume), **options
        )
        if not first:  # it calibrates and judges, and needs nobody for that
            return 0
        calibrate(run.flow.cpu(), data.validation, data.train, settings.training.validation_rows).save(out)
    if not arguments.quiet:
        say(_summary(run, out), console=console)
        if run.flow.kind == "table":
            say("", _verdict(run, out, data), console=console)
    return 0


def _summary(run: Run, out: Path) -> str:
    """How training went, where everything is, and what can be done with it."""
    from ..runs.display import describe, duration

    judged = [line for line in run.history if line.epoch == run.best_epoch]
    start = run.progress.start if not judged else None
    if start is not None:
        which, error = "nothing was better than the weights that it started with", start[1]
        numbers = f"nll {start[0]:.4g}, reconstruction {error:.3g}"
    else:
        best = judged[0] if judged else run.history[-1]
        which = (
            f"the best weights are those of epoch {best.epoch}" if judged else "no epoch was judged; the last weights"
        )
        numbers, error = describe(best), best.reconstruction
    target, images = run.progress.target, run.flow.kind == "image"
    notes = []
    if target is not None and error > 1.05 * target:
        notes.append(f"target_error was not met: error {error:.3g}, target {target:.3g}. Train longer, or relax it")
    if run.progress.step < _FEW_STEPS and run.config.whole_epochs > 1:
        notes.append(
            f"only {run.progress.step} steps, since there are few rows: more --epochs may help. The best weights are kept"
        )
    place = shlex.quote(str(out))
    return "\n".join(
        [
            f"{run.finished}, in {duration(run.seconds)}; {which}:",
            f"  {numbers}  (validation rows, units of the model)",
            *(f"  note: {text}" for text in notes),
            f"everything is in {out}. Next:",
            f"  rnf report {place}",
            f"  rnf sample {place} {'-n 100 -o samples.png' if images else '-n 1000 -o samples.csv'}",
            f"  rnf score {place} DATA -o scores.csv",
        ]
    )


def _verdict(run: Run, out: Path, data: Prepared) -> str:
    """What the fit is worth; kept with the run."""
    from ..errors import NumericalError
    from ..evaluation.run_verdict import judge, keep_verdict

    try:
        verdict = judge(run.flow, data)
    except NumericalError as error:
        return f"No verdict: {error}"
    keep_verdict(out, verdict)
    return str(verdict)


def _name(preset: str | None, settings: FitSettings) -> str:
    source = Path(str(settings.data.data or "run")).name.split(".")[0]
    if preset is None:
        return f"{source}-d{settings.model.latent_dim}"
    own = read_preset(preset).get("data")  # a preset of one data set has its name already
    return preset if own == settings.data.data else f"{source}-{preset}"
