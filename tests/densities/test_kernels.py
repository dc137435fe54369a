"""Kernels around rows: against sums written out, and what they are for."""

import math

import numpy as np
import pytest
import torch
from scipy.special import i0e
from scipy.stats import norm, vonmises_fisher

from rectangular_flows.densities import KernelDensity, kernels
from rectangular_flows.errors import RankDeficientError
from rectangular_flows.flows.description import build, describe

RANDOM = np.random.default_rng(0)


def on_sphere(rows, seed=0):
    x = np.random.default_rng(seed).normal([1.0, 0.5, 0.3], 0.5, (rows, 3))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def distances(x, k):
    """From the k-th neighbour, or the farthest."""
    apart = np.sort(np.linalg.norm(x[:, None] - x, axis=2), axis=1)
    return apart[:, min(k, len(x) - 1)]


def written_out(density, x, at, kernel):
    """The density at some places, from its weights and the rows x that it was started from, as embedded."""
    total = density.weights[0].item() * np.array([kernel(place, None, None) for place in at])
    for weight, k in zip(density.weights[1:].tolist(), kernels._NEIGHBOURS, strict=True):
        width = np.maximum(distances(x, k) / 2, density.width)
        total += weight * np.array([np.mean([kernel(p, c, h) for c, h in zip(x, width, strict=True)]) for p in at])
    return total


@pytest.mark.parametrize("rows", [3, 40, 150])
def test_on_the_sphere(rows):
    x, at = on_sphere(rows), on_sphere(5, seed=1)
    density = KernelDensity("sphere", points=rows + 7, width=0.05).double()
    density.initialise(torch.from_numpy(x))

    def kernel(place, centre, width):
        return 1 / (4 * np.pi) if centre is None else vonmises_fisher(centre, width**-2).pdf(place)

    expected = written_out(density, x, at, kernel)
    np.testing.assert_allclose(density.log_prob(torch.from_numpy(at)).exp(), expected, rtol=1e-7)
    assert float(density.weights.sum()) == pytest.approx(1)
    assert float(density.weights[0]) >= 1e-3 / 2  # nowhere zero
    assert int(density.count) == rows


def test_on_a_line_times_a_circle(monkeypatch):
    monkeypatch.setattr(kernels, "_CELLS", 100)  # a few places at a time
    line, angle = RANDOM.normal(3, 2, 60), RANDOM.vonmises(1, 2, 60)
    z = np.stack([line, angle], axis=1)
    density = KernelDensity("line*circle", width=0.03).double()
    density.initialise(torch.from_numpy(z))
    mean, scale = line.mean(), line.std()

    def embedded(z):
        return np.stack([(z[:, 0] - mean) / scale, np.cos(z[:, 1]), np.sin(z[:, 1])], axis=1)

    def kernel(place, centre, width):
        if centre is None:
            return norm.pdf(place[0]) / scale / (2 * np.pi)
        kappa = width**-2
        circle = np.exp(kappa * (place[1:] @ centre[1:] - 1)) / (2 * np.pi * i0e(kappa))
        return norm.pdf(place[0], centre[0], max(width, 0.1)) / scale * circle

    at = z[:6] + 0.1
    expected = written_out(density, embedded(z), embedded(at), kernel)
    np.testing.assert_allclose(density.log_prob(torch.from_numpy(at)).exp(), expected, rtol=1e-7)


def test_the_weights_are_best_for_a_tenth_under_the_others():
    x = torch.from_numpy(on_sphere(200))
    density = KernelDensity("sphere", width=0.02, seed=3).double()
    density.initialise(x)
    order = torch.randperm(200, generator=torch.Generator().manual_seed(3))
    judged, kept = x[order[:20]], x[order[20:]].numpy()
    parts = [np.full(20, 1 / (4 * np.pi))]
    for k in kernels._NEIGHBOURS:
        width = np.maximum(distances(kept, k) / 2, 0.02)
        each = [vonmises_fisher(c, h**-2).pdf(judged.numpy()) for c, h in zip(kept, width, strict=True)]
        parts.append(np.mean(each, axis=0))
    parts = np.stack(parts, axis=1)

    def value(weights):
        return np.log(parts @ weights).mean()

    found = density.weights.numpy()
    for i in range(len(found)):  # moving mass to any part gains little
        other = 0.9 * found + 0.1 * np.eye(len(found))[i]
        assert value(other) < value(found) + 0.02


def test_detail_where_rows_are_dense_and_none_where_they_are_not():
    dense, sparse = on_sphere(1), -on_sphere(1)
    noise = RANDOM.normal(size=(400, 3)) * np.r_[np.full(200, 0.003), np.full(200, 0.3)][:, None]
    x = np.where(np.arange(400)[:, None] < 200, dense, sparse) + noise
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    density = KernelDensity("sphere", width=1e-3).double()
    density.initialise(torch.from_numpy(x))
    peak, hill = density.log_prob(torch.from_numpy(np.concatenate([dense, sparse]))).tolist()
    assert peak == pytest.approx(math.log(0.5 / (2 * math.pi * 0.003**2)), abs=0.5)
    assert hill == pytest.approx(math.log(0.5 / (2 * math.pi * 0.3**2)), abs=0.8)


def test_before_data_it_is_uniform():
    density = KernelDensity("sphere", points=5)
    x = torch.from_numpy(on_sphere(4)).float()
    torch.testing.assert_close(density.log_prob(x), torch.full((4,), -math.log(4 * math.pi)))
    assert density.sample(9, torch.Generator().manual_seed(0)).norm(dim=1).sub(1).abs().max() < 1e-5
    assert not list(density.parameters())


def test_more_rows_than_points_and_the_way_through_a_file():
    density = KernelDensity("circle", points=50).double()
    density.initialise(torch.from_numpy(RANDOM.vonmises(0, 1, (300, 1))))
    assert int(density.count) == 50
    again = build(describe(density)).double()
    again.load_state_dict(density.state_dict())
    z = torch.linspace(-3, 3, 7).double()[:, None]
    assert torch.equal(again.log_prob(z), density.log_prob(z))


def test_mistakes():
    for wrong in ({"points": 0}, {"points": 2.5}, {"width": 0.0}, {"width": math.inf}):
        with pytest.raises(ValueError, match="expected a"):
            KernelDensity("circle", **wrong)
    with pytest.raises(RankDeficientError, match="constant"):
        KernelDensity("line*circle").initialise(torch.zeros(20, 2))
