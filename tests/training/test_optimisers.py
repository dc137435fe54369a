"""Optimisers, over the registry of all of them, and one from outside."""

import os
import signal

import pytest
import torch

from rectangular_flows import RectangularFlow, TrainingConfig, fit, flows
from rectangular_flows.training.optimisers import OPTIMISERS, make_optimiser, register_optimiser
from rectangular_flows.training.signals import Interrupted

from .test_loop import data, make_flow, plain, same

REFERENCE = {
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=1e-2),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-2, weight_decay=0.3),
    "muon": lambda parameters: torch.optim.Adam(parameters, lr=1e-2),  # of what is no matrix between hidden layers
}


@pytest.mark.parametrize("name", OPTIMISERS)
def test_steps_against_those_of_torch(name):
    config = TrainingConfig(optimiser=name, learning_rate=1e-2, weight_decay=0.3 if name == "adamw" else 0.0)
    ours, theirs = ([torch.nn.Parameter(torch.tensor([1.0, -2.0]))] for _ in range(2))
    pairs = [(ours, make_optimiser(torch.nn.ParameterList(ours), config)), (theirs, REFERENCE[name](theirs))]
    for step in range(5):
        for parameters, optimiser in pairs:
            parameters[0].grad = torch.tensor([0.3, -1.0 - step])
            optimiser.step()
    torch.testing.assert_close(ours[0], theirs[0])


@pytest.mark.parametrize("name", OPTIMISERS)
def test_resuming_has_the_state_of_every_optimiser(name, tmp_path):
    train, validation = data()
    config = plain(epochs=3, batch_size=100, optimiser=name, learning_rate=1e-2)
    straight = fit(make_flow(), train, config, validation=validation)

    def interrupt(run):
        if run.progress.step == 8:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        fit(make_flow(), train, config, validation=validation, out=tmp_path, on_step=interrupt)
    resumed = fit(make_flow(1), train, config, validation=validation, out=tmp_path, resume=True)
    assert same(straight.flow.state_dict(), resumed.flow.state_dict())


def test_an_optimiser_of_ones_own(monkeypatch):
    monkeypatch.setitem(OPTIMISERS, "sgd", None)  # forgotten again after this test
    register_optimiser("sgd", lambda flow, config: torch.optim.SGD(flow.parameters(), lr=config.learning_rate))
    parameters = [torch.nn.Parameter(torch.ones(2))]
    parameters[0].grad = torch.tensor([1.0, -1.0])
    config = TrainingConfig(optimiser="sgd", learning_rate=0.25)
    make_optimiser(torch.nn.ParameterList(parameters), config).step()
    assert parameters[0].tolist() == [0.75, 1.25]
    with pytest.raises(ValueError, match="expected one of adam, adamw, muon, sgd; got lion"):
        TrainingConfig(optimiser="lion")


def test_a_flow_without_parameters_is_refused():
    with pytest.raises(ValueError, match="no parameters to train"):
        fit(RectangularFlow(flows.Identity(2), flows.Identity(1)), data()[0])
