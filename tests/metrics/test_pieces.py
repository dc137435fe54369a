"""Pieces against single linkage, crowding against all distances."""

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import cdist

from rectangular_flows.metrics.pieces import count_pieces, crowding, link_length, usual_distance

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
