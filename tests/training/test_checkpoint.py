"""Going on from a checkpoint with parameters that do not lie in memory row by row."""

from pathlib import Path

import torch

from rectangular_flows import RectangularFlow, TrainingConfig, flows
from rectangular_flows.training.average import Average
from rectangular_flows.training.checkpoint import pack_checkpoint, unpack_checkpoint
from rectangular_flows.training.optimisers import make_optimiser
from rectangular_flows.training.run import Progress


def _sitting():
    torch.manual_seed(0)
    flow = RectangularFlow(flows.RealNVP(3, layers=2, hidden=(4,), mixing="free"), flows.Identity(1))
    for layer in flow.modules():
        if isinstance(layer, flows.FreeLinear):
            layer.weight.data = layer.weight.data.T.contiguous().T
    parameters = list(flow.parameters())
    assert not all(p.is_contiguous() for p in parameters)
    return flow, parameters, make_optimiser(flow, TrainingConfig()), Average(flow, None)


def _step(parameters, optimiser, seed):
    torch.manual_seed(seed)
    for p in parameters:
        p.grad = torch.empty_like(p).copy_(torch.randn(p.shape))
    optimiser.step()


def test_the_optimiser_goes_on_with_its_state_laid_out_as_the_parameters_are():
    flow, parameters, optimiser, average = _sitting()
    for seed in range(3):
        _step(parameters, optimiser, seed)
    content = pack_checkpoint(flow, optimiser, average, Progress(50.0, steps=9), {})
    flow2, parameters2, optimiser2, average2 = _sitting()
    assert unpack_checkpoint(content, Path("state"), flow2, optimiser2, average2)[0].steps == 9
    for seed in range(3, 6):
        _step(parameters, optimiser, seed)
        _step(parameters2, optimiser2, seed)
    assert all(torch.equal(a, b) for a, b in zip(parameters, parameters2, strict=True))
