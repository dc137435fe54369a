import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from scipy.stats import kstest, norm

from rectangular_flows.densities import ColumnwiseDensity
from rectangular_flows.densities.cells import FINEST


def rows(count, seed=0):
    """A column of few values, one that is bimodal given it, and one with an edge that the others move."""
    random = np.random.default_rng(seed)
    level = random.choice([0.0, 1.0, 3.0], count, p=[0.5, 0.3, 0.2])
    middle = level + random.choice([-1.0, 1.0], count) + 0.1 * random.standard_normal(count)
    last = np.where(middle > 0, random.uniform(0, 1, count), random.exponential(1, count) - 2)
    return torch.from_numpy(np.stack([level, middle, last], axis=1))


@pytest.fixture(scope="module")
def density():
    x = rows(600)
    found = ColumnwiseDensity.started(x.float())
    found.train_on(x.float(), rows(200, 1).float(), 60)
    return found.double()


@torch.no_grad()
def conditionals(density, x):
    """Weights, centres and widths of the Gaussians, weights of the cells, of every column, in NumPy."""
    K = density.components
    place, inside = density._cells(x)
    given = density.last(density._hidden(x, place, inside)).view(len(x), density.features, -1).numpy()
    linear = (density.linear.numpy() * np.tri(density.features, k=-1)) @ x.numpy()[..., None]
    known = np.concatenate([np.ones((density.features, K), bool), density.known.numpy()], axis=1)
    logits = np.concatenate([given[..., :K], given[..., 3 * K :]], axis=-1)
    weights = np.exp(log_softmax(np.where(known, logits, -1e300), axis=-1))
    widths = np.maximum(np.exp(given[..., 2 * K : 3 * K]), FINEST)
    return weights[..., :K], linear + given[..., K : 2 * K], widths, weights[..., K:]


def test_log_density_is_the_product_of_the_conditionals(density):
    x = rows(50, 2)
    smooth, centres, widths, cells = conditionals(density, x)
    edges = density.edges.numpy()
    expected = np.zeros(len(x))
    for i in range(3):
        value = x.numpy()[:, i, None]
        p = (smooth[:, i] * norm.pdf(value, centres[:, i], widths[:, i])).sum(axis=1)
        for b in range(int(density.known[i].sum())):
            low, high = edges[i, b], edges[i, b + 1]
            p += cells[:, i, b] * ((value[:, 0] >= low) & (value[:, 0] < high)) / (high - low)
        expected += np.log(p)
    with torch.no_grad():
        torch.testing.assert_close(density.log_prob(x), torch.from_numpy(expected), rtol=1e-9, atol=1e-9)


def test_every_conditional_integrates_to_one(density):
    x = rows(1, 3)
    grid = np.unique(np.concatenate([np.linspace(-15, 15, 20_001), density.edges[2][density.edges[2].isfinite()]]))
    middle = torch.from_numpy((grid[1:] + grid[:-1]) / 2)
    line = x.expand(len(middle), -1).clone()
    line[:, 2] = middle
    with torch.no_grad():
        value = density.log_prob(line)
        first = density.log_prob(line[:1]) - conditional_log_prob(density, line[:1], 2)
    assert ((value - first).exp() * torch.from_numpy(np.diff(grid))).sum() == pytest.approx(1, abs=2e-3)


def conditional_log_prob(density, x, i):
    smooth, centres, widths, cells = conditionals(density, x)
    p = (smooth[:, i] * norm.pdf(x.numpy()[:, i, None], centres[:, i], widths[:, i])).sum(axis=1)
    place, inside = density._cells(x)
    b = int(place[0, i])
    return torch.from_numpy(np.log(p + bool(inside[0, i]) * cells[:, i, b] / float(density.edges[i].diff()[b])))


def test_a_column_depends_on_those_before_it_only(density):
    x = rows(4, 4)
    other = x.clone()
    other[:, 1:] += 1.0
    for before, after, changed in zip(conditionals(density, x), conditionals(density, other), "acwp", strict=True):
        np.testing.assert_allclose(before[:, :2], after[:, :2], rtol=1e-12)
        assert changed == "c" or not np.allclose(before[:, 2], after[:, 2])


def test_samples_have_the_density(density):
    drawn = density.sample(4_000, torch.Generator().manual_seed(0))
    smooth, centres, widths, cells = conditionals(density, drawn)
    edges, rng = density.edges.numpy(), np.random.default_rng(0)
    step = [1.0, 0.0, 0.0]
    for i in range(3):
        value = drawn.numpy()[:, i]
        value = value + (value == np.round(value)) * rng.uniform(-0.5, 0.5, len(value)) * step[i]  # shared values
        F = (smooth[:, i] * norm.cdf(value[:, None], centres[:, i], widths[:, i])).sum(axis=1)
        for b in range(int(density.known[i].sum())):
            low, high = edges[i, b], edges[i, b + 1]
            F += cells[:, i, b] * np.clip((value - low) / (high - low), 0, 1)
        assert kstest(F, "uniform").pvalue > 1e-3


def test_samples_of_shared_values_have_them():
    random = np.random.default_rng(0)
    x = torch.from_numpy(np.where(random.random(500) < 0.4, 7.5, random.normal(size=500)))[:, None].float()
    drawn = ColumnwiseDensity.started(x).sample(4_000, torch.Generator().manual_seed(0))
    assert 0.15 < float((drawn == 7.5).float().mean()) < 0.45
    assert float((drawn != 7.5).float().mean()) > 0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", [1, 7])
def test_types_and_sizes(dtype, count):
    x = torch.randn(count + 20, 1, generator=torch.Generator().manual_seed(0), dtype=dtype)
    density = ColumnwiseDensity.started(x)
    assert density.log_prob(x[:count]).dtype == density.sample(count).dtype == dtype
    assert density.sample(0).shape == (0, 1)


def test_training_keeps_the_best_weights_and_leaves_the_generator_alone():
    x, held_out = rows(400).float(), rows(200, 1).float()
    found = []
    state = torch.get_rng_state()
    for _ in range(2):
        density = ColumnwiseDensity.started(x)
        start = float(density.log_prob(held_out).detach().mean())
        density.train_on(x, held_out, 40)
        found.append(density.log_prob(held_out))
    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(*found)
    assert float(found[0].mean()) > start + 0.3
    density.train_on(x, -held_out, 10)  # rows that only get worse
    assert not any(p.requires_grad for p in density.parameters())


def test_the_mode_of_the_module_changes_nothing(density):
    x = rows(20, 5)
    assert torch.equal(density.train().log_prob(x), density.eval().log_prob(x))


def test_far_rows_have_no_density_and_no_nan(density):
    far = torch.full((2, 3), 1e200, dtype=torch.float64)
    assert (density.log_prob(far) == -torch.inf).all()
