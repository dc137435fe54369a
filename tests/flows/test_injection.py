"""What every layer must do, over the registry of all of them."""

from math import prod

import pytest
import torch
from safetensors.torch import load_file, save_file

from rectangular_flows.flows import Bijection, Injection, RealNVP, chain
from tests.conftest import on_space, points, shaken
from tests.flows.layers import LAYERS

NAMES = sorted(LAYERS)
SQUARE = [name for name in NAMES if isinstance(LAYERS[name](), Bijection)]
# made of layers that are compiled one by one as well
LONG_TO_COMPILE = ("multiscale-real-nvp", "real-nvp-leading", "real-nvp-residual")
DTYPES = [(torch.float64, 1e-10), (torch.float32, 1e-4)]


def jacobian(function, at):
    """Row-wise Jacobians by reverse mode, independent of our forward-mode code: (B, outputs, inputs)."""
    rows = torch.func.vmap(torch.func.jacrev(lambda v: function(v.unsqueeze(0)).squeeze(0)))(at)
    return rows.reshape(len(at), -1, prod(at.shape[1:]))


@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_round_trip(name, dtype, tolerance, batch):
    layer = shaken(LAYERS[name](), dtype=dtype)
    for seed in range(3):
        z = points(layer, batch, seed, dtype)
        x = layer(z)
        assert x.shape == (batch, *layer.out_shape)
        assert x.dtype == dtype
        torch.testing.assert_close(layer.inverse(x), z, rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", NAMES)
def test_a_bundle_that_is_the_same_for_all_rows(name):
    """A basis is expanded over the rows, not copied: layers may carry it once, and must give what a copy gives."""
    layer = shaken(LAYERS[name](), dtype=torch.float64)
    z = points(layer, 4, 0, torch.float64)
    bundle = torch.randn(1, 3, *layer.in_shape, dtype=torch.float64).expand(4, 3, *layer.in_shape)
    torch.testing.assert_close(layer.push(z, bundle), layer.push(z, bundle.clone()), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", SQUARE)
def test_log_det_against_autograd(name):
    layer = shaken(LAYERS[name]())
    z = points(layer)
    x, log_det = layer.forward_with_log_det(z)
    assert log_det.shape == (3,)
    expected = torch.linalg.slogdet(jacobian(layer, z)).logabsdet
    torch.testing.assert_close(log_det, expected, rtol=0, atol=1e-8)
    torch.testing.assert_close(x, layer(z), rtol=0, atol=1e-12)
    back, log_det_back = layer.inverse_with_log_det(x)
    torch.testing.assert_close(log_det_back, -expected, rtol=0, atol=1e-8)
    torch.testing.assert_close(back, z, rtol=0, atol=1e-10)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", NAMES)
def test_push_against_jvp(name, batch):
    layer = shaken(LAYERS[name]())
    z = points(layer, batch)
    tangents = torch.randn(batch, 4, *layer.in_shape, dtype=z.dtype)
    x, pushed = layer.push(z, tangents)
    torch.testing.assert_close(x, layer(z), rtol=0, atol=1e-12)
    for k in range(4):
        _, expected = torch.func.jvp(layer.forward, (z,), (tangents[:, k],))
        torch.testing.assert_close(pushed[:, k], expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_inverse_tangents_against_jvp(name):
    layer = shaken(LAYERS[name]())
    x = layer(points(layer)).detach()
    tangents = 0.1 * torch.randn(3, 2, *layer.out_shape, dtype=x.dtype)
    z, tangent_map = layer.linearize_inverse(x)
    torch.testing.assert_close(z, layer.inverse(x), rtol=0, atol=1e-12)
    pushed = tangent_map(tangents)
    for k in range(2):
        _, expected = torch.func.jvp(layer.inverse, (x,), (tangents[:, k],))
        torch.testing.assert_close(pushed[:, k], expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_push_has_a_home_of_its_own(name):
    """No built-in layer falls back on torch.func."""
    layer = type(LAYERS[name]())
    assert layer.linearize is not Injection.linearize
    assert layer.linearize_inverse is not Injection.linearize_inverse


@pytest.mark.parametrize("name", [name for name in NAMES if name != "coupling-relu"])
def test_gradcheck(name):
    layer = shaken(LAYERS[name]())
    z = points(layer, 2).requires_grad_()
    tangents = torch.randn(2, 2, *layer.in_shape, dtype=z.dtype, requires_grad=True)
    assert torch.autograd.gradcheck(layer, (z,))
    assert torch.autograd.gradcheck(layer.push, (z, tangents))
    assert torch.autograd.gradcheck(layer.inverse, (layer(z).detach().requires_grad_(),))


class Pushed(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, z, tangents):
        return self.layer.push(z, tangents)[1]


@pytest.mark.parametrize("name", [name for name in NAMES if list(LAYERS[name]().parameters())])
def test_parameter_gradients_of_push(name):
    """The gradient that training needs, of pushed tangents with respect to parameters, against finite differences."""
    pushed = Pushed(shaken(LAYERS[name]()))
    z = points(pushed.layer)
    tangents = torch.randn(3, 2, *pushed.layer.in_shape, dtype=z.dtype)
    cotangents = torch.randn(3, 2, *pushed.layer.out_shape, dtype=z.dtype)
    parameters = {key: value.detach() for key, value in pushed.named_parameters()}
    direction = {key: torch.randn_like(value) for key, value in parameters.items()}

    def value(step):
        moved = {key: p + step * direction[key] for key, p in parameters.items()}
        return (torch.func.functional_call(pushed, moved, (z, tangents)) * cotangents).sum()

    zero = torch.zeros((), dtype=z.dtype, requires_grad=True)
    (analytic,) = torch.autograd.grad(value(zero), zero)
    step = 1e-6
    measured = float(value(step) - value(-step)) / (2 * step)
    assert measured == pytest.approx(float(analytic), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_vmap_and_functional_call(name):
    layer = shaken(LAYERS[name]())
    z = on_space(layer, torch.randn(4, 2, *layer.in_shape, dtype=torch.float64))
    tangents = torch.randn(4, 2, 3, *layer.in_shape, dtype=torch.float64)
    flat = z.flatten(0, 1)
    expected = layer(flat).unflatten(0, (4, 2))
    torch.testing.assert_close(torch.func.vmap(layer)(z), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(torch.func.vmap(layer.inverse)(expected), z, rtol=0, atol=1e-10)
    _, pushed = torch.func.vmap(layer.push)(z, tangents)
    torch.testing.assert_close(pushed.flatten(0, 1), layer.push(flat, tangents.flatten(0, 1))[1], rtol=0, atol=1e-12)
    state = {**dict(layer.named_parameters()), **dict(layer.named_buffers())}
    called = torch.func.functional_call(layer, state, (flat,))
    torch.testing.assert_close(called, layer(flat), rtol=0, atol=0)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LONG_TO_COMPILE else name for name in NAMES]
)
def test_compile(name):
    layer = shaken(LAYERS[name]())
    z = points(layer)
    tangents = torch.randn(3, 2, *layer.in_shape, dtype=z.dtype)
    torch.compiler.reset()
    compiled = torch.compile(layer.push, backend="aot_eager", fullgraph=True)
    for got, expected in zip(compiled(z, tangents), layer.push(z, tangents), strict=True):
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_state_through_safetensors(name, tmp_path):
    layer = shaken(LAYERS[name]())
    torch.manual_seed(99)  # another start: permutations and weights must come from the file
    other = LAYERS[name]().double()
    save_file({key: value.contiguous() for key, value in layer.state_dict().items()}, tmp_path / "layer.safetensors")
    other.load_state_dict(load_file(tmp_path / "layer.safetensors"))
    z = points(layer)
    torch.testing.assert_close(other(z), layer(z), rtol=0, atol=0)


@pytest.mark.parametrize("name", NAMES)
def test_device_agnostic(name):
    layer = shaken(LAYERS[name]())
    z = points(layer)
    tangents = torch.randn(3, 2, *layer.in_shape, dtype=z.dtype)
    with torch.device("meta"):
        x, pushed = layer.push(z, tangents)
        outputs = [x, pushed, layer(z), layer.inverse(x), layer.linearize_inverse(x)[1](pushed)]
        if isinstance(layer, Bijection):
            outputs += [*layer.forward_with_log_det(z), *layer.inverse_with_log_det(x)]
    assert all(out.device.type == "cpu" for out in outputs)


@pytest.mark.parametrize("name", NAMES)
def test_isometric_layers_are(name):
    layer = shaken(LAYERS[name]())
    J = jacobian(layer, points(layer))
    gram = J.mT @ J
    is_isometric = torch.allclose(gram, torch.eye(gram.shape[-1], dtype=gram.dtype).expand_as(gram), atol=1e-10)
    assert is_isometric == layer.isometric


def test_a_layer_with_forward_and_inverse_only_is_an_injection():
    class Paraboloid(Injection):
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
    chained = chain(own, RealNVP(3, zero_init=False))
    assert chained.push(z, tangents)[1].shape == (3, 4, 3)
    assert chained.linearize_inverse(chained(z))[1](torch.zeros(3, 1, 3)).shape == (3, 1, 2)
