"""Every registered latent density is a density, and its samples follow it."""

import subprocess
import sys

import pytest
import torch

from rectangular_flows.densities import LATENTS, Density, as_density
from tests.conftest import shaken


def latent_density(kind, dim, amount=0.2, **settings):
    entry = LATENTS[kind]
    torch.manual_seed(0)
    density = as_density(entry.build(entry.settings(**settings), dim))
    if entry.starts_from_data:
        density.initialise(
            torch.randn(100 if kind == "kernels" else 500, dim, generator=torch.Generator().manual_seed(1))
        )
    return shaken(density, amount=amount)


@pytest.mark.parametrize("kind", LATENTS)
def test_its_mass_is_one(kind):
    h = latent_density(kind, 2, amount=0.1)
    side = torch.linspace(-15, 15, 301, dtype=torch.float64)
    grid = torch.cartesian_prod(side, side)
    with torch.no_grad():
        mass = h.log_prob(grid).exp().sum() * (side[1] - side[0]) ** 2
    assert mass.item() == pytest.approx(1, abs=2e-3)


@pytest.mark.parametrize("kind", LATENTS)
def test_samples_follow_it(kind):
    h = latent_density(kind, 3, amount=0.1)
    with torch.no_grad():
        z = h.sample(20_000, torch.Generator().manual_seed(1))
        # E[q/p] = 1 under p, for a Gaussian q with the moments of the samples, a little narrower so that the mean exists
        q = torch.distributions.MultivariateNormal(z.mean(0), 0.5 * torch.cov(z.T))
        ratio = (q.log_prob(z) - h.log_prob(z)).exp()
    assert ratio.mean().item() == pytest.approx(1, abs=5 * float(ratio.std()) / len(z) ** 0.5)
    assert ratio.std() < 3


def test_an_autoregressive_one_lets_a_coordinate_depend_on_all_before_it():
    """The conditional densities of one spline layer: two halves know nothing of their own other coordinates."""
    z = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    depends = {}
    for kind in ("spline", "autoregressive"):
        h = latent_density(kind, 4, amount=0.3, latent_layers=1, latent_hidden=(16,))
        jacobian = torch.autograd.functional.jacobian(lambda u, h=h: h.flow().transform(u).sum(0), z)
        depends[kind] = (jacobian.abs().amax(1) > 1e-9).sum().item()
    assert depends == {"spline": 4 + 4, "autoregressive": 4 + 6}  # the diagonal, and what each was told of


@pytest.mark.parametrize("kind", LATENTS)
@pytest.mark.parametrize("dim", [1, 3])
def test_its_traits_are_true(kind, dim):
    entry = LATENTS[kind]
    density = as_density(entry.build(entry.settings(), dim))
    assert isinstance(density, Density)
    assert density.features == dim
    assert any(parameter.requires_grad for parameter in density.parameters()) == entry.trains
    before = {name: value.clone() for name, value in density.state_dict().items()}
    density.initialise(3 + 2 * torch.randn(500, dim, generator=torch.Generator().manual_seed(1)))
    changed = any(not torch.equal(value, before[name]) for name, value in density.state_dict().items())
    assert changed == (
        entry.starts_from_data or kind == "affine"
    )  # which may, but starts as the identity, as published


def test_the_table_needs_no_torch():
    code = (
        "import sys; from rectangular_flows.densities import LATENTS; assert LATENTS; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
