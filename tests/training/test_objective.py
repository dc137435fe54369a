"""The objective against its formula."""

import pytest
import torch

from rectangular_flows import flows
from rectangular_flows.data import von_mises_circle
from rectangular_flows.training import Objective
from rectangular_flows.volume import Exact

from .test_loop import data, make_flow


def test_objective_is_the_formula():
    units = flows.Standardise(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 0.5]))
    flow = make_flow(outer=units).double()
    x = units(torch.randn(7, 2)).double()
    terms = Objective(flow, Exact(), beta=3.0)(x, weight=0.25)
    y = flow.to_model_units(x)
    nll = -flow.in_model_units.log_prob(y).mean()
    reconstruction = flow.in_model_units.reconstruction_error(y).mean()
    torch.testing.assert_close(terms.negative_log_likelihood, nll)
    torch.testing.assert_close(terms.reconstruction, reconstruction)
    torch.testing.assert_close(terms.loss, 0.25 * nll + 3 * reconstruction)


def test_two_step_passes_train_their_own_part_only():
    flow = make_flow()
    objective = Objective(flow, Exact(), beta=3.0)
    objective(data()[0], part="likelihood").loss.backward()
    assert all(p.grad is None for p in flow.ambient.parameters())
    assert all(p.grad is not None for p in flow.latent.parameters())
    flow.zero_grad()
    objective(data()[0], part="reconstruction").loss.backward()
    assert all(p.grad is None for p in flow.latent.parameters())
    assert any(p.grad is not None and p.grad.abs().max() > 0 for p in flow.ambient.parameters())


@pytest.mark.parametrize("fraction", [0.3, 0.5])
def test_volume_of_a_part_of_the_batch_is_unbiased(fraction):
    # over all rotations of the batch every row is in the part equally often, so that the mean is exact
    flow = make_flow().double()
    x = von_mises_circle(10, seed=0).double()
    full, part = Objective(flow, Exact(), 7.0), Objective(flow, Exact(), 7.0, volume_fraction=fraction)
    mean = torch.stack([part(x.roll(i, 0)).loss for i in range(10)]).mean()
    torch.testing.assert_close(mean, full(x).loss)
    torch.testing.assert_close(part(x).reconstruction, full(x).reconstruction)
