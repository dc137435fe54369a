"""Flows to measure, and volumes by other means."""

import torch

from rectangular_flows import RectangularFlow, flows
from tests.conftest import shaken


def make_flow(D, d, seed=0, amount=0.2, dtype=torch.float64, layers=4, hidden=(16, 16), **options):
    torch.manual_seed(seed)
    ambient = flows.RealNVP(D, layers, hidden, zero_init=False, **options)
    return shaken(RectangularFlow(ambient, flows.Identity(d)), seed, amount, dtype)


def reference(flow, z):
    """Plain autograd, nothing of ours: jacfwd of the decoder, slogdet of the Gram matrix."""
    J = torch.func.vmap(torch.func.jacfwd(lambda v: flow.decode(v.unsqueeze(0)).squeeze(0).flatten()))(z)
    return 0.5 * torch.linalg.slogdet(J.mT @ J).logabsdet


def gradient(value, flow, *inputs):
    parameters = [p for p in flow.parameters() if p.requires_grad]
    grads = torch.autograd.grad(value, [*parameters, *inputs], allow_unused=True, materialize_grads=True)
    return torch.cat([g.flatten() for g in grads])


def with_condition(rows, columns, condition, dtype, batch=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    U, _ = torch.linalg.qr(torch.randn(batch, rows, columns, generator=generator, dtype=torch.float64))
    V, _ = torch.linalg.qr(torch.randn(batch, columns, columns, generator=generator, dtype=torch.float64))
    values = torch.logspace(0, -torch.log10(torch.tensor(condition)).item(), columns, dtype=torch.float64)
    return ((U * values) @ V.mT).to(dtype)
