"""What the settings make: where a flow starts, and densities of z as h."""

import pytest
import torch

from rectangular_flows.runs.build import build_flow
from rectangular_flows.settings import ModelSettings
from tests.conftest import shaken

ROWS = torch.randn(300, 4, generator=torch.Generator().manual_seed(3)) @ torch.tensor(
    [[1.0, 2.0, 0.0, 1.0], [0.0, 1.0, 3.0, 0.0], [0.0, 0.0, 0.5, 1.0], [0.0, 0.0, 0.0, 0.2]]
)


def latent_density(kind, dim, amount=0.2):
    chosen = ModelSettings(dim, hidden=(8,), latent=kind, latent_layers=2, latent_hidden=(16,))
    return shaken(build_flow(chosen, ROWS, seed=0), amount=amount).latent


@pytest.mark.parametrize("kind", ["spline", "autoregressive", "realnvp", "affine", "identity"])
def test_h_is_a_density(kind):
    h = latent_density(kind, 2)
    side = torch.linspace(-15, 15, 301, dtype=torch.float64)
    grid = torch.cartesian_prod(side, side)
    with torch.no_grad():
        mass = h.log_prob(grid).exp().sum() * (side[1] - side[0]) ** 2
    assert mass.item() == pytest.approx(1, abs=2e-3)


@pytest.mark.parametrize("kind", ["spline", "autoregressive"])
def test_samples_of_h_follow_its_density(kind):
    h = latent_density(kind, 3, amount=0.1)
    with torch.no_grad():
        z = h.sample(20_000, torch.Generator().manual_seed(1))
        # E[q/p] = 1 under p, for a Gaussian q with the moments of the samples, a little narrower so that the mean exists
        q = torch.distributions.MultivariateNormal(z.mean(0), 0.5 * torch.cov(z.T))
        ratio = (q.log_prob(z) - h.log_prob(z)).exp()
    assert ratio.mean().item() == pytest.approx(1, abs=5 * float(ratio.std()) / len(z) ** 0.5)
    assert ratio.std() < 3


def test_an_autoregressive_h_lets_a_coordinate_depend_on_all_before_it():
    """The conditional densities of one spline layer: two halves know nothing of their own other coordinates."""
    z = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    depends = {}
    for kind in ("spline", "autoregressive"):
        chosen = ModelSettings(4, hidden=(8,), latent=kind, latent_layers=1, latent_hidden=(16,), pca=False)
        flow = shaken(build_flow(chosen, torch.randn(300, 5), seed=0), amount=0.3)
        jacobian = torch.autograd.functional.jacobian(lambda u, f=flow: f.latent.flow().transform(u).sum(0), z)
        depends[kind] = (jacobian.abs().amax(1) > 1e-9).sum().item()
    assert depends == {"spline": 4 + 4, "autoregressive": 4 + 6}  # the diagonal, and what each was told of


@pytest.mark.parametrize("mixing", ["none", "permutation", "lu", "free"])
def test_the_start_is_the_best_linear_subspace(mixing):
    chosen = ModelSettings(2, hidden=(8,), layers=5, mixing=mixing, pca=True, standardise=False)
    flow = build_flow(chosen, ROWS, seed=0)
    values = torch.linalg.svdvals(ROWS.double() - ROWS.double().mean(dim=0))
    best = values[2:].square().sum() / len(ROWS)
    torch.testing.assert_close(flow.reconstruction_error(ROWS).mean().double(), best, rtol=1e-4, atol=1e-6)


def test_h_may_have_another_activation():
    chosen = ModelSettings(2, hidden=(8,), activation="tanh", latent_hidden=(8,), latent_activation="relu")
    same = ModelSettings(2, hidden=(8,), activation="tanh", latent_hidden=(8,))
    flow, plain = build_flow(chosen, ROWS, seed=0), build_flow(same, ROWS, seed=0)
    flow, plain = shaken(flow, amount=0.3), shaken(plain, amount=0.3)
    z = torch.randn(5, 2, dtype=torch.float64)
    torch.testing.assert_close(flow.decode(z), plain.decode(z))
    assert not torch.allclose(flow.latent.log_prob(z), plain.latent.log_prob(z))


@pytest.mark.parametrize(
    ("shift", "scale", "message"),
    [
        (1e8, 1.0, r"column 'a' varies by 1\.\d* around 1000\d*.*float32 cannot tell.*float64.*subtract 1e\+08"),
        (0.0, 1e-40, "column 'a' varies by .*e-40 .*has no room for its squares.*other units"),
        (0.0, 1e35, "has no room"),
    ],
)
def test_columns_beyond_a_dtype_are_told(shift, scale, message):
    rows = ROWS.double()
    rows[:, 0] = rows[:, 0] * scale + shift
    chosen = ModelSettings(2, hidden=(8,))
    with pytest.raises(ValueError, match=message):
        build_flow(chosen, rows, 0, columns=("a", "b", "c", "d"))
    flow = build_flow(chosen, rows, 0, dtype=torch.float64)
    samples = flow.sample(2000, generator=torch.Generator().manual_seed(0))[:, 0]
    assert samples.dtype == torch.float64
    assert samples.mean().item() == pytest.approx(rows[:, 0].mean().item(), abs=0.3 * scale)
    assert samples.std().item() == pytest.approx(rows[:, 0].std().item(), rel=0.5)  # PCA of 2 of 4 dimensions
    assert (flow.reconstruction_error(rows) >= 0).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"latent": "foo"}, "expected latent among realnvp, spline, .*; got 'foo'"),
        ({"latent_activation": "wild"}, "latent_activation among silu, tanh, relu"),
        ({"ambient": "square"}, "ambient among"),
        ({"latent_layers": 0}, "latent_layers of at least 1; got 0"),
        ({"hidden": (64, -5)}, r"widths of at least 1 in hidden; got \[64, -5\]"),
        ({"layers": -1}, "layers of at least 0"),
    ],
)
def test_impossible_models_are_told(change, message):
    with pytest.raises(ValueError, match=message):
        ModelSettings(2, **change)
