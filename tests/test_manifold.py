import copy
import math
import warnings

import numpy as np
import pytest
import torch
import zuko
from safetensors.torch import load_file, save_file

import rectangular_flows as rnf
from rectangular_flows import RectangularFlow, flows
from rectangular_flows.errors import NonFiniteError, RoundTripWarning
from tests.conftest import shaken

pytestmark = pytest.mark.usefixtures("_fused_however_small")


def make_flow(D=6, d=3, seed=0, latent=None, outer=(), dtype=torch.float64, amount=0.15):
    torch.manual_seed(seed)
    latent = flows.RealNVP(d, 2, (8,), zero_init=False) if latent is None else latent
    return shaken(RectangularFlow(flows.RealNVP(D, 4, (12,), zero_init=False), latent, outer), seed, amount, dtype)


def image_flow(d=3):
    ambient = flows.MultiscaleRealNVP((1, 4, 6), width=3, blocks=1)
    outer = [flows.Standardise(torch.zeros(1, 4, 6), torch.full((1, 4, 6), 0.5)), flows.Logit((1, 4, 6), 0.05)]
    return shaken(RectangularFlow(ambient, flows.RealNVP(d), outer), amount=0.05)


def units(D=6):
    return flows.Standardise(torch.arange(D).double(), torch.linspace(0.5, 4, D).double())


@pytest.mark.parametrize(
    "flow", [make_flow(), make_flow(outer=units()), image_flow(), make_flow(5, 5), make_flow(2, 1)]
)
@pytest.mark.parametrize("model_units", [False, True])
def test_manifold_methods(flow, model_units):
    view = flow.in_model_units if model_units else flow
    z = torch.randn(4, flow.latent_dim, dtype=torch.float64)
    x = view.decode(z)
    assert x.shape == (4, *flow.data_shape)
    torch.testing.assert_close(view.encode(x), z, rtol=0, atol=1e-9)
    torch.testing.assert_close(view.project(x), x, rtol=0, atol=1e-9)
    assert float(view.reconstruction_error(x).detach().max()) < 1e-16
    J = torch.func.vmap(torch.func.jacrev(lambda v: view.decode(v.unsqueeze(0)).squeeze(0).flatten()))(z)
    torch.testing.assert_close(view.jacobian(z), J, rtol=0, atol=1e-10)
    singular = torch.linalg.svdvals(J)
    torch.testing.assert_close(view.singular_values(z), singular, rtol=0, atol=1e-10)
    volume = singular.log().sum(-1)
    torch.testing.assert_close(view.log_volume(z), volume, rtol=0, atol=1e-9)
    log_prob = view.log_prob(x)
    torch.testing.assert_close(log_prob, flow.latent.log_prob(z) - volume, rtol=0, atol=1e-8)


def test_off_the_manifold_the_density_is_that_of_the_projection():
    flow = make_flow()
    x = flow.sample(5) + 0.1 * torch.randn(5, 6, dtype=torch.float64)
    torch.testing.assert_close(flow.log_prob(x), flow.log_prob(flow.project(x)), rtol=0, atol=1e-9)
    expected = (x - flow.project(x)).square().sum(1)
    torch.testing.assert_close(flow.reconstruction_error(x), expected)
    assert float(expected.detach().min()) > 1e-5


@pytest.mark.parametrize("outer", [(), units(4)])
def test_full_dimension_is_the_square_flow(outer):
    torch.manual_seed(0)
    ambient = shaken(flows.RealNVP(4, 4, (12,), zero_init=False))
    flow = RectangularFlow(ambient, flows.Identity(4), outer).double()
    x = torch.randn(6, 4, dtype=torch.float64)
    square = flows.chain(ambient, outer) if outer else ambient
    u, log_det = square.inverse_with_log_det(x)
    normal = -0.5 * u.square().sum(1) - 2 * math.log(2 * math.pi)
    torch.testing.assert_close(flow.log_prob(x), normal + log_det, rtol=0, atol=1e-12)


def test_units_change_the_measure_and_not_the_probability():
    """p(x) in the user's units against p(y) in the model's: the ratio of line elements along the curve."""
    scale = torch.tensor([2.0, 5.0], dtype=torch.float64)
    flow = make_flow(2, 1, outer=flows.Standardise(torch.tensor([1.0, -3.0], dtype=torch.float64), scale))
    z = torch.linspace(-1, 1, 5, dtype=torch.float64).unsqueeze(1)
    y = flow.in_model_units.decode(z)
    x = flow.to_data_units(y)
    torch.testing.assert_close(x, flow.decode(z))
    torch.testing.assert_close(flow.to_model_units(x), y)
    J = flow.in_model_units.jacobian(z)
    ratio = (scale.unsqueeze(-1) * J).norm(dim=(1, 2)).log() - J.norm(dim=(1, 2)).log()
    torch.testing.assert_close(flow.in_model_units.log_prob(y) - flow.log_prob(x), ratio, rtol=0, atol=1e-10)


@pytest.mark.parametrize("latent", ["real-nvp", "zuko"])
def test_curve_in_the_plane_integrates_to_one(latent):
    """∫ p ds along the learned curve, with arc length from the points themselves and not from any Jacobian."""
    h = None if latent == "real-nvp" else zuko.flows.GMM(features=1, components=2)
    flow = make_flow(2, 1, latent=h, outer=units(2))
    z = torch.linspace(-60, 60, 60_001, dtype=torch.float64).unsqueeze(1)
    with torch.no_grad(), warnings.catch_warnings():
        x = flow.decode(z)
        density = flow.log_prob(x, check=False).exp()
    length = (x[1:] - x[:-1]).norm(dim=1)
    assert float((length * (density[1:] + density[:-1]) / 2).sum()) == pytest.approx(1, abs=0.01)


def test_surface_in_space_integrates_to_one():
    """∫ p dA over the learned surface, with areas of small triangles."""
    flow = make_flow(3, 2, latent=flows.Identity(2))
    n = 500
    line = torch.linspace(-6, 6, n, dtype=torch.float64)
    with torch.no_grad():
        x = flow.decode(torch.cartesian_prod(line, line))
        density = flow.log_prob(x).exp().view(n, n)
    x = x.view(n, n, 3)
    a, b, c, d = x[:-1, :-1], x[1:, :-1], x[:-1, 1:], x[1:, 1:]
    area = 0.5 * (torch.linalg.cross(b - a, c - a).norm(dim=-1) + torch.linalg.cross(b - d, c - d).norm(dim=-1))
    mean = (density[:-1, :-1] + density[1:, :-1] + density[:-1, 1:] + density[1:, 1:]) / 4
    assert float((area * mean).sum()) == pytest.approx(1, abs=0.01)


def test_samples_are_reproducible_and_lie_on_the_manifold():
    flow = make_flow()
    first, again = (flow.sample(50, generator=torch.Generator().manual_seed(4)) for _ in range(2))
    assert torch.equal(first, again)
    assert not first.requires_grad
    assert float(flow.reconstruction_error(first).detach().max()) < 1e-16
    assert flow.sample(0).shape == (0, 6)


def test_batches_do_not_change_the_answer():
    flow = make_flow()
    x = flow.sample(23)
    with torch.no_grad():
        torch.testing.assert_close(flow.log_prob(x, batch_size=5), flow.log_prob(x), rtol=0, atol=1e-12)


def test_memory_bound_counts_the_widest_network():
    assert flows.RealNVP(6, hidden=(500,)).activation_size == 500
    assert flows.MultiscaleRealNVP((1, 28, 28)).activation_size == 64 * 28 * 28


def test_initialise_from_data():
    data = torch.randn(300, 6, dtype=torch.float64) @ torch.randn(6, 6, dtype=torch.float64) + 3
    ambient = flows.RealNVP(4, 2, actnorm=True)
    outer = [flows.OrthonormalEmbedding(4, 6), flows.Standardise(data.mean(0), data.std(0))]
    flow = RectangularFlow(ambient, zuko.flows.NSF(features=2, passes=2), outer, pad=flows.Pad(2, 4, "first")).double()
    flow.initialise(data)
    z = flow.latent.whitening.inverse(flow.encode(data))
    torch.testing.assert_close(torch.cov(z.mT), torch.eye(2, dtype=torch.float64))


def test_training_step_lowers_the_objective():
    torch.manual_seed(0)
    angle = 1.5 * torch.randn(400, 1)
    data = torch.cat([angle.cos(), angle.sin(), angle / 3], dim=1)
    flow = RectangularFlow(flows.RealNVP(3), flows.RealNVP(1))
    optimiser = torch.optim.Adam(flow.parameters(), lr=1e-2)
    history = []
    for _ in range(60):
        z = flow.encode(data)
        x_hat, L = rnf.volume.Exact()(flow, z)
        loss = (L - flow.latent.log_prob(z) + 50 * (data - x_hat).square().sum(1)).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        history.append(float(loss.detach()))
    assert history[-1] < history[0] - 10


def test_image_training_step():
    flow = image_flow()
    x = torch.rand(5, 1, 4, 6, dtype=torch.float64)
    for method in (rnf.volume.Exact(), rnf.volume.Exact(bundle_size=2), rnf.volume.Stochastic()):
        y = flow.to_model_units(x)
        z = flow.in_model_units.encode(y)
        x_hat, L = method(flow.in_model_units, z)
        (L - flow.latent.log_prob(z) + (y - x_hat).square().flatten(1).sum(1)).mean().backward()
    assert all(p.grad is not None for p in flow.ambient.parameters())


def test_state_and_copies(tmp_path):
    flow, other = make_flow(outer=units()), make_flow(outer=units(), seed=9)
    save_file(flow.state_dict(), tmp_path / "model.safetensors")
    other.load_state_dict(load_file(tmp_path / "model.safetensors"))
    x = flow.sample(5)
    torch.testing.assert_close(other.log_prob(x), flow.log_prob(x), rtol=0, atol=0)
    clone = copy.deepcopy(flow)
    with torch.no_grad():
        next(clone.ambient.parameters()).add_(1)
    assert not torch.equal(clone.log_prob(x, check=False), flow.log_prob(x))


@pytest.mark.parametrize(
    "flow", [make_flow(outer=units()), make_flow(latent=zuko.flows.NSF(features=3, passes=2)), image_flow()]
)
def test_device_agnostic(flow):
    x = flow.sample(4)
    generator = torch.Generator().manual_seed(0)
    with torch.device("meta"):
        z = flow.encode(x)
        out = [z, flow.decode(z), flow.project(x), flow.jacobian(z), flow.log_volume(z), flow.log_prob(x)]
        out += [flow.singular_values(z), flow.reconstruction_error(x), flow.to_data_units(flow.to_model_units(x))]
        out += [flow.sample(3, generator=generator), flow.sample(3)]
        with torch.no_grad():
            out.append(flow.log_prob(x, batch_size=2))
    assert all(t.device.type == "cpu" for t in out)


@pytest.mark.slow
def test_log_prob_compiles_and_vmaps():
    flow = make_flow()
    x = flow.sample(6)
    expected = flow.log_prob(x)
    torch.compiler.reset()
    compiled = torch.compile(flow.log_prob, backend="aot_eager")
    torch.testing.assert_close(compiled(x), expected, rtol=0, atol=1e-10)
    with torch.no_grad():
        mapped = torch.func.vmap(flow.log_prob)(x.view(2, 3, 6))
    torch.testing.assert_close(mapped.flatten(), expected, rtol=0, atol=1e-10)


# --- trouble


def test_non_finite_rows_are_named():
    flow = make_flow()
    x = flow.sample(4)
    x[2, 1] = float("nan")
    with pytest.raises(NonFiniteError, match=r"in 1 of 4 rows \(first rows: \[2\]\)"):
        flow.log_prob(x)


def test_a_flow_that_cannot_be_inverted_says_so():
    flow = make_flow(3, 1, dtype=torch.float32, latent=flows.Identity(1))
    with torch.no_grad():
        for link in flow.ambient.layers:
            link.transformer.bound = 8.0
            link.network.layers[-1].weight.mul_(20)
    x = flow.decode(torch.randn(50, 1))
    with pytest.warns(RoundTripWarning, match=r"not numerically invertible at \d+ of 50 points"):
        flow.log_prob(x)
    with torch.no_grad():
        flow.log_prob(x, check=False)  # warnings are errors here


def test_a_layer_with_layers_of_its_own_is_used_as_it_is():
    class Stack(flows.Injection):
        def __init__(self):
            super().__init__(3)
            self.layers = torch.nn.ModuleList([flows.ActNorm(3), flows.LULinear(3)])

        def forward(self, z):
            return 5 * self.layers[1](self.layers[0](z))

        def inverse(self, x):
            return self.layers[0].inverse(self.layers[1].inverse(x / 5))

    flow = RectangularFlow(Stack(), flows.Identity(2)).double()
    z = torch.randn(4, 2, dtype=torch.float64)
    torch.testing.assert_close(flow.decode(z), flow.ambient(flow.pad(z)))
    torch.testing.assert_close(flow.log_volume(z), torch.linalg.svdvals(flow.jacobian(z)).log().sum(1))


def test_saturated_pixels_are_a_warning_about_the_round_trip():
    flow = RectangularFlow(flows.RealNVP(6, 2, mixing="lu"), flows.RealNVP(2), outer=[flows.Logit(6)])
    x = (torch.rand(500, 6) < 0.5).float()
    with pytest.warns(RoundTripWarning):
        assert bool(torch.isfinite(flow.log_prob(x)).all())


def test_overflow_of_h_is_named():
    flow = RectangularFlow(flows.RealNVP(3), flows.RealNVP(2, 2, scale="exp"))
    with torch.no_grad():
        flow.latent.flow.layers[0].network.layers[-1].bias.fill_(-800.0)
    with pytest.raises(NonFiniteError, match="log-density"):
        flow.log_prob(torch.randn(3, 3))


def test_single_precision_weights_in_a_double_model():
    data = torch.randn(50, 6)
    single = RectangularFlow(flows.RealNVP(3), flows.RealNVP(2), outer=flows.OrthonormalEmbedding(3, 6))
    single.initialise(data)
    double = RectangularFlow(flows.RealNVP(3), flows.RealNVP(2), outer=flows.OrthonormalEmbedding(3, 6)).double()
    double.load_state_dict(single.state_dict())
    U = double.outer[0].directions()
    torch.testing.assert_close(U.mT @ U, torch.eye(3, dtype=torch.float64), rtol=0, atol=1e-12)
    double.log_prob(data.double())  # warnings are errors here


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RectangularFlow(torch.nn.Linear(3, 3), flows.RealNVP(2)), "got Linear"),
        (lambda: make_flow().log_prob(torch.zeros(2, 6).double(), batch_size=0), "batch_size ≥ 1"),
        (lambda: make_flow().encode(torch.zeros(2, 5)), r"Expected input shape \(batch, 6\); got \(2, 5\)"),
        (lambda: make_flow().log_prob(np.zeros((2, 6))), r"expected a torch\.Tensor; got ndarray"),
        (
            lambda: make_flow().log_prob(torch.zeros(2, 6)),
            r"expected torch\.float64, as the flow has; got torch\.float32",
        ),
        (lambda: make_flow().decode(torch.zeros(3)), r"Expected input shape \(batch, 3\); got \(3,\)"),
        (lambda: RectangularFlow(flows.RealNVP(3), flows.RealNVP(4)), "got d = 4 and D = 3"),
        (lambda: RectangularFlow(flows.RealNVP(3), flows.RealNVP(2), flows.Logit(4)), r"Logit expects shape \(4,\)"),
        (lambda: RectangularFlow(flows.RealNVP(3), flows.RealNVP(2), pad=flows.Pad(1, 3)), "latent density is on 2"),
        (lambda: make_flow().sample(-1), "got -1"),
    ],
)
def test_mistakes_are_named(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def _flow_with_units(kind: str, dim: int, dtype: torch.dtype) -> RectangularFlow:
    torch.manual_seed(0)
    if kind == "plain":
        ambient, outer = flows.RealNVP(4, zero_init=False), []
    elif kind == "standardised":
        ambient = flows.RealNVP(4, zero_init=False)
        outer = [flows.Standardise(torch.randn(4), torch.tensor([0.1, 1.0, 30.0, 2.0]))]
    else:
        ambient = flows.RealNVP(4, zero_init=False)
        outer = [flows.OrthonormalEmbedding(4, (1, 2, 3)), flows.Logit((1, 2, 3), margin=0.05)]
    return RectangularFlow(ambient, flows.RealNVP(dim, zero_init=False), outer).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("kind", ["plain", "standardised", "logit"])
@pytest.mark.parametrize("rows", [1, 7])
def test_score_is_one_pass_over_what_the_methods_say(kind, dim, rows, dtype):
    flow = _flow_with_units(kind, dim, dtype)
    x = torch.rand(rows, *flow.data_shape, dtype=dtype) * 0.8 + 0.1
    y, view = flow.to_model_units(x), flow.in_model_units
    found = flow.score(x)
    tight = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 1e-9, "atol": 1e-9}
    torch.testing.assert_close(found.z, flow.encode(x), **tight)
    torch.testing.assert_close(found.x_hat, flow.project(x), **tight)
    # independent: log-density by the singular values of an autograd Jacobian, in both units
    for value, chain in ((found.log_prob, flow), (found.model_log_prob, view)):
        J = torch.func.vmap(torch.func.jacrev(lambda v, f=chain: f.decode(v[None])[0].flatten()))(found.z)
        volume = torch.linalg.svdvals(J.double()).log().sum(dim=1)
        torch.testing.assert_close(value.double(), flow.latent.log_prob(found.z).double() - volume, **tight)
    for value, a, b in (
        (found.squared_distance, x, flow.project(x)),
        (found.model_squared_distance, y, view.project(y)),
    ):
        assert value.dtype == torch.float64
        torch.testing.assert_close(value, (a.double() - b.double()).flatten(1).square().sum(1), rtol=1e-3, atol=1e-6)


def test_score_encodes_each_row_once_and_pushes_its_tangents_once(monkeypatch):
    flow = _flow_with_units("standardised", 1, torch.float64)
    coupling = type(flow.ambient.layers[0])
    calls = {"inverse": 0, "linearize": 0}
    for name in calls:
        original = getattr(coupling, name)

        def counted(self, *args, _name=name, _original=original):
            calls[_name] += 1
            return _original(self, *args)

        monkeypatch.setattr(coupling, name, counted)
    flow.score(torch.randn(5, 4, dtype=torch.float64), check=False)
    links = len(flow.ambient.layers)
    assert calls == {"inverse": links, "linearize": links}


def test_score_in_batches_is_score_at_once():
    flow = _flow_with_units("standardised", 2, torch.float64)
    x = torch.randn(10, 4, dtype=torch.float64)
    at_once, batched = flow.score(x), flow.score(x, batch_size=3)
    for name in ("z", "x_hat", "log_prob", "squared_distance", "model_log_prob", "model_squared_distance"):
        torch.testing.assert_close(getattr(at_once, name), getattr(batched, name), rtol=1e-12, atol=1e-12)


def test_kind_dtype_and_device():
    flow = _flow_with_units("logit", 2, torch.float64)
    assert (flow.kind, flow.dtype, flow.device) == ("image", torch.float64, torch.device("cpu"))
    assert flow.in_model_units.kind == "image"
    assert _flow_with_units("plain", 2, torch.float32).kind == "table"
    assert RectangularFlow(flows.Identity(2), flows.Identity(1)).dtype == torch.float32
