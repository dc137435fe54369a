"""Scoring on Ray: the same numbers as in one process."""

import sys

import numpy as np
import pytest

import rectangular_flows as rnf
from rectangular_flows.evaluation import ray_engine as module
from rectangular_flows.evaluation import scored
from tests.cli.command import complaint, run
from tests.evaluation.test_scored import SETTINGS, helix
from tests.scored import score_file


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ray")
    rnf.RectangularFlowOutlierDetector(**SETTINGS).fit(helix(300)).save(folder / "model")
    np.save(folder / "new.npy", helix(23_000, 1))
    return folder


def test_shares_are_whole_parts(monkeypatch):
    for start, stop, workers in ((0, 1, 3), (10_000, 95_000, 2), (0, 20_000_000, 2)):
        shares = list(module._shares(start, stop, workers))
        assert shares[0][0] == start
        assert sum(rows for _, rows in shares) == stop - start
        assert all(first % scored.AT_ONCE == 0 for first, _ in shares)
        assert all(rows % scored.AT_ONCE == 0 for _, rows in shares[:-1])
    assert len(shares) == 40


def test_a_worker_scores_its_share(made):
    worker = module._Worker(str(made / "model"), str(made / "new.npy"), {"coordinates": True})
    found = worker({"first": np.array([10_000]), "rows": np.array([13_000])})
    whole = score_file(rnf.SavedRun(made / "model"), str(made / "new.npy"), coordinates=True)
    for name, values in whole.columns.items():
        np.testing.assert_array_equal(found[name], values[10_000:])


def test_without_ray(made, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    words = ("score", made / "model", made / "new.npy", "-o", tmp_path / "a.npy", "--engine", "ray")
    assert "pip install 'rectangular-flows[ray]'" in complaint(*words)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_ray_gives_the_same_scores(made, tmp_path):
    ray = pytest.importorskip("ray")
    words = ("score", made / "model", made / "new.npy", "--coordinates", "-o")
    assert run(*words, tmp_path / "one.npy").returncode == 0
    try:
        done = run(*words, tmp_path / "many.npy", "--engine", "ray", "--workers", 2)
        assert done.returncode == 0, done.stderr
    finally:
        ray.shutdown()
    assert (tmp_path / "one.npy").read_bytes() == (tmp_path / "many.npy").read_bytes()
