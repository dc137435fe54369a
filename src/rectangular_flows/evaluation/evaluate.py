"""How good a model is, on rows that training never saw: one table of metrics, each with what real data reach."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from rich.console import Console
from torch import Tensor

from ..data.rows import Rows, take
from ..manifold import Scores
from ..metrics.arrays import Array
from ..metrics.frechet import fid_like
from ..metrics.geometry import CircleFit, circle_fit
from ..metrics.image_quality import ImageQuality
from ..metrics.inception import FeatureNetwork
from ..metrics.sphere import SphereFit, sphere_fit
from ..metrics.two_sample import classifier_two_sample, equally_many, sliced_wasserstein
from ..runs.saved import EVALUATION, SavedRun
from ..storage.files import write_atomically
from .images import SAMPLES, check_amount, quality_of

MOST_ROWS, TABLE_SAMPLES = 50_000, 10_000
_LEAST_ROWS = 10
_KERNEL_ROWS, _KERNEL_CENTRES = 5_000, 20_000


class TooFewRowsError(ValueError):
    """There are too few test rows to evaluate on."""


class Subject:
    """A run under evaluation: what the metrics share, each computed once, when it is first asked for.

    Args:
        run: the run.
        samples: how many to draw; by default 10,000, or 5,000 images.
        seed: of the draws.
        most: test rows, and training rows for the floor.
        network: for the features of images; None for nothing that needs them.
        console: shows the progress.
    """

    def __init__(
        self,
        run: SavedRun,
        samples: int | None = None,
        seed: int = 0,
        most: int = MOST_ROWS,
        network: FeatureNetwork | None = None,
        console: Console | None = None,
    ):
        self.run, self.flow, self.data, self.settings = run, run.flow, run.data, run.settings
        self.images = self.flow.kind == "image"
        self.count = samples if samples is not None else SAMPLES if self.images else TABLE_SAMPLES
        self.seed, self.most, self.network, self.console = seed, most, network, console

    def _first(self, rows: Rows, most: int) -> Tensor:
        return take(rows, slice(most), dtype=self.flow.dtype)

    @cached_property
    def test(self) -> Tensor:
        """The test rows."""
        return self._first(self.data.test, self.most)

    @cached_property
    def train(self) -> Tensor:
        """The training rows."""
        return self._first(self.data.train, self.most)

    @cached_property
    def scores(self) -> Scores:
        """Of the test rows."""
        return self.flow.score(self.test)

    @cached_property
    def samples(self) -> Tensor:
        """Drawn from the model."""
        return self.flow.sample(self.count, generator=torch.Generator().manual_seed(self.seed))

    @cached_property
    def standardised(self) -> list[Array]:
        """Samples, test rows and training rows of a table, equally many of each, in deviations of the columns."""
        scale = np.asarray(self.train.double().std(dim=0))
        parts = [np.asarray(rows.double()) / scale for rows in (self.samples, self.test, self.train)]
        return equally_many(*parts, seed=self.seed)

    @cached_property
    def quality(self) -> ImageQuality | None:
        """Of samples of images; None for tables, and without the network."""
        if not self.images or self.network is None:
            return None
        return quality_of(self.run, self.network, self.count, seed=self.seed, console=self.console)

    @cached_property
    def circle(self) -> CircleFit | None:
        """The fit to the known truth, for a curve trained on the circle."""
        return circle_fit(self.flow) if self.settings.data.data == "circle" and self.flow.latent_dim == 1 else None

    @cached_property
    def sphere(self) -> SphereFit | None:
        """The fit on the sphere, for a surface trained on latitudes and longitudes."""
        if not self.settings.data.sphere or self.flow.latent_dim != 2 or not len(self.data.validation):
            return None
        some = self._first(self.data.validation, _KERNEL_ROWS)
        return sphere_fit(self.flow, self.train[:_KERNEL_CENTRES], some, self.test[:_KERNEL_ROWS], self.samples)


@dataclass(frozen=True)
class Measured:
    """A value, what real data reach against real data, and standard errors of both where they are known."""

    value: float
    floor: float | None = None
    error: float | None = None
    floor_error: float | None = None

    def named(self, name: str) -> dict[str, float]:
        """As plain numbers, for a file."""
        parts = {"": self.value, "_floor": self.floor, "_standard_error": self.error}
        parts["_floor_standard_error"] = self.floor_error
        return {name + suffix: value for suffix, value in parts.items() if value is not None}


@dataclass(frozen=True)
class Metric:
    """One metric: its label, and what it makes of a run; None where it does not apply."""

    label: str
    measure: Callable[[Subject], Measured | None]


Measure = Callable[[Subject], Measured | None]


def _scored(name: str, sign: int = 1) -> Measure:
    """The mean of a score of the test rows; in the model's units of images only."""

    def measure(subject: Subject) -> Measured | None:
        if name.startswith("model_") and not subject.images:
            return None
        return Measured(sign * float(getattr(subject.scores, name).double().mean()))

    return measure


def _distance(between: Callable[[Array, Array, int], float]) -> Measure:
    """Between samples and test rows of a table; its floor, between training rows and the same test rows."""

    def measure(subject: Subject) -> Measured | None:
        if subject.images:
            return None
        samples, test, train = subject.standardised
        return Measured(between(samples, test, subject.seed), between(train, test, subject.seed))

    return measure


def _image(name: str) -> Measure:
    """Of the features of sampled and real images."""

    def measure(subject: Subject) -> Measured | None:
        if subject.quality is None:
            return None
        numbers = subject.quality.numbers()
        errors = (numbers.get(f"{name}{kind}_standard_error") for kind in ("", "_floor"))
        return Measured(numbers[name], numbers[f"{name}_floor"], *errors)

    return measure


def _fit(truth: str, name: str) -> Measure:
    """Of the fit to a known truth, 'circle' or 'sphere'."""

    def measure(subject: Subject) -> Measured | None:
        fit = getattr(subject, truth)
        return None if fit is None else Measured(getattr(fit, name))

    return measure


METRICS: dict[str, Metric] = {
    "negative_log_likelihood": Metric("negative log-likelihood of the projections", _scored("log_prob", -1)),
    "reconstruction_error": Metric("reconstruction error", _scored("squared_distance")),
    "model_negative_log_likelihood": Metric("… likelihood in model units", _scored("model_log_prob", -1)),
    "model_reconstruction_error": Metric("… error in model units", _scored("model_squared_distance")),
    "fid_like": Metric(
        "FID-like score of samples (standardised columns)", _distance(lambda x, y, seed: fid_like(x, y))
    ),
    "sliced_wasserstein": Metric(
        "squared sliced Wasserstein-2 distance", _distance(lambda x, y, seed: sliced_wasserstein(x, y, seed=seed))
    ),
    "c2st": Metric(
        "accuracy of a classifier, samples or data (0.5: none)",
        _distance(lambda x, y, seed: classifier_two_sample(x, y, seed=seed)),
    ),
    "fid": Metric("FID of samples", _image("fid")),
    "kid": Metric("KID of samples", _image("kid")),
    "precision": Metric("precision: samples that lie where real images do", _image("precision")),
    "recall": Metric("recall: real images that lie where samples do", _image("recall")),
    "circle_kl": Metric("KL(true‖model) on the circle", _fit("circle", "kl")),
    "circle_sector_kl": Metric("KL(true‖model) of sectors", _fit("circle", "sector_kl")),
    "circle_total_variation": Metric("total variation on the circle", _fit("circle", "total_variation")),
    "circle_mass": Metric("mass of the curve", _fit("circle", "mass")),
    "circle_mean_distance": Metric("mean distance of the curve to the circle", _fit("circle", "mean_distance")),
    "circle_max_distance": Metric("largest distance, central 99 %", _fit("circle", "max_distance")),
    "circle_speed_spread": Metric("spread of the speed", _fit("circle", "speed_spread")),
    "circle_gap": Metric("gap that the curve leaves open, degrees", _fit("circle", "gap")),
    "sphere_log_density": Metric("log-density of test rows per steradian, mass 1", _fit("sphere", "log_density")),
    "sphere_kernel_log_density": Metric("… of von Mises–Fisher kernels", _fit("sphere", "kernel_log_density")),
    "sphere_uniform_log_density": Metric("… of the uniform density", _fit("sphere", "uniform_log_density")),
    "sphere_kernel_degrees": Metric("width of those kernels, degrees", _fit("sphere", "kernel_degrees")),
    "sphere_mass": Metric("mass of the learned density over the sphere", _fit("sphere", "mass")),
    "sphere_sample_distance": Metric("mean distance of samples to the sphere", _fit("sphere", "sample_distance")),
}
"""All metrics by name, in the order in which they are shown. Those of samples have a floor: what real data reach."""


def evaluate_run(
    run: SavedRun,
    samples: int | None = None,
    seed: int = 0,
    most: int = MOST_ROWS,
    *,
    network: FeatureNetwork | None = None,
    console: Console | None = None,
) -> dict[str, Any]:
    """Every metric of :data:`METRICS` that applies to a run, as plain numbers; the arguments are those of :class:`Subject`.

    Raises:
        TooFewRowsError: there are fewer than 10 test rows.
    """
    subject = Subject(run, samples, seed, most, network, console)
    for name, value in (("rows", most), ("samples", subject.count)):
        if value < 1:
            raise ValueError(f"expected a positive number of {name}; got {value}")
    if subject.images:
        check_amount(subject.count, "-n")
    if len(subject.test) < _LEAST_ROWS:
        raise TooFewRowsError(
            f"expected at least {_LEAST_ROWS} test rows to evaluate on; got {len(subject.test)}. "
            + ("Give more --rows" if most < _LEAST_ROWS else "Train with a larger --test-fraction, or on more rows")
        )
    numbers: dict[str, Any] = {"test_rows": len(subject.test)}
    for name, metric in METRICS.items():
        if (found := metric.measure(subject)) is not None:
            numbers |= found.named(name)
    compared = subject.count if not subject.images else subject.quality.n if subject.quality is not None else 0
    return {**numbers, "samples": compared, "seed": seed}


def keep_evaluation(run: SavedRun, numbers: dict[str, Any]) -> None:
    """Write the numbers to the run folder."""
    write_atomically(run.path / EVALUATION, json.dumps(numbers, indent=1) + "\n")
