"""The mixture of Gaussians against torch's own distributions, quadrature and the moments of its data."""

import pytest
import torch
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal

import rectangular_flows as rnf
from rectangular_flows.densities import MixtureDensity
from rectangular_flows.densities.mixture import FewerComponentsWarning
from rectangular_flows.errors import NonFiniteError, RankDeficientError
from rectangular_flows.settings import FitSettings


def random_mixture(features, components, dtype, seed=0):
    torch.manual_seed(seed)
    h = MixtureDensity(features, components).to(dtype)
    with torch.no_grad():
        for parameter in h.parameters():
            parameter.normal_(0, 0.5)
    return h


def reference(h):
    precision = h.factors().mT @ h.factors()
    parts = MultivariateNormal(h.means, precision_matrix=precision)
    return MixtureSameFamily(Categorical(logits=h.logits), parts)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-3), (torch.float64, 1e-10)])
@pytest.mark.parametrize(("features", "components", "rows"), [(1, 1, 1), (3, 4, 7), (21, 2, 5)])
def test_log_prob(features, components, rows, dtype, tolerance, seed):
    h = random_mixture(features, components, dtype, seed)
    z = torch.randn(rows, features, dtype=dtype)
    expected = reference(h.double()).log_prob(z.double())
    got = h.to(dtype).log_prob(z)
    assert got.shape == (rows,)
    assert got.dtype == dtype
    torch.testing.assert_close(got.double(), expected, atol=tolerance, rtol=tolerance)


def test_it_integrates_to_one():
    h = random_mixture(2, 3, torch.float64)
    line = torch.linspace(-12, 12, 400, dtype=torch.float64)
    grid = torch.cartesian_prod(line, line)
    mass = h.log_prob(grid).exp().sum() * (line[1] - line[0]) ** 2
    assert mass.item() == pytest.approx(1, abs=1e-3)


def test_gradients():
    h = random_mixture(3, 2, torch.float64)
    z = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(lambda z, *_: h.log_prob(z), (z, *h.parameters()))


def test_samples_have_the_moments_of_the_mixture():
    h = random_mixture(3, 4, torch.float64)
    samples = h.sample(200_000, torch.Generator().manual_seed(0))
    exact = reference(h)
    torch.testing.assert_close(samples.mean(0), exact.mean, atol=0.02, rtol=0.02)
    torch.testing.assert_close(samples.var(0), exact.variance, atol=0.05, rtol=0.03)
    again = h.sample(200_000, torch.Generator().manual_seed(0))
    assert torch.equal(samples, again)


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_it_starts_with_the_mean_and_covariance_of_its_data(scale):
    torch.manual_seed(0)
    z = torch.cat([torch.randn(2000, 3), 6 + torch.randn(500, 3) @ torch.randn(3, 3)]).double()
    z = z * torch.tensor([scale, 1.0, 100.0])
    h = MixtureDensity(3, components=3).double()
    before = h.log_prob(z).mean()
    h.initialise(z)
    samples = h.sample(400_000, torch.Generator().manual_seed(0))
    deviation = z.std(0)
    torch.testing.assert_close(samples.mean(0) / deviation, z.mean(0) / deviation, atol=0.01, rtol=0.01)
    torch.testing.assert_close(torch.cov((samples / deviation).mT), torch.cov((z / deviation).mT), atol=0.02, rtol=0.02)
    assert h.log_prob(z).mean() > before
    plain = MultivariateNormal(z.mean(0), torch.cov(z.mT)).log_prob(z).mean()
    assert h.log_prob(z).mean() > plain + 0.1  # two clouds are not one


@pytest.mark.parametrize(("rows", "expected"), [(2, 1), (29, 1), (40, 2)])
def test_few_points_give_fewer_components(rows, expected):
    z = torch.randn(rows, 2, generator=torch.Generator().manual_seed(0))
    h = MixtureDensity(2, components=5)
    with pytest.warns(
        FewerComponentsWarning, match=f"{rows} points in 2 dimensions .* of 5: it starts as one of {expected}"
    ):
        h.initialise(z)
    plain = MixtureDensity(2, components=expected)
    plain.initialise(z)
    torch.testing.assert_close(h.log_prob(z), plain.log_prob(z))  # the weights of equal components add up
    assert len(h.means.unique(dim=0)) == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("value", [0.0, 5.0])
def test_a_constant_coordinate_is_told(value, dtype):
    z = torch.randn(100, 2, dtype=dtype)
    z[:, 1] = value
    with pytest.raises(RankDeficientError, match="1 of 2 coordinates of the 100 points"):
        MixtureDensity(2, components=2).to(dtype).initialise(z)
    with pytest.raises(RankDeficientError, match="2 of 2 coordinates of the 1 points"):
        MixtureDensity(2, components=1).to(dtype).initialise(z[:1])
    z[3] = torch.nan
    with pytest.raises(NonFiniteError, match="that a mixture starts from"):
        MixtureDensity(2, components=2).to(dtype).initialise(z)


def test_an_offset_does_not_matter():
    torch.manual_seed(0)
    z = torch.randn(500, 2, dtype=torch.float64)
    near, far = MixtureDensity(2, 3).double(), MixtureDensity(2, 3).double()
    near.initialise(z)
    far.initialise(z + 1e6)
    torch.testing.assert_close(far.log_prob(z + 1e6), near.log_prob(z), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("far", [1e3, 1e6])
def test_a_row_far_out_does_not_blur_the_others(far):
    generator = torch.Generator().manual_seed(1)
    z = torch.randn(500, 2, generator=generator) + torch.tensor([[4.0, 0.0], [-4.0, 0.0]]).repeat(250, 1)
    clean, spoilt = MixtureDensity(2, 3), MixtureDensity(2, 3)
    clean.initialise(z)
    spoilt.initialise(torch.cat([z, torch.full((1, 2), far)]))
    assert spoilt.log_prob(z).mean().item() == pytest.approx(clean.log_prob(z).mean().item(), abs=0.05)


def test_it_is_a_setting_and_is_saved(tmp_path):
    from rectangular_flows.runs.build import build_flow

    settings = FitSettings.from_flat({"latent_dim": 2, "latent": "mixture", "latent_components": 3, "layers": 2})
    rows = torch.randn(200, 4, generator=torch.Generator().manual_seed(0)).numpy()
    flow = build_flow(settings.model, rows, 0)
    assert isinstance(flow.latent, MixtureDensity)
    assert flow.latent.components == 3
    assert flow.latent.means.abs().max() > 0  # from the data
    rnf.save(flow, tmp_path / "model")
    x = torch.from_numpy(rows)
    torch.testing.assert_close(rnf.load(tmp_path / "model").log_prob(x), flow.log_prob(x))


def test_bad_sizes_are_refused():
    for components in (0, 2.5):
        with pytest.raises(ValueError, match=f"whole number of components, at least one; got {components}"):
            MixtureDensity(2, components=components)


# --- of some of its coordinates


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-3), (torch.float64, 1e-9)])
@pytest.mark.parametrize(("size", "rows"), [(1, 1), (2, 5), (4, 3)])
def test_marginal_of_the_first_coordinates(size, rows, dtype, tolerance, seed):
    h = random_mixture(4, 3, dtype, seed)
    z = torch.randn(rows, size, dtype=dtype)
    factors = h.factors().double()
    covariance = torch.linalg.inv(factors.mT @ factors)[:, :size, :size]
    parts = MultivariateNormal(h.means[:, :size].double(), (covariance + covariance.mT) / 2)
    expected = MixtureSameFamily(Categorical(logits=h.logits.double()), parts).log_prob(z.double())
    torch.testing.assert_close(h.log_prob(z).double(), expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("seed", range(2))
def test_draws_given_the_first_coordinates(seed):
    """Mean and covariance against the formula for conditional Gaussians, weighted by the odds of the components."""
    h = random_mixture(4, 3, torch.float64, seed).requires_grad_(False)
    given = torch.randn(2, dtype=torch.float64)
    covariance = torch.linalg.inv(h.factors().mT @ h.factors())
    top, side, rest = covariance[:, :2, :2], covariance[:, 2:, :2], covariance[:, 2:, 2:]
    gain = side @ torch.linalg.inv(top)
    means = h.means[:, 2:] + (gain @ (given - h.means[:, :2])[..., None])[..., 0]
    left = rest - gain @ side.mT
    odds = (MultivariateNormal(h.means[:, :2], top).log_prob(given) + h.logits).softmax(0)
    mean = odds @ means
    spread = torch.einsum("k,kij->ij", odds, left + means[:, :, None] * means[:, None]) - torch.outer(mean, mean)

    draws = h.sample_given(given.expand(100_000, 2), torch.Generator().manual_seed(seed))
    deviation = spread.diagonal().sqrt()
    torch.testing.assert_close(draws.mean(0) / deviation, mean / deviation, atol=0.02, rtol=0)
    scale = torch.outer(deviation, deviation)
    torch.testing.assert_close(torch.cov(draws.mT) / scale, spread / scale, atol=0.03, rtol=0)
    assert h.sample_given(given[None], torch.Generator().manual_seed(seed)).shape == (1, 2)
    assert h.sample_given(given[None][:0]).shape == (0, 2)


# --- fitted


def clouds(count, seed):
    generator = torch.Generator().manual_seed(seed)
    centres = 8 * torch.eye(4, 3, dtype=torch.float64)
    which = torch.randint(4, (count,), generator=generator)
    return centres[which] + torch.randn(count, 3, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("seed", range(3))
def test_fitted_chooses_the_number_of_components(seed):
    four = MixtureDensity.fitted(clouds(600, seed), clouds(300, seed + 100), seed)
    assert four.components in (4, 8)
    fresh = clouds(2_000, seed + 200)
    parts = MultivariateNormal(8 * torch.eye(4, 3, dtype=torch.float64), torch.eye(3, dtype=torch.float64))
    truth = MixtureSameFamily(Categorical(torch.ones(4, dtype=torch.float64)), parts).log_prob(fresh).mean()
    assert truth - 0.12 < four.log_prob(fresh).mean() < truth + 0.01
    normal = torch.randn(900, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    assert MixtureDensity.fitted(normal[:600], normal[600:], seed).components <= 2
    again = MixtureDensity.fitted(clouds(600, seed), clouds(300, seed + 100), seed)
    assert torch.equal(again.log_prob(fresh), four.log_prob(fresh))


def test_fitted_does_not_depend_on_units_or_mixing():
    """It whitens, so that a linear map of the rows shifts the log-density by its log-determinant."""
    torch.manual_seed(0)
    x, other = clouds(400, 0), clouds(200, 1)
    matrix = torch.tensor(
        [[1e3, 0, 0], [5, 1e-3, 0], [1, 2, 3]], dtype=torch.float64
    )  # lower triangular: keeps the order
    plain, mapped = MixtureDensity.fitted(x, other), MixtureDensity.fitted(x @ matrix.mT, other @ matrix.mT)
    shift = torch.linalg.slogdet(matrix)[1]
    torch.testing.assert_close(mapped.log_prob(other @ matrix.mT), plain.log_prob(other) - shift, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("count", [2, 5, 15])
def test_fitted_with_fewer_rows_than_dimensions(count):
    generator = torch.Generator().manual_seed(0)
    x, other = (torch.randn(n, 20, generator=generator, dtype=torch.float64) for n in (count, 100))
    h = MixtureDensity.fitted(x, other[:50])
    assert h.components == 1
    truth = torch.distributions.Normal(0.0, 1.0).log_prob(other[50:]).sum(1).mean()
    assert torch.isfinite(h.log_prob(other)).all()
    assert h.log_prob(other[50:]).mean() > truth - {2: 1e4, 5: 60, 15: 5}[count]
    again = MixtureDensity.fitted(x, other[:50], like=h)  # as cross-fitting does
    assert torch.equal(again.log_prob(other), h.log_prob(other))


def test_fitted_to_rows_that_are_nearly_singular():
    torch.manual_seed(0)
    x = torch.randn(500, 3, dtype=torch.float64)
    x[:, 2] = x[:, 0] + 1e-4 * x[:, 2]  # almost a copy
    h = MixtureDensity.fitted(x[:400], x[400:])
    expected = MultivariateNormal(x.mean(0), torch.cov(x.mT)).log_prob(x[400:]).mean()
    assert h.log_prob(x[400:]).mean().item() == pytest.approx(expected.item(), abs=0.1)
    x[:, 2] = x[:, 0]  # a copy
    assert torch.isfinite(MixtureDensity.fitted(x[:400], x[400:]).log_prob(x)).all()
    x[:, 2] = 1.0  # a constant
    assert torch.isfinite(MixtureDensity.fitted(x[:400], x[400:]).log_prob(x)).all()


def test_too_few_rows_are_told():
    x = torch.randn(5, 2)
    with pytest.raises(RankDeficientError, match="2 rows and 1 held out; got 1 and 4"):
        MixtureDensity.fitted(x[:1], x[1:])
    with pytest.raises(RankDeficientError, match="got 5 and 0"):
        MixtureDensity.fitted(x, x[:0])
