"""What changes during training, against formulas and by hand."""

import math

import pytest

from rectangular_flows import TrainingConfig
from rectangular_flows.training.run import Progress
from rectangular_flows.training.schedule import Plan, dual_step, learning_rate, likelihood_weight


def test_schedules():
    config = TrainingConfig(epochs=20, learning_rate=0.1, schedule="cosine", warm_up=4, anneal=(2, 6))
    assert learning_rate(config, 2) == pytest.approx(0.05)
    assert learning_rate(config, 4) == pytest.approx(0.1)
    assert learning_rate(config, 12) == pytest.approx(0.05)
    assert learning_rate(config, 20) == pytest.approx(0, abs=1e-12)
    assert [likelihood_weight(config, e) for e in (0, 2, 4, 6, 10)] == [0, 0, 0.5, 1, 1]
    assert math.isclose(likelihood_weight(TrainingConfig(), 0), 1)


def test_one_cycle():
    config = TrainingConfig(epochs=10, learning_rate=1.0, schedule="one-cycle")
    rates = [learning_rate(config, e / 10) for e in range(101)]
    assert rates[0] == pytest.approx(1 / 25)
    assert max(rates) == rates[30] == pytest.approx(1.0)
    assert rates[100] == pytest.approx(1e-4)
    assert rates[:31] == sorted(rates[:31])
    assert rates[30:] == sorted(rates[30:], reverse=True)


def test_dual_ascent_moves_beta_the_right_way():
    config = TrainingConfig(target_error=0.1, dual_rate=0.5)
    assert dual_step(config, 2.0, 0.2, 0.1) == pytest.approx(2 * math.exp(0.5))
    assert dual_step(config, 2.0, 100.0, 0.1) == pytest.approx(2 * math.exp(0.5))
    assert dual_step(config, 2.0, 0.05, 0.1) == pytest.approx(2 * math.exp(-0.25))
    assert dual_step(TrainingConfig(), 2.0, 100.0, None) == 2.0


def at(epoch, turn=0, batch=0, latent_from=None, **more):
    return Progress(50.0, epoch=epoch, turn=turn, batch=batch, latent_from=latent_from, **more)


def test_a_plan_counts_passes_and_steps():
    config = TrainingConfig("two-step", epochs=3, latent_epochs=2, batch_size=40, epoch_rows=90)
    plan = Plan(config, rows=1000, latent_trains=True)
    assert (plan.epoch_rows, plan.batches, plan.steps_per_epoch) == (90, 3, 6)
    together, alone = at(1), at(4, latent_from=2)  # stopped early after two epochs
    assert plan.passes(together) == ("likelihood", "reconstruction")
    assert plan.passes(alone) == ("likelihood",)
    assert (plan.last_epoch(together), plan.last_epoch(alone)) == (3, 4)
    assert (plan.steps(together), plan.steps(alone)) == (3 * 6 + 2 * 3, 2 * 6 + 2 * 3)
    assert Plan(config, rows=1000, latent_trains=False).steps(together) == 18
    assert Plan(TrainingConfig(batch_size=40), rows=90, latent_trains=True).epoch_rows == 90


def test_a_plan_begins_the_latent_phase_once():
    plan = Plan(TrainingConfig(epochs=3, latent_epochs=2), rows=10, latent_trains=True)
    done = {"finished": "all epochs done"}
    assert not plan.latent_is_next(at(2))
    assert plan.latent_is_next(at(3, **done))
    assert not plan.latent_is_next(at(5, latent_from=3, **done))
    assert not Plan(plan.config, 10, latent_trains=False).latent_is_next(at(3, **done))
    assert not Plan(TrainingConfig(epochs=3), 10, latent_trains=True).latent_is_next(at(3, **done))


def test_a_plan_gives_weight_and_rate_of_each_step():
    config = TrainingConfig(
        epochs=4, latent_epochs=2, batch_size=5, anneal=(1, 3), schedule="cosine", learning_rate=0.1
    )
    plan = Plan(config, rows=10, latent_trains=True)
    assert [plan.weight(at(1, batch=b)) for b in (0, 1)] == [0, 0.25]
    assert plan.weight(at(1, turn=1)) == 0.25  # while validating, that of the last step
    assert plan.rate(at(2)) == pytest.approx(0.05)
    assert plan.judged_from(at(0)) == 3
    alone = at(4, latent_from=4)
    assert (plan.weight(alone), plan.rate(alone), plan.judged_from(alone)) == (1.0, 0.1, 4)
