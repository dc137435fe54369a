import pytest
import torch

import rectangular_flows as rnf
from rectangular_flows.training import Objective
from rectangular_flows.training.weights import TailWeights, tail_weights
from rectangular_flows.volume import Exact

from .test_loop import make_flow


def heavy_tailed(rows, seed=0):
    """A curve in the plane with a few points far out, off the line that most of them lie on."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 1, generator=generator)
    x[: rows // 50] *= 6
    return torch.cat([x, 0.05 * x**2 * x.sign()], dim=1) + 0.05 * torch.randn(rows, 2, generator=generator)


@pytest.mark.parametrize("exponent", [0.5, 0.75, 2.0])
def test_weights_are_one_on_average_and_grow_with_the_distance(exponent):
    y = heavy_tailed(500).double() + 3
    weights = TailWeights.of(y, exponent)
    assert weights(y).mean().item() == pytest.approx(1)
    distance = (y - y.mean(0)).norm(dim=1)
    ratio = weights(y) / distance ** (2 * exponent)
    torch.testing.assert_close(ratio, ratio[:1].expand_as(ratio))


@pytest.mark.parametrize("part", ["all", "reconstruction"])
@pytest.mark.parametrize("fraction", [1.0, 0.3])
def test_the_objective_weighs_the_error_and_nothing_else(part, fraction):
    flow, x = make_flow(), heavy_tailed(20)
    weights = tail_weights(flow, x, x, 0.5, seed=0)
    plain, weighted = (Objective(flow, Exact(), 7.0, fraction, w)(x, 0.5, part) for w in (None, weights))
    error = flow.reconstruction_error(x).float()  # these units are the model's
    expected = plain.loss + 7.0 * ((weights(x) - 1) * error).mean()
    torch.testing.assert_close(weighted.loss, expected)
    torch.testing.assert_close(weighted.reconstruction, error.mean())
    assert abs(weighted.loss - plain.loss) > 1e-3


def test_without_an_exponent_there_are_none():
    assert tail_weights(make_flow(), heavy_tailed(20), torch.zeros(()), 0.0, seed=0) is None
    with pytest.raises(ValueError, match="tail_weight ≥ 0; got -1"):
        rnf.TrainingConfig(tail_weight=-1)


def test_parts_of_a_batch_add_up_with_weights_too():
    """The weight of a row is that among all rows, whatever it is taken with."""
    settings = {"epochs": 1, "batch_size": 100, "tail_weight": 0.5, "learning_rate": 1e-2, "scatter": False}
    found = []
    for memory in (1e-3, 2048.0):
        flow = make_flow()
        rnf.fit(flow, heavy_tailed(200), rnf.TrainingConfig(memory=memory, **settings))
        found.append(torch.cat([p.detach().flatten() for p in flow.parameters()]))
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("exponent", [0.0, 1.0])
def test_a_linear_flow_finds_the_principal_component_of_weighted_rows(exponent):
    """Most rows lie along one axis, the few far out along the other: which of them wins is a matter of weights."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 2, generator=generator, dtype=torch.float64) * torch.tensor([1.0, 0.1])
    x[:10] = x[:10] * torch.tensor([0.1, 30.0])
    x = torch.cat([x, -x])
    weights = x.square().sum(1) ** exponent
    _, directions = torch.linalg.eigh((x.T * weights) @ x)
    ambient = rnf.flows.FreeLinear(2)
    flow = rnf.RectangularFlow(ambient, rnf.flows.Identity(1), pad=rnf.flows.Pad(1, 2, order="first")).double()
    with torch.no_grad():
        for parameter in ambient.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    config = rnf.TrainingConfig(
        "two-step",
        epochs=150,
        evaluate_every=25,
        batch_size=400,
        learning_rate=5e-2,
        schedule="cosine",
        tail_weight=exponent,
        beta=1.0,
        monitor="weighted",
        scatter=False,
    )

    def weighted(flow, rows):
        return float((weights * flow.reconstruction_error(rows)).mean())

    rnf.fit(flow, x, config, validation=x, metrics={"weighted": weighted})
    axis = flow.decode(torch.ones(1, 1, dtype=torch.float64))[0].detach()
    cosine = (axis @ directions[:, -1]).abs() / axis.norm()
    assert cosine.item() > 0.999
    assert directions[:, -1].abs().argmax() == (0 if exponent == 0 else 1)
