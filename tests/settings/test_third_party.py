"""A latent density that is registered from outside the package, as a third party would."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from rich.console import Console

import rectangular_flows as rnf
from rectangular_flows.densities import LATENTS, Density, LatentKind, register_latent
from rectangular_flows.evaluation.scores import SCORES, Score, register_score
from rectangular_flows.runs.launch import run_settings
from rectangular_flows.settings import FitSettings
from tests.cli.command import complaint, run


@dataclass(frozen=True)
class LaplaceSettings:
    """Of the Laplace density.

    Args:
        laplace_width: width that it starts with.
    """

    laplace_width: float = 1.0


class Laplace(Density):
    """Independent coordinates with p(z) = exp(−|z|/w)/2w, w learned."""

    def __init__(self, features, width=1.0):
        super().__init__()
        self.features = features
        self.log_width = torch.nn.Parameter(torch.full((features,), float(np.log(width))))

    def log_prob(self, z):
        return (-z.abs() / self.log_width.exp() - self.log_width - np.log(2)).sum(dim=-1)

    def sample(self, count, generator=None):
        u = torch.rand(count, self.features, generator=generator, dtype=self.log_width.dtype) - 0.5
        return -self.log_width.exp() * u.sign() * torch.log1p(-2 * u.abs())

    def initialise(self, z):
        self.log_width.data = z.abs().mean(dim=0).log()


@pytest.fixture(autouse=True)
def _registered():
    kind = LatentKind(
        "laplace", "sharp at the centre", LaplaceSettings, lambda s, dim: Laplace(dim, s.laplace_width), True
    )
    register_latent(kind)
    yield
    del LATENTS["laplace"]


@pytest.fixture
def rows():
    noise = np.random.default_rng(0)
    return np.column_stack([noise.laplace(size=(300, 2)), 0.01 * noise.normal(size=300)])


SMALL = {"latent_dim": 2, "layers": 2, "hidden": [8], "epochs": 2, "latent": "laplace"}


def test_settings():
    settings = FitSettings.from_flat({**SMALL, "laplace_width": 3})
    assert settings.model.latent.settings == LaplaceSettings(3.0)
    assert settings.flat()["laplace_width"] == 3.0
    assert FitSettings.from_flat(settings.flat()) == settings
    with pytest.raises(ValueError, match="laplace_width is for latent = laplace; this run has latent = spline"):
        FitSettings.from_flat({"latent": "spline", "laplace_width": 3})
    FitSettings.from_flat({**SMALL, "latent_epochs": 1, "restart_latent": True})  # it starts from data


def test_a_run(rows, tmp_path):
    np.save(tmp_path / "rows.npy", rows)
    settings = FitSettings.from_flat({**SMALL, "data": str(tmp_path / "rows.npy")})
    trained, _ = run_settings(settings, tmp_path / "run", console=Console(quiet=True), quiet=True)
    assert isinstance(trained.flow.latent, Laplace)
    x = torch.from_numpy(rows[:5]).float()
    torch.testing.assert_close(rnf.load(tmp_path / "run").log_prob(x), trained.flow.log_prob(x))


def test_the_command_line(rows, tmp_path):
    np.save(tmp_path / "rows.npy", rows)
    assert '"laplace", sharp at the centre' in " ".join(run("fit", "--help").stdout.split())
    flags = ["--latent-dim", 2, "--latent", "laplace", "--epochs", 1, "--hidden", 8, "-o", tmp_path / "run"]
    done = run("fit", tmp_path / "rows.npy", *flags, "--laplace-width", 2)
    assert done.returncode == 0, done.stderr
    assert "laplace_width = 2.0" in (tmp_path / "run" / "config.toml").read_text()
    message = complaint("fit", tmp_path / "rows.npy", "--laplace-width", 2)
    assert "laplace_width is for latent = laplace; this run has latent = auto" in message


def test_the_estimator(rows):
    estimator = rnf.RectangularFlowEstimator(latent_dim=2, latent="laplace", epochs=2, random_state=0).fit(rows)
    assert isinstance(estimator.flow_.latent, Laplace)
    assert np.isfinite(estimator.score_samples(rows)).all()


def test_a_name_is_taken_once():
    with pytest.raises(ValueError, match="'laplace' is taken"):
        register_latent(LATENTS["laplace"])


@pytest.fixture
def _score():
    score = Score("radius", "distance from the origin", "latent units", False, lambda s, _: s.z.norm(dim=1))
    register_score(score)
    yield
    del SCORES["radius"]


@pytest.mark.usefixtures("_score")
def test_a_score_of_their_own_beside_their_density(rows, tmp_path):
    np.save(tmp_path / "rows.npy", rows)
    settings = FitSettings.from_flat({**SMALL, "data": str(tmp_path / "rows.npy")})
    run_settings(settings, tmp_path / "run", console=Console(quiet=True), quiet=True)
    done = run("score", tmp_path / "run", tmp_path / "rows.npy", "-o", tmp_path / "scores.csv", "--coordinates")
    assert done.returncode == 0, done.stderr
    table = np.genfromtxt(tmp_path / "scores.csv", delimiter=",", names=True)
    np.testing.assert_allclose(table["radius"], np.hypot(table["z1"], table["z2"]), rtol=1e-5)
    found = SCORES["radius"](rnf.load(tmp_path / "run").score(torch.from_numpy(rows).float()))
    np.testing.assert_allclose(table["radius"], found, rtol=1e-5)
