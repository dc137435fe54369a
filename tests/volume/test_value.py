import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rectangular_flows import RectangularFlow, flows
from rectangular_flows.volume import Exact, Stochastic, log_volume
from tests.conftest import shaken

from .helpers import make_flow, reference, with_condition


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


@settings(max_examples=30, deadline=None)
@given(D=st.integers(1, 8), data=st.data(), batch=st.integers(1, 4), seed=st.integers(0, 10**6))
def test_every_form_agrees(D, data, batch, seed):
    d = data.draw(st.integers(1, D))
    flow = make_flow(D, d, seed)
    z = torch.randn(batch, d, dtype=torch.float64)
    expected = reference(flow, z)
    for method in (Exact(), Exact(codimension="never"), Exact(codimension="always"), Exact(bundle_size=1)):
        x_hat, L = method(flow, z)
        torch.testing.assert_close(L, expected, rtol=0, atol=1e-9)
        torch.testing.assert_close(x_hat, flow.decode(z), rtol=0, atol=1e-12)


@pytest.mark.parametrize("mixing", [None, "lu", "free"])
def test_codimension_chosen_by_cost(mixing):
    flow = make_flow(6, 5, mixing=mixing)
    z = torch.randn(4, 5, dtype=torch.float64)
    assert Exact()._use_codimension(flow.layers(), 5)
    assert not Exact()._use_codimension(make_flow(6, 3).layers(), 3)
    torch.testing.assert_close(Exact()(flow, z)[1], Exact(codimension="never")(flow, z)[1], rtol=0, atol=1e-9)


def test_codimension_needs_bijections():
    flow = RectangularFlow(flows.MultiscaleRealNVP((1, 4, 4), 2, 1), flows.Identity(7)).double()
    z = torch.randn(2, 7, dtype=torch.float64)
    with pytest.raises(ValueError, match="bijections only"):
        Exact(codimension="always")(flow, z)
    torch.testing.assert_close(Exact()(flow, z)[1], reference(flow, z), rtol=0, atol=1e-9)


def test_volumes_of_injections_do_not_add():
    """The paper's appendix A: the volume of g₂∘g₁ is that of the whole, not the sum of the parts'."""
    first = flows.chain(flows.Pad(1, 2), shaken(flows.RealNVP(2, 3, (8,), zero_init=False)))
    second = flows.chain(flows.Pad(2, 4), shaken(flows.RealNVP(4, 3, (8,), zero_init=False), seed=5))
    both = flows.chain(first, second).double()
    z = torch.randn(6, 1, dtype=torch.float64)
    J = torch.func.vmap(torch.func.jacrev(lambda v: both(v.unsqueeze(0)).squeeze(0)))(z)
    expected = torch.linalg.svdvals(J).log().sum(-1)
    _, L = Exact()(both, z)
    torch.testing.assert_close(L, expected, rtol=0, atol=1e-10)
    parts = Exact()(first, z)[1] + Exact()(second, first(z))[1]
    assert ((parts - expected).abs() > 1e-2).any()


def test_isometric_tail_is_skipped_and_right():
    embedding = flows.OrthonormalEmbedding(5, 40).double()
    calls = []
    tangent = embedding.linearize
    embedding.linearize = lambda z: calls.append(1) or tangent(z)
    ambient = shaken(flows.RealNVP(5, 3, (8,), zero_init=False))
    flow = RectangularFlow(ambient, flows.Identity(2), outer=embedding).double()
    z = torch.randn(3, 2, dtype=torch.float64)
    x_hat, L = Exact()(flow, z)
    assert not calls
    assert x_hat.shape == (3, 40)
    torch.testing.assert_close(L, reference(flow, z), rtol=0, atol=1e-10)


def test_all_isometric():
    flow = RectangularFlow(flows.Permutation(3), flows.Identity(2))
    for method in (Exact(), Stochastic()):
        x_hat, L = method(flow, torch.randn(4, 2))
        assert torch.equal(L, torch.zeros(4))
        assert x_hat.shape == (4, 3)
