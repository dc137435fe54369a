"""The codimension identity: where it is used, and that it gives the same volume."""

import copy

import pytest
import torch

from rectangular_flows import RectangularFlow, flows
from rectangular_flows.errors import NonFiniteError, RankDeficientError
from rectangular_flows.volume import Exact

from .helpers import make_flow, reference


@pytest.mark.parametrize("mixing", [None, "lu", "free"])
def test_codimension_chosen_by_cost(mixing):
    flow = make_flow(7, 6, mixing=mixing)
    z = torch.randn(4, 6, dtype=torch.float64)
    assert Exact()._use_codimension(flow.layers(), 6)
    assert not Exact()._use_codimension(make_flow(6, 5).layers(), 5)  # a normal costs as much as six tangents
    torch.testing.assert_close(Exact()(flow, z)[1], Exact(codimension="never")(flow, z)[1], rtol=0, atol=1e-9)


def test_codimension_needs_bijections():
    flow = RectangularFlow(flows.MultiscaleRealNVP((1, 4, 4), 2, 1), flows.Identity(7)).double()
    z = torch.randn(2, 7, dtype=torch.float64)
    with pytest.raises(ValueError, match="bijections only"):
        Exact(codimension="always")(flow, z)
    torch.testing.assert_close(Exact()(flow, z)[1], reference(flow, z), rtol=0, atol=1e-9)


def test_singular_square_flow_is_named():
    flow = RectangularFlow(flows.FreeLinear(3), flows.Identity(3)).double()
    with torch.no_grad():
        flow.ambient.weight[2] = 0
    with pytest.raises(RankDeficientError, match="singular at 2 of 2 points"):
        flow.log_volume(torch.randn(2, 3, dtype=torch.float64))
    with torch.no_grad():
        flow.ambient.weight.fill_(float("nan"))
    with pytest.raises(NonFiniteError):
        flow.log_volume(torch.randn(2, 3, dtype=torch.float64))


def test_codimension_keeps_its_digits_in_single_precision():
    flow = make_flow(6, 5, dtype=torch.float32)
    z = 2 * torch.randn(200, 5)
    exact = Exact(codimension="never")(copy.deepcopy(flow).double(), z.double())[1]
    torch.testing.assert_close(Exact(codimension="always")(flow, z)[1].double(), exact, rtol=0, atol=1e-4)
    saturating = RectangularFlow(flow.ambient, flows.Identity(5), outer=flows.Logit(6))
    wide = RectangularFlow(flows.RealNVP(7), flows.Identity(6), outer=flows.Logit(7))
    assert not Exact()._use_codimension(wide.layers(), 6)
    L = Exact()(saturating, z / 2)[1]
    expected = Exact(codimension="never")(copy.deepcopy(saturating).double(), z.double() / 2)[1]
    torch.testing.assert_close(L.double(), expected, rtol=0, atol=1e-3)
