"""Training of an atlas: the objective against the mixture it stands for, parts, resuming."""

import dataclasses
import math

import pytest
import torch

import rectangular_flows as rnf
from rectangular_flows import Atlas, RectangularFlow, TrainingConfig, flows
from rectangular_flows.atlas import width_of
from rectangular_flows.data import von_mises_circle
from rectangular_flows.training.atlas import AtlasObjective, objective_of
from rectangular_flows.training.objective import Objective
from rectangular_flows.volume import Exact
from tests.conftest import shaken


def flow(seed, dtype=torch.float64):
    made = RectangularFlow(
        flows.RealNVP(3, layers=2), flows.RealNVP(2, layers=2), flows.Standardise(torch.zeros(3), 2 * torch.ones(3))
    )
    return shaken(made, seed, dtype=dtype)


def atlas(count=3):
    return Atlas([flow(k) for k in range(count)], weights=range(1, count + 1)).double()


def rows(count=40, seed=0):
    return torch.randn(count, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def mixture(model, x, beta, weight=1.0):
    """The same loss by the formula, with every chart's volume: its value, and its shares."""
    y, parts, squares = model.to_model_units(x), [], []
    for k, chart in enumerate(model.charts):
        view = chart.in_model_units
        z = view.encode(y)
        y_hat, L = Exact()(view, z)
        squares.append((y - y_hat).square().sum(dim=1))
        parts.append(model.weights[k].log() + weight * (chart.latent.log_prob(z) - L))
    away = torch.stack(squares, dim=1)
    sigma = width_of(away.detach().min(dim=1).values)
    joint = torch.stack(parts, dim=1) - away / (2 * sigma**2)
    shares = joint.softmax(dim=1).detach()
    # distances weigh by β alone
    likelihood = -torch.logsumexp(joint, dim=1) - (shares * away / (2 * sigma**2)).sum(dim=1)
    return (likelihood + beta * (shares * away).sum(dim=1)).mean(), away.min(dim=1).values.mean()


@pytest.mark.parametrize("weight", [1.0, 0.4])
def test_loss_and_gradient_are_those_of_the_mixture(weight):
    model, x = atlas(), rows()
    expected, least = mixture(model, x, 7.0, weight)
    expected.backward()
    gradients = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    terms = AtlasObjective(model, Exact(), 7.0)(x, weight)
    terms.loss.backward()
    assert terms.loss.item() == pytest.approx(expected.item(), rel=2e-2)  # shares below 1e-3 are left out
    assert terms.reconstruction.item() == pytest.approx(least.item())
    ours = torch.cat(
        [torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in model.parameters()]
    )
    theirs = torch.cat([g.flatten() for g in gradients])
    assert float((ours - theirs).norm() / theirs.norm()) < 0.02


def test_one_chart_has_the_objective_of_a_flow():
    x, one = rows(), flow(0)
    plain, ours = Objective(one, Exact(), 5.0), AtlasObjective(Atlas([one]), Exact(), 5.0)
    for name in ("loss", "negative_log_likelihood", "reconstruction"):
        assert getattr(ours(x), name).item() == pytest.approx(getattr(plain(x), name).item(), rel=1e-9), name
    for part in ("likelihood", "reconstruction"):
        assert ours(x, part=part).loss.item() == pytest.approx(plain(x, part=part).loss.item(), rel=1e-9), part


def test_volume_on_part_of_the_rows_is_unbiased():
    model, x = atlas(2), rows(64)
    whole = AtlasObjective(model, Exact(), 5.0)(x).loss.item()
    part = AtlasObjective(model, Exact(), 5.0, 0.5)
    # the shares of all rows are those of the batch, so that orders of one batch have the whole for their mean
    found = [part(x[torch.randperm(64, generator=torch.Generator().manual_seed(s))]).loss.item() for s in range(60)]
    error = torch.tensor(found).std().item() / math.sqrt(60)
    assert abs(sum(found) / 60 - whole) < 4 * error


def test_likelihood_alone_trains_the_densities_and_weights_only():
    model = atlas(2)
    AtlasObjective(model, Exact(), 5.0)(rows(), part="likelihood").loss.backward()
    moved = {name for name, p in model.named_parameters() if p.grad is not None and bool((p.grad != 0).any())}
    assert moved
    assert all(".latent." in name or name == "logits" for name in moved)


def test_parts_are_learned_by_their_charts_first():
    t = torch.rand(200, dtype=torch.float64) * 6.28
    x = torch.stack([t.cos(), t.sin(), 0 * t], dim=1)
    model = atlas(2)
    model.initialise(x)
    objective, inside = AtlasObjective(model, Exact(), 3.0), model.start(model.to_model_units(x))
    y = model.to_model_units(x)
    away = torch.stack([(y - c.in_model_units.project(y)).square().sum(dim=1) for c in model.charts], dim=1)
    expected = ((away * inside).sum(dim=1) / inside.sum(dim=1)).mean()
    terms = objective(x, weight=0.0)
    assert terms.loss.item() == pytest.approx(3 * expected.item())
    assert isinstance(objective_of(model, Exact(), 1.0), AtlasObjective)
    assert isinstance(objective_of(flow(0), Exact(), 1.0), Objective)


def circle_atlas(x):
    torch.manual_seed(1)
    charts = [
        RectangularFlow(
            flows.RealNVP(2, layers=2, hidden=(8,)),
            flows.RealNVP(1, layers=1, hidden=(8,)),
            [flows.OrthonormalEmbedding(2, 2)],
            pad=flows.Pad(1, 2, order="first"),
        )
        for _ in range(2)
    ]
    made = Atlas(charts)
    made.initialise(x)
    return made


def test_resumed_bit_for_bit(tmp_path):
    x = von_mises_circle(120, seed=0).float()
    config = TrainingConfig(
        epochs=6, batch_size=40, anneal=(2, 3), target_error="auto", start_latent=False, latent_epochs=2, ema=0.9
    )
    whole = circle_atlas(x)
    rnf.fit(whole, x, config, validation=x[:20], out=tmp_path / "whole")
    stopped = []

    def stop(run):
        if run.progress.step == 11 and not stopped:
            stopped.append(True)
            raise KeyboardInterrupt

    half = circle_atlas(x)
    every = dataclasses.replace(config, checkpoint_every=0)
    with pytest.raises(KeyboardInterrupt):
        rnf.fit(half, x, every, validation=x[:20], out=tmp_path / "half", on_step=stop)
    again = circle_atlas(x)
    run = rnf.fit(again, x, every, validation=x[:20], out=tmp_path / "half", resume=True)
    assert run.finished
    for (name, one), other in zip(whole.state_dict().items(), again.state_dict().values(), strict=True):
        assert torch.equal(one, other), name
    loaded = rnf.load(tmp_path / "half")
    assert torch.equal(loaded.log_prob(x), whole.eval().log_prob(x))
    assert float(loaded.sigma) != pytest.approx(0.1)
