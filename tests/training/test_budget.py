"""A time that is too short is said so; the numbers of the plan are in the docstrings' examples."""

import warnings
from dataclasses import replace

import pytest
import torch

from rectangular_flows import RectangularFlow, TrainingConfig, fit, flows
from rectangular_flows.training import fitting
from rectangular_flows.training.budget import ShortTimeWarning, least_seconds, within


def test_the_least_is_what_a_plan_of_no_time_takes():
    config = TrainingConfig(epochs="auto", time=1e-3, batch_size=100).for_rows(10_000)
    steps = within(config, 10_000, 0.1)
    assert steps.epochs * -(-steps.epoch_rows // 100) in range(24, 37)  # some 30
    assert least_seconds(config, 0.1, 5.0) == pytest.approx(5 + least_seconds(config, 0.1))
    enough = replace(config, time=least_seconds(config, 0.1))
    assert within(enough, 10_000, 0.1).epochs == steps.epochs


def test_a_time_that_is_too_short_is_said_so(monkeypatch):
    monkeypatch.setattr(fitting, "least_seconds", lambda config, seconds, used: 2.4)
    torch.manual_seed(0)
    flow = RectangularFlow(flows.RealNVP(3, 1, (4,)), flows.Identity(2))
    rows = torch.randn(60, 3)
    with pytest.warns(ShortTimeWarning, match="time = 2 seconds are too few .* takes about 2, and it is taken"):
        fit(flow, rows, TrainingConfig(epochs="auto", time=2.0, scatter=False))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ShortTimeWarning)
        fit(flow, rows, TrainingConfig(epochs="auto", time=2.5, scatter=False))
