"""Linear layers: what they take from data, and what keeps them invertible or orthonormal."""

import pytest
import torch

from rectangular_flows import flows
from rectangular_flows.errors import RankDeficientError


def test_actnorm_and_pca_start_from_data():
    data = torch.randn(500, 4, dtype=torch.float64) @ torch.randn(4, 4, dtype=torch.float64) + 7
    flow = flows.RealNVP(4, 2, actnorm=True).double()
    z = flow.initialise(data)
    torch.testing.assert_close(z, flow.inverse(data))
    torch.testing.assert_close(z.mean(0), torch.zeros(4, dtype=torch.float64), rtol=0, atol=1e-10)
    torch.testing.assert_close(z.std(0), torch.ones(4, dtype=torch.float64))
    embedding = flows.OrthonormalEmbedding(2, 4).double()
    embedding.initialise(data)
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


def test_rows_far_out_count_in_the_directions_data_are_embedded_along():
    y = torch.randn(200, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64) ** 3
    layer = flows.OrthonormalEmbedding(2, 4, tail=0.75).double()
    layer.initialise(y)
    centred = y - y.mean(dim=0)
    weights = torch.linalg.vector_norm(centred, dim=1) ** 1.5
    expected = torch.linalg.svd(weights.sqrt().unsqueeze(1) * centred, full_matrices=False).Vh[:2]
    torch.testing.assert_close(layer.raw @ layer.raw.mT, expected.mT @ expected)


def test_singular_free_matrix_is_an_error():
    layer = flows.FreeLinear(3)
    with torch.no_grad():
        layer.weight.zero_()
    with pytest.raises(RankDeficientError, match="LULinear"):
        layer.inverse(torch.ones(2, 3))


def test_whitening_whitens():
    layer = flows.Whitening(3).double()
    data = torch.randn(400, 3, dtype=torch.float64) @ torch.randn(3, 3, dtype=torch.float64) + 4
    u = layer.initialise(data)
    torch.testing.assert_close(u.mean(0), torch.zeros(3, dtype=torch.float64), rtol=0, atol=1e-10)
    torch.testing.assert_close(torch.cov(u.mT), torch.eye(3, dtype=torch.float64))
    with pytest.raises(RankDeficientError, match="not positive definite"):
        layer.initialise(data[:2])
