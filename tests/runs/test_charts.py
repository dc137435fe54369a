import numpy as np
import pytest
import torch

from rectangular_flows.runs import charts
from rectangular_flows.runs.charts import choose_charts, is_loop
from rectangular_flows.settings import FitSettings, read_preset


def settings(**values):
    return FitSettings.from_flat(
        {"latent_dim": 1, "layers": 2, "hidden": (8,), "charts": "auto", **values}, read_preset("table")
    )


def curve(length, count=600, noise=0.01, seed=0):
    random = np.random.default_rng(seed)
    t = random.uniform(0, length, count)
    return np.stack([np.cos(t), np.sin(t)], axis=1) + noise * random.normal(size=(count, 2))


@pytest.mark.parametrize(("length", "found"), [(2.0, False), (5.0, False), (2 * np.pi, True)])
@pytest.mark.parametrize("seed", range(3))
def test_loops(length, found, seed):
    assert is_loop(curve(length, seed=seed), 1) is found
    assert not is_loop(curve(length, seed=seed), 2)


@pytest.mark.parametrize("seed", range(3))
def test_blobs_are_no_loops(seed):
    assert not is_loop(np.random.default_rng(seed).normal(size=(600, 2)) * [1, 0.4], 1)


def test_one_piece_without_a_loop_needs_no_training(monkeypatch):
    monkeypatch.setattr(charts, "_gain", lambda *_: pytest.fail("nothing to compare"))
    found = choose_charts(settings(), torch.from_numpy(curve(3.0)), 0)
    assert (found.count, found.reason) == (1, "the data form one piece, and no loop was found")
    assert choose_charts(settings(), torch.from_numpy(curve(3.0, count=50)), 0).count == 1


@pytest.mark.parametrize(("gain", "count"), [((1.0, 0.1), 4), ((0.1, 0.1), 1)])
def test_pieces_and_loops_if_rows_held_out_agree(monkeypatch, gain, count):
    tried = []
    monkeypatch.setattr(charts, "_gain", lambda _, rows, number, seed: tried.append(number) or gain)
    x = np.concatenate([curve(2 * np.pi, 700), curve(2.0, 500) + 5])
    found = choose_charts(settings(), torch.from_numpy(np.random.default_rng(0).permutation(x)), 0)
    assert tried == [4]
    assert found.count == count
    assert found.reason.startswith("the data form 2 separate pieces, 1 of them loops")


@pytest.mark.slow
def test_more_charts_are_likelier_on_separate_pieces():
    x = np.concatenate([curve(2.0, 200), curve(2.0, 200, seed=1) + 5])
    rows = torch.from_numpy(np.random.default_rng(0).permutation(x)).float()
    gain, error = charts._gain(settings(batch_size=100, latent="mixture"), rows, 2, 0)
    assert gain > 2 * error
