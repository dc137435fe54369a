"""What a user would pick instead: plain density estimators and outlier detectors, each by its usual settings.

All of them see standardised columns. Neural ones are given the seconds that our own fit took.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.ensemble import IsolationForest
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import LocalOutlierFactor, NearestNeighbors
from sklearn.svm import OneClassSVM
from torch import Tensor, nn

Array = NDArray[Any]
_COMPONENTS = (1, 2, 4, 8, 16, 32)
_SVM_ROWS = 5_000


class Rows(NamedTuple):
    """Standardised rows: to train on, to validate with, and to judge by."""

    train: Array
    validation: Array
    test: Array


class Density(NamedTuple):
    """A density in all columns: log-densities of the test rows, and a function that draws samples."""

    log_prob: Array
    sample: Callable[[int], Array]


def gaussian_mixture(rows: Array, seed: int) -> Any:
    """Full covariances, the number of components by BIC."""
    best, least = None, np.inf
    for count in _COMPONENTS:
        if count > 1 and len(rows) < 3 * count * rows.shape[1]:
            break
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model: Any = GaussianMixture(count, random_state=seed).fit(rows)
        if model.bic(rows) < least:
            best, least = model, model.bic(rows)
    return best


def mixture_density(rows: Rows, seed: int, seconds: float) -> Density:
    """The mixture of Gaussians on all columns."""
    model = gaussian_mixture(np.concatenate([rows.train, rows.validation]), seed)
    return Density(model.score_samples(rows.test), lambda n: model.sample(n)[0])


def spline_density(rows: Rows, seed: int, seconds: float) -> Density:
    """zuko's NSF on all columns: Adam until the time is over, the best weights on the validation rows."""
    torch.manual_seed(seed)
    import zuko.flows

    kind: Any = zuko.flows
    flow: Any = kind.NSF(rows.train.shape[1], transforms=3, hidden_features=(64, 64))
    _train(flow, lambda x: -flow().log_prob(x).mean(), rows, seconds)
    with torch.no_grad():
        value = torch.cat([flow().log_prob(part) for part in _tensor(rows.test).split(2_000)]).double().numpy()

    def sample(count: int) -> Array:
        with torch.no_grad():
            return np.asarray(flow().sample((count,)).double())

    return Density(value, sample)


def autoencoder_errors(rows: Rows, latent_dim: int, seed: int, seconds: float) -> Array:
    """Squared reconstruction errors of the test rows by an MLP autoencoder, (N,)."""
    torch.manual_seed(seed)
    columns = rows.train.shape[1]
    model = nn.Sequential(
        *(nn.Linear(columns, 128), nn.SiLU(), nn.Linear(128, 128), nn.SiLU(), nn.Linear(128, latent_dim)),
        *(nn.Linear(latent_dim, 128), nn.SiLU(), nn.Linear(128, 128), nn.SiLU(), nn.Linear(128, columns)),
    )
    _train(model, lambda x: (x - model(x)).square().sum(dim=1).mean(), rows, seconds)
    with torch.no_grad():
        x = _tensor(rows.test)
        return np.asarray((x - model(x)).square().sum(dim=1).double())


def pca_errors(rows: Rows, latent_dim: int) -> Array:
    """Squared reconstruction errors of the test rows by PCA, (N,)."""
    model: Any = PCA(latent_dim).fit(rows.train)
    return np.asarray(np.square(rows.test - model.inverse_transform(model.transform(rows.test))).sum(axis=1))


def _train(model: nn.Module, loss: Callable[[Tensor], Tensor], rows: Rows, seconds: float) -> None:
    train, validation = _tensor(rows.train), _tensor(rows.validation)
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-3)
    start, best, weights, step = time.process_time(), np.inf, {}, 0
    generator = torch.Generator().manual_seed(0)
    while step == 0 or time.process_time() - start < seconds:
        batch = train[torch.randint(len(train), (min(250, len(train)),), generator=generator)]
        optimiser.zero_grad(set_to_none=True)
        loss(batch).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimiser.step()
        step += 1
        share = min((time.process_time() - start) / max(seconds, 1e-9), 1.0)
        optimiser.param_groups[0]["lr"] = 2e-3 * 0.5 * (1 + np.cos(np.pi * share))
        if step % 50 == 0 or share >= 1:
            with torch.no_grad():
                value = float(loss(validation))
            if value < best:
                best, weights = value, {name: v.clone() for name, v in model.state_dict().items()}
    if weights:
        model.load_state_dict(weights)


def _tensor(rows: Array) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(rows)).float()


# --- outliers: the higher, the more unusual


def outlier_scores(rows: Rows, latent_dim: int, seed: int, seconds: float) -> dict[str, tuple[Array, float]]:
    """Scores of the test rows and the seconds they took, by method; neural ones are given ``seconds``."""
    both = np.concatenate([rows.train, rows.validation])
    methods: dict[str, Callable[[], Array]] = {
        "k nearest neighbours": lambda: _neighbours(both, rows.test),
        "local outlier factor": lambda: -_fit(LocalOutlierFactor(20, novelty=True), both).score_samples(rows.test),
        "isolation forest": lambda: -_fit(IsolationForest(random_state=seed), both).score_samples(rows.test),
        "one-class SVM": lambda: -_fit(OneClassSVM(), both[:_SVM_ROWS]).score_samples(rows.test),
        "Gaussian mixture": lambda: -gaussian_mixture(both, seed).score_samples(rows.test),
        "PCA + mixture": lambda: _reduced(both, rows.test, seed),
        "zuko NSF": lambda: -spline_density(rows, seed, seconds).log_prob,
        "autoencoder": lambda: autoencoder_errors(rows, latent_dim, seed, seconds),
    }
    found = {}
    for name, method in methods.items():
        start = time.process_time()
        found[name] = np.nan_to_num(method(), nan=1e300, posinf=1e300), time.process_time() - start
    return found


def _fit(model: Any, rows: Array) -> Any:
    return model.fit(rows)


def _neighbours(known: Array, rows: Array) -> Array:
    search: Any = NearestNeighbors(n_neighbors=5).fit(known)
    return np.asarray(search.kneighbors(rows)[0][:, -1])


def _reduced(known: Array, rows: Array, seed: int) -> Array:
    model: Any = PCA(0.95).fit(known)
    return np.asarray(-gaussian_mixture(model.transform(known), seed).score_samples(model.transform(rows)))
