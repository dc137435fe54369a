"""Rectangular flows whose latent space closes up: volume, gradients, density, samples, scatter, files."""

import json
import math

import pytest
import torch

from rectangular_flows import RectangularFlow, flows
from rectangular_flows.densities import ClosedMixture, ClosedSplines, UniformDensity
from rectangular_flows.flows.description import build, describe
from rectangular_flows.flows.spaces import Space
from rectangular_flows.volume import CG, PCG, Exact, Stochastic
from tests.conftest import shaken

SPACES = {"circle": 3, "torus:2": 3, "line*circle": 4, "torus:3": 7, "sphere": 3, "sphere*circle": 6}


def make(space, size, latent=UniformDensity, units=True):
    torch.manual_seed(0)
    outer = [flows.Standardise(torch.ones(size), torch.linspace(0.5, 2, size))] if units else []
    f = flows.RealNVP(size, 3, (8,), zero_init=False, mixing="free")
    return shaken(RectangularFlow(f, latent(space), outer, latent_space=space), amount=0.05)


def coordinates(flow, count=5, seed=1):
    return flow.latent.sample(count, torch.Generator().manual_seed(seed))


def plain_chart(space):
    """From d plain parameters to coordinates: latitude and longitude of a sphere. And the log of its own volume."""

    def chart(t):
        parts, at = [], 0
        for name in Space.of(space).factors:
            if name == "sphere":
                a, b = t[at], t[at + 1]
                parts += [a.sin() * b.cos(), a.sin() * b.sin(), a.cos()]
                at += 2
            else:
                parts.append(t[at])
                at += 1
        return torch.stack(parts)

    def log_volume(t):
        at, total = 0, torch.zeros((), dtype=t.dtype)
        for name in Space.of(space).factors:
            total = total + (t[at].sin().log() if name == "sphere" else 0)
            at += 2 if name == "sphere" else 1
        return total

    return chart, log_volume


@pytest.mark.parametrize(("space", "size"), SPACES.items())
def test_the_log_volume_is_that_of_a_plain_parametrisation(space, size):
    flow = make(space, size)
    chart, own = plain_chart(space)
    t = 0.3 + 1.2 * torch.rand(5, flow.latent_dim, dtype=torch.float64)
    z = torch.stack([chart(row) for row in t])
    J = torch.stack([torch.func.jacrev(lambda r: flow.decode(chart(r).unsqueeze(0)).squeeze(0))(row) for row in t])
    expected = 0.5 * torch.logdet(J.mT @ J) - torch.stack([own(row) for row in t])
    torch.testing.assert_close(flow.log_volume(z), expected, rtol=0, atol=1e-9)
    assert flow.jacobian(z).shape == (5, size, flow.latent_dim)
    torch.testing.assert_close(flow.singular_values(z).log().sum(1), expected, rtol=0, atol=1e-9)
    torch.testing.assert_close(Exact(bundle_size=1)(flow, z)[1], expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("solver", ["direct", CG(tol=1e-12), PCG(tol=1e-12)])
@pytest.mark.parametrize(("space", "size"), SPACES.items())
def test_gradients_of_the_stochastic_volume_with_all_probes_are_exact(space, size, solver):
    flow, gradients = make(space, size), []
    v = torch.randn(4, flow.pad.in_shape[0], dtype=torch.float64, requires_grad=True)
    parameters = [v, *flow.ambient.parameters()]
    for volume in (Exact(), Stochastic(probes=flow.latent_dim, solver=solver)):
        _, L = volume(flow, flow.embedding.inverse(v))
        gradients.append(torch.autograd.grad(L.sum(), parameters))
    for exact, estimate in zip(*gradients, strict=True):
        torch.testing.assert_close(estimate, exact, rtol=1e-7, atol=1e-8)

    def value(moved):
        return Exact()(flow, flow.embedding.inverse(moved))[1].sum()

    assert torch.autograd.gradcheck(value, (v.detach().requires_grad_(),), atol=1e-6)


@pytest.mark.parametrize(("space", "size"), SPACES.items())
def test_encode_decode_and_score(space, size):
    flow = make(space, size)
    z = coordinates(flow, 6)
    x = flow.decode(z)
    torch.testing.assert_close(flow.latent.space.difference(flow.encode(x), z), torch.zeros_like(z), rtol=0, atol=1e-9)
    assert flow.latent_dim == Space.of(space).dimension
    scores = flow.score(x)
    expected = flow.latent.log_prob(z) - flow.log_volume(z)
    torch.testing.assert_close(scores.log_prob, expected, rtol=0, atol=1e-9)
    torch.testing.assert_close(flow.log_prob(x), expected, rtol=0, atol=1e-9)
    model = flow.in_model_units
    torch.testing.assert_close(scores.model_log_prob, model.log_prob(flow.to_model_units(x)), rtol=0, atol=1e-9)
    assert float(scores.squared_distance.max()) < 1e-18
    assert flow.sample(7).shape == (7, size)


def test_the_density_on_a_circle_goes_round_and_has_mass_one():
    """Along the closed curve, by the length of its chords; the ends meet, with one density and no warning."""
    flow = make("circle", 3, ClosedSplines)
    z = torch.linspace(-math.pi, math.pi, 4001, dtype=torch.float64).unsqueeze(1)
    with torch.no_grad():
        x, log_p = flow.decode(z), flow.log_prob(flow.decode(z))
    torch.testing.assert_close(x[0], x[-1], rtol=0, atol=1e-12)
    assert float(log_p[0]) == pytest.approx(float(log_p[-1]), abs=1e-9)
    length = (x[1:] - x[:-1]).norm(dim=1)
    mass = (length * (log_p[1:].exp() + log_p[:-1].exp()) / 2).sum()
    assert float(mass) == pytest.approx(1, abs=1e-5)


def test_the_density_on_a_sphere_has_mass_one_over_triangles():
    """Area and density on a fine mesh, without the tangents of the library."""
    flow = make("sphere", 3, lambda space: _two_clumps(), units=True)
    polar = torch.linspace(0, math.pi, 121, dtype=torch.float64)
    round_ = torch.linspace(0, 2 * math.pi, 241, dtype=torch.float64)
    a, b = torch.meshgrid(polar, round_, indexing="ij")
    u = torch.stack((a.sin() * b.cos(), a.sin() * b.sin(), a.cos()), dim=2)
    with torch.no_grad():
        x = flow.decode(u.flatten(0, 1)).unflatten(0, u.shape[:2])
        p = flow.log_prob(x.flatten(0, 1)).exp().unflatten(0, u.shape[:2])
    first = torch.linalg.cross(x[1:, :-1] - x[:-1, :-1], x[:-1, 1:] - x[:-1, :-1]).norm(dim=2) / 2
    second = torch.linalg.cross(x[1:, :-1] - x[1:, 1:], x[:-1, 1:] - x[1:, 1:]).norm(dim=2) / 2
    mean = (p[1:, :-1] + p[:-1, 1:] + p[:-1, :-1]) / 3, (p[1:, :-1] + p[:-1, 1:] + p[1:, 1:]) / 3
    assert float((first * mean[0] + second * mean[1]).sum()) == pytest.approx(1, abs=2e-3)


def _two_clumps():
    density = ClosedMixture("sphere", 2)
    with torch.no_grad():
        density.centres.copy_(torch.tensor([[1.0, 0.0, 1.0], [-1.0, 0.5, 0.0]]))
        density.log_precision.copy_(torch.tensor([[1.5], [0.5]]))
    return density


@pytest.mark.parametrize(
    ("space", "size", "latent"),
    [("circle", 2, ClosedSplines), pytest.param("sphere", 3, ClosedMixture, marks=pytest.mark.slow)],
)
def test_the_density_around_it_has_mass_one_and_its_samples(space, size, latent):
    torch.manual_seed(0)
    flow = RectangularFlow(flows.Identity(size), latent(space, 2), latent_space=space).double()
    direction = torch.nn.functional.normalize(torch.randn(120, size, dtype=torch.float64) + 0.5, dim=1)
    x = direction * (1 + 0.15 * torch.randn(120, 1, dtype=torch.float64) * (1 + direction[:, :1] / 2))
    flow.initialise(x)
    flow.fit_scatter(x[:90], x[90:])
    step = 0.04 if size == 2 else 0.12
    line = torch.arange(-2.407, 2.4, step, dtype=torch.float64)
    grid = torch.cartesian_prod(*[line] * size)
    with torch.no_grad():
        p = flow.ambient_log_prob(grid).exp() * step**size
    assert float(p.sum()) == pytest.approx(1, abs=4e-3)
    samples = flow.sample(10_000, generator=torch.Generator().manual_seed(1), scatter=True)
    for function in (lambda v: v, torch.square, lambda v: v.norm(dim=1, keepdim=True)):
        expected, found = (function(grid) * p.unsqueeze(1)).sum(0), function(samples)
        assert float(((found.mean(0) - expected) / (found.std(0) / 100 + 2e-3)).abs().max()) < 5
    with torch.no_grad():
        at = flow.coordinates(grid)
        masses = [flow.scatter.alone(part).log_prob(at).exp().sum() * step**size for part in ("manifold", "joint")]
    assert [float(mass) for mass in masses] == pytest.approx([1, 1], abs=4e-3)
    scores = flow.score(x[:5])
    torch.testing.assert_close(scores.ambient_log_prob, flow.ambient_log_prob(x[:5]))
    torch.testing.assert_close(scores.z, flow.encode(x[:5]))
    again = build(json.loads(json.dumps(describe(flow)))).double()
    again.load_state_dict(flow.state_dict())
    torch.testing.assert_close(again.ambient_log_prob(x[:5]), scores.ambient_log_prob)


def test_a_flow_is_described_with_its_space():
    flow = make("torus:2", 3, ClosedMixture)
    again = build(json.loads(json.dumps(describe(flow)))).double()
    again.load_state_dict(flow.state_dict())
    z = coordinates(flow)
    assert torch.equal(flow.decode(z), again.decode(z))
    assert again.embedding.ring
    description = describe(make("circle", 2))
    del description["arguments"]["latent_space"]  # that of the density
    assert build(description).latent_dim == 1


def test_mistakes_are_named():
    f = flows.RealNVP(3)
    with pytest.raises(ValueError, match=r"on the latent space circle; got one on line\. Take one of .*'circle'"):
        RectangularFlow(f, flows.RealNVP(1), latent_space="circle")
    with pytest.raises(ValueError, match="torus:3 needs at least 6 dimensions"):
        RectangularFlow(f, UniformDensity("torus:3"))
    with pytest.raises(ValueError, match="padding is from 1 dimensions, but the latent density is on 2"):
        RectangularFlow(f, UniformDensity("circle"), pad=flows.Pad(1, 3))
    with pytest.raises(ValueError, match="expected a latent space such as"):
        RectangularFlow(f, flows.RealNVP(1), latent_space="ball")
    with pytest.raises(ValueError, match=r"Expected input shape \(batch, 3\)"):
        RectangularFlow(f, UniformDensity("sphere")).decode(torch.zeros(1, 2))
