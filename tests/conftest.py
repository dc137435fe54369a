import os
from pathlib import Path

# Tests run in as many processes as there are cores: more threads than that only wait for each other. What reads this
# (OpenBLAS, scikit-learn) does so when it is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch

from rectangular_flows.flows import Chain, Embedding, Injection, tangents
from tests import tally
from tests.pictures import _pictures, _trained, here, pictures  # noqa: F401 (fixtures)

torch.set_num_threads(1)


def pytest_addoption(parser):
    text = "where to write how many faults were tried and held, after the tests marked reliability"
    parser.addoption("--reliability-page", metavar="FILE", type=Path, help=text)


def pytest_sessionfinish(session):
    page = session.config.getoption("--reliability-page")
    if page is not None:
        tally.write(page)


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


@pytest.fixture
def _fused_however_small(monkeypatch):
    """Bundles as small as those of tests would take the plain path; with this they take that of large ones."""
    monkeypatch.setattr(tangents, "_SMALL", 0)


def shaken(module, seed=0, amount=0.2, dtype=torch.float64):
    """The module in that precision with every parameter moved at random, so that no layer is the identity."""
    generator = torch.Generator().manual_seed(seed)
    module = module.to(dtype)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(amount * torch.randn(parameter.shape, generator=generator, dtype=dtype))
    return module


def points(layer: Injection, batch=3, seed=1, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return on_space(layer, torch.randn(batch, *layer.in_shape, generator=generator, dtype=dtype))


def on_space(layer: Injection, z):
    """Coordinates of points of the layer's latent space: those on a sphere are unit vectors."""
    first = layer.layers[0] if isinstance(layer, Chain) else layer
    places = first.space.places() if isinstance(first, Embedding) else []
    for name, place in places:
        if name == "sphere":
            z[..., place] /= z[..., place].norm(dim=-1, keepdim=True)
    return z
