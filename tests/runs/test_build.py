"""What the settings make, and where a flow starts."""

import pytest
import torch

from rectangular_flows.flows import Coupling
from rectangular_flows.runs.build import build_flow
from rectangular_flows.settings import FitSettings
from tests.conftest import shaken

ROWS = torch.randn(300, 4, generator=torch.Generator().manual_seed(3)) @ torch.tensor(
    [[1.0, 2.0, 0.0, 1.0], [0.0, 1.0, 3.0, 0.0], [0.0, 0.0, 0.5, 1.0], [0.0, 0.0, 0.0, 0.2]]
)


def model(**values):
    return FitSettings.from_flat(values).model


@pytest.mark.parametrize("mixing", ["none", "permutation", "lu", "free"])
def test_the_start_is_the_best_linear_subspace(mixing):
    chosen = model(latent_dim=2, hidden=(8,), layers=5, mixing=mixing, pca=True, standardise=False)
    flow = build_flow(chosen, ROWS, seed=0)
    values = torch.linalg.svdvals(ROWS.double() - ROWS.double().mean(dim=0))
    best = values[2:].square().sum() / len(ROWS)
    torch.testing.assert_close(flow.reconstruction_error(ROWS).mean().double(), best, rtol=1e-4, atol=1e-6)


def test_h_may_have_another_activation():
    chosen = model(latent_dim=2, hidden=(8,), activation="tanh", latent_hidden=(8,), latent_activation="relu")
    same = model(latent_dim=2, hidden=(8,), activation="tanh", latent_hidden=(8,))
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
    chosen = model(latent_dim=2, hidden=(8,))
    with pytest.raises(ValueError, match=message):
        build_flow(chosen, rows, 0, columns=("a", "b", "c", "d"))
    flow = build_flow(chosen, rows, 0, dtype=torch.float64)
    samples = flow.sample(2000, generator=torch.Generator().manual_seed(0))[:, 0]
    assert samples.dtype == torch.float64
    assert samples.mean().item() == pytest.approx(rows[:, 0].mean().item(), abs=0.3 * scale)
    assert samples.std().item() == pytest.approx(rows[:, 0].std().item(), rel=0.5)  # PCA of 2 of 4 dimensions
    assert (flow.reconstruction_error(rows) >= 0).all()


@pytest.mark.parametrize(
    ("values", "started"),
    [
        ({"pca": False, "latent": "realnvp"}, False),
        ({"pca": False, "latent": "affine"}, False),  # which starts as the identity, as published
        ({"pca": True, "latent": "affine"}, True),
        ({"pca": False, "latent": "mixture", "latent_components": 1}, True),
    ],
)
def test_what_starts_from_data(values, started):
    """A latent density that has started from data is as wide as their coordinates."""
    chosen = model(latent_dim=2, hidden=(8,), standardise=False, **values)
    with torch.no_grad():
        flow = build_flow(chosen, 3 * ROWS, seed=0)
        z, samples = flow.encode(3 * ROWS), flow.latent.sample(20_000, torch.Generator().manual_seed(0))
    assert torch.allclose(samples.std(0), z.std(0), rtol=0.1) == started


@pytest.mark.parametrize(
    ("values", "expected"), [({"bound": 0.1}, 0.1), ({"bound": 7.0}, 7.0), ({"scale": "exp"}, 100.0)]
)
def test_the_scale_is_that_of_the_couplings(values, expected):
    """The log-scale of a coupling that its network would make 100."""
    flow = build_flow(model(latent_dim=2, hidden=(8,), layers=1, mixing="none", **values), ROWS, seed=0)
    coupling = next(layer for layer in flow.ambient.modules() if isinstance(layer, Coupling))
    assert coupling.transformer.log_scale(torch.tensor(100.0)).item() == pytest.approx(expected)
