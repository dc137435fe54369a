"""target_error = "auto": the error that the manifold reaches before the likelihood counts, and never a worse manifold."""

import math
import os
import signal

import pytest
import torch

from rectangular_flows import Atlas, RectangularFlow, TrainingConfig, flows
from rectangular_flows.densities import MixtureDensity
from rectangular_flows.training import fit, loop
from rectangular_flows.training.evaluation import judged_by
from rectangular_flows.training.run import Progress
from rectangular_flows.training.schedule import Plan, annealing, dual_step, likelihood_weight
from rectangular_flows.training.target import least_beta

SETTINGS = {
    "epochs": 8,
    "batch_size": 50,
    "learning_rate": 5e-3,
    "target_error": "auto",
    "anneal": (0.25, 0.5),
    "anneal_in": "share",
    "start_latent": True,
    "scatter": False,
    "dtype": "float64",
}


def curve(count=240, seed=0, noise=0.02):
    generator = torch.Generator().manual_seed(seed)
    t = torch.randn(count, 1, generator=generator, dtype=torch.float64)
    x = torch.cat([t, 0.6 * t.square(), 0.3 * t], dim=1)
    return x + noise * torch.randn(x.shape, generator=generator, dtype=torch.float64)


def flow_for(rows, seed=0, dim=1):
    torch.manual_seed(seed)
    size = rows.shape[1]
    rotation = flows.OrthonormalEmbedding(size, size)
    ambient = flows.RealNVP(size, layers=4, hidden=(16,), zero_init=True)
    pad = flows.Pad(dim, size, order="first")
    flow = RectangularFlow(ambient, MixtureDensity(dim, 1), rotation, pad=pad).double()
    flow.initialise(rows)
    return flow


@torch.no_grad()
def error(flow, rows):
    return float(flow.reconstruction_error(rows).mean())


@pytest.mark.parametrize("seed", range(3))
def test_the_manifold_is_never_worse_than_at_the_start(seed):
    rows, other = curve(seed=seed), curve(seed=seed + 50)
    flow = flow_for(rows, seed)
    before = error(flow, other)
    run = fit(flow, rows, TrainingConfig(**SETTINGS, seed=seed), validation=other)
    assert run.progress.start[1] == pytest.approx(before)
    assert error(flow, other) <= before
    assert run.progress.target <= before / 1.05 + 1e-12
    early = [line.reconstruction for line in run.history if line.weight == 0]
    assert run.progress.target == pytest.approx(min(1.1 * min([before, *early]), before / 1.05))


@pytest.mark.parametrize("seed", range(2))
def test_noise_leaves_the_manifold_as_it_was(seed):
    """Nothing can be better than the principal plane of independent normal columns, so that it stays."""
    rows, other = (torch.randn(150, 4, generator=torch.Generator().manual_seed(s)).double() for s in (seed, seed + 9))
    flow = flow_for(rows, seed, dim=2)
    before = error(flow, other)
    hasty = SETTINGS | {"learning_rate": 3e-2, "epochs": 12}
    run = fit(flow, rows, TrainingConfig(**hasty, seed=seed), validation=other)
    assert max(line.reconstruction for line in run.history) > 1.05 * before  # it did get worse on the way
    assert error(flow, other) <= before


def test_where_every_epoch_is_worse_the_start_stays(monkeypatch):
    rows, other = curve(), curve(seed=1)
    flow = flow_for(rows)
    before = error(flow, other)
    found = loop.evaluate

    def worse(flow, rows, config, metrics, beta, target, world):
        values = found(flow, rows, config, metrics, beta, target, world)
        return values if target is None else type(values)(-1e9, -1e9, 2 * before, {})

    monkeypatch.setattr(loop, "evaluate", worse)
    run = fit(flow, rows, TrainingConfig(**SETTINGS), validation=other)
    assert run.best_epoch == 0
    assert error(flow, other) == pytest.approx(before, rel=1e-12)


def test_an_undefined_likelihood_at_the_start_does_not_stop_it(monkeypatch):
    rows, other = curve(), curve(seed=1)
    flow, calls, found = flow_for(rows), [], loop.evaluate

    def first_is_nan(*arguments):
        values = found(*arguments)
        calls.append(values)
        return values if len(calls) > 1 else type(values)(math.nan, math.nan, values.reconstruction, {})

    monkeypatch.setattr(loop, "evaluate", first_is_nan)
    assert fit(flow, rows, TrainingConfig(**SETTINGS), validation=other).best_epoch > 0


def test_the_latent_density_of_a_trained_flow_is_left_alone():
    """Without start_latent, what is there was trained, or started by whoever made the flow."""
    rows, other = curve(), curve(seed=1)
    flow = flow_for(rows)
    with torch.no_grad():
        flow.latent.means.add_(0.5)
    start = float(-flow.log_prob(other).mean().detach())
    run = fit(flow, rows, TrainingConfig(**SETTINGS | {"start_latent": False, "epochs": 1}), validation=other)
    assert run.progress.start[0] == pytest.approx(start)


@pytest.mark.parametrize("stop", [1, 7, 11, 23])
def test_stopped_and_resumed_bit_for_bit(stop, tmp_path):
    """Before the likelihood counts, while it rises, and after."""
    rows, other = curve(), curve(seed=1)
    config = TrainingConfig(**SETTINGS, seed=3)
    whole = fit(flow_for(rows), rows, config, validation=other, out=tmp_path / "whole")

    def interrupt(run):
        if run.progress.step == stop:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt, match="everything is saved"):
        fit(flow_for(rows), rows, config, validation=other, out=tmp_path / "parts", on_step=interrupt)
    parts = fit(flow_for(rows, seed=8), rows, config, validation=other, out=tmp_path / "parts", resume=True)
    for name, value in whole.flow.state_dict().items():
        assert torch.equal(value, parts.flow.state_dict()[name]), name
    assert (parts.progress.target, parts.progress.best) == (whole.progress.target, whole.progress.best)
    assert list(parts.progress.start) == list(whole.progress.start)


def test_a_target_that_was_given_is_kept_when_resumed(tmp_path):
    rows, other = curve(), curve(seed=1)
    config = SETTINGS | {"target_error": 0.3, "epochs": 2}
    fit(flow_for(rows), rows, TrainingConfig(**config), validation=other, out=tmp_path / "run")
    longer = TrainingConfig(**config | {"epochs": 3})
    run = fit(flow_for(rows), rows, longer, validation=other, out=tmp_path / "run", resume=True)
    assert run.progress.target == 0.3


def test_beta_follows_the_target():
    config = TrainingConfig(target_error=0.1, dual_rate=0.5)
    assert dual_step(config, 10.0, 0.15, 0.1) == pytest.approx(10 * math.exp(0.25))
    assert dual_step(config, 10.0, 9.0, 0.1) == pytest.approx(10 * math.exp(0.5))
    assert dual_step(config, 10.0, 0.0, 0.1) == pytest.approx(10 * math.exp(-0.5))
    assert dual_step(config, 10.0, 9.0, None) == 10.0
    assert dual_step(config, 10.0, 0.0, 0.1, least=8.0) == 8.0


def test_judged_by():
    assert judged_by(2.0, 0.105, 0.1) == pytest.approx(2.0)
    assert judged_by(2.0, 0.11, 0.1) == pytest.approx(2.0 + 1000 * 0.05)


def test_annealing_as_a_share_of_all_epochs():
    share = TrainingConfig(epochs=40, anneal=(0.25, 0.5), anneal_in="share")
    same = TrainingConfig(epochs=40, anneal=(10, 20))
    assert annealing(share, 7) == pytest.approx(annealing(same, 7))
    for epoch in (0, 9, 10, 12.5, 19, 20, 39):
        assert likelihood_weight(share, epoch, 7) == pytest.approx(likelihood_weight(same, epoch, 7))
    assert Plan(share, 100, True).judged_from(Progress(1.0)) == 20


@pytest.mark.parametrize(
    ("epochs", "every", "patience"), [(1, 1, 1), (4, 1, 1), (29, 1, 5), (60, 2, 12), (300, 10, 60)]
)
def test_validations_and_patience_by_the_number_of_epochs(epochs, every, patience):
    config = TrainingConfig(epochs=epochs, evaluate_every="auto", patience="auto").for_rows(1000)
    assert (config.evaluate_every, config.patience) == (every, patience)
    given = TrainingConfig(epochs=epochs, evaluate_every=3, patience=None).for_rows(1000)
    assert (given.evaluate_every, given.patience) == (3, None)


@pytest.mark.parametrize("name", ["epochs", "target_error", "patience", "evaluate_every"])
def test_auto_is_a_value_of_these_and_other_words_are_not(name):
    TrainingConfig(**{name: "auto"})
    with pytest.raises(ValueError, match=name):
        TrainingConfig(**{name: "car"})


@pytest.mark.parametrize("charts", [1, 2])
def test_beta_of_charts_does_not_fall_below_that_of_the_noise(charts):
    """A dual rate as large as this lets β fall far below it where nothing holds it."""
    rows, other = curve(noise=0.2), curve(seed=50, noise=0.2)
    model = flow_for(rows) if charts == 1 else Atlas([flow_for(rows, seed) for seed in range(charts)])
    seen = []
    settings = SETTINGS | {"dual_rate": 1.0, "epochs": 12}
    run = fit(
        model, rows, TrainingConfig(**settings), validation=other, on_step=lambda run: seen.append(run.progress.beta)
    )
    after = seen[seen.index(next(beta for beta in seen if beta != 50.0)) :]
    codimension = 2
    noise = codimension / (2 * run.progress.target)
    assert min(after) == pytest.approx(noise), (min(after), noise)


@pytest.mark.parametrize("charts", [1, 2])
def test_beta_is_free_where_the_error_is_given(charts):
    model = Atlas([flow_for(curve(), seed) for seed in range(charts)])
    given = TrainingConfig(target_error=0.1)
    assert least_beta(model, given, 0.1) == 1e-6
    auto = TrainingConfig(target_error="auto")
    assert least_beta(model, auto, None) == 1e-6
    assert least_beta(model, auto, 0.1) == pytest.approx(10.0)
