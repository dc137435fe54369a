"""MNIST and Fashion-MNIST in miniature, a network for features, and small runs on them."""

import contextlib
import hashlib
import io
import struct
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm

from rectangular_flows.cli import main
from rectangular_flows.paper import experiment
from rectangular_flows.runs import jobs
from rectangular_flows.settings import read_preset

SAMPLES = Path(__file__).parent / "data" / "samples"
TRAIN = 240  # of the 300 images in each file; the others are for test
SMALL = {
    "latent_dim": 4,
    "directions": 16,
    "layers": 2,
    "hidden": [16, 16],
    "latent_components": 3,
    "batch_size": 72,
}


class Pooled(torch.nn.Module):
    """Channel means of the nine parts of an image: 27 features."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.adaptive_avg_pool2d(x, 3).flatten(1)


class Pictures(NamedTuple):
    """Where everything is."""

    data: Path
    out: Path
    network: Path
    sha256: str
    said: str
    """What the command printed."""

    @property
    def command(self):
        """Of the runs, once more."""
        flags = ["--epochs", "1", "--jobs", "1", "-n", "40", "--published-samples", "20", "-o", str(self.out)]
        return ["reproduce", "images", "--methods", "exact,two-step", *flags]

    @property
    def own(self):
        """The network, as options."""
        return ["--network", str(self.network), "--network-sha256", self.sha256]

    def run(self, name="mnist", method="exact"):
        """Folder of a run."""
        return self.out / "images" / name / method / "seed-0"


def train_here(todo, *_):
    """What run_jobs does, in this process."""
    return [jobs.Outcome(jobs._seconds(job)) if job.complete else jobs.train_job(job) for job in todo]


def images(name):
    return np.load(SAMPLES / f"{name}-300.npz")["images"].reshape(-1, 28, 28)


@pytest.fixture(scope="session")
def _pictures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    for name in ("mnist", "fashion-mnist"):
        (folder / "data" / name).mkdir(parents=True)
        for stem, part in (("train", images(name)[:TRAIN]), ("t10k", images(name)[TRAIN:])):
            content = bytes([0, 0, 8, 3]) + struct.pack(">3I", *part.shape) + part.tobytes()
            (folder / "data" / name / f"{stem}-images-idx3-ubyte").write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(torch.jit.script(Pooled()), folder / "own.pt")
    sha256 = hashlib.sha256((folder / "own.pt").read_bytes()).hexdigest()
    return Pictures(folder / "data", folder / "out", folder / "own.pt", sha256, "")


def pooled(bytes_, scale):
    """Features of images, by the definition of the protocol: ``scale`` is what the network is fed."""
    x = torch.from_numpy(bytes_.astype(np.float64)).reshape(-1, 1, 28, 28)
    x = torch.nn.functional.interpolate(x, (299, 299), mode="bilinear")
    return Pooled()(scale(x).expand(-1, 3, -1, -1)).numpy()


def frechet(a, b):
    root = sqrtm(np.cov(a.T) @ np.cov(b.T)).real
    return np.square(a.mean(0) - b.mean(0)).sum() + np.trace(np.cov(a.T) + np.cov(b.T) - 2 * root)


def _small(monkeypatch, data):
    """The data folder is ours, models are small, and runs are trained in this process."""
    monkeypatch.setenv("RNF_DATA", str(data))
    monkeypatch.delenv("RNF_INCEPTION", raising=False)
    monkeypatch.setattr(jobs, "read_preset", lambda name: {**read_preset(name), **SMALL})
    monkeypatch.setattr(experiment, "run_jobs", train_here)


@pytest.fixture
def here(_pictures, monkeypatch):
    """As the runs are trained; nothing is trained yet."""
    _small(monkeypatch, _pictures.data)
    return _pictures


@pytest.fixture(scope="session")
def _trained(_pictures):
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        _small(patch, _pictures.data)
        assert main([*_pictures.command, *_pictures.own]) == 0
    return _pictures._replace(said=printed.getvalue())


@pytest.fixture
def pictures(here, _trained):
    """The runs of ``rnf reproduce images``, trained once for all tests."""
    return _trained
