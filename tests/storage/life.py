"""The life of a tiny run, as short as it can be: begun, stopped, resumed, calibrated, scored."""

import os
import signal

import numpy as np
import torch

import rectangular_flows as rnf
from rectangular_flows.data import von_mises_circle
from rectangular_flows.runs.calibration import Calibration
from rectangular_flows.storage.lock import keeping_locks
from rectangular_flows.training.folder import has_checkpoint, is_run
from rectangular_flows.training.signals import Interrupted

CONFIG = rnf.TrainingConfig(epochs=2, batch_size=30, learning_rate=0.003, scatter=False, checkpoint_every=float("inf"))
TRAIN, HELD_OUT = von_mises_circle(60, seed=0), von_mises_circle(20, seed=1)
FACTS = {"columns": ["x", "y"]}


def make_flow(seed=0):
    torch.manual_seed(seed)
    return rnf.RectangularFlow(rnf.flows.RealNVP(2, 2, (4,)), rnf.flows.Identity(1))


def train(folder, seed=0, stop_at=None, config=CONFIG, **options):
    def stop(run):
        if run.progress.step == stop_at:
            os.kill(os.getpid(), signal.SIGINT)

    options = {"facts": FACTS, "validation": HELD_OUT, "on_step": stop, **options}
    return rnf.fit(make_flow(seed), TRAIN, config, out=folder, **options)


def calibration_of(flow):
    found = flow.score(HELD_OUT)
    return Calibration(found.log_prob.double().numpy(), found.squared_distance.double().numpy())


def finish(folder, seed=0, **options):
    """To the end, with its calibration, as ``rnf fit`` does it."""
    with keeping_locks():
        run = train(folder, seed, **options)
        calibration_of(run.flow).save(folder)
    return run


def live(folder):
    """From the beginning to the end, with a stop in the second epoch."""
    try:
        train(folder, stop_at=3)
    except Interrupted:
        finish(folder, seed=5, resume=True)
    return seen(folder)


def go_on(folder):
    """What a person does after a crash."""
    resume = has_checkpoint(folder)
    return finish(folder, seed=7 if resume else 0, resume=resume, overwrite=not resume and is_run(folder))


def seen(folder):
    """What a reader sees: scores of some rows and what is usual, as bytes; None where there is no model."""
    try:
        run = rnf.SavedRun(folder)
        score = run.flow.log_prob(HELD_OUT).detach().numpy().tobytes()
    except FileNotFoundError:
        return None
    usual = run.calibration
    return score, b"" if usual is None else np.stack([usual.log_density, usual.squared_distance]).tobytes()
