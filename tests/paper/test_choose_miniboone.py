"""The choice of MINIBOONE's settings never sees a row that it is judged by."""

import dataclasses
import json

import numpy as np
import pytest
import torch

from benchmarks import choose_miniboone
from rectangular_flows.settings import read_preset
from rectangular_flows.storage.models import load_model


def test_every_row_is_unseen_once(tmp_path, monkeypatch):
    rows = np.random.default_rng(3).normal(size=(302, 5))
    (tmp_path / "data" / "miniboone").mkdir(parents=True)
    np.save(tmp_path / "data" / "miniboone" / "val.npy", rows)
    monkeypatch.setenv("RNF_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(choose_miniboone, "SAMPLES", 200)
    small = {"latent_dim": 2, "latent_components": 2, "layers": 2, "epochs": 2, "latent_epochs": 1}
    settings = {**read_preset("miniboone"), **choose_miniboone.START, **small}
    folder = tmp_path / "one"
    judged = choose_miniboone.judge(settings, folder)
    parts = [folder / f"part-{part}" for part in range(choose_miniboone.PARTS)]
    unseen = [np.load(part / "unseen.npy") for part in parts]
    assert np.array_equal(np.unique(np.concatenate(unseen), axis=0), np.unique(rows, axis=0))
    for part, hidden in zip(parts, unseen, strict=True):
        seen = np.load(part / "seen.npy")
        assert len(seen) + len(hidden) == len(rows)
        assert not (seen[:, None] == hidden[None]).all(-1).any()
    errors = [
        load_model(part / "run").project(_tensor(hidden)) - _tensor(hidden)
        for part, hidden in zip(parts, unseen, strict=True)
    ]
    assert judged.distance == pytest.approx(np.mean([e.square().sum(1).mean().item() for e in errors]), rel=1e-5)
    assert judged.largest == pytest.approx(np.mean([e.square().sum(1).max().item() for e in errors]), rel=1e-5)
    assert judged.distance < judged.farthest <= judged.largest
    kept = parts[1] / "judged.json"
    first = json.loads(kept.read_text())
    kept.write_text(json.dumps({**first, "fid_like": first["fid_like"] + 3.0}))  # what is kept is not done again
    again = choose_miniboone.judge(settings, folder)
    assert again == dataclasses.replace(judged, fid_like=again.fid_like)
    assert again.fid_like == pytest.approx(judged.fid_like + 1.0)


def _tensor(rows):
    return torch.from_numpy(rows).float()
