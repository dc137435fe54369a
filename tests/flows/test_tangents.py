from itertools import pairwise

import pytest
import torch

from rectangular_flows import RectangularFlow
from rectangular_flows.flows import MLP, Identity, RealNVP, tangents
from rectangular_flows.volume import Stochastic


def case(points, count, sizes=(3, 7, 5, 2)):
    torch.manual_seed(0)
    bundle = torch.randn(points, count, sizes[0], dtype=torch.float64, requires_grad=True)
    slopes = [torch.randn(points, n, dtype=torch.float64, requires_grad=True) for n in sizes[1:-1]]
    weights = [torch.randn(b, a, dtype=torch.float64, requires_grad=True) for a, b in pairwise(sizes)]
    return bundle, slopes, weights


@pytest.mark.parametrize("block", [1, 40, 2**19])
@pytest.mark.parametrize(("points", "count"), [(1, 1), (5, 3), (11, 2), (0, 2)])
def test_equals_plain_operations(points, count, block, monkeypatch):
    monkeypatch.setattr(tangents, "_BLOCK_SCALARS", block)
    bundle, slopes, weights = case(points, count)
    out, expected = tangents.tangent_mlp(bundle, slopes, weights), tangents._plain(bundle, slopes, weights)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)
    with torch.no_grad():
        torch.testing.assert_close(tangents.tangent_mlp(bundle, slopes, weights), expected, rtol=0, atol=1e-12)
    cotangents = torch.randn_like(out)
    inputs = [bundle, *slopes, *weights]
    got = torch.autograd.grad(out, inputs, cotangents)
    wanted = torch.autograd.grad(expected, inputs, cotangents)
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-11)


def test_derivatives():
    bundle, slopes, weights = case(3, 2)

    def function(bundle, *rest):
        return tangents.tangent_mlp(bundle, rest[: len(slopes)], rest[len(slopes) :])

    assert torch.autograd.gradcheck(function, (bundle, *slopes, *weights))
    assert torch.autograd.gradgradcheck(function, (bundle, *slopes, *weights))


def test_some_inputs_without_gradient():
    bundle, slopes, weights = case(4, 2)
    out = tangents.tangent_mlp(bundle.detach(), slopes, [w.detach() for w in weights])
    (got,) = torch.autograd.grad(out.square().sum(), slopes[:1])
    expected = tangents._plain(bundle.detach(), slopes, [w.detach() for w in weights])
    torch.testing.assert_close(got, torch.autograd.grad(expected.square().sum(), slopes[:1])[0])


def test_no_hidden_layer():
    network = MLP(3, 2, hidden=()).double()
    _, tangent_map = network.linearize(torch.randn(4, 3, dtype=torch.float64))
    pushed = tangent_map(torch.ones(4, 1, 3, dtype=torch.float64))
    torch.testing.assert_close(pushed[:, 0], network.layers[0].weight.sum(1).expand(4, 2))


@pytest.mark.parametrize("block", [1, 40, 2**19])
@pytest.mark.parametrize(("points", "count"), [(1, 1), (5, 3), (11, 2)])
def test_the_transposed_map_takes_products_of_its_own_only(points, count, block, monkeypatch):
    """With the weights held, no gradient of theirs is computed on the way, and that of the tangents is the same."""
    monkeypatch.setattr(tangents, "_BLOCK_SCALARS", block)
    bundle, slopes, weights = case(points, count)
    out = tangents.tangent_mlp(bundle, slopes, weights)
    cotangents = torch.randn_like(out)
    (wanted,) = torch.autograd.grad(out, bundle, cotangents)
    with tangents.weights_held():
        held = tangents.tangent_mlp(bundle, slopes, weights)
    monkeypatch.setattr(tangents, "_add_product", lambda *_: pytest.fail("a gradient of weights"))
    (got,) = torch.autograd.grad(held, bundle, cotangents)
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-12)


def test_conjugate_gradients_ask_for_no_gradient_of_weights(monkeypatch):
    flow = RectangularFlow(RealNVP(6, 2, (32,), zero_init=False), Identity(3))
    with monkeypatch.context() as patch:
        patch.setattr(tangents, "_add_product", lambda *_: pytest.fail("a gradient of weights"))
        _, surrogate = Stochastic(1, solver="pcg")(flow, torch.randn(5, 3))  # solves on the way
    surrogate.sum().backward()
    assert all(p.grad is not None for p in flow.ambient.parameters())
