"""The square flow that ``rnf reproduce ood`` sets beside a rectangular one."""

import pytest
import torch

from rectangular_flows import RectangularFlow, TrainingConfig, flows
from rectangular_flows.paper.square_flow import log_likelihood_of_square_flow, square_flow, square_log_prob
from tests.conftest import shaken


def principal_flow(train, dim=2, directions=5):
    shape = tuple(train.shape[1:])
    outer = [flows.ActNorm(directions), flows.OrthonormalEmbedding(directions, shape), flows.Logit(shape, 0.05)]
    pad = flows.Pad(dim, directions, order="first")
    flow = RectangularFlow(flows.RealNVP(directions, layers=2, hidden=(8,)), flows.Identity(dim), outer, pad=pad)
    flow.initialise(train)
    return flow


@pytest.mark.parametrize("dim", [2, 4])
def test_the_square_contrast_is_a_density_of_all_pixels(dim):
    train = torch.rand(200, 1, 4, 4)
    flow = principal_flow(train, dim)
    square = square_flow(flow, train)
    assert flow.ambient_dim == square.latent_dim == 16
    assert square.data_shape == (1, 4, 4)
    # untrained it is a Gaussian with the moments of the logits, whatever the directions
    y = square.to_model_units(train).flatten(1).double()
    expected = torch.distributions.MultivariateNormal(y.mean(dim=0), y.T.cov()).log_prob(y)
    slope = (0.9 / ((0.05 + 0.9 * train) * (0.95 - 0.9 * train))).flatten(1).log().sum(dim=1).double()
    pixels, model = square_log_prob(square, train)
    torch.testing.assert_close(model.double(), expected, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(pixels.double(), expected + slope, rtol=1e-3, atol=1e-3)


def test_the_square_contrast_is_one_of_fewer_directions_where_there_are_few_images():
    train = torch.rand(10, 1, 4, 4)
    square = square_flow(principal_flow(train), train)
    assert square.latent_dim == 9
    assert all(torch.isfinite(values).all() for values in square_log_prob(square, train))


@pytest.mark.parametrize("rows", [50, 4])
def test_densities_of_the_square_contrast_are_those_of_the_whole_jacobian(rows):
    train = torch.rand(rows, 1, 2, 2)
    square = shaken(square_flow(principal_flow(train, 1, 2), train))
    assert square.latent_dim == min(4, rows - 1)
    x = train[:4].double()
    pixels, model = square_log_prob(square, x)
    with torch.no_grad():
        torch.testing.assert_close(pixels, square.log_prob(x))
        torch.testing.assert_close(model, square.in_model_units.log_prob(square.to_model_units(x)))


@pytest.mark.slow
def test_the_square_contrast_learns():
    base = torch.rand(400, 1)
    parabola = torch.cat([base, (2 * base - 1) ** 2, torch.rand(400, 2)], dim=1)
    train = parabola.mul(0.8).add(0.1).reshape(400, 1, 2, 2)
    flow = principal_flow(train, dim=1, directions=2)
    config = TrainingConfig(epochs=30, batch_size=50, learning_rate=1e-2, beta=10.0, target_error=0.1, seed=1)
    sets = {"train": train, "elsewhere": torch.rand(100, 1, 2, 2)}
    before = square_flow(flow, train, 1)
    found = log_likelihood_of_square_flow(flow, train, config, sets)
    for units, start in enumerate(square_log_prob(before, train)):
        assert [values[units].shape for values in found.values()] == [(400,), (100,)]
        assert found["train"][units].mean() > float(start.mean()) + 0.2


def test_other_flows_than_in_principal_directions_are_refused():
    flow = RectangularFlow(flows.MultiscaleRealNVP((1, 4, 4), width=2, blocks=1), flows.Identity(2))
    with pytest.raises(ValueError, match="expected couplings in principal directions; got MultiscaleRealNVP"):
        square_flow(flow, torch.rand(20, 1, 4, 4))
