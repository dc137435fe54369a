import math

import pytest
import torch

from rectangular_flows import RectangularFlow, flows
from rectangular_flows.data import von_mises_circle
from rectangular_flows.errors import NonFiniteError
from rectangular_flows.training import Objective, TrainingConfig, fit
from rectangular_flows.training.schedule import learning_rate, likelihood_weight
from rectangular_flows.volume import Exact, Stochastic


def make_flow(seed=0, outer=()):
    torch.manual_seed(seed)
    return RectangularFlow(flows.RealNVP(2, 4, (16,)), flows.RealNVP(1, 1), outer)


def data():
    return von_mises_circle(600, seed=0), von_mises_circle(200, seed=1)


def test_objective_is_the_formula():
    units = flows.Standardise(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 0.5]))
    flow = make_flow(outer=units).double()
    x = units(torch.randn(7, 2)).double()
    terms = Objective(flow, Exact(), beta=3.0)(x, weight=0.25)
    y = flow.to_model_units(x)
    nll = -flow.log_prob(y, model_units=True).mean()
    reconstruction = flow.reconstruction_error(y, model_units=True).mean()
    torch.testing.assert_close(terms.negative_log_likelihood, nll)
    torch.testing.assert_close(terms.reconstruction, reconstruction)
    torch.testing.assert_close(terms.loss, 0.25 * nll + 3 * reconstruction)


def test_two_step_passes_train_their_own_part_only():
    flow = make_flow()
    objective = Objective(flow, Exact(), beta=3.0)
    objective.likelihood_step(data()[0]).backward()
    assert all(p.grad is None for p in flow.ambient.parameters())
    assert all(p.grad is not None for p in flow.latent.parameters())
    flow.zero_grad()
    objective.reconstruction_step(data()[0]).backward()
    assert all(p.grad is None for p in flow.latent.parameters())
    assert any(p.grad is not None and p.grad.abs().max() > 0 for p in flow.ambient.parameters())


@pytest.mark.parametrize(
    ("method", "volume"), [("ml", Exact()), ("ml", Stochastic()), ("ml", Exact(bundle_size=1)), ("two-step", Exact())]
)
def test_training_improves_the_validation_objective(method, volume):
    train, validation = data()
    config = TrainingConfig(method, volume, epochs=8, batch_size=100, learning_rate=1e-2, schedule="cosine")
    lines = []
    run = fit(make_flow(), train, config, validation=validation, on_epoch=lines.append)
    assert lines == run.history
    assert run.history[-1].objective < run.history[0].objective - 1
    best = min(run.history, key=lambda line: line.objective)
    assert run.best_epoch == best.epoch
    objective = Objective(run.flow, Exact(), 50)
    with torch.no_grad():
        two_step = objective.likelihood_step(validation) + objective.reconstruction_step(validation)
        expected = objective(validation).loss if method == "ml" else two_step
    assert float(expected) == pytest.approx(best.objective, rel=1e-5)


def test_same_seed_same_weights():
    train, validation = data()
    config = TrainingConfig(epochs=2, batch_size=100, volume=Exact())
    first, again = (fit(make_flow(), train, config, validation=validation).flow.state_dict() for _ in range(2))
    assert all(torch.equal(first[key], again[key]) for key in first)


def test_early_stopping_counts_from_the_end_of_the_annealing():
    train, validation = data()
    config = TrainingConfig(epochs=30, batch_size=300, learning_rate=1e-9, anneal=(1, 4), patience=3)
    run = fit(make_flow(), train, config, validation=validation)
    assert 7 <= run.history[-1].epoch < 30


def test_a_non_finite_loss_stops_and_keeps_the_last_good_weights():
    train, validation = data()
    flow = make_flow()
    flow.to(torch.float32)
    config = TrainingConfig(epochs=50, batch_size=100, learning_rate=1e30)
    with pytest.raises(NonFiniteError):
        fit(flow, train, config, validation=validation)


def test_schedules():
    config = TrainingConfig(epochs=20, learning_rate=0.1, schedule="cosine", warm_up=4, anneal=(2, 6))
    assert learning_rate(config, 2) == pytest.approx(0.05)
    assert learning_rate(config, 4) == pytest.approx(0.1)
    assert learning_rate(config, 12) == pytest.approx(0.05)
    assert learning_rate(config, 20) == pytest.approx(0, abs=1e-12)
    assert [likelihood_weight(config, e) for e in (0, 2, 4, 6, 10)] == [0, 0, 0.5, 1, 1]
    assert math.isclose(likelihood_weight(TrainingConfig(), 0), 1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "em"}, "ml, two-step; got 'em'"),
        ({"schedule": "stairs"}, "constant, cosine; got 'stairs'"),
        ({"beta": -1}, "positive beta; got -1"),
        ({"anneal": (5, 2)}, "start ≤ end"),
    ],
)
def test_mistakes_are_told(settings, message):
    with pytest.raises(ValueError, match=message):
        TrainingConfig(**settings)
