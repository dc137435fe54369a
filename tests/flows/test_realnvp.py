import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rectangular_flows import flows
from tests.conftest import points, shaken

PAPER = {"activation": "tanh", "scale": "exp", "zero_init": False}


def count(*modules):
    return sum(parameter.numel() for module in modules for parameter in module.parameters())


@pytest.mark.parametrize(
    ("D", "d", "expected"), [(6, 3, 514_378), (8, 2, 518_010), (21, 10, 545_060), (43, 21, 590_198)]
)
def test_tabular_parameter_counts(D, d, expected):
    assert count(flows.RealNVP(D, 10, (128,) * 4, **PAPER), flows.RealNVP(d, 5, (32, 32), **PAPER)) == expected


@pytest.mark.parametrize(
    ("shape", "latents", "expected"), [((1, 28, 28), 392, 5_962_350), ((3, 32, 32), 1536, 5_986_490)]
)
def test_image_parameter_counts(shape, latents, expected):
    ambient = flows.MultiscaleRealNVP(shape)
    assert count(ambient, flows.RealNVP(20, 10, (32,) * 4, **PAPER)) == expected
    assert torch.Size(ambient.in_shape).numel() == latents


def test_image_couplings_are_those_of_the_paper():
    kinds = [type(link).__name__ for link in flows.MultiscaleRealNVP((1, 4, 4), 2, 1).layers][::-1]
    assert kinds == ["Coupling"] * 3 + ["Squeeze"] + ["Coupling"] * 3 + ["Split"] + ["Coupling"] * 4


@settings(max_examples=25, deadline=None)
@given(
    features=st.integers(1, 9),
    layers=st.integers(1, 4),
    mask=st.sampled_from(["even-odd", "halves"]),
    scale=st.sampled_from(["tanh", "exp", "sigmoid"]),
    mixing=st.sampled_from([None, "permutation", "lu", "free"]),
    network=st.sampled_from(["mlp", "residual"]),
    batch=st.integers(1, 4),
    seed=st.integers(0, 10**6),
)
def test_any_real_nvp_is_a_bijection(features, layers, mask, scale, mixing, network, batch, seed):
    torch.manual_seed(seed)
    flow = flows.RealNVP(
        features, layers, (5, 5), mask=mask, scale=scale, mixing=mixing, network=network, actnorm=True, zero_init=False
    )
    flow = shaken(flow, seed, 0.1)
    z = points(flow, batch, seed)
    x, log_det = flow.forward_with_log_det(z)
    back, log_det_back = flow.inverse_with_log_det(x)
    torch.testing.assert_close(back, z, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(log_det, -log_det_back, rtol=1e-8, atol=1e-8)


def test_starts_as_the_identity_and_moves_every_coordinate():
    flow = flows.RealNVP(5).double()
    z = points(flow)
    assert torch.equal(flow(z), z)
    assert ((shaken(flow)(z) - z).abs() > 1e-6).all()


def test_one_feature_is_a_learned_affine_map():
    flow = shaken(flows.RealNVP(1, layers=3))
    z = torch.tensor([[0.0], [1.0], [2.0]], dtype=torch.float64)
    x = flow(z).detach().flatten()
    assert float(x[2] - x[1]) == pytest.approx(float(x[1] - x[0]))
    assert float(x[0]) != 0.0


@pytest.mark.parametrize("layers", [1, 2, 5])
@pytest.mark.parametrize("features", [1, 2, 7])
@pytest.mark.parametrize("mixing", ["permutation", "lu", "free"])
def test_with_mixing_the_start_is_the_identity(mixing, features, layers):
    flow = flows.RealNVP(features, layers, (5, 5), mixing=mixing)
    z = torch.randn(4, features)
    torch.testing.assert_close(flow(z), z, rtol=1e-4, atol=1e-5)
    if features > 2 and layers > 1:  # by layers that mix, each
        assert all((layer(z) - z).abs().max() > 0.1 for layer in list(flow.layers)[::2])
        flow = flows.RealNVP(features, layers, (5, 5), mixing=mixing, mixing_start="random")
        assert (flow(z) - z).abs().max() > 0.1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: flows.RealNVP(3)(torch.zeros(2, 4)), r"Expected input shape \(batch, 3\); got \(2, 4\)"),
        (lambda: flows.chain(flows.Pad(1, 2), flows.Identity(3)), r"expects shape \(3,\); got \(2,\)"),
        (lambda: flows.Pad(3, 2), "got d = 3 and D = 2"),
        (lambda: flows.Pad(1, 2, order=[0, 0]), "permutation"),
        (lambda: flows.MLP(1, 1, activation="gelu"), "tanh, silu, relu; got 'gelu'"),
        (lambda: flows.RealNVP(3, mask="thirds"), "even-odd, halves; got 'thirds'"),
        (lambda: flows.RealNVP(3, mixing="qr"), "permutation, lu, free; got 'qr'"),
        (lambda: flows.RealNVP(3, mixing="lu", mixing_start="pca"), "identity, random; got 'pca'"),
        (lambda: flows.RealNVP(0), "positive"),
        (lambda: flows.OrthonormalEmbedding(1, 2, tail=-1.0), "at least 0; got -1"),
        (lambda: flows.Squeeze((1, 3, 4)), "even height and width; got 3×4"),
        (lambda: flows.Standardise(torch.zeros(2), torch.tensor([1.0, 0.0])), "a constant column has scale 0"),
        (lambda: flows.ActNorm(2).initialise(torch.ones(4, 2)), "no variation in features"),
        (lambda: flows.Logit(2, margin=0.7), "margin"),
        (lambda: flows.BijectiveChain(flows.Pad(1, 2)), "got Pad"),
    ],
)
def test_mistakes_are_named(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()
