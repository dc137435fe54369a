"""What every latent density must do, over the registry of all of them."""

import json

import pytest
import torch
import zuko

from rectangular_flows import flows
from rectangular_flows.densities import LATENTS, ZukoDensity, as_density
from rectangular_flows.flows.description import build, describe
from tests.conftest import shaken

FEWER = {"kernels": {"latent_kernels": 100}}  # each takes time at every point of a grid
MAKERS = {
    name: lambda d, kind=kind: kind.build(kind.settings(**FEWER.get(kind.name, {})), d)
    for name, kind in LATENTS.items()
}
DTYPES = [(torch.float64, 1e-10), (torch.float32, 1e-3)]


def make(name, d, dtype=torch.float64):
    """That density, started from skewed data and moved at random, so that nothing is at its starting value."""
    torch.manual_seed(1)
    density = as_density(MAKERS[name](d)).double()
    density.initialise(data(d))
    return shaken(density, amount=0.05).to(dtype)


def data(d, rows=400):
    normal = torch.randn(rows, d, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    return 1 + normal * torch.linspace(1.5, 0.6, d, dtype=torch.float64) + 0.3 * normal.roll(1, dims=1) ** 2


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("name", MAKERS)
def test_it_integrates_to_one(name, d):
    density = make(name, d)
    line = torch.linspace(-20, 20, 1001 if d == 1 else 251, dtype=torch.float64)
    grid = torch.cartesian_prod(*[line] * d).view(-1, d)
    with torch.no_grad():
        mass = density.log_prob(grid).exp().sum() * (line[1] - line[0]) ** d
    assert float(mass) == pytest.approx(1, abs=2e-3)


@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("name", MAKERS)
def test_samples_are_those_of_the_density(name, d):
    """Moments of samples against those of the density itself, by weighting draws from a wide Gaussian mixture."""
    density, generator = make(name, d), torch.Generator().manual_seed(3)
    with torch.no_grad():
        samples = density.sample(40_000, generator)
        mean, spread = samples.mean(0), 2 * samples.std(0)
        proposals = mean + spread * torch.randn(40_000, d, generator=generator, dtype=torch.float64)
        q = torch.distributions.Normal(mean, spread).log_prob(proposals).sum(1)
        weights = (density.log_prob(proposals) - q).exp()
    assert float(weights.mean()) == pytest.approx(1, abs=6 * float(weights.std()) / 200)
    for power in (1, 2):
        direct, weighted = samples**power, weights.unsqueeze(1) * proposals**power
        error = (direct.var(0) + weighted.var(0)).sqrt() / 200
        assert float(((direct.mean(0) - weighted.mean(0)) / error).abs().max()) < 5


@pytest.mark.parametrize("name", ["identity", "affine", "realnvp"])
def test_a_bijection_is_a_change_of_variables(name):
    density, z = make(name, 3), data(3, 5)
    inverse = density.flow.inverse
    J = torch.func.vmap(torch.func.jacrev(lambda v: inverse(v.unsqueeze(0)).squeeze(0)))(z)
    normal = torch.distributions.Normal(0.0, 1.0).log_prob(inverse(z)).sum(1)
    expected = normal + torch.linalg.slogdet(J).logabsdet
    torch.testing.assert_close(density.log_prob(z), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", MAKERS)
def test_gradients(name):
    """Of points by finite differences, of all parameters together along a random direction."""
    density, z = make(name, 2), data(2, 3)
    assert torch.autograd.gradcheck(density.log_prob, (z.clone().requires_grad_(),), atol=1e-4)
    parameters = list(density.parameters())
    direction = [torch.randn_like(p) for p in parameters]
    density.log_prob(z.clone().requires_grad_()).sum().backward()
    analytic = sum(float((p.grad * v).sum()) for p, v in zip(parameters, direction, strict=True) if p.grad is not None)

    def moved(step):
        with torch.no_grad():
            for p, v in zip(parameters, direction, strict=True):
                p.add_(step * v)
            return float(density.log_prob(z).sum())

    step = 1e-6
    measured = (moved(step) - moved(-2 * step)) / (2 * step)
    assert measured == pytest.approx(analytic, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("rows", [1, 6])
@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
@pytest.mark.parametrize("name", MAKERS)
def test_rows_are_independent_in_both_precisions(name, dtype, tolerance, d, rows):
    density, z = make(name, d, dtype), data(d, rows).to(dtype)
    value = density.log_prob(z)
    assert value.shape == (rows,)
    assert value.dtype == density.sample(2).dtype == dtype
    assert density.features == d
    one_by_one = torch.cat([density.log_prob(row) for row in z.split(1)])
    torch.testing.assert_close(value, one_by_one, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(value.double(), make(name, d).log_prob(z.double()), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", MAKERS)
def test_samples_follow_the_generator_and_leave_the_global_one_alone(name):
    density, state = make(name, 3), torch.get_rng_state()
    first, again, other = (density.sample(50, torch.Generator().manual_seed(seed)) for seed in (3, 3, 4))
    assert first.shape == (50, 3)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert density.sample(0, torch.Generator()).shape == (0, 3)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("name", MAKERS)
def test_starting_from_data_fits_them_no_worse(name):
    torch.manual_seed(0)
    density, rows = as_density(MAKERS[name](2)).double(), 5 + 3 * data(2)
    before = float(density.log_prob(rows).detach().mean())
    density.initialise(rows)
    after = float(density.log_prob(rows).detach().mean())
    assert after >= before
    if name in ("affine", "spline", "autoregressive", "mixture"):
        assert after > before + 1


@pytest.mark.parametrize("name", MAKERS)
def test_it_is_built_again_from_its_description(name):
    density = make(name, 3)
    again = build(json.loads(json.dumps(describe(density)))).double()
    again.load_state_dict(density.state_dict())
    z = data(3, 5)
    assert torch.equal(density.log_prob(z), again.log_prob(z))
    draws = [each.sample(5, torch.Generator().manual_seed(0)) for each in (density, again)]
    assert torch.equal(*draws)


@pytest.mark.parametrize(
    "make_flow",
    [
        lambda: zuko.flows.MAF(features=2, transforms=1, hidden_features=(8,)),
        lambda: zuko.flows.GMM(features=2, components=2),
    ],
)
def test_any_flow_of_zuko_is_a_density(make_flow):
    torch.manual_seed(0)
    density = shaken(as_density(make_flow()), amount=0.05)
    density.initialise(data(2))
    line = torch.linspace(-25, 25, 501, dtype=torch.float64)
    with torch.no_grad():
        mass = density.log_prob(torch.cartesian_prod(line, line)).exp().sum() * (line[1] - line[0]) ** 2
    assert float(mass) == pytest.approx(1, abs=5e-3)


def test_mistakes_are_named():
    with pytest.raises(TypeError, match="got Linear"):
        as_density(torch.nn.Linear(1, 1))
    with pytest.raises(ValueError, match="R\\^d to itself"):
        as_density(flows.Squeeze((1, 2, 2)))
    with pytest.raises(ValueError, match="among BPF, CNF"):
        ZukoDensity("NFS", features=2)
    with pytest.raises(ValueError, match="given by name"):
        ZukoDensity(ZukoDensity("GMM", features=2).flow, features=2)
