"""An atlas against densities that are known: circles of exact arcs, quadrature on curves and in the plane."""

import math

import pytest
import torch

import rectangular_flows as rnf
from rectangular_flows import Atlas, RectangularFlow, flows
from rectangular_flows.atlas import IdleChartWarning, width_of
from tests.conftest import shaken


class Arc(flows.Bijection):
    """x = c + (r + u₂)(cos(a + s u₁), sin(a + s u₁)): an exact arc of a circle, its angle normal around a."""

    def __init__(self, angle: float, spread: float, radius: float = 1.0, centre: float = 0.0):
        super().__init__((2,))
        self.angle, self.spread, self.radius, self.centre = angle, spread, radius, centre

    def forward(self, z):
        angle, length = self.angle + self.spread * z[:, 0], self.radius + z[:, 1]
        return torch.stack([self.centre + length * angle.cos(), length * angle.sin()], dim=1)

    def inverse(self, x):
        x = x - torch.tensor([self.centre, 0.0]).to(x)
        turned = torch.atan2(x[:, 1], x[:, 0]) - self.angle
        turned = (turned + math.pi) % (2 * math.pi) - math.pi
        return torch.stack([turned / self.spread, x.norm(dim=1) - self.radius], dim=1)

    def forward_with_log_det(self, z):
        return self.forward(z), (self.spread * (self.radius + z[:, 1])).log()

    def inverse_with_log_det(self, x):
        z = self.inverse(x)
        return z, -(self.spread * (self.radius + z[:, 1])).log()


def arc(angle, spread=0.55, radius=1.0, centre=0.0, units=()):
    return RectangularFlow(
        Arc(angle, spread, radius, centre), flows.Identity(1), list(units), pad=flows.Pad(1, 2, order="first")
    )


ANGLES, WEIGHTS = (0.0, 2.1, 4.2), (0.5, 0.3, 0.2)


def circle(count, radius=1.0, centre=0.0):
    t = 2 * math.pi * torch.arange(count, dtype=torch.float64) / count
    return t, torch.stack([centre + radius * t.cos(), radius * t.sin()], dim=1)


def three_arcs(**options):
    return Atlas([arc(angle, **options) for angle in ANGLES], WEIGHTS, sigma=0.02).double().requires_grad_(False)


def wrapped(t, spread=0.55):
    off = (t[:, None] - torch.tensor(ANGLES) + math.pi) % (2 * math.pi) - math.pi
    height = torch.exp(-0.5 * (off / spread) ** 2) / (spread * math.sqrt(2 * math.pi))
    return (height * torch.tensor(WEIGHTS, dtype=torch.float64)).sum(dim=1)


def test_three_arcs_make_a_circle_of_mass_one():
    t, x = circle(2_000)
    found = three_arcs().log_prob(x).exp()
    assert torch.allclose(found, wrapped(t), rtol=1e-6)
    assert float(found.mean() * 2 * math.pi) == pytest.approx(1, abs=1e-6)


def test_density_is_that_of_the_projection_and_no_gap_is_left():
    _, x = circle(50)
    atlas, off = three_arcs(), 1 + 0.3 * torch.rand(50, 1, dtype=torch.float64)
    assert torch.allclose(atlas.project(off * x), x, atol=1e-9)
    assert torch.allclose(atlas.log_prob(off * x), atlas.log_prob(x), atol=1e-9)
    assert torch.allclose(atlas.reconstruction_error(off * x), (off[:, 0] - 1) ** 2)


@pytest.mark.parametrize("factor", [1.0, 30.0])
def test_units_of_the_user(factor):
    """The circle in units that are stretched by the same factor: lengths grow by it, and densities fall."""
    units = flows.Standardise(torch.tensor([1.0, -2.0]), torch.full((2,), factor))
    atlas = Atlas([arc(a, units=[units]) for a in ANGLES], WEIGHTS, sigma=0.02).double().requires_grad_(False)
    t, x = circle(100)
    found = atlas.score(units.double()(x))
    assert torch.allclose(found.log_prob.exp(), wrapped(t) / factor, rtol=1e-6)
    assert torch.allclose(found.model_log_prob.exp(), wrapped(t), rtol=1e-6)


def test_units_that_stretch_columns_differently():
    """On an ellipse, by quadrature over its length: the mass is one, and score and log_prob agree."""
    units = flows.Standardise(torch.zeros(2), torch.tensor([3.0, 0.5]))
    atlas = Atlas([arc(a, units=[units]) for a in ANGLES], WEIGHTS, sigma=0.02).double().requires_grad_(False)
    x = units.double()(circle(4_000)[1])
    length = (x.roll(-1, 0) - x.roll(1, 0)).norm(dim=1) / 2
    density = atlas.log_prob(x).exp()
    assert float((density * length).sum()) == pytest.approx(1, abs=1e-4)
    found = atlas.score(x[:50])
    assert torch.allclose(found.log_prob.exp(), density[:50])
    assert torch.allclose(atlas.decode(found.chart, found.z), x[:50])


def test_separate_pieces_do_not_count_for_each_other():
    atlas = Atlas([arc(0.0, 0.3), arc(1.0, 0.4, radius=2.2)], (0.25, 0.75), sigma=0.05).double().requires_grad_(False)
    t, x = circle(1_001, radius=2.2)
    found = atlas.log_prob(x).exp()
    off = (t - 1 + math.pi) % (2 * math.pi) - math.pi
    expected = 0.75 * torch.exp(-0.5 * (off / 0.4) ** 2) / (2.2 * 0.4 * math.sqrt(2 * math.pi))
    assert torch.allclose(found, expected, rtol=1e-6)
    assert atlas.encode(x)[0].unique().tolist() == [1]
    masses = [float((atlas.log_prob(circle(2_000, r)[1]).exp()).mean() * 2 * math.pi * r) for r in (1.0, 2.2)]
    assert masses == pytest.approx([0.25, 0.75], abs=1e-6)


def test_sigma_says_how_near_counts():
    """A second arc beside the first, at a distance: by a Gaussian of that distance over σ."""
    atlas = Atlas([arc(0.0), arc(0.0, radius=1.03)], sigma=0.02).double()
    _, x = circle(1)
    alone = atlas.charts[0].log_prob(x).exp()
    beside = atlas.charts[1].log_prob(x).exp()
    expected = 0.5 * (alone + beside * math.exp(-0.5 * (0.03 / 0.02) ** 2))
    assert torch.allclose(atlas.log_prob(x).exp(), expected)


def test_samples_are_where_the_density_is():
    atlas = three_arcs()
    x = atlas.sample(20_000, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(x.norm(dim=1), torch.ones(len(x), dtype=torch.float64))
    t = torch.atan2(x[:, 1], x[:, 0]) % (2 * math.pi)
    counts = torch.histc(t, 24, 0, 2 * math.pi) / len(x)
    grid = (torch.arange(24_000, dtype=torch.float64) + 0.5) * 2 * math.pi / 24_000
    expected = wrapped(grid).view(24, 1_000).mean(dim=1) * 2 * math.pi / 24
    assert float((counts - expected).abs().max()) < 4 * math.sqrt(0.1 / 20_000)
    again = atlas.sample(20_000, generator=torch.Generator().manual_seed(0))
    assert torch.equal(x, again)
    assert atlas.sample(0).shape == (0, 2)


def random_atlas(dtype=torch.float64):
    charts = [RectangularFlow(flows.RealNVP(2, layers=2), flows.RealNVP(1, layers=2)) for _ in range(2)]
    return Atlas([shaken(chart, k, dtype=dtype) for k, chart in enumerate(charts)], (0.3, 0.7), sigma=0.3)


def test_density_in_the_plane_integrates_to_one():
    atlas, x = random_atlas(), torch.randn(300, 2, dtype=torch.float64) * torch.tensor([1.0, 0.3])
    atlas.fit_scatter(x[:200], x[200:])
    side = torch.linspace(-10, 10, 301, dtype=torch.float64)
    grid = torch.cartesian_prod(side, side)
    atlas.requires_grad_(False)
    mass = float(atlas.ambient_log_prob(grid, batch_size=100_000).exp().sum() * (side[1] - side[0]) ** 2)
    assert mass == pytest.approx(1, abs=5e-3)
    parts = torch.stack([chart.ambient_log_prob(x).exp() for chart in atlas.charts], dim=1)
    assert torch.allclose(atlas.ambient_log_prob(x).exp(), parts @ atlas.weights.detach())
    assert torch.allclose(atlas.score(x).ambient_log_prob, atlas.ambient_log_prob(x))
    drawn = atlas.sample(4_000, generator=torch.Generator().manual_seed(1), scatter=True)
    assert torch.allclose(drawn.mean(dim=0), x.mean(dim=0), atol=0.25)
    assert not torch.allclose(atlas.alone("plain").ambient_log_prob(x), atlas.ambient_log_prob(x))


def test_steps_of_the_columns_are_counted_over_all_charts():
    atlas, x = random_atlas(), torch.randn(300, 2, dtype=torch.float64)
    seen = []
    atlas.fit_scatter(x[:200], x[200:], 0, 40, lambda step, steps: seen.append((step, steps)))
    assert seen[0] == (1, 40)
    assert [step for step, _ in seen] == sorted(step for step, _ in seen)
    assert {steps for _, steps in seen} == {40}
    assert 30 < seen[-1][0] <= 40  # a chart may have stopped early


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_chart_is_the_flow(dtype):
    flow = shaken(RectangularFlow(flows.RealNVP(3, layers=2), flows.RealNVP(2, layers=2)), dtype=dtype)
    atlas, x = Atlas([flow]), torch.randn(7, 3, dtype=dtype)
    tolerance = {"atol": 1e-4 if dtype == torch.float32 else 1e-10}
    assert torch.allclose(atlas.log_prob(x), flow.log_prob(x), **tolerance)
    ours, theirs = atlas.score(x), flow.score(x)
    for name in ("z", "x_hat", "log_prob", "squared_distance", "model_log_prob", "chart"):
        assert torch.allclose(getattr(ours, name), getattr(theirs, name), **tolerance), name
    assert ours.log_prob.dtype == dtype
    assert torch.allclose(atlas.jacobian(*atlas.encode(x)), flow.jacobian(flow.encode(x)), **tolerance)
    assert torch.allclose(atlas.log_volume(*atlas.encode(x)), flow.log_volume(flow.encode(x)), **tolerance)


def test_gradient_of_the_log_density():
    atlas, x = random_atlas(), torch.randn(4, 2, dtype=torch.float64)
    parameter = atlas.charts[0].latent
    weight = next(p for p in parameter.parameters() if p.numel() > 1)
    atlas.log_prob(x).sum().backward()
    found, step = weight.grad.flatten()[0].clone(), 1e-6
    with torch.no_grad():
        values = []
        for sign in (1, -1):
            weight.view(-1)[0] += sign * step
            values.append(float(atlas.log_prob(x).sum()))
            weight.view(-1)[0] -= sign * step
    assert float(found) == pytest.approx((values[0] - values[1]) / (2 * step), rel=1e-4, abs=1e-7)


def test_saved_and_loaded(tmp_path):
    atlas, x = random_atlas(), torch.randn(40, 2, dtype=torch.float64)
    atlas.fit_scatter(x[:30], x[30:])
    atlas.fit_sigma(x)
    rnf.save(atlas, tmp_path)
    found = rnf.load(tmp_path)
    assert isinstance(found, Atlas)
    for name, value in vars(atlas.score(x)).items():
        assert torch.equal(value, getattr(found.score(x), name)), name
    assert float(found.sigma) == float(atlas.sigma)
    again = rnf.load(tmp_path, flow=random_atlas())
    assert torch.equal(again.ambient_log_prob(x), atlas.ambient_log_prob(x))


def test_idle_charts_are_dropped_and_the_rest_is_saved(tmp_path):
    atlas = Atlas([arc(0.0), arc(0.0, radius=50.0), arc(2.0)]).double()
    _, x = circle(20)
    with pytest.warns(IdleChartWarning, match="charts 1 lost all rows"):
        atlas.drop_idle(x)
    assert len(atlas.charts) == 2
    assert atlas.weights.tolist() == pytest.approx([0.5, 0.5])
    rnf.save(atlas, tmp_path)
    assert torch.equal(rnf.load(tmp_path).log_prob(x), atlas.log_prob(x))


def test_starts_from_parts_of_the_data():
    generator = torch.Generator().manual_seed(0)
    t = 6.28 * torch.rand(600, generator=generator)
    rings = torch.stack([t.cos(), t.sin()], dim=1) * torch.where(torch.arange(600) % 2 == 0, 1.0, 2.2)[:, None]
    charts = [
        RectangularFlow(
            flows.RealNVP(2, layers=2),
            flows.RealNVP(1, layers=1),
            [flows.OrthonormalEmbedding(2, 2)],
            pad=flows.Pad(1, 2, order="first"),
        )
        for _ in range(4)
    ]
    atlas = Atlas(charts)
    atlas.initialise(rings)
    inside = atlas.start(rings)
    for k in range(4):
        assert rings[inside[:, k]].norm(dim=1).std() < 0.01  # of one ring each
    assert sorted(atlas.start.pieces) == [0, 0, 1, 1]
    assert float(atlas.weights.detach().sum()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Atlas([]), "at least one RectangularFlow"),
        (lambda: Atlas([arc(0.0)], weights=[1.0, 2.0]), "expected 1 positive weights"),
        (lambda: Atlas([arc(0.0)], weights=[-1.0]), "expected 1 positive weights"),
        (lambda: Atlas([arc(0.0)], sigma=0.0), "sigma > 0"),
        (lambda: Atlas([arc(0.0), RectangularFlow(flows.RealNVP(3), flows.RealNVP(1))]), "one data_shape"),
        (lambda: Atlas([arc(0.0), arc(0.0, units=[flows.Standardise(torch.zeros(2), torch.ones(2))])]), "change units"),
        (lambda: three_arcs().sample(-1), "number of samples"),
        (lambda: three_arcs().log_prob(torch.zeros(3, 2)), "expected torch.float64"),
        (lambda: three_arcs().decode(torch.tensor([0, 9, -1]), torch.zeros(3, 1)), "charts from 0 to 2; got -1, 9"),
        (lambda: three_arcs().jacobian(torch.zeros(4), torch.zeros(3, 1)), r"shape \(3,\); got \(4,\)"),
        (lambda: three_arcs().in_model_units.decode(torch.tensor([3]), torch.zeros(1, 1)), "charts from 0 to 2; got 3"),
        (lambda: three_arcs().ambient_log_prob(torch.zeros(3, 2).double()), "fit_scatter"),
    ],
)
def test_refused(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


@pytest.mark.parametrize(("size", "expected"), [(0.1, 0.3), (1e-3, 0.04), (0.0, 0.04)])
def test_the_width_follows_the_rows_down_to_a_least_one(size, expected):
    squared = size**2 * torch.tensor([0.5, 1.5, torch.inf], dtype=torch.float64)
    assert width_of(squared) == pytest.approx(expected)
