import pytest
import torch

from rectangular_flows.training.average import Average


def test_moving_average_against_its_formula():
    layer = torch.nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        layer.weight.fill_(1.0)
    average, expected = Average(layer, 0.9), 1.0
    for step in range(200):
        with torch.no_grad():
            layer.weight.fill_(float(step))
        average.update(step)
        decay = min(0.9, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * step
    with average.in_place():
        assert float(layer.weight.detach()) == pytest.approx(expected, rel=1e-6)
    assert float(layer.weight.detach()) == 199
