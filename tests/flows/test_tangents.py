from contextlib import nullcontext
from itertools import pairwise

import pytest
import torch

from rectangular_flows import RectangularFlow
from rectangular_flows.flows import MLP, Identity, RealNVP, tangents
from rectangular_flows.volume import Stochastic


def case(points, count, sizes=(3, 7, 5, 2)):
    torch.manual_seed(0)
    bundle = torch.randn(points, count, sizes[0], dtype=torch.float64, requires_grad=True)
    values = [torch.randn(points, n, dtype=torch.float64, requires_grad=True) for n in sizes[1:-1]]
    weights = [torch.randn(b, a, dtype=torch.float64, requires_grad=True) for a, b in pairwise(sizes)]
    return bundle, values, weights


OF_TANH = pytest.mark.parametrize("of_tanh", [False, True])


def plain(bundle, values, weights, of_tanh):
    return tangents._plain(bundle, [1 - y**2 for y in values] if of_tanh else values, weights)


@OF_TANH
@pytest.mark.parametrize("block", [1, 40, 2**19])
@pytest.mark.parametrize(("points", "count"), [(1, 1), (5, 3), (11, 2), (0, 2)])
def test_equals_plain_operations(points, count, block, of_tanh, monkeypatch):
    monkeypatch.setattr(tangents, "_BLOCK_SCALARS", block)
    bundle, values, weights = case(points, count)
    slopes = tangents.Slopes(values, of_tanh)
    out, expected = tangents.tangent_mlp(bundle, slopes, weights), plain(bundle, values, weights, of_tanh)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)
    with torch.no_grad():
        torch.testing.assert_close(tangents.tangent_mlp(bundle, slopes, weights), expected, rtol=0, atol=1e-12)
    cotangents = torch.randn_like(out)
    inputs = [bundle, *values, *weights]
    got = torch.autograd.grad(out, inputs, cotangents)
    wanted = torch.autograd.grad(expected, inputs, cotangents)
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-11)


@OF_TANH
def test_derivatives(of_tanh):
    bundle, values, weights = case(3, 2)

    def function(bundle, *rest):
        return tangents.tangent_mlp(bundle, tangents.Slopes(rest[:2], of_tanh), rest[2:])

    assert torch.autograd.gradcheck(function, (bundle, *values, *weights))
    assert torch.autograd.gradgradcheck(function, (bundle, *values, *weights))


@OF_TANH
def test_some_inputs_without_gradient(of_tanh):
    bundle, values, weights = case(4, 2)
    held = [w.detach() for w in weights]
    out = tangents.tangent_mlp(bundle.detach(), tangents.Slopes(values, of_tanh), held)
    (got,) = torch.autograd.grad(out.square().sum(), values[:1])
    expected = plain(bundle.detach(), values, held, of_tanh)
    torch.testing.assert_close(got, torch.autograd.grad(expected.square().sum(), values[:1])[0])


@pytest.mark.parametrize("as_published", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_graph_keeps_the_values_of_tanh_and_not_their_slopes_beside(dtype, as_published):
    """Per point and unit of a hidden layer: its value, and one product for each tangent; as published also the slope."""
    network, kept = MLP(8, 4, hidden=(64, 64), activation="tanh").to(dtype), {}
    own = {p.untyped_storage().data_ptr() for p in network.parameters()}

    def keep(tensor):
        if tensor.untyped_storage().data_ptr() not in own:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    context = tangents.slopes_kept() if as_published else nullcontext()
    with context, torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        y, tangent_map = network.linearize(torch.randn(100, 8, dtype=dtype))
        pushed = tangent_map(torch.randn(100, 2, 8, dtype=dtype))
    of_layers = 100 * 2 * 64 * (1 + 2 + as_published)
    beside = 100 * (8 + 2 * 8)  # the inputs
    assert sum(kept.values()) == (of_layers + beside) * dtype.itemsize
    (pushed.square().sum() + y.square().sum()).backward()
    assert all(p.grad is not None for p in network.parameters())


def test_a_lower_precision_rounds_slopes_and_not_the_values_of_tanh():
    """Where these are nearly one: 1 − y² of rounded values would be 0."""
    y = torch.full((64, 64), 0.999, requires_grad=True)
    weights, bundle = [torch.eye(64), torch.eye(64)], torch.ones(64, 2, 64)
    with tangents.tangents_in(torch.bfloat16):
        out = tangents.tangent_mlp(bundle, tangents.Slopes([y], True), weights)
    torch.testing.assert_close(out, torch.full_like(out, 1 - 0.999**2), rtol=0.01, atol=0)
    (grad,) = torch.autograd.grad(out.sum(), y)
    torch.testing.assert_close(grad, torch.full_like(grad, -4 * 0.999), rtol=0.01, atol=0)


def test_no_hidden_layer():
    network = MLP(3, 2, hidden=()).double()
    _, tangent_map = network.linearize(torch.randn(4, 3, dtype=torch.float64))
    pushed = tangent_map(torch.ones(4, 1, 3, dtype=torch.float64))
    torch.testing.assert_close(pushed[:, 0], network.layers[0].weight.sum(1).expand(4, 2))


@OF_TANH
@pytest.mark.parametrize("block", [1, 40, 2**19])
@pytest.mark.parametrize(("points", "count"), [(1, 1), (5, 3), (11, 2)])
def test_the_transposed_map_takes_products_of_its_own_only(points, count, block, of_tanh, monkeypatch):
    """With the weights held, no gradient of theirs is computed on the way, and that of the tangents is the same."""
    monkeypatch.setattr(tangents, "_BLOCK_SCALARS", block)
    bundle, values, weights = case(points, count)
    slopes = tangents.Slopes(values, of_tanh)
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
