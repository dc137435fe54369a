"""The density in R^D against log-determinants by autograd, torch's own distributions, quadrature and its own samples."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import ks_2samp
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal

import rectangular_flows as rnf
from rectangular_flows import RectangularFlow, flows
from rectangular_flows.densities import MixtureDensity, Scatter
from rectangular_flows.runs.build import build_flow
from rectangular_flows.settings import FitSettings
from tests.conftest import shaken


def rows(count, columns, seed=0, scale=1.0):
    """A curved sheet with scatter around it."""
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(count, 2, generator=generator, dtype=torch.float64)
    x = torch.cat([z, torch.sin(z), z.square()], dim=1)[:, [0, 2, 5, 1, 3, 4][:columns]]
    return scale * (x + 0.1 * torch.randn(x.shape, generator=generator, dtype=torch.float64))


def made(kind, dtype, seed=0):
    """A flow with no layer the identity, and rows for it."""
    if kind == "multiscale":
        generator = torch.Generator().manual_seed(seed)
        x = torch.rand(120, 1, 8, 8, generator=generator, dtype=torch.float64) * 0.8 + 0.1
        settings = {"ambient": "multiscale", "channels": 2, "blocks": 1, "latent_dim": 3}
    else:
        x = rows(300, 5, seed, scale=3.0)
        settings = {"latent_dim": 5 if kind == "square" else 2, "layers": 2, "hidden": [6]}
        settings |= {"ambient": "principal", "directions": 4} if kind == "principal" else {}
    settings |= {"latent": "mixture", "latent_components": 2}
    flow = build_flow(FitSettings.from_flat(settings).model, x.to(dtype), seed, dtype=dtype)
    for part in (flow.ambient, flow.latent):
        shaken(part, seed, 0.05, dtype)
    return flow.eval(), x.to(dtype)


def mixture(h, size=None):
    """torch's mixture with the parameters of ours, or the marginal of its first coordinates."""
    size = h.features if size is None else size
    covariance = torch.linalg.inv(h.factors().double().mT @ h.factors().double())[:, :size, :size]
    parts = MultivariateNormal(h.means[:, :size].double(), (covariance + covariance.mT) / 2)
    return MixtureSameFamily(Categorical(logits=h.logits.double()), parts)


def slow(flow, x):
    """The same density row by row, for flows whose only embedding is the last layer before the units."""
    scatter, d = flow.scatter, flow.latent_dim
    links = [link for link in flow.layers()[1:] if link not in flow.unit_layers()]
    embeddings = [link for link in links if math.prod(link.in_shape) < math.prod(link.out_shape)]
    value = []
    for row in x:

        def to_u(w):
            for link in reversed(links[: len(flow.ambient.layers)]):
                w = link.inverse(w[None])[0]
            return w

        def to_w(y):
            for link in reversed(links[len(flow.ambient.layers) :]):
                y = link.inverse(y[None])[0]
            return y

        def units(x):
            return flow.to_model_units(x[None])[0]

        y = units(row)
        w = to_w(y)
        u = to_u(w)
        z = flow.encode(row[None])
        whole = torch.cat([z[0], flow.pad.dropped(u[None])[0]]).double()
        inner = torch.linalg.slogdet(torch.autograd.functional.jacobian(to_u, w))[1].double()
        outside = torch.linalg.slogdet(torch.autograd.functional.jacobian(units, row))[1].double()
        off = 0.0
        if embeddings:  # w → v, white coordinates, and the residual beside the embedding
            (embedding,) = embeddings
            v = embedding.inverse(y[None])[0]
            before = links[len(flow.ambient.layers) : links.index(embedding)]

            def rest(v, before=before):
                for link in reversed(before):
                    v = link.inverse(v[None])[0]
                return v

            outside = outside + torch.linalg.slogdet(torch.autograd.functional.jacobian(rest, v))[1]
            gap = (y - embedding(v[None])[0]).double()
            missing = math.prod(embedding.out_shape) - math.prod(embedding.in_shape)
            sigma = scatter.log_scales.double().exp()
            off = -gap.square().sum() / (2 * sigma**2) - missing * torch.log(sigma * math.sqrt(2 * math.pi))
        else:
            outside = outside + torch.linalg.slogdet(torch.autograd.functional.jacobian(to_w, y))[1]
        joint = mixture(scatter.joint).log_prob(whole)
        manifold = flow.latent.log_prob(z)[0] + joint - mixture(scatter.joint, d).log_prob(whole[:d])
        plain = mixture(scatter.plain).log_prob(w.double())
        parts = torch.stack([manifold + inner, joint + inner, plain])
        value.append(torch.logsumexp(parts + scatter.weights.double().log(), 0) + outside + off)
    return torch.stack([v.reshape(()) for v in value]).detach()


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-2), (torch.float64, 1e-8)])
@pytest.mark.parametrize("kind", ["realnvp", "principal", "square"])
def test_log_density(kind, dtype, tolerance, seed):
    flow, x = made(kind, dtype, seed)
    flow.fit_scatter(x[:200], x[200:])
    found = flow.ambient_log_prob(x[:4])
    assert found.dtype == torch.float64
    torch.testing.assert_close(found.detach(), slow(flow, x[:4]), atol=tolerance, rtol=tolerance)
    one = flow.ambient_log_prob(x[1:2]).detach()
    torch.testing.assert_close(one, found[1:2].detach(), atol=tolerance * 1e-2, rtol=1e-6)
    torch.testing.assert_close(flow.score(x[:4]).ambient_log_prob, found.detach(), atol=tolerance * 1e-2, rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_image_flow_that_pads_on_its_way(dtype):
    """Its density is that of u and of all residuals, in orthonormal directions: against one Jacobian of the whole."""
    flow, x = made("multiscale", dtype)
    assert flow.can_scatter
    flow.fit_scatter(x[:100], x[100:])
    scatter, row = flow.scatter, x[:1]
    assert scatter.features + sum(scatter.dropped) == 64

    links = flow.layers()[1:]

    def whole(x):  # u and everything that was dropped
        dropped = []
        for link in reversed(links):
            before = x
            x = link.inverse(x)
            if math.prod(link.in_shape) < math.prod(link.out_shape):
                dropped.append(before.narrow(1, link.in_shape[0], link.in_shape[0]).flatten(1))
        return torch.cat([x.flatten(1), *dropped], dim=1)[0]

    log_det = torch.linalg.slogdet(torch.autograd.functional.jacobian(whole, row).view(64, 64))[1].double()
    values = whole(row).double()
    u, rest = values[: scatter.features], values[scatter.features :]
    widths = torch.cat(
        [scale.exp().expand(count) for scale, count in zip(scatter.log_scales.double(), scatter.dropped, strict=True)]
    )
    off = torch.distributions.Normal(0.0, widths).log_prob(rest).sum()
    z = flow.encode(row)
    at = torch.cat([z, flow.pad.dropped(u.to(dtype).view(1, *flow.ambient.in_shape))], dim=1)[0].double()
    joint = mixture(scatter.joint).log_prob(at)
    manifold = flow.latent.log_prob(z)[0] + joint - mixture(scatter.joint, flow.latent_dim).log_prob(at[:3])
    parts = torch.stack([manifold, joint, mixture(scatter.plain).log_prob(at)])
    expected = torch.logsumexp(parts + scatter.weights.double().log(), 0) + off + log_det
    tolerance = 1e-2 if dtype == torch.float32 else 1e-7
    torch.testing.assert_close(
        flow.ambient_log_prob(row)[0].detach(), expected.detach(), atol=tolerance, rtol=tolerance
    )
    assert flow.sample(3, scatter=True).shape == (3, 1, 8, 8)


def small(dtype=torch.float64, seed=0):
    """A curve in the plane, bent by couplings, with units of its own."""
    torch.manual_seed(seed)
    units = flows.Standardise(torch.tensor([1.0, -2.0]), torch.tensor([2.0, 0.5]))
    flow = RectangularFlow(flows.RealNVP(2, layers=2, hidden=(8,)), MixtureDensity(1, 2), units).to(dtype)
    shaken(flow.ambient, seed, 0.3, dtype)
    generator = torch.Generator().manual_seed(seed)
    y = torch.randn(600, 2, generator=generator, dtype=torch.float64)
    y[:, 1] = 0.5 * y[:, 0].square() + 0.2 * y[:, 1]
    x = (y * units.scale + units.mean).to(dtype)
    flow.initialise(x)
    flow.fit_scatter(x[:400], x[400:])
    return flow, x


@pytest.mark.parametrize("seed", range(2))
def test_it_integrates_to_one(seed):
    flow, x = small(seed=seed)
    low, high = x.amin(0), x.amax(0)
    span = high - low
    axes = [torch.linspace(float(low[i] - 2 * span[i]), float(high[i] + 2 * span[i]), 400).double() for i in range(2)]
    with torch.no_grad():
        density = flow.ambient_log_prob(torch.cartesian_prod(*axes)).exp().view(400, 400)
    mass = torch.trapezoid(torch.trapezoid(density, axes[1], dim=1), axes[0])
    assert mass.item() == pytest.approx(1, abs=5e-3)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("weights", [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (0.3, 0.3, 0.4)])
def test_samples_follow_the_density(weights, seed):
    """Moments and marginal distributions of samples against those of the density on a grid, for every part."""
    flow, _x = small(seed=seed)
    flow.scatter.weights.copy_(torch.tensor(weights))
    flow.scatter.low.fill_(-torch.inf)  # wherever they fall
    flow.scatter.high.fill_(torch.inf)
    samples = flow.sample(8_000, scatter=True, generator=torch.Generator().manual_seed(seed))
    low, high = samples.amin(0), samples.amax(0)
    axes = [torch.linspace(float(low[i]) - 1, float(high[i]) + 1, 300, dtype=torch.float64) for i in range(2)]
    with torch.no_grad():
        density = flow.ambient_log_prob(torch.cartesian_prod(*axes)).exp().view(300, 300)
    mass = density / density.sum()
    for i in range(2):
        marginal = mass.sum(dim=1 - i)
        mean = (marginal * axes[i]).sum()
        deviation = (marginal * (axes[i] - mean).square()).sum().sqrt()
        assert (samples[:, i].mean() - mean).abs() < 0.05 * deviation
        assert samples[:, i].std() == pytest.approx(float(deviation), rel=0.05)
        edges = axes[i] + (axes[i][1] - axes[i][0]) / 2  # a cell's mass lies around its point
        below = np.interp(samples[:, i].numpy(), edges.numpy(), marginal.cumsum(0).numpy())
        distance = np.abs(np.sort(below) - (np.arange(8_000) + 0.5) / 8_000).max()
        assert (
            distance < 0.025
        )  # a Kolmogorov-Smirnov distance that 1 in 10⁴ samples of 8,000 exceeds, and the grid's error
    assert torch.equal(samples, flow.sample(8_000, scatter=True, generator=torch.Generator().manual_seed(seed)))


def test_samples_look_like_the_data_and_stay_where_they_are():
    flow, x = made("principal", torch.float64)
    flow.fit_scatter(x[:200], x[200:])
    samples = flow.sample(2_000, scatter=True, generator=torch.Generator().manual_seed(0))
    assert samples.shape == (2_000, 5)
    margin = 0.25 * (x[:200].amax(0) - x[:200].amin(0))
    slack = 1e-9
    assert (samples >= x[:200].amin(0) - margin - slack).all()
    assert (samples <= x[:200].amax(0) + margin + slack).all()
    fresh = rows(2_000, 5, seed=9, scale=3.0)
    for column in range(5):
        assert ks_2samp(samples[:, column].numpy(), fresh[:, column].numpy()).statistic < 0.12
    on = flow.sample(2_000, generator=torch.Generator().manual_seed(0))
    assert flow.reconstruction_error(on).max() < 1e-12  # without scatter they lie on the manifold
    assert flow.reconstruction_error(samples).mean() > 1e-3


def test_a_sample_far_out_is_moved_to_the_edge():
    flow, _ = small()
    flow.scatter.low.fill_(-0.01)
    flow.scatter.high.fill_(0.01)  # where next to no sample falls
    y = flow.to_model_units(flow.sample(50, scatter=True))
    assert (y.abs() <= 0.01 + 1e-9).all()


@pytest.mark.parametrize("kind", ["realnvp", "principal", "multiscale"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_saved_and_loaded_bit_for_bit(kind, dtype, tmp_path):
    flow, x = made(kind, dtype)
    flow.fit_scatter(x[:100], x[100:])
    rnf.save(flow, tmp_path)
    again = rnf.load(tmp_path)
    assert torch.equal(flow.ambient_log_prob(x), again.ambient_log_prob(x))
    draws = [f.sample(7, scatter=True, generator=torch.Generator().manual_seed(1)) for f in (flow, again)]
    assert torch.equal(*draws)
    flow.set_scatter(None)
    rnf.save(flow, tmp_path / "without")
    assert rnf.load(tmp_path / "without").scatter is None


def test_other_units_shift_it_by_their_logarithm():
    x = rows(300, 4)
    factors, shift = torch.tensor([1e6, 1e-6, 3.0, 0.5], dtype=torch.float64), torch.tensor([5.0, -1e-6, 0, 1])
    values = []
    for data in (x, x * factors + shift):
        settings = FitSettings.from_flat({"latent_dim": 2, "layers": 2, "hidden": [6], "latent": "mixture"})
        flow = build_flow(settings.model, data, 0, dtype=torch.float64)
        flow.fit_scatter(data[:200], data[200:])
        values.append(flow.ambient_log_prob(data).detach())
    torch.testing.assert_close(values[1], values[0] - factors.log().sum(), atol=1e-6, rtol=1e-8)


def test_the_plain_part_takes_over_where_the_manifold_is_bad():
    """A manifold that tears the data loses its weight, so that the density is not worse than that of a plain mixture."""
    torch.manual_seed(0)
    x = torch.randn(400, 3, dtype=torch.float64)
    flow = RectangularFlow(flows.RealNVP(3, layers=4, hidden=(16,)), MixtureDensity(1, 1)).double()
    shaken(flow.ambient, 0, 1.5)
    flow.fit_scatter(x[:200], x[200:])
    weight = dict(zip(("manifold", "joint", "plain"), flow.scatter.weights.tolist(), strict=True))
    assert weight["plain"] > 0.9
    assert sum(weight.values()) == pytest.approx(1)
    assert min(weight.values()) > 0
    truth = torch.distributions.Normal(0.0, 1.0).log_prob(x[200:]).sum(1).mean()
    assert flow.ambient_log_prob(x[200:]).mean() > truth - 0.2


def test_rows_where_the_flow_overflows_are_left_out():
    flow, x = small()
    at = flow.coordinates(x)
    at.u[3], at.log_det[7] = torch.nan, torch.inf
    assert at.finite().sum() == len(x) - 2
    found = Scatter.fitted(at, at, 1)
    assert all(value.isfinite().all() for name, value in found.state_dict().items())


def test_what_it_cannot_do_is_told():
    flow, x = small()
    flow.set_scatter(None)
    with pytest.raises(ValueError, match="no density in R\\^D yet"):
        flow.ambient_log_prob(x)
    with pytest.raises(ValueError, match="no density in R\\^D yet"):
        flow.sample(3, scatter=True)
    assert flow.score(x[:3]).ambient_log_prob.isnan().all()
    flow.fit_scatter(x[:300], x[300:])
    assert flow.sample(0, scatter=True).shape == (0, 2)
    with pytest.raises(ValueError, match="≥ 0; got -1"):
        flow.sample(-1, scatter=True)


def test_the_smooth_parts_are_a_density_of_their_own(fitted_with_columns):
    flow, held_out = fitted_with_columns
    scatter, at = flow.scatter, flow.coordinates(held_out)
    with torch.no_grad():
        parts, scores = scatter.parts(at), flow.score(held_out)
        weights = scatter.weights.double()
        smooth = torch.logsumexp(parts[:, :3] + (weights[:3] / weights[:3].sum()).log(), dim=1)
        whole = (weights[:3].sum() * smooth.exp() + weights[3] * parts[:, 3].exp()).log()
        torch.testing.assert_close(scatter.log_prob(at), whole)
        torch.testing.assert_close(scatter.log_prob(at, smooth=True), smooth)
        torch.testing.assert_close(scores.smooth_log_prob, flow.ambient_log_prob(held_out, smooth=True))
        torch.testing.assert_close(scores.ambient_log_prob, flow.ambient_log_prob(held_out))
    assert not torch.allclose(scores.smooth_log_prob, scores.ambient_log_prob)


def test_weights_of_the_smooth_parts_do_not_depend_on_the_columns(fitted_with_columns):
    flow, held_out = fitted_with_columns
    with_columns = flow.scatter.weights.double()
    train = rows(400, 3).to(held_out)
    flow.fit_scatter(train, held_out)
    torch.testing.assert_close(with_columns[:3] / with_columns[:3].sum(), flow.scatter.weights.double())


def test_samples_of_the_part_of_columns(fitted_with_columns):
    flow, _ = fitted_with_columns
    alone = flow.scatter.alone("columns")
    drawn = flow.sample(2_000, generator=torch.Generator().manual_seed(0), scatter=alone)
    expected = alone.columns.sample(2_000, torch.Generator().manual_seed(1))
    y = flow.to_model_units(drawn)
    assert bool((y.mean(dim=0) - expected.mean(dim=0)).abs().max() < 0.15)
    assert bool((y.std(dim=0) / expected.std(dim=0)).log().abs().max() < 0.15)


@pytest.fixture
def fitted_with_columns():
    torch.manual_seed(0)
    train, held_out = rows(400, 3).float(), rows(100, 3, seed=1).float()
    flow = RectangularFlow(flows.Identity(3), flows.Identity(2), pad=flows.Pad(2, 3, order="first"))
    flow.fit_scatter(train, held_out, steps=20)
    return flow, held_out
