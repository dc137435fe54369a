"""Flows of tables with periodic columns: densities per unit of the angle, by quadrature, and seams that nobody sees."""

import copy
import math
from functools import cache

import pytest
import torch

from rectangular_flows import RectangularFlow, flows
from rectangular_flows.densities import ClosedMixture, MixtureDensity
from rectangular_flows.flows.spaces import Space
from rectangular_flows.manifold.ambient import unit_log_det
from rectangular_flows.storage.models import load_model, save_model
from rectangular_flows.volume import Exact, Stochastic
from tests.conftest import shaken

PERIODS, STARTS = [24.0, 360.0, 2 * math.pi], [0.0, -180.0, 0.0]
CASES = [
    (2, 0, "torus:2"),
    (2, 0, "circle"),
    (1, 1, "circle"),
    (1, 1, "line"),
    (2, 1, "line*circle"),
    (3, 1, "torus:2"),
]


def rows(angles, lines, count=300):
    """Angles near a seam, each following the first, and others that follow the angles; with scatter."""
    random = torch.Generator().manual_seed(1)
    noise = torch.randn(count, angles + lines, generator=random, dtype=torch.float64)
    first = math.pi + 1.2 * noise[:, :1]
    scatter = 0.3 * noise[:, 1:]
    turned = torch.cat((first, first + 1 + scatter[:, : angles - 1]), dim=1) / (2 * math.pi)
    others = 2 + first.cos() + scatter[:, angles - 1 :]
    start, period = (torch.tensor(v[:angles], dtype=torch.float64) for v in (STARTS, PERIODS))
    return torch.cat((others, start + torch.remainder(turned, 1) * period), dim=1)


@cache
def make(angles, lines, space, dtype=torch.float64, scatter=False):
    """A flow on those rows, started from them and moved at random."""
    torch.manual_seed(0)
    space, size = Space.of(space), angles + lines
    circles = space.factors.count("circle")
    latent = MixtureDensity(space.dimension, 2) if space.flat else ClosedMixture(str(space), 2)
    scales = torch.cat((torch.ones(2 * angles), torch.full((lines,), 1.5)))
    if scatter or dtype != torch.float64:
        flow = copy.deepcopy(make(angles, lines, str(space)))
        if scatter:
            data = rows(angles, lines)
            flow.fit_scatter(data[:200], data[200:])
        return flow.to(dtype)
    flow = RectangularFlow(
        flows.RealNVP(size, 2, (6,), angles=angles, mixing="free"),
        latent,
        [
            flows.Winding(angles, size, circles, space.dimension - circles),
            flows.OnCircles(angles, lines),
            flows.Standardise(torch.cat((torch.zeros(2 * angles), torch.full((lines,), 2.0))), scales),
            flows.Periodic(size, list(range(lines, size)), PERIODS[:angles], STARTS[:angles]),
        ],
    ).double()
    flow.initialise(rows(angles, lines))
    return shaken(flow, amount=0.05)


def turned(x, lines, turns=1):
    shift = torch.cat((torch.zeros(lines), turns * torch.tensor(PERIODS[: x.shape[1] - lines], dtype=torch.float64)))
    return (x + shift).to(x.dtype)


@pytest.mark.parametrize(
    ("case", "dtype", "tolerance"),
    [
        *((case, torch.float64, 1e-10) for case in CASES[1:]),
        (CASES[1], torch.float32, 1e-3),
        (CASES[4], torch.float32, 1e-3),
    ],
)
def test_a_turn_changes_nothing(case, dtype, tolerance):
    flow, x = make(*case, dtype, scatter=True), rows(case[0], case[1], 40).to(dtype)
    here = flow.score(x)
    for turns in (1, -2):
        there = flow.score(turned(x, case[1], turns))
        for name in ("log_prob", "ambient_log_prob", "smooth_log_prob", "model_squared_distance", "model_rows"):
            torch.testing.assert_close(getattr(there, name), getattr(here, name), rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(there.squared_distance, here.squared_distance, rtol=tolerance, atol=10 * tolerance)


@pytest.mark.parametrize("case", CASES)
def test_encoding_inverts_decoding_and_projections_lie_in_their_range(case):
    flow, (angles, lines, _) = make(*case), case
    z = flow.latent.sample(200, torch.Generator().manual_seed(0))
    x = flow.decode(z)
    difference = flow.latent.space.difference(flow.encode(x), z)
    torch.testing.assert_close(difference, torch.zeros_like(z), rtol=0, atol=1e-10)
    for i in range(angles):
        column = x[:, lines + i]
        assert bool(((column >= STARTS[i]) & (column < STARTS[i] + PERIODS[i])).all())


@pytest.mark.parametrize("case", CASES)
def test_jacobian_and_volume_against_autograd(case):
    flow = make(*case)
    z = flow.latent.sample(4, torch.Generator().manual_seed(0))
    J = torch.func.vmap(torch.func.jacrev(lambda v: flow.decode(v[None])[0]))(z)
    torch.testing.assert_close(flow.jacobian(z), J, rtol=1e-8, atol=1e-8)
    volume = torch.linalg.svdvals(J).log().sum(dim=1)
    torch.testing.assert_close(flow.log_volume(z), volume, rtol=0, atol=1e-8)
    x, scores = flow.decode(z), flow.score(flow.decode(z))
    torch.testing.assert_close(scores.log_prob, flow.latent.log_prob(z) - volume, rtol=0, atol=1e-8)
    torch.testing.assert_close(flow.log_prob(x), scores.log_prob, rtol=0, atol=1e-10)
    model = torch.func.vmap(torch.func.jacrev(lambda v: flow.in_model_units.decode(v[None])[0]))(z)
    expected = flow.latent.log_prob(z) - torch.linalg.svdvals(model).log().sum(dim=1)
    torch.testing.assert_close(scores.model_log_prob, expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("case", CASES[:4])
def test_gradient_of_the_volume(case):
    """What training needs: with as many probes as dimensions the stochastic gradient is exact."""
    flow = make(*case)
    z = flow.latent.sample(5, torch.Generator().manual_seed(0)).requires_grad_()
    found = []
    for volume in (Exact(codimension="never"), Stochastic(probes=z.shape[1], distribution="orthonormal")):
        parameters = [p for p in flow.ambient.parameters() if p.requires_grad]
        value = volume(flow.in_model_units, z)[1].sum()
        found.append(torch.autograd.grad(value, [z, *parameters], allow_unused=True))
    for one, other in zip(*found, strict=True):
        if one is not None and other is not None:
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-8)


def test_density_of_a_torus_integrates_to_one_in_the_units_of_the_columns():
    flow = make(2, 0, "torus:2")
    hours, degrees = torch.arange(0, 24, 0.2).double(), torch.arange(-180, 180, 3.0).double()
    grid = torch.cartesian_prod(hours, degrees)
    with torch.no_grad():
        mass = float(flow.log_prob(grid).exp().sum()) * 0.2 * 3.0
    assert mass == pytest.approx(1, abs=1e-6)
    torch.testing.assert_close(flow.project(grid), grid, rtol=0, atol=1e-9)  # all of the torus is the manifold


def test_density_of_a_curve_integrates_to_one_along_it():
    flow = make(2, 0, "circle")
    z = torch.linspace(-math.pi, math.pi, 2001, dtype=torch.float64)[:-1, None]
    with torch.no_grad():
        x = flow.decode(z)
        density = flow.log_prob(x).exp()
    steps = flow.periodic.difference(x.roll(-1, 0), x).norm(dim=1)
    assert float((density * (steps + steps.roll(1)) / 2).sum()) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("case", [(1, 1, "circle"), (1, 1, "line"), (2, 0, "circle"), (2, 0, "torus:2")])
def test_density_in_all_columns_integrates_to_one(case):
    flow, (angles, lines, _) = make(*case, scatter=True), case
    points = 1000 if case[2] == "line" else 120  # next to the antipode of a dropped angle the density is steep
    axes = [torch.linspace(-6, 10, 201, dtype=torch.float64)] * lines
    axes += [
        s + p * (torch.arange(points) + 0.5).double() / points
        for s, p in list(zip(STARTS, PERIODS, strict=True))[:angles]
    ]
    step = math.prod(float(axis[1] - axis[0]) for axis in axes)
    grid = torch.cartesian_prod(*axes)
    with torch.no_grad():
        for part in (None, "manifold", "joint", "plain"):
            scatter = flow.scatter if part is None else flow.scatter.alone(part)
            at = flow.coordinates(grid)
            value = scatter.log_prob(at) + unit_log_det(flow, grid)
            assert float(value.exp().sum()) * step == pytest.approx(1, abs=2e-3), part


@pytest.mark.parametrize("case", [(2, 0, "circle"), (1, 1, "line"), (2, 1, "line*circle")])
def test_samples_with_scatter_follow_the_density(case):
    """Means of bounded functions of samples and of rows agree: the flow was fitted to the rows."""
    flow, (angles, lines, _) = make(*case, scatter=True), case
    drawn = flow.sample(4000, generator=torch.Generator().manual_seed(0), scatter=True)
    for i in range(angles):
        column = drawn[:, lines + i]
        assert bool(((column >= STARTS[i]) & (column < STARTS[i] + PERIODS[i])).all())
    data = flow.to_model_units(rows(angles, lines, 3000))
    drawn = flow.to_model_units(drawn)
    torch.testing.assert_close(drawn.mean(dim=0), data.mean(dim=0), rtol=0, atol=0.15)


def test_saved_and_loaded(tmp_path):
    flow = make(2, 1, "line*circle", torch.float32, scatter=True)
    save_model(flow, tmp_path / "model")
    again, x = load_model(tmp_path / "model"), rows(2, 1, 30).float()
    for name, value in vars(flow.score(x)).items():
        torch.testing.assert_close(getattr(again.score(x), name), value, rtol=0, atol=0, equal_nan=True)
    assert again.periodic.periods == PERIODS[:2]


def test_reconstruction_errors_go_the_short_way_round():
    flow = make(1, 1, "line")
    x = rows(1, 1, 50)
    gap = (x - flow.project(x).detach()).abs()
    gap[:, 1] = torch.minimum(gap[:, 1], 24 - gap[:, 1])
    assert float(gap[:, 1].max()) > 2  # hours from the manifold: a seam lies between some rows and it
    torch.testing.assert_close(flow.reconstruction_error(x).detach(), gap.square().sum(dim=1), rtol=0, atol=1e-9)
