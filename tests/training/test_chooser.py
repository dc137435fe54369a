"""``volume = "auto"`` in training: what it measures, when, and that runs repeat and resume."""

import json
import math
import signal
from functools import partial

import pytest
import torch

import rectangular_flows as rnf
from rectangular_flows import RectangularFlow, TrainingConfig, flows
from rectangular_flows.training import Objective, chooser, variance
from rectangular_flows.training.distributed import World
from rectangular_flows.training.run import Progress
from rectangular_flows.training.signals import Interrupted
from rectangular_flows.training.variance import adam_weights, conditioning, measure, moved, sizes_of
from rectangular_flows.volume import Auto, Exact, Stochastic
from rectangular_flows.volume import auto as choosing
from tests.volume.helpers import make_flow as deep_flow

from .test_loop import same

plain = partial(TrainingConfig, scatter=False, volume="auto", batch_size=50, learning_rate=1e-2)


def make_flow(seed=0, D=4, d=2):
    torch.manual_seed(seed)
    return RectangularFlow(flows.RealNVP(D, 3, (8,)), flows.RealNVP(d, 1, (4,)))


def rows(count=300, D=4, d=2):
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(count, d, generator=generator)
    return torch.sin(z @ torch.randn(d, D, generator=generator)) + 0.1 * torch.randn(count, D, generator=generator)


@pytest.fixture(autouse=True)
def _often(monkeypatch):
    """Small steps are measured too, and often."""
    monkeypatch.setattr(choosing, "_CALL", 0)
    monkeypatch.setattr(chooser, "_FIRST_GAP", 3)
    monkeypatch.setattr(chooser, "_WATCH", 2)


def of_a_row(objective, x, parameters, part):
    rest, L = objective.apart(x, Exact(codimension="never"))
    return flat_gradient(L if part == "volume" else rest + L, parameters)


def flat_gradient(value, parameters):
    found = torch.autograd.grad(value, parameters, allow_unused=True, materialize_grads=True)
    return torch.cat([gradient.flatten() for gradient in found])


@pytest.mark.parametrize("given", [True, False])
def test_measured_variances_are_those_of_single_rows(monkeypatch, given):
    monkeypatch.setattr(variance, "_GROUPS", 24)
    monkeypatch.setattr(variance, "_ROWS", 1)
    flow = deep_flow(6, 3)
    objective, x = Objective(flow, Exact(), 2.0), rows(24, 6).double()
    parameters = moved(objective)
    of = {
        part: torch.stack([of_a_row(objective, row[None], parameters, part) for row in x]) for part in ("all", "volume")
    }
    weights = [torch.rand_like(p) for p in parameters]
    flat = torch.cat([w.flatten() for w in weights])
    if not given:
        moment = of["all"].mean(dim=0).square() + of["all"].var(dim=0) / 24
        flat = torch.where(moment > 0, 1 / moment, moment)
    found = measure(objective, x, Auto(), weights if given else [None] * len(weights), torch.Generator())
    assert found.gradient == pytest.approx(float((flat * of["all"].var(dim=0)).sum()))
    assert found.volume == pytest.approx(float((flat * of["volume"].var(dim=0)).sum()))
    assert math.isnan(found.probes)


def test_noise_of_a_probe_is_measured(monkeypatch):
    monkeypatch.setattr(variance, "_GROUPS", 100)
    flow = deep_flow(20, 16, layers=2, hidden=(8,))
    objective, x = Objective(flow, Exact(), 2.0), rows(400, 20, 16).double()
    parameters = moved(objective)
    weights = [torch.ones_like(p) for p in parameters]
    found = measure(objective, x, Auto(), weights, torch.Generator().manual_seed(0))
    exact = torch.stack([of_a_row(objective, row[None], parameters, "volume") for row in x[:30]])
    noise = []
    for row, volume in zip(x[:30], exact, strict=True):
        for _ in range(4):
            probed = flat_gradient(objective.apart(row[None], Stochastic(1))[1], parameters)
            noise.append((probed - volume).square().sum())
    assert found.probes == pytest.approx(float(torch.stack(noise).mean()), rel=0.3)
    assert 1 <= found.iterations <= 30


def test_weights_are_those_of_adam():
    parameter = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    optimiser = torch.optim.Adam([parameter], lr=0.1)
    assert adam_weights(optimiser, [parameter]) == [None]
    gradients = [torch.tensor([3.0, 0.5]), torch.tensor([1.0, 0.5])]
    for gradient in gradients:
        parameter.grad = gradient
        optimiser.step()
    moment = (0.001 * 0.999 * gradients[0] ** 2 + 0.001 * gradients[1] ** 2) / (1 - 0.999**2)
    torch.testing.assert_close(adam_weights(optimiser, [parameter])[0], 1 / moment, rtol=1e-4, atol=0)


def test_the_condition_number():
    stretch = flows.Standardise(torch.zeros(3), torch.tensor([1.0, 10.0, 1.0]))
    inner = flows.Identity(3)
    flow = RectangularFlow(inner, flows.Identity(2), pad=flows.Pad(2, 3, order="first"))
    assert conditioning(Objective(flow, Exact(), 1.0), torch.randn(5, 3))[0] == pytest.approx(1.0)
    flow = RectangularFlow(flows.chain(inner, stretch), flows.Identity(2), flows.Identity(3), pad=flow.pad)
    assert conditioning(Objective(flow, Exact(), 1.0), torch.randn(5, 3))[0] == pytest.approx(10.0)


def test_sizes():
    objective = Objective(make_flow(D=7, d=6), Exact(), 1.0)
    assert sizes_of(objective, 50, Auto()) == (50, 6, 1, 8)
    assert sizes_of(objective, 50, Auto(codimension="never")) == (50, 6, 6, 8)


def test_it_measures_chooses_and_reports(tmp_path):
    run = rnf.fit(make_flow(), rows(), plain(epochs=4, anneal=(1, 2)), out=tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert lines[0]["volume_share"] == 0  # the likelihood did not count yet
    assert 0 < lines[-1]["volume_share"] < 1
    assert 1 < lines[-1]["variance_ratio"] <= 1.05 + 1e-9
    assert lines[-1]["volume_probes"] == 0
    assert rnf.SavedRun(tmp_path / "run").history[-1].volume == run.history[-1].volume == run.progress.choice.numbers()
    assert (
        (tmp_path / "run" / "metrics.csv")
        .read_text()
        .splitlines()[0]
        .endswith("volume_share,volume_probes,variance_ratio")
    )


def test_resumed_runs_choose_as_others_do(tmp_path):
    config = plain(epochs=4)
    whole = rnf.fit(make_flow(), rows(), config, out=tmp_path / "whole")
    for at in (1, 8, 13):
        out = tmp_path / f"stopped-{at}"

        def stop(run, at=at):
            if run.progress.step == at:
                signal.raise_signal(signal.SIGINT)

        with pytest.raises(Interrupted):
            rnf.fit(make_flow(), rows(), config, out=out, on_step=stop)
        resumed = rnf.fit(make_flow(5), rows(), config, out=out, resume=True)
        assert same(whole.flow.state_dict(), resumed.flow.state_dict())
        states = [[run.progress.volume, [line.volume for line in run.history]] for run in (whole, resumed)]
        assert json.dumps(states[0]) == json.dumps(states[1])  # as text, for NaN equals NaN there


def test_where_nothing_is_cheaper_it_is_exact_to_the_last_bit(monkeypatch):
    monkeypatch.setattr(choosing, "_CALL", 2**15)
    states = []
    for volume in ("auto", "exact"):
        run = rnf.fit(make_flow(), rows(), plain(epochs=2, volume=volume))
        states.append({name: value.clone() for name, value in run.flow.state_dict().items()})
    assert same(*states)


def test_conjugate_gradients_that_do_not_converge_are_left(monkeypatch):
    flow = make_flow(D=24, d=16)
    config = plain(epochs=1)
    objective = Objective(flow, config.volume, 1.0)
    mine = chooser.VolumeChooser(config.volume, objective, 50, 0, World(torch.device("cpu")))
    progress = Progress(1.0, volume={"spread": [1.0, 1e-4, 1e-4, 2.0, 1.0], "gap": 3, "next": 9, "choice": {}})
    progress.volume["choice"] = Auto().choose(choosing.Spread(*progress.volume["spread"]), mine.sizes).plain()
    assert progress.choice.solver == "pcg"
    mine.restore(progress)
    assert not mine.after_step(progress)
    objective.volume.solver._reported["fallen back"] = 2.0
    assert mine.after_step(progress)
    assert progress.choice.solver == "direct"
    assert objective.volume_fraction == progress.choice.share


def test_it_measures_again_when_the_condition_number_moves(monkeypatch):
    seen = []
    monkeypatch.setattr(chooser, "_FIRST_GAP", 100)
    monkeypatch.setattr(
        chooser, "measure", lambda *_: seen.append(len(seen)) or choosing.Spread(1.0, 0.01, condition=2.0)
    )
    conditions = iter([2.1, 3.9, 4.1, 2.0, 0.9])
    monkeypatch.setattr(chooser, "conditioning", lambda *_: (next(conditions), math.inf))
    steps = []
    rnf.fit(make_flow(), rows(), plain(epochs=2), on_step=lambda run: steps.append(len(seen)))
    assert steps == [1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3]  # at first, and where it is more than twice or less than half
