"""Muon: its orthogonal steps against SVD and a plain loop, Adam for the rest, its state, and no import of the compiler."""

import copy
import subprocess
import sys

import pytest
import torch
from torch import nn

from rectangular_flows import flows
from rectangular_flows.adam import EagerAdam
from rectangular_flows.flows.networks import inner_weights
from rectangular_flows.muon import Muon, orthogonalised

DTYPES = [torch.float32, torch.float64]


def _random(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.mark.parametrize("shape", [(1, 5, 5), (3, 7, 4), (2, 4, 7), (1, 1, 1)])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_orthogonalised_keeps_the_directions_and_evens_out_their_lengths(shape, dtype, size):
    matrices = size * _random(*shape, dtype=dtype)
    U, S, Vh = torch.linalg.svd(matrices.double(), full_matrices=False)
    found = U.mT @ orthogonalised(matrices).double() @ Vh.mT
    lengths = found.diagonal(dim1=-2, dim2=-1)
    tolerance = 1e-3 if dtype == torch.float32 else 1e-9
    torch.testing.assert_close(found, torch.diag_embed(lengths), atol=tolerance, rtol=0)
    clear = 0.05 * S[..., :1] < S
    assert float(lengths[clear].min()) > 0.6
    assert float(lengths.max()) < 1.3


def test_of_nothing_is_nothing():
    assert float(orthogonalised(torch.zeros(1, 3, 3)).abs().max()) == 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_steps_against_a_plain_loop(dtype):
    """Two shapes, three steps, a rate that changes: each matrix by itself, from the formula."""
    weights = [nn.Parameter(_random(*shape, seed=i, dtype=dtype)) for i, shape in enumerate([(4, 4), (6, 4), (4, 4)])]
    bias = nn.Parameter(_random(4, seed=9, dtype=dtype))
    expected, momenta = [w.detach().clone() for w in weights], [torch.zeros_like(w) for w in weights]
    alone = copy.deepcopy(bias)
    optimiser, adam = Muon([bias, *weights], 0.1, weights), EagerAdam([alone], 0.1)
    for step in range(3):
        rate = 0.1 / (1 + step)
        for i, parameter in enumerate([bias, *weights]):
            parameter.grad = _random(*parameter.shape, seed=100 * step + i, dtype=dtype)
        alone.grad = bias.grad.clone()
        for group in (*optimiser.param_groups, *adam.param_groups):
            group["lr"] = rate
        optimiser.step()
        adam.step()
        for i, weight in enumerate(weights):
            momenta[i] = 0.95 * momenta[i] + 0.05 * weight.grad
            towards = orthogonalised((0.95 * momenta[i] + 0.05 * weight.grad).unsqueeze(0))[0]
            expected[i] -= rate * 2.0 * max(weight.shape) ** 0.5 * towards
    for weight, value in zip(weights, expected, strict=True):
        torch.testing.assert_close(weight.detach(), value)
    assert torch.equal(bias.detach(), alone.detach())
    assert len(optimiser.param_groups) == 2


def test_a_matrix_without_a_gradient_stays():
    first, second = (nn.Parameter(torch.ones(2, 2)) for _ in range(2))
    optimiser = Muon([first, second], 0.1, [first, second])
    first.grad = torch.eye(2)
    optimiser.step()
    assert torch.equal(second.detach(), torch.ones(2, 2))
    assert not torch.equal(first.detach(), torch.ones(2, 2))


def test_goes_on_with_its_state():
    def steps(optimiser, weights, start, count):
        for step in range(start, start + count):
            for i, weight in enumerate(weights):
                weight.grad = _random(*weight.shape, seed=10 * step + i)
            optimiser.step()

    weights = [nn.Parameter(_random(3, 3)), nn.Parameter(_random(3))]
    straight = Muon(weights, 0.1, weights[:1])
    steps(straight, weights, 0, 2)
    again = copy.deepcopy(weights)
    resumed = Muon(again, 0.1, again[:1])
    resumed.load_state_dict(copy.deepcopy(straight.state_dict()))
    steps(straight, weights, 2, 2)
    steps(resumed, again, 2, 2)
    assert all(torch.equal(a, b) for a, b in zip(weights, again, strict=True))


def test_inner_weights_are_those_between_hidden_layers():
    flow = flows.RealNVP(5, layers=2, hidden=(8, 6, 4))
    assert sorted(tuple(w.shape) for w in inner_weights(flow)) == [(4, 6), (4, 6), (6, 8), (6, 8)]
    assert inner_weights(flows.RealNVP(40, layers=2, hidden=(33,))) == []  # in and out, however large
    residual = flows.ResidualMLP(3, 2, width=7, blocks=2)
    assert [tuple(w.shape) for w in inner_weights(residual)] == [(7, 7)] * 4
    residual.requires_grad_(False)
    assert inner_weights(residual) == []


def test_loads_no_compiler():
    code = (
        "import sys, torch\n"
        "from rectangular_flows.muon import Muon\n"
        "w = torch.nn.Parameter(torch.eye(2)); o = Muon([w], 0.1, [w])\n"
        "w.grad = torch.ones(2, 2); o.step(); o.load_state_dict(o.state_dict())\n"
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
