"""What every latent density must do on spaces that close up, over the registry and some spaces."""

import json
import math

import numpy as np
import pytest
import torch
from scipy import special

from rectangular_flows.densities import LATENTS, ClosedMixture, ClosedSplines, FewerComponentsWarning, latent_on
from rectangular_flows.errors import RankDeficientError
from rectangular_flows.flows.description import build, describe
from rectangular_flows.flows.spaces import Space
from tests.conftest import shaken

KINDS = [name for name, kind in LATENTS.items() if kind.on is not None and name != "auto"]  # one of the others
SPACES = ["circle", "torus:2", "line*circle", "sphere"]
CASES = [(kind, space) for kind in KINDS for space in SPACES if (kind, space) != ("spline", "sphere")]
FEWER = {"kernels": {"latent_kernels": 100}}  # each takes time at every point of a grid
DTYPES = [(torch.float64, 1e-10), (torch.float32, 1e-3)]


def data(space, rows=600):
    """Two clumps on the space, one of them across the seam of every angle."""
    generator = torch.Generator().manual_seed(2)
    parts, which = [], torch.rand(rows, 1, generator=generator, dtype=torch.float64) < 0.6
    for name in Space.of(space).factors:
        noise = torch.randn(rows, 3, generator=generator, dtype=torch.float64)
        if name == "sphere":
            centre = torch.where(which, torch.tensor([-1.0, 0.2, 0.1]), torch.tensor([0.3, 0.9, -0.4]))
            parts.append(torch.nn.functional.normalize(centre + 0.3 * noise, dim=1))
        elif name == "circle":
            angle = torch.where(which, 3.0, 0.5) + 0.4 * noise[:, :1]
            parts.append(torch.atan2(angle.sin(), angle.cos()))
        else:
            parts.append(torch.where(which, 1.0, 4.0) + 0.7 * noise[:, :1])
    return torch.cat(parts, dim=1)


def make(kind, space, dtype=torch.float64, amount=0.05):
    """That density, started from the data and moved at random."""
    torch.manual_seed(1)
    density = latent_on(kind, LATENTS[kind].settings(**FEWER.get(kind, {})), Space.of(space)).double()
    density.initialise(data(space))
    return shaken(density, amount=amount).to(dtype)


def quadrature(space):
    """Points and weights of the space, (N, coordinates) and (N,)."""
    grids, weights = [], []
    side = 400 if space == "circle" else 150
    for name in Space.of(space).factors:
        if name == "sphere":
            height = torch.linspace(-1, 1, 201, dtype=torch.float64)
            height = (height[1:] + height[:-1]) / 2
            angle = torch.linspace(0, 2 * math.pi, 401, dtype=torch.float64)[1:]
            pairs = torch.cartesian_prod(height, angle)
            ring = (1 - pairs[:, 0] ** 2).sqrt()
            grids.append(torch.stack((ring * pairs[:, 1].cos(), ring * pairs[:, 1].sin(), pairs[:, 0]), dim=1))
            weights.append(torch.full((len(pairs),), 4 * math.pi / len(pairs), dtype=torch.float64))
        else:
            low, high = (-math.pi, math.pi) if name == "circle" else (-8.0, 12.0)
            line = torch.linspace(low, high, side + 1, dtype=torch.float64)[1:]
            grids.append(line[:, None])
            weights.append(torch.full((side,), (high - low) / side, dtype=torch.float64))
    if len(grids) == 1:
        return grids[0], weights[0]
    return torch.cartesian_prod(*(grid[:, 0] for grid in grids)), (weights[0][:, None] * weights[1]).flatten()


@pytest.mark.parametrize(("kind", "space"), CASES)
def test_it_integrates_to_one(kind, space):
    points, weights = quadrature(space)
    with torch.no_grad():
        mass = (make(kind, space).log_prob(points).exp() * weights).sum()
    assert float(mass) == pytest.approx(1, abs=2e-3)


@pytest.mark.parametrize(("kind", "space"), CASES)
def test_samples_are_those_of_the_density(kind, space):
    """Moments of the embedded samples against quadrature."""
    density, points_weights = make(kind, space), quadrature(space)
    points, weights = points_weights
    samples = density.sample(40_000, torch.Generator().manual_seed(3))
    with torch.no_grad():
        odds = density.log_prob(points).exp() * weights

    def moments(z):
        parts = [z[:, at] if n != "circle" else torch.cat((z[:, at].cos(), z[:, at].sin()), 1) for n, at in places]
        v = torch.cat(parts, dim=1)
        return torch.cat((v, v**2, v[:, :1] * v[:, -1:], (2 * v).sin()), dim=1)

    places = Space.of(space).places()
    found, expected = moments(samples), (moments(points) * odds[:, None]).sum(0)
    error = found.std(0) / 200
    assert float(((found.mean(0) - expected) / (error + 1e-3)).abs().max()) < 4
    if "circle" in density.space.factors:
        at = [i for i, name in enumerate(density.space.factors) if name == "circle"]
        assert float(samples[:, at].abs().max()) <= math.pi


@pytest.mark.parametrize(("kind", "space"), [case for case in CASES if case[1] != "sphere"])
def test_it_does_not_jump_where_an_angle_closes(kind, space):
    density, z = make(kind, space, amount=0.3), data(space, 50)
    for i, name in enumerate(density.space.factors):
        if name != "circle":
            continue
        before, after, round_trip = z.clone(), z.clone(), z.clone()
        before[:, i], after[:, i] = math.pi - 1e-9, -math.pi + 1e-9
        round_trip[:, i] += 2 * math.pi
        with torch.no_grad():
            torch.testing.assert_close(density.log_prob(before), density.log_prob(after), rtol=0, atol=1e-6)
            torch.testing.assert_close(density.log_prob(round_trip), density.log_prob(z), rtol=0, atol=1e-9)


@pytest.mark.parametrize(("kind", "space"), CASES)
def test_gradients(kind, space):
    """Of points by finite differences, of all parameters together along a random direction."""
    density, z = make(kind, space), data(space, 3)
    assert torch.autograd.gradcheck(density.log_prob, (z.clone().requires_grad_(),), atol=1e-4)
    parameters = list(density.parameters())
    if not parameters:
        return
    direction = [torch.randn_like(p) for p in parameters]
    density.log_prob(z).sum().backward()
    analytic = sum(float((p.grad * v).sum()) for p, v in zip(parameters, direction, strict=True) if p.grad is not None)

    def moved(step):
        with torch.no_grad():
            for p, v in zip(parameters, direction, strict=True):
                p.add_(step * v)
            return float(density.log_prob(z).sum())

    step = 1e-6
    measured = (moved(step) - moved(-2 * step)) / (2 * step)
    assert measured == pytest.approx(analytic, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
@pytest.mark.parametrize(("kind", "space"), CASES)
def test_rows_are_independent_in_both_precisions(kind, space, dtype, tolerance):
    density, z = make(kind, space, dtype), data(space, 6).to(dtype)
    value = density.log_prob(z)
    assert value.dtype == density.sample(2).dtype == dtype
    one_by_one = torch.cat([density.log_prob(row) for row in z.split(1)])
    torch.testing.assert_close(value, one_by_one, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(value.double(), make(kind, space).log_prob(z.double()), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("kind", "space"), CASES)
def test_samples_follow_the_generator_and_it_is_built_again(kind, space):
    density, state = make(kind, space), torch.get_rng_state()
    first, again, other = (density.sample(50, torch.Generator().manual_seed(seed)) for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert density.sample(0, torch.Generator()).shape == (0, density.features)
    assert torch.equal(torch.get_rng_state(), state)
    rebuilt = build(json.loads(json.dumps(describe(density)))).double()
    rebuilt.load_state_dict(density.state_dict())
    assert torch.equal(density.log_prob(first), rebuilt.log_prob(first))


@pytest.mark.parametrize(("kind", "space"), [case for case in CASES if case[0] != "identity"])
def test_starting_from_data_fits_them_better(kind, space):
    density, rows = latent_on(kind, LATENTS[kind].settings(), Space.of(space)).double(), data(space)
    before = float(density.log_prob(rows).detach().mean())
    density.initialise(rows)
    assert float(density.log_prob(rows).detach().mean()) > before + 0.2


@pytest.mark.parametrize("kappa", [1e-3, 2.0, 500.0])
def test_a_component_is_what_scipy_says(kappa):
    circle, sphere = ClosedMixture("circle", 1).double(), ClosedMixture("sphere", 1).double()
    with torch.no_grad():
        for density in (circle, sphere):
            density.log_precision.fill_(math.log(kappa))
    theta = torch.tensor([[-2.0], [0.1], [0.0]], dtype=torch.float64)
    expected = kappa * np.cos(theta[:, 0].numpy()) - np.log(2 * np.pi) - np.log(special.ive(0, kappa)) - kappa
    np.testing.assert_allclose(circle.log_prob(theta).detach(), expected, atol=1e-9)
    u = torch.nn.functional.normalize(torch.tensor([[1.0, 0.1, 0.0], [0.3, -1.0, 2.0]], dtype=torch.float64), dim=1)
    height = np.log(kappa) - np.log(2 * np.pi) - np.log(-np.expm1(-2 * kappa)) + kappa * (u[:, 0].numpy() - 1)
    np.testing.assert_allclose(sphere.log_prob(u).detach(), height, atol=1e-9)


def test_em_finds_two_clumps():
    generator = np.random.default_rng(0)
    angles = np.concatenate([generator.vonmises(3.0, 30.0, 3000), generator.vonmises(-1.0, 4.0, 1000)])
    density = ClosedMixture("circle", components=2).double()
    density.initialise(torch.from_numpy(angles)[:, None])
    order = density.logits.argsort(descending=True)
    assert density.logits.softmax(0)[order].tolist() == pytest.approx([0.75, 0.25], abs=0.02)
    assert density.log_precision[order, 0].exp().tolist() == pytest.approx([30.0, 4.0], rel=0.15)
    means = torch.atan2(density.centres[order, 1], density.centres[order, 0])
    assert means.tolist() == pytest.approx([3.0, -1.0], abs=0.05)


def test_mistakes_are_named():
    with pytest.raises(
        ValueError, match="no latent density 'realnvp' on the latent space circle; there are spline, mix"
    ):
        latent_on("realnvp", LATENTS["realnvp"].settings(), Space.of("circle"))
    with pytest.raises(ValueError, match="splines are for circles and lines; got the latent space sphere"):
        ClosedSplines("sphere")
    with pytest.raises(ValueError, match="at least one"):
        ClosedMixture("circle", 0)
    flat = torch.cat((torch.ones(50, 1), torch.rand(50, 1)), dim=1)
    for density in (ClosedSplines("line*circle"), ClosedMixture("line*circle")):
        with pytest.raises(RankDeficientError, match="constant"):
            density.initialise(flat)
    with pytest.warns(FewerComponentsWarning, match="one of 5"):
        ClosedMixture("circle", 8).initialise(torch.rand(50, 1))
