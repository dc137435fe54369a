"""Transformers, over the registry of all of them: derivatives against autograd, and what each is by definition."""

import math

import pytest
import torch

from rectangular_flows import flows
from rectangular_flows.flows.description import build, describe
from rectangular_flows.flows.transformers import TRANSFORMERS, Exp, Sigmoid, Tanh, Transformer, register_transformer

from .layers import Additive

KINDS = {**TRANSFORMERS, "additive": Additive}
DTYPES = [(torch.float64, 1e-10), (torch.float32, 1e-4)]


def case(kind, rows=4, dtype=torch.float64):
    return (
        kind(),
        torch.randn(rows, 3, dtype=dtype),
        [torch.randn(rows, 3, dtype=dtype) for _ in range(kind.parameters)],
    )


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
@pytest.mark.parametrize("name", KINDS)
def test_inverse_and_log_slope(name, dtype, tolerance, rows):
    transformer, z, theta = case(KINDS[name], rows, dtype)
    x, log_slope = transformer.forward(z, *theta)
    back, log_slope_back = transformer.inverse(x, *theta)
    torch.testing.assert_close(back, z, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(log_slope_back, -log_slope, rtol=tolerance, atol=tolerance)
    _, slope = torch.func.jvp(lambda v: transformer.forward(v, *theta)[0], (z,), (torch.ones_like(z),))
    torch.testing.assert_close(log_slope.exp(), slope, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("direction", ["forward", "inverse"])
@pytest.mark.parametrize("name", KINDS)
def test_tangents_against_jvp(name, direction):
    transformer, at, theta = case(KINDS[name])
    function = getattr(transformer, direction)
    linearize = transformer.linearize if direction == "forward" else transformer.linearize_inverse
    value, tangent_map = linearize(at, *theta)
    torch.testing.assert_close(value, function(at, *theta)[0], rtol=0, atol=1e-12)
    tangents = [torch.randn(4, 2, 3, dtype=torch.float64) for _ in range(1 + transformer.parameters)]
    got = tangent_map(*tangents)
    for k in range(2):
        _, expected = torch.func.jvp(lambda *v: function(*v)[0], (at, *theta), tuple(t[:, k] for t in tangents))
        torch.testing.assert_close(got[:, k], expected, rtol=0, atol=1e-10)


def test_scales_by_definition():
    """x = z eˢ + t at z = 1 and t = 3."""
    raw = torch.tensor([[-5.0, 0.0, 5.0]], dtype=torch.float64)
    log_scales = {
        Tanh(1.5): [1.5 * math.tanh(r / 1.5) for r in (-5, 0, 5)],
        Exp(): [-5, 0, 5],
        Sigmoid(): [math.log(1 / (1 + math.exp(-r - 2)) + 1e-3) for r in (-5, 0, 5)],
    }
    for transformer, expected in log_scales.items():
        x, log_slope = transformer.forward(torch.ones_like(raw), torch.full_like(raw, 3.0), raw)
        torch.testing.assert_close(log_slope, torch.tensor([expected], dtype=torch.float64))
        torch.testing.assert_close(x, 3 + torch.tensor([expected], dtype=torch.float64).exp())


def test_bounded_scale_is_bounded():
    network = flows.MLP(1, 2)
    with torch.no_grad():
        network.layers[-1].bias.fill_(1e4)
    for bounded in (
        flows.Coupling(flows.even_odd(2, True), network, Tanh(1.5)),
        flows.AffineCoupling(flows.even_odd(2, True), network, bound=1.5),
    ):
        assert bounded.forward_with_log_det(torch.zeros(1, 2))[1].item() == pytest.approx(1.5)


def test_a_transformer_of_ones_own(monkeypatch):
    monkeypatch.setitem(TRANSFORMERS, "additive", None)  # forgotten again after this test
    register_transformer("additive", Additive)
    flow = flows.RealNVP(4, 2, (5,), scale="additive", zero_init=False).double()
    z = torch.randn(3, 4, dtype=torch.float64)
    x, log_det = flow.forward_with_log_det(z)
    assert torch.equal(log_det, torch.zeros(3, dtype=torch.float64))
    torch.testing.assert_close(flow.inverse(x), z)
    J = torch.func.vmap(torch.func.jacrev(lambda v: flow(v.unsqueeze(0)).squeeze(0)))(z)
    torch.testing.assert_close(torch.linalg.det(J), torch.ones(3, dtype=torch.float64))
    assert not torch.allclose(x, z)


def test_as_an_object_it_is_saved_with_the_flow():
    flow = flows.RealNVP(3, 2, (5,), scale=Tanh(0.25))
    description = describe(flow)
    assert description["arguments"]["scale"] == {"class": "Tanh", "arguments": {"bound": 0.25}}
    assert build(description).layers[0].transformer.bound == 0.25


def test_descriptions_from_before_transformers_were_objects():
    mask = {"class": "CheckerboardMask", "arguments": {"shape": [1, 2, 2], "keep_first": True}}
    network = {"class": "ResidualConvNet", "arguments": {"inputs": 1, "outputs": 2, "size": [2, 2]}}
    for scale, kind in TRANSFORMERS.items():
        arguments = {"mask": mask, "network": network, "scale": scale, "bound": 0.7}
        coupling = build({"class": "AffineCoupling", "arguments": arguments})
        assert type(coupling.transformer) is kind
    flow = build({"class": "RealNVP", "arguments": {"features": 3, "scale": "exp", "bound": 2.0}})
    assert isinstance(flow.layers[0].transformer, Exp)
    assert build({"class": "RealNVP", "arguments": {"features": 3, "bound": 0.7}}).layers[0].transformer.bound == 0.7


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="transformer among tanh, exp, sigmoid; got 'cubic'"):
        flows.RealNVP(3, scale="cubic")
    with pytest.raises(ValueError, match="positive bound of the log-scale; got 0"):
        Tanh(0)
    assert issubclass(Additive, Transformer)
