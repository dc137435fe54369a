"""The log-volume of a bundle of tangents: its value, its derivatives, and where it has none."""

import pytest
import torch

from rectangular_flows.errors import RankDeficientError
from rectangular_flows.volume import Exact, log_volume

from .helpers import gradient, make_flow, with_condition


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("D", "d"), [(2, 1), (7, 3), (43, 21), (5, 5)])
def test_against_svd_in_double(D, d, seed):
    for condition in (1.0, 1e3, 1e6):
        J = with_condition(D, d, condition, torch.float64, seed=seed)
        expected = torch.linalg.svdvals(J).log().sum(-1)
        torch.testing.assert_close(log_volume(J.mT), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("D", "d"), [(7, 3), (43, 21)])
def test_against_svd_in_single(D, d, seed):
    for condition in (1.0, 1e3, 1e5):
        J = with_condition(D, d, condition, torch.float32, seed=seed)
        expected = torch.linalg.svdvals(J.double()).log().sum(-1)
        torch.testing.assert_close(log_volume(J.mT).double(), expected, rtol=0, atol=1e-3)


def test_cholesky_would_have_failed():
    """Why QR: at cond(J) = 1e5 in float32 the Gram matrix is not positive definite any more."""
    J = with_condition(43, 21, 1e5, torch.float32)
    assert bool((torch.linalg.cholesky_ex(J.mT @ J).info != 0).any())


def test_second_derivatives():
    tangents = torch.randn(2, 2, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(log_volume, (tangents,))
    assert torch.autograd.gradgradcheck(log_volume, (tangents,))


class Tangents(torch.nn.Module):
    def __init__(self, flow):
        super().__init__()
        self.flow = flow

    def forward(self, z):
        return self.flow.jacobian(z).mT


def test_per_sample_gradients_by_vmap():
    flow = make_flow(4, 2)
    z = torch.randn(3, 2, dtype=torch.float64)
    tangents = Tangents(flow)

    def volume(parameters, point):
        return log_volume(torch.func.functional_call(tangents, parameters, point.unsqueeze(0))).squeeze()

    per_sample = torch.func.vmap(torch.func.grad(volume), in_dims=(None, 0))(dict(tangents.named_parameters()), z)
    total = torch.cat([value.sum(dim=0).flatten() for value in per_sample.values()])
    expected = gradient(Exact(codimension="never")(flow, z)[1].sum(), flow)
    torch.testing.assert_close(total, expected, rtol=0, atol=1e-9)


def test_rank_deficiency_is_named():
    collapsed = torch.randn(4, 2, 5)
    collapsed[1, 1] = collapsed[1, 0]
    collapsed[3] = 0
    with pytest.raises(RankDeficientError, match=r"at 2 of 4 points \(first rows: \[1, 3\]\)"):
        log_volume(collapsed)


def test_more_tangents_than_dimensions():
    with pytest.raises(ValueError, match="at most D tangents"):
        log_volume(torch.randn(2, 3, 2))


@pytest.mark.parametrize("condition", [2.0, 1e2, 1e5])
def test_many_tangents_by_their_gram_matrix(condition, monkeypatch):
    """From 64 tangents on; where conditioning is bad it is QR again. Against an SVD in float64."""
    tangents = with_condition(96, 64, condition, torch.float32, batch=2).mT.contiguous().requires_grad_()
    used = []
    qr = torch.linalg.qr
    monkeypatch.setattr(torch.linalg, "qr", lambda values: used.append(1) or qr(values))
    L = log_volume(tangents)
    (W,) = torch.autograd.grad(L.sum(), tangents)
    U, S, Vh = torch.linalg.svd(tangents.detach().double(), full_matrices=False)
    torch.testing.assert_close(L.double(), S.log().sum(dim=-1), rtol=1e-6, atol=1e-4)
    expected = (U / S.unsqueeze(-2)) @ Vh
    assert float((W - expected).norm() / expected.norm()) < 1e-6
    assert bool(used) == (condition == 1e5)
