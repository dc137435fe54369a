"""Pieces against single linkage, crowding against all distances."""

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import cdist

from rectangular_flows.metrics import pieces
from rectangular_flows.metrics.pieces import count_pieces, crowding, link_length, off_planes, usual_distance

RANDOM = np.random.default_rng(0)


def test_crowding_is_the_third_smallest_of_all_distances():
    x, y = RANDOM.normal(size=(40, 3)), RANDOM.normal(size=(50, 3))
    assert crowding(x, y) == pytest.approx(np.sort(cdist(x, y), axis=1)[:, 2])
    assert crowding(x) == pytest.approx(np.sort(cdist(x, x), axis=1)[:, 3])
    assert usual_distance(np.arange(101.0)) == pytest.approx(99)
    assert link_length(x) == pytest.approx(3 * np.quantile(np.sort(cdist(x, x), axis=1)[:, 3], 0.99))


@pytest.mark.parametrize("length", [0.05, 0.2, 0.5, 5.0])
def test_pieces_are_those_of_single_linkage(length):
    x = np.concatenate([RANDOM.normal(size=(150, 2)), RANDOM.normal(size=(50, 2)) + 6, [[40.0, 40.0]]])
    labels = fcluster(linkage(x, "single"), length, "distance")
    sizes = np.unique(labels, return_counts=True)[1]
    assert count_pieces(x, length) == (sizes >= 0.05 * len(x)).sum()


@pytest.mark.parametrize("seed", range(5))
def test_one_piece_is_one_piece_and_two_are_two(seed):
    random = np.random.default_rng(seed)
    angle = random.vonmises(0, 1, 1000)
    curve = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    cloud = random.normal(size=(1000, 6))
    heavy = random.standard_t(4, size=(1000, 3))
    for x in (curve, cloud, heavy, curve + 0.05 * cloud[:, :2]):
        assert count_pieces(x, link_length(x)) == 1
    rings = curve * random.choice([1, 2], size=(1000, 1)) + 0.05 * cloud[:, :2]
    assert count_pieces(rings, link_length(rings)) == 2


@pytest.mark.parametrize(("rows", "columns", "dimension"), [(300, 3, 1), (300, 3, 2), (150, 40, 4), (900, 5, 3)])
@pytest.mark.parametrize("reach", [0.0, 1.5, 100.0])
def test_planes_through_neighbours_against_their_singular_vectors(rows, columns, dimension, reach, monkeypatch):
    random = np.random.default_rng(rows)
    y, x = random.normal(size=(rows, columns)), random.normal(size=(7, columns))
    within = int(np.median((cdist(x, y) <= reach).sum(axis=1)))
    count = max(2 * dimension + 8, min(within, rows // 4))
    expected = []
    for point in x:
        near = y[np.argsort(np.linalg.norm(y - point, axis=1))[:count]]
        off = point - near.mean(axis=0)
        directions = np.linalg.svd(near - near.mean(axis=0))[2][:dimension]
        expected.append(np.square(off - off @ directions.T @ directions).sum())
    for cells in (pieces._CELLS, 1):
        monkeypatch.setattr(pieces, "_CELLS", cells)
        np.testing.assert_allclose(off_planes(x, y, dimension, reach), expected, rtol=1e-8)


@pytest.mark.parametrize("noise", [0.05, 0.15, 0.3])
def test_planes_beyond_the_noise_lose_the_noise(noise):
    angle, random = RANDOM.uniform(0, 4.5, 4000), np.random.default_rng(1)
    rows = np.stack([np.cos(angle), np.sin(angle)], axis=1) / 0.7 + noise * random.normal(size=(4000, 2))
    near, beyond = (off_planes(rows[:300], rows[300:], 1, reach).mean() / noise**2 for reach in (0.0, 2 * noise))
    assert near < 0.2  # planes of neighbours that are nearer than the noise say nothing about it
    assert 0.35 < beyond < 1.1


def test_nothing_is_off_a_plane_of_all_its_directions():
    flat = RANDOM.normal(size=(200, 2)) @ RANDOM.normal(size=(2, 4))
    assert off_planes(flat[:50], flat[50:], 2) == pytest.approx(0, abs=1e-12)
    assert off_planes(flat[:50], flat[50:], 3) == pytest.approx(0, abs=1e-12)
    assert off_planes(np.ones((2, 3)), np.zeros((20, 3)), 1) == pytest.approx(3)
