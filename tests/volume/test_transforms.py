import pytest
import torch

from rectangular_flows.volume import Exact, Stochastic, log_volume

from .helpers import gradient, make_flow


@pytest.mark.parametrize("method", [Exact(), Exact(codimension="always"), Stochastic(2, solver="direct")])
def test_compile(method):
    flow = make_flow(4, 2)
    z = torch.randn(3, 2, dtype=torch.float64)
    torch.compiler.reset()
    compiled = torch.compile(lambda v: method(flow, v), backend="aot_eager")
    torch.manual_seed(3)
    expected = method(flow, z)
    torch.manual_seed(3)
    torch.testing.assert_close(compiled(z), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(
        gradient(compiled(z)[1].sum(), flow) if isinstance(method, Exact) else torch.zeros(1),
        gradient(method(flow, z)[1].sum(), flow) if isinstance(method, Exact) else torch.zeros(1),
    )


@pytest.mark.parametrize("method", [Exact(), Exact(codimension="always"), Exact(bundle_size=1)])
def test_vmap(method):
    flow = make_flow(4, 2)
    z = torch.randn(5, 3, 2, dtype=torch.float64)
    with torch.no_grad():
        mapped = torch.func.vmap(lambda v: method(flow, v)[1])(z)
    torch.testing.assert_close(mapped.flatten(), method(flow, z.flatten(0, 1))[1], rtol=0, atol=1e-12)


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


@pytest.mark.parametrize(
    "method",
    [
        Exact(),
        Exact(codimension="always"),
        Exact(bundle_size=1),
        *[Stochastic(2, solver=s) for s in ("direct", "cg", "pcg")],
    ],
)
def test_device_agnostic(method):
    flow = make_flow(5, 3)
    z = torch.randn(4, 3, dtype=torch.float64)
    with torch.device("meta"):
        x_hat, L = method(flow, z)
        L.sum().backward()
    assert x_hat.device.type == L.device.type == "cpu"
    assert all(p.grad is None or p.grad.device.type == "cpu" for p in flow.parameters())


@pytest.mark.parametrize("method", [Exact(), Exact(bundle_size=2), Stochastic(), Stochastic(2, "gaussian", "cg")])
def test_single_precision_and_batch_of_one(method):
    flow = make_flow(5, 3, dtype=torch.float32)
    x_hat, L = method(flow, torch.randn(1, 3))
    assert x_hat.dtype == L.dtype == torch.float32
    assert L.shape == (1,)
    L.sum().backward()
