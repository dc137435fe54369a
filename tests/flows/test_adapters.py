import pytest
import torch
import zuko

from rectangular_flows import flows
from rectangular_flows.errors import RankDeficientError
from tests.conftest import shaken

MAKERS = {
    "identity": lambda d: flows.Identity(d),
    "real-nvp": lambda d: flows.RealNVP(d, 3, (8,), zero_init=False),
    "spline-coupling": lambda d: zuko.flows.NSF(features=d, transforms=2, passes=2, hidden_features=(8,)),
    "maf": lambda d: zuko.flows.MAF(features=d, transforms=1, hidden_features=(8,)),
    "mixture": lambda d: zuko.flows.GMM(features=d, components=2),
}


# zuko's coupling form needs two features
@pytest.mark.parametrize(("name", "d"), [(n, d) for n in MAKERS for d in (1, 3) if (n, d) != ("spline-coupling", 1)])
def test_density_and_samples(name, d):
    density = flows.as_density(MAKERS[name](d)).double()
    assert density.features == d
    data = 5 + 3 * torch.randn(200, d, dtype=torch.float64)
    density.initialise(data)
    first = density.sample(50, torch.Generator().manual_seed(3))
    again = density.sample(50, torch.Generator().manual_seed(3))
    assert first.shape == (50, d)
    assert first.dtype == torch.float64
    assert torch.equal(first, again)
    assert density.log_prob(first).shape == (50,)


@pytest.mark.parametrize("name", MAKERS)
def test_density_integrates_to_one(name):
    density = shaken(flows.as_density(MAKERS[name](2)), amount=0.05)
    density.initialise(torch.randn(300, 2, dtype=torch.float64) * torch.tensor([2.0, 0.5], dtype=torch.float64) + 1)
    line = torch.linspace(-20, 20, 501, dtype=torch.float64)
    grid = torch.cartesian_prod(line, line)
    with torch.no_grad():
        mass = density.log_prob(grid).exp().sum() * (line[1] - line[0]) ** 2
    assert float(mass) == pytest.approx(1, abs=5e-3)


def test_whitening_whitens():
    layer = flows.Whitening(3).double()
    data = torch.randn(400, 3, dtype=torch.float64) @ torch.randn(3, 3, dtype=torch.float64) + 4
    u = layer.initialise(data)
    torch.testing.assert_close(u.mean(0), torch.zeros(3, dtype=torch.float64), rtol=0, atol=1e-10)
    torch.testing.assert_close(torch.cov(u.mT), torch.eye(3, dtype=torch.float64))
    with pytest.raises(RankDeficientError, match="not positive definite"):
        layer.initialise(data[:2])


def test_sampling_with_a_generator_leaves_the_global_state_alone():
    density = flows.as_density(MAKERS["maf"](2))
    state = torch.get_rng_state()
    density.sample(3, torch.Generator().manual_seed(0))
    assert torch.equal(state, torch.get_rng_state())
