"""What an epoch is: all rows, or so many drawn anew; and how many there are where that is left to the rows."""

import dataclasses

import pytest
import torch

from rectangular_flows import Atlas, RectangularFlow, TrainingConfig, fit, flows
from rectangular_flows.data import von_mises_circle
from rectangular_flows.data.rows import take
from rectangular_flows.training import config as config_module
from rectangular_flows.training import loop


def _flow():
    torch.manual_seed(0)
    return RectangularFlow(flows.RealNVP(2, layers=2, hidden=(4,)), flows.Identity(1))


def test_an_epoch_of_some_rows_draws_them_anew(monkeypatch):
    seen = []
    monkeypatch.setattr(loop, "take", lambda rows, index, *rest: seen.append(index) or take(rows, index, *rest))
    data, validation = von_mises_circle(100, seed=0), von_mises_circle(20, seed=1)
    run = fit(
        _flow(), data, TrainingConfig(epochs=3, epoch_rows=30, batch_size=20, scatter=False), validation=validation
    )
    batches = [index for index in seen if isinstance(index, torch.Tensor)]
    assert [len(batch) for batch in batches] == [20, 10] * 3
    epochs = [set(torch.cat(batches[i : i + 2]).tolist()) for i in (0, 2, 4)]
    assert all(len(epoch) == 30 for epoch in epochs)  # no row twice in an epoch
    assert len(set.union(*epochs)) > 45  # nor the same rows in every epoch
    assert run.progress.step == 6


def test_more_rows_than_there_are_is_all_of_them():
    data = von_mises_circle(50, seed=0)
    runs = [fit(_flow(), data, TrainingConfig(epochs=2, epoch_rows=n, batch_size=20)) for n in (None, 1_000)]
    assert runs[0].history[-1].objective == runs[1].history[-1].objective


@pytest.mark.parametrize(
    ("rows", "batch", "epochs", "epoch_rows"),
    [(30, 500, 200, None), (2_000, 500, 90, None), (50_000, 500, 18, None), (2_000_000, 500, 24, 50_000)],
)
def test_epochs_by_the_number_of_rows(rows, batch, epochs, epoch_rows):
    config = TrainingConfig(epochs="auto", batch_size=batch).for_rows(rows)
    assert (config.whole_epochs, config.epoch_rows, config.latent_epochs) == (epochs, epoch_rows, epochs // 3)
    assert config.for_rows(7) == config  # decided once


def test_auto_is_decided_by_the_rows_that_are_trained_on():
    config = TrainingConfig(epochs="auto", batch_size=10, learning_rate=1e-3)
    with pytest.raises(ValueError, match="for_rows"):
        _ = config.whole_epochs
    # 200 steps at least, 4 an epoch; a run that is stopped early says how many were planned
    seen = []
    with pytest.raises(KeyboardInterrupt):
        fit(_flow(), von_mises_circle(44, seed=0), config, on_step=lambda run: _stop(run, seen))
    assert seen == [50]
    assert dataclasses.replace(config, epochs=3).for_rows(10).epochs == 3


@pytest.mark.parametrize(("charts", "most", "rows"), [(1, 4, 10), (3, 4, 30), (3, 2, 20)])
def test_charts_share_larger_batches(charts, most, rows, monkeypatch):
    """Each trains on its own rows of a batch alone; the number of steps does not depend on how many share them."""
    monkeypatch.setattr(config_module, "_MOST_FOR_CHARTS", most)
    model = _flow() if charts == 1 else Atlas([_flow() for _ in range(charts)])
    config = TrainingConfig(epochs="auto", batch_size=10, learning_rate=1e-3)
    seen = []
    with pytest.raises(KeyboardInterrupt):
        fit(model, von_mises_circle(133, seed=0), config, on_step=lambda run: _stop(run, seen))
    steps = 200 if charts == 1 else 280
    assert seen == [-(-steps // -(-120 // rows))]
    assert dataclasses.replace(config, epochs=3).for_rows(120, charts=charts).batch_size == 10


def _stop(run, seen):
    seen.append(run.config.whole_epochs)
    raise KeyboardInterrupt


@pytest.mark.parametrize("value", [0, -1, 2.5])
def test_impossible_numbers_of_rows(value):
    with pytest.raises(ValueError, match="epoch_rows"):
        TrainingConfig(epoch_rows=value)


@pytest.mark.parametrize("method", ["ml", "two-step"])
def test_an_h_without_parameters_has_nothing_to_train_alone(method):
    data = von_mises_circle(60, seed=0)
    run = fit(_flow(), data, TrainingConfig(method=method, epochs=2, latent_epochs=3, batch_size=20))
    assert [line.epoch for line in run.history] == [1, 2]


def test_the_rate_falls_with_the_columns_where_it_is_auto():
    config = TrainingConfig(learning_rate="auto")
    assert [config.for_rows(50, columns).learning_rate for columns in (3, 100, 250)] == [0.01, 0.01, 0.004]
    assert TrainingConfig(learning_rate=0.3).for_rows(50, 250).learning_rate == 0.3
    with pytest.raises(ValueError, match="decided by the number of columns"):
        _ = config.peak_rate


def test_a_training_has_the_rate_of_its_columns():
    flow = RectangularFlow(flows.RealNVP(128, layers=1, hidden=(2,)), flows.Identity(1))
    run = fit(flow, torch.randn(20, 128), TrainingConfig(epochs=1, learning_rate="auto", scatter=False))
    assert run.config.learning_rate == run.history[-1].learning_rate == 1 / 128


@pytest.mark.parametrize(("unit", "expected"), [("share", (0.5, 0.6)), ("epochs", (0.7, 0.84))])
def test_further_steps_of_charts_have_the_likelihood(unit, expected):
    """So that the first phase is as long as that of one chart."""
    config = TrainingConfig(epochs="auto", batch_size=100, anneal=(0.7, 0.84), anneal_in=unit)
    one, two = (dataclasses.replace(config, batch_size=100 // n).for_rows(10_000, charts=n) for n in (1, 2))
    assert one.anneal == (0.7, 0.84)
    assert two.anneal == pytest.approx(expected)
    assert (one.epochs, two.epochs) == (8, 12)  # 800 and 1,120 steps
    assert two.for_rows(10_000, charts=2) == two  # decided once
