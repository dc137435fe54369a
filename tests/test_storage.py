import json
import os

import pytest
import torch

import rectangular_flows as rnf
from rectangular_flows.storage.files import fingerprint, write_atomically


def make(dtype=torch.float32):
    torch.manual_seed(0)
    outer = rnf.flows.Standardise(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.5, 1.0, 2.0]))
    latent = rnf.flows.ZukoDensity("NSF", features=2, passes=2, transforms=1, hidden_features=(8,))
    return rnf.RectangularFlow(rnf.flows.RealNVP(3, 2, (8,), mixing="free"), latent, outer).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_model_comes_back_as_it_was(tmp_path, dtype):
    flow = make(dtype)
    rnf.save(flow, tmp_path / "new" / "model", columns=["a", "b", "c"])
    again = rnf.load(tmp_path / "new" / "model")
    x = torch.randn(5, 3, dtype=dtype)
    assert torch.equal(flow.log_prob(x), again.log_prob(x))
    assert torch.equal(flow.sample(3, generator=_seed()), again.sample(3, generator=_seed()))
    assert not again.training


def _seed():
    return torch.Generator().manual_seed(1)


def test_what_is_wrong_with_a_model_is_told(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"expected model\.json and model\.safetensors"):
        rnf.load(tmp_path)
    rnf.save(make(), tmp_path)
    weights = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(weights[:100])
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged, or not the file .* got 100 bytes"):
        rnf.load(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(weights)
    other = rnf.RectangularFlow(rnf.flows.RealNVP(3, 9), rnf.flows.RealNVP(2))
    with pytest.raises(ValueError, match="do not fit the model"):
        rnf.load(tmp_path, flow=other)
    (tmp_path / "manifest.json").unlink()  # as in folders of version 0.1, which are not checked
    (tmp_path / "model.safetensors").write_bytes(weights[:100])
    with pytest.raises(ValueError, match="damaged, or not a safetensors file"):
        rnf.load(tmp_path)
    description = json.loads((tmp_path / "model.json").read_text())
    (tmp_path / "model.json").write_text(json.dumps({**description, "format": 99}))
    with pytest.raises(ValueError, match="format 99"):
        rnf.load(tmp_path)
    (tmp_path / "model.json").write_text("{")
    with pytest.raises(ValueError, match="is damaged"):
        rnf.load(tmp_path)


def test_files_appear_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomically(path, "old")

    def fail(*_):
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no space"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_fingerprints_tell_data_apart():
    x = torch.arange(6.0).reshape(3, 2)
    assert fingerprint(x) == fingerprint(x.numpy())
    others = (x + 1, x.double(), x.reshape(2, 3), x[:2])
    assert len({fingerprint(x), *(fingerprint(other) for other in others)}) == 5
