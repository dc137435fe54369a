"""Going on from a checkpoint with parameters that do not lie in memory row by row."""

import torch

from rectangular_flows import RectangularFlow, TrainingConfig, fit, flows
from rectangular_flows.data import von_mises_circle


def _flow():
    torch.manual_seed(0)
    flow = RectangularFlow(flows.RealNVP(2, layers=2, hidden=(4,), mixing="free"), flows.Identity(1))
    for layer in flow.modules():
        if isinstance(layer, flows.FreeLinear):
            layer.weight.data = layer.weight.data.T.contiguous().T
    assert not all(p.is_contiguous() for p in flow.parameters())
    return flow


def test_the_optimiser_goes_on_with_its_state_laid_out_as_the_parameters_are(tmp_path):
    data, validation = von_mises_circle(100, seed=0), von_mises_circle(20, seed=1)
    results = []
    for epochs in ((3,), (1, 3)):  # straight on, and in two sittings
        for number, count in enumerate(epochs):
            flow, out = _flow(), tmp_path / str(len(epochs))
            config = TrainingConfig(epochs=count, batch_size=20, learning_rate=1e-2)
            fit(flow, data, config, validation=validation, out=out, resume=number > 0)
        results.append(flow.state_dict())
    straight, resumed = results
    assert all(torch.equal(straight[name], resumed[name]) for name in straight)
