"""Steps that fail numerically, where training adapts by itself."""

import itertools
import warnings

import pytest
import torch

from rectangular_flows import fit
from rectangular_flows.errors import NonFiniteError, RankDeficientError, TroubleWarning
from rectangular_flows.training import loop
from rectangular_flows.training.schedule import AFTER_TROUBLE
from tests.training.test_loop import data, make_flow, plain, same

ADAPTS = {"epochs": 4, "batch_size": 100, "learning_rate": 1e-2, "ema": 0.9, "target_error": "auto"}


def failing(monkeypatch, *calls):
    """The gradient fails at these calls, from 0."""
    real, count = loop.backward_in_parts, itertools.count()

    def sometimes(*arguments):
        if next(count) in calls:
            raise RankDeficientError("rank lost.")
        return real(*arguments)

    monkeypatch.setattr(loop, "backward_in_parts", sometimes)


def test_it_goes_on_from_averaged_weights_at_a_lower_rate(monkeypatch):
    train, validation = data()
    calm = fit(make_flow(), train, plain(**ADAPTS), validation=validation)
    failing(monkeypatch, 9)  # the fourth step of the second epoch
    seen = []

    def watch(run):
        seen.append((run.progress.troubles, [p.detach().clone() for p in run.flow.parameters()]))

    run = fit(make_flow(), train, plain(**ADAPTS), validation=validation, on_step=watch)
    rates = [line.learning_rate / other.learning_rate for line, other in zip(run.history, calm.history, strict=True)]
    assert rates == pytest.approx([1, AFTER_TROUBLE, AFTER_TROUBLE, AFTER_TROUBLE])
    assert [troubles for troubles, _ in seen] == [0] * 9 + [1] * 15
    start = [p.detach() for p in make_flow().parameters()]
    average = [p.clone() for p in start]
    for step, (_, weights) in enumerate(seen[:9]):
        decay = min(0.9, (1 + step) / (10 + step))
        average = [mean + (1 - decay) * (new - mean) for mean, new in zip(average, weights, strict=True)]
    for expected, found in zip(average, seen[9][1], strict=True):
        torch.testing.assert_close(found, expected)
    assert run.finished == "all epochs done"
    assert run.history[-1].objective < run.history[0].objective


def test_too_much_of_it_ends_the_run_with_the_best_weights(monkeypatch):
    train, validation = data()
    failing(monkeypatch, *range(8, 99))
    with pytest.warns(
        TroubleWarning, match=r"ended early: numerical trouble 4 times, the last in epoch 2\. The flow has its"
    ):
        run = fit(make_flow(), train, plain(**ADAPTS), validation=validation)
    assert run.finished == "numerical trouble 4 times, the last in epoch 2"
    assert same(run.flow.state_dict(), run.best_weights)


def test_where_the_user_has_chosen_the_error_is_raised(monkeypatch):
    train, validation = data()
    failing(monkeypatch, 3)
    with pytest.raises(NonFiniteError, match=r"stopped in epoch 1, step 4: rank lost\."):
        fit(make_flow(), train, plain(**{**ADAPTS, "target_error": None}), validation=validation)


def test_resuming_remembers_it(monkeypatch, tmp_path):
    train, validation = data()
    with monkeypatch.context() as patch:
        failing(patch, 9)
        whole = fit(make_flow(), train, plain(**ADAPTS), validation=validation)
    with monkeypatch.context() as patch:
        failing(patch, 9)
        config = plain(**ADAPTS, checkpoint_every=0.0)

        def stop(run):
            if run.progress.step == 14:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            fit(make_flow(), train, config, validation=validation, out=tmp_path / "run", on_step=stop)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        resumed = fit(make_flow(), train, config, validation=validation, out=tmp_path / "run", resume=True)
    assert resumed.progress.troubles == 1
    assert same(resumed.flow.state_dict(), whole.flow.state_dict())
