"""Volumes in units that differ by many orders of magnitude, against sums of squared minors (Cauchy and Binet)."""

from itertools import combinations

import pytest
import torch

from rectangular_flows import RectangularFlow, flows
from rectangular_flows.errors import RankDeficientError
from rectangular_flows.volume import Exact
from rectangular_flows.volume.exact import two_log_volumes


def stretched(D, d, seed, spread, dtype):
    torch.manual_seed(seed)
    scale = 10.0 ** (spread * (torch.rand(D, dtype=torch.float64) - 0.5))
    scale[:2] = torch.tensor([10.0 ** (spread / 2), 10.0 ** (-spread / 2)])
    scale = scale[torch.randperm(D)]
    units = flows.Standardise(torch.randn(D) * scale, scale)
    return RectangularFlow(flows.RealNVP(D, 3, (9,), zero_init=False), flows.Identity(d), units).to(dtype)


def by_minors(flow, z):
    """½ log Σ (minors of J)², with J in model units in double precision: every term is positive, so that none is lost."""
    J, scale = flow.in_model_units.jacobian(z).double(), flow.unit_layers()[0].scale
    rows = list(combinations(range(J.shape[1]), J.shape[2]))
    minors = torch.stack([torch.linalg.slogdet(J[:, list(some)]).logabsdet for some in rows], dim=1)
    weights = torch.stack([scale[list(some)].log().sum() for some in rows])
    return torch.logsumexp(2 * (minors + weights), dim=1) / 2


@pytest.mark.parametrize("codimension", ["auto", "never", "always"])
@pytest.mark.parametrize(("D", "d"), [(5, 2), (7, 6), (3, 1), (6, 4)])
@pytest.mark.parametrize("spread", [0, 9, 24])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_volume_whatever_the_units(D, d, spread, dtype, codimension):
    for seed in range(3):
        flow = stretched(D, d, seed, spread, dtype)
        z = torch.randn(6, d, dtype=dtype)
        expected = by_minors(flow, z)
        x, L = Exact(codimension=codimension)(flow, z)
        assert L.dtype == dtype
        tolerance = 1e-3 if dtype == torch.float32 else 1e-8
        torch.testing.assert_close(L.double(), expected, rtol=1e-6, atol=tolerance)
        torch.testing.assert_close(flow.to_model_units(x), flow.in_model_units.decode(z), rtol=1e-5, atol=1e-5)
        both = two_log_volumes(flow, flow.in_model_units, z)
        torch.testing.assert_close(both[1].double(), expected, rtol=1e-6, atol=tolerance)
        torch.testing.assert_close(both[3], flow.in_model_units.log_volume(z), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("codimension", ["never", "always"])
def test_its_gradient(codimension):
    flow = stretched(5, 3, 0, 12, torch.float64)
    z = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    (found,) = torch.autograd.grad(Exact(codimension=codimension)(flow, z)[1].sum(), z)
    (expected,) = torch.autograd.grad(by_minors(flow, z).sum(), z)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_manifold_that_has_collapsed_is_found_out_in_the_units_of_the_model(dtype):
    """In those of the user the small direction may be stretched until it looks sound."""
    units = flows.Standardise(torch.zeros(3), torch.tensor([1.0, 1e20, 1.0]))
    flow = RectangularFlow(flows.FreeLinear(3), flows.Identity(2), units, pad=flows.Pad(2, 3, order="first")).to(dtype)
    with torch.no_grad():
        flow.ambient.weight.copy_(torch.diag(torch.tensor([1.0, 1e-20, 1.0])))
    with pytest.raises(RankDeficientError, match="lost rank at 4 of 4"):
        Exact(codimension="never")(flow, torch.zeros(4, 2, dtype=dtype))


@pytest.mark.parametrize("codimension", ["never", "always"])
@pytest.mark.parametrize("large", [1e8, 1e12, 1e20])
def test_the_first_tangent_may_be_zero_in_a_column_of_large_values(large, codimension):
    """By hand: columns 2 and 3 of the minors with the first row, 2.2 times the large unit, outweigh all others."""
    J = torch.tensor([[0.0, 1.0, 2.0], [1.0, 0.3, 2.0], [1.0, 0.7, 5.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    units = flows.Standardise(torch.zeros(4), torch.tensor([large, 1.0, 1.0, 1.0]))
    flow = RectangularFlow(flows.FreeLinear(4), flows.Identity(3), units, pad=flows.Pad(3, 4, order="first")).double()
    with torch.no_grad():
        flow.ambient.weight.copy_(torch.cat([J, torch.eye(4, dtype=torch.float64)[:, 3:]], dim=1))
    z = torch.zeros(2, 3, dtype=torch.float64)
    expected = by_minors(flow, z)
    torch.testing.assert_close(Exact(codimension=codimension)(flow, z)[1], expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(two_log_volumes(flow, flow.in_model_units, z)[1], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("codimension", ["auto", "never"])
@pytest.mark.parametrize("last", [lambda: flows.OrthonormalEmbedding(3, 6), lambda: flows.Permutation(3)])
def test_layers_may_follow_that_of_units(last, codimension):
    """As in the model of a table whose standardised columns are then turned: in one precision from end to end."""
    units = flows.Standardise(torch.ones(3), torch.tensor([1.0, 10.0, 0.1]))
    flow = RectangularFlow(flows.RealNVP(3, zero_init=False), flows.RealNVP(2), [units, last()])
    x = flow.sample(5).detach()
    assert x.dtype == torch.float32
    J = torch.func.vmap(torch.func.jacrev(lambda z: flow.decode(z[None])[0]))(flow.encode(x)).double()
    expected = torch.linalg.slogdet(J.mT @ J).logabsdet / 2
    torch.testing.assert_close(
        Exact(codimension=codimension)(flow, flow.encode(x))[1].double(), expected, rtol=1e-4, atol=1e-4
    )
    assert torch.isfinite(flow.log_prob(x)).all()


def test_volumes_in_units_under_transforms():
    flow = stretched(5, 3, 0, 9, torch.float64)
    x = flow.decode(torch.randn(4, 3, dtype=torch.float64)).detach()
    one_by_one = torch.func.vmap(lambda row: flow.log_prob(row[None])[0])(x)
    torch.testing.assert_close(one_by_one, flow.log_prob(x))
    slopes = torch.func.vmap(torch.func.grad(lambda z: flow.log_volume(z[None])[0]))(flow.encode(x))
    z = flow.encode(x).detach().requires_grad_()
    torch.testing.assert_close(slopes, torch.autograd.grad(flow.log_volume(z).sum(), z)[0])
