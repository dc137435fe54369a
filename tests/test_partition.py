import numpy as np
import pytest
import torch

from rectangular_flows.partition import geodesics, partition, separate_pieces


def ring(count, radius=1.0, seed=0):
    t = np.random.default_rng(seed).uniform(0, 2 * np.pi, count)
    return radius * np.stack([np.cos(t), np.sin(t)], axis=1)


def test_pieces_and_their_stragglers():
    x = np.concatenate([ring(600), ring(300, 2.5, 1), [[20.0, 20.0]]])
    found = separate_pieces(x)
    assert (found[:600] == 0).all()
    assert (found[600:900] == 1).all()
    assert found[900] == 1


def test_distances_along_a_half_circle_are_angles():
    t = np.sort(np.random.default_rng(0).uniform(0, 3, 400))
    found = geodesics(np.stack([np.cos(t), np.sin(t)], axis=1))
    assert np.abs(found - np.abs(t[:, None] - t)).max() < 0.03


def test_distances_of_separate_pieces_are_finite():
    x = np.concatenate([np.arange(10.0), 100 + np.arange(10.0)])[:, None]
    assert geodesics(x)[0, -1] == pytest.approx(109, abs=1e-6)


def test_parts_of_a_circle_are_arcs_that_overlap():
    x = ring(1_000)
    parts = partition(x, 3)
    inside = parts(torch.from_numpy(x))
    assert bool(inside.any(dim=1).all())
    shared = inside.sum(dim=1)
    assert 0.05 < float((shared > 1).double().mean()) < 0.6
    assert int(shared.max()) <= 2
    for k in range(3):
        angles = np.sort(np.arctan2(*x[inside[:, k].numpy()].T[::-1]))
        gaps = np.diff(np.append(angles, angles[0] + 2 * np.pi))
        assert (gaps > 0.3).sum() == 1  # one gap only: an arc
    one = parts.one_of(torch.from_numpy(x), 0)
    assert bool(inside[torch.arange(len(x)), one].all())
    assert torch.equal(one, parts.one_of(torch.from_numpy(x), 0))


def test_fewer_parts_than_pieces_join_the_nearest():
    x = np.concatenate([ring(200, 0.2, k) + np.array([at, 0]) for k, at in enumerate((0.0, 1.0, 9.0))])
    parts = partition(np.random.default_rng(0).permutation(x), 2)
    inside = parts(torch.tensor([[0.2, 0.0], [1.2, 0.0], [9.2, 0.0]], dtype=torch.float64))
    found = inside.long().argmax(dim=1).tolist()
    assert found[0] == found[1] != found[2]


def test_too_few_rows():
    with pytest.raises(ValueError, match="two rows for each of 3 parts"):
        partition(np.zeros((5, 2)), 3)
