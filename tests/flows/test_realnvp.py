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
    assert kinds == ["AffineCoupling"] * 3 + ["Squeeze"] + ["AffineCoupling"] * 3 + ["Split"] + ["AffineCoupling"] * 4


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


def test_bounded_scale_is_bounded():
    mask = flows.even_odd(2, True)
    network = flows.MLP(1, 2)
    with torch.no_grad():
        network.layers[-1].bias.fill_(1e4)
    bounded = flows.AffineCoupling(mask, network, bound=1.5)
    assert bounded.forward_with_log_det(torch.zeros(1, 2))[1].item() == pytest.approx(1.5)


def test_actnorm_and_pca_start_from_data():
    data = torch.randn(500, 4, dtype=torch.float64) @ torch.randn(4, 4, dtype=torch.float64) + 7
    flow = flows.RealNVP(4, 2, actnorm=True).double()
    z = flow.initialise(data)
    torch.testing.assert_close(z, flow.inverse(data))
    torch.testing.assert_close(z.mean(0), torch.zeros(4, dtype=torch.float64), rtol=0, atol=1e-10)
    torch.testing.assert_close(z.std(0), torch.ones(4, dtype=torch.float64))
    embedding = flows.OrthonormalEmbedding.pca(data, 2)
    centred = data - data.mean(0)
    best = torch.linalg.svdvals(centred)[2:].square().sum()  # Eckart–Young
    torch.testing.assert_close((embedding(embedding.inverse(data)) - data).square().sum(), best)


def test_trained_embedding_stays_orthonormal():
    layer = flows.OrthonormalEmbedding(2, 5, trainable=True)
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.5)
    before = layer.directions().detach().clone()
    target = torch.randn(8, 5)
    for _ in range(5):
        optimiser.zero_grad()
        (layer(layer.inverse(target)) - target).square().sum().backward()
        optimiser.step()
    U = layer.directions()
    torch.testing.assert_close(U.mT @ U, torch.eye(2), rtol=0, atol=1e-5)
    assert (U - before).abs().max() > 1e-2


def test_a_layer_with_forward_and_inverse_only_is_an_injection():
    class Paraboloid(flows.Injection):
        def forward(self, z):
            return torch.cat([z, z.square().sum(-1, keepdim=True)], dim=-1)

        def inverse(self, x):
            return x[..., :-1]

    class WithPush(Paraboloid):
        def push(self, z, tangents):
            return self(z), torch.cat([tangents, 2 * (z.unsqueeze(1) * tangents).sum(-1, keepdim=True)], dim=-1)

    z, tangents = torch.randn(3, 2), torch.randn(3, 4, 2)
    plain, own = Paraboloid((2,), (3,)), WithPush((2,), (3,))
    torch.testing.assert_close(plain.push(z, tangents), own.push(z, tangents))
    torch.testing.assert_close(plain.linearize(z)[1](tangents), own.linearize(z)[1](tangents))
    chained = flows.chain(own, flows.RealNVP(3, zero_init=False))
    assert chained.push(z, tangents)[1].shape == (3, 4, 3)
    assert chained.linearize_inverse(chained(z))[1](torch.zeros(3, 1, 3)).shape == (3, 1, 2)


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


def test_rows_far_out_count_in_the_directions_data_are_embedded_along():
    y = torch.randn(200, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64) ** 3
    layer = flows.OrthonormalEmbedding(2, 4, tail=0.75).double()
    layer.initialise(y)
    centred = y - y.mean(dim=0)
    weights = torch.linalg.vector_norm(centred, dim=1) ** 1.5
    expected = torch.linalg.svd(weights.sqrt().unsqueeze(1) * centred, full_matrices=False).Vh[:2]
    torch.testing.assert_close(layer.raw @ layer.raw.mT, expected.mT @ expected)


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
        (lambda: flows.Standardise.from_data(torch.ones(4, 2)), "no variation in features"),
        (lambda: flows.ActNorm(2).initialise(torch.ones(4, 2)), "no variation in features"),
        (lambda: flows.Logit(2, margin=0.7), "margin"),
        (lambda: flows.BijectiveChain(flows.Pad(1, 2)), "got Pad"),
        (lambda: flows.as_density(torch.nn.Linear(1, 1)), "got Linear"),
    ],
)
def test_mistakes_are_told(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_pixels_outside_the_unit_interval_are_an_error():
    from rectangular_flows.errors import NonFiniteError

    with pytest.raises(NonFiniteError, match=r"Pixels must lie in \[0, 1\]"):
        flows.Logit(2).inverse(torch.tensor([[0.5, 255.0]]))


def test_singular_free_matrix_is_an_error():
    from rectangular_flows.errors import RankDeficientError

    layer = flows.FreeLinear(3)
    with torch.no_grad():
        layer.weight.zero_()
    with pytest.raises(RankDeficientError, match="LULinear"):
        layer.inverse(torch.ones(2, 3))
