"""How good a model is, on rows that training never saw: one table of metrics, each with what real data reach."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from rich.console import Console
from torch import Tensor

from ..data.rows import take
from ..manifold import RectangularFlow, Scores
from ..metrics.arrays import Array
from ..metrics.coverage import LEVELS, Coverage, coverage, truth_of, uniform_distance
from ..metrics.frechet import fid_like
from ..metrics.geometry import CircleFit, circle_fit
from ..metrics.image_quality import ImageQuality
from ..metrics.inception import FeatureNetwork
from ..metrics.sphere import SphereFit, sphere_fit
from ..metrics.two_sample import classifier_two_sample, equally_many, sliced_wasserstein
from ..runs.saved import EVALUATION, SavedRun
from ..storage.files import write_atomically
from ..storage.texts import as_json
from .images import SAMPLES, check_amount, quality_of

MOST_ROWS, TABLE_SAMPLES = 50_000, 50_000
_COMPARED = 10_000  # most samples and rows that a classifier or a sliced distance compares, equally many of each
_LEAST_ROWS = 10
_KERNEL_ROWS, _KERNEL_CENTRES = 5_000, 20_000


class TooFewRowsError(ValueError):
    """There are too few test rows to evaluate on."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A run under evaluation: what the metrics share, each computed once, when it is first asked for."""

    run: SavedRun
    count: int
    """Samples to draw."""
    seed: int
    """Of the draws."""
    most: int
    """Test rows, and training rows for the floor."""
    network: FeatureNetwork | None
    """For the features of images; None for nothing that needs them."""
    console: Console | None
    """Shows the progress."""

    @property
    def images(self) -> bool:
        """Whether the run is on images."""
        return self.run.flow.kind == "image"

    @cached_property
    def test(self) -> Tensor:
        """The test rows."""
        return take(self.run.data.test, slice(self.most), dtype=self.run.flow.row_dtype)

    @cached_property
    def train(self) -> Tensor:
        """The training rows."""
        return take(self.run.data.train, slice(self.most), dtype=self.run.flow.row_dtype)

    @cached_property
    def scores(self) -> Scores:
        """Of the test rows."""
        return self.run.flow.score(self.test)

    @cached_property
    def samples(self) -> Tensor:
        """Drawn from the model."""
        return self.run.flow.sample(self.count, generator=torch.Generator().manual_seed(self.seed))

    @cached_property
    def standardised(self) -> list[Array]:
        """Samples, test rows and training rows of a table, in deviations of the columns."""
        flow, sets = self.run.flow, [self.samples, self.test, self.train]
        if flow.periodic is not None:  # as pairs, whose distances know of the period
            sets = [flow.to_model_units(rows) for rows in sets]
        scale = np.asarray(sets[-1].double().std(dim=0))
        return [np.asarray(rows.double()) / scale for rows in sets]

    @cached_property
    def equally_many(self) -> list[Array]:
        """The same, as many of each."""
        samples, *others = self.standardised
        return equally_many(samples[:_COMPARED], *others, seed=self.seed)

    @cached_property
    def quality(self) -> ImageQuality | None:
        """Of samples of images; None for tables, and without the network."""
        if not self.images or self.network is None:
            return None
        return quality_of(self.run, self.network, self.count, seed=self.seed, console=self.console)

    @cached_property
    def circle(self) -> CircleFit | None:
        """The fit to the known truth, for a curve trained on the circle."""
        flow, known = self.run.flow, self.run.settings.data.data == "circle" and self.run.flow.latent_dim == 1
        return circle_fit(flow) if known and isinstance(flow, RectangularFlow) else None

    @cached_property
    def coverage(self) -> Coverage | None:
        """The model beside the truth, where that is known."""
        flow = self.run.flow
        if not isinstance(flow, RectangularFlow):
            return None
        truth = truth_of(self.run.settings.data.data, flow)
        return None if truth is None else coverage(flow, truth, self.test, self.seed)

    @cached_property
    def sphere(self) -> SphereFit | None:
        """The fit on the sphere, for a surface trained on latitudes and longitudes."""
        flow, validation = self.run.flow, self.run.data.validation
        if not self.run.settings.data.sphere or flow.latent_dim != 2 or not len(validation):
            return None
        some = take(validation, slice(_KERNEL_ROWS), dtype=flow.row_dtype)
        return sphere_fit(flow, self.train[:_KERNEL_CENTRES], some, self.test[:_KERNEL_ROWS], self.samples)


@dataclass(frozen=True)
class Metric:
    """One metric: its label, and what it makes of a run.

    That is the value under "", what real data reach against real data under "_floor", standard errors of both under
    "_standard_error" and "_floor_standard_error"; nothing where it does not apply.
    """

    label: str
    measure: Callable[[Subject], dict[str, float]]


def _scored(name: str, sign: int, subject: Subject) -> dict[str, float]:
    """The mean of a score of the test rows; in the model's units of images only."""
    if name.startswith("model_") and not subject.images:
        return {}
    return {"": sign * float(getattr(subject.scores, name).double().mean())}


def _distance(between: Callable[[Array, Array, int], float], all_rows: bool, subject: Subject) -> dict[str, float]:
    """Between samples and test rows of a table; its floor, between training rows and the same test rows.

    With ``all_rows`` it is between all of them, as the paper's tables have it; otherwise between equally many.
    """
    if subject.images:
        return {}
    samples, test, train = subject.standardised if all_rows else subject.equally_many
    return {"": between(samples, test, subject.seed), "_floor": between(train, test, subject.seed)}


def _image(name: str, subject: Subject) -> dict[str, float]:
    """Of the features of sampled and real images."""
    numbers = {} if subject.quality is None else subject.quality.numbers()
    return {key.removeprefix(name): value for key, value in numbers.items() if key.startswith(name)}


def _fit(truth: str, name: str, subject: Subject) -> dict[str, float]:
    """Of the fit to a known truth, 'circle' or 'sphere'."""
    fit = getattr(subject, truth)
    return {} if fit is None else {"": getattr(fit, name)}


def _coverage(nominal: float, subject: Subject) -> dict[str, float]:
    """The share of test rows in the model's region of highest density, and in the truth's."""
    found = subject.coverage
    if found is None:
        return {}
    error = found.standard_error(nominal)
    shares = {"": found.share(nominal), "_floor": found.true_share(nominal)}
    return {**shares, "_standard_error": error, "_floor_standard_error": error}


def _transforms(subject: Subject) -> dict[str, float]:
    """How far probability integral transforms are from uniform: the largest of all coordinates, of samples and test rows."""
    found = subject.coverage
    if found is None:
        return {}
    parts = {"": found.uniforms, "_floor": found.true_uniforms}
    return {name: max(uniform_distance(column) for column in values.T) for name, values in parts.items()}


def _true_distance(subject: Subject) -> dict[str, float]:
    return {} if subject.coverage is None else {"": float(subject.coverage.distances.mean())}


_CIRCLE = {
    "kl": "KL(true‖model) on the circle",
    "sector_kl": "KL(true‖model) of sectors",
    "total_variation": "total variation on the circle",
    "mass": "mass of the curve",
    "mean_distance": "mean distance of the curve to the circle",
    "max_distance": "largest distance, central 99 %",
    "speed_spread": "spread of the speed",
    "gap": "gap that the curve leaves open, degrees",
}
_SPHERE = {
    "log_density": "log-density of test rows per steradian, mass 1",
    "kernel_log_density": "… of von Mises–Fisher kernels",
    "uniform_log_density": "… of the uniform density",
    "kernel_degrees": "width of those kernels, degrees",
    "mass": "mass of the learned density over the sphere",
    "sample_distance": "mean distance of samples to the sphere",
}
METRICS: dict[str, Metric] = {
    "negative_log_likelihood": Metric("negative log-likelihood of the projections", partial(_scored, "log_prob", -1)),
    "reconstruction_error": Metric("reconstruction error", partial(_scored, "squared_distance", 1)),
    "model_negative_log_likelihood": Metric("… likelihood in model units", partial(_scored, "model_log_prob", -1)),
    "model_reconstruction_error": Metric("… error in model units", partial(_scored, "model_squared_distance", 1)),
    "fid_like": Metric(
        "FID-like score of samples (standardised columns)", partial(_distance, lambda x, y, seed: fid_like(x, y), True)
    ),
    "sliced_wasserstein": Metric(
        "squared sliced Wasserstein-2 distance",
        partial(_distance, lambda x, y, seed: sliced_wasserstein(x, y, seed=seed), False),
    ),
    "c2st": Metric(
        "accuracy of a classifier, samples on the manifold or data (0.5: none)",
        partial(_distance, lambda x, y, seed: classifier_two_sample(x, y, seed=seed), False),
    ),
    "fid": Metric("FID of samples", partial(_image, "fid")),
    "kid": Metric("KID of samples", partial(_image, "kid")),
    "precision": Metric("precision: samples that lie where real images do", partial(_image, "precision")),
    "recall": Metric("recall: real images that lie where samples do", partial(_image, "recall")),
    **{f"circle_{name}": Metric(label, partial(_fit, "circle", name)) for name, label in _CIRCLE.items()},
    **{f"sphere_{name}": Metric(label, partial(_fit, "sphere", name)) for name, label in _SPHERE.items()},
    **{
        f"coverage_{100 * level:.0f}": Metric(
            f"test rows in the region of highest density of {level:.0%}", partial(_coverage, level)
        )
        for level in LEVELS
    },
    "integral_transform": Metric("samples by the truth: largest deviation from uniform", _transforms),
    "true_distance": Metric("mean distance of samples to the true manifold", _true_distance),
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
    """Every metric of :data:`METRICS` that applies to a run, as plain numbers; see :class:`Subject` for the arguments.

    Raises:
        TooFewRowsError: there are fewer than 10 test rows.
    """
    if samples is None:
        samples = SAMPLES if run.flow.kind == "image" else TABLE_SAMPLES
    subject = Subject(run, samples, seed, most, network, console)
    for name, value in (("rows", most), ("samples", samples)):
        if value < 1:
            raise ValueError(f"expected a positive number of {name}; got {value}")
    if subject.images:
        check_amount(samples, "-n")
    if len(subject.test) < _LEAST_ROWS:
        raise TooFewRowsError(
            f"expected at least {_LEAST_ROWS} test rows to evaluate on; got {len(subject.test)}. "
            + ("Give more --rows" if most < _LEAST_ROWS else "Train with a larger --test-fraction, or on more rows")
        )
    numbers: dict[str, Any] = {"test_rows": len(subject.test)}
    for name, metric in METRICS.items():
        numbers |= {name + part: value for part, value in metric.measure(subject).items()}
    if subject.images:
        samples = subject.quality.n if subject.quality is not None else 0
    return {**numbers, "samples": samples, "seed": seed}


def keep_evaluation(run: SavedRun, numbers: dict[str, Any]) -> None:
    """Write the numbers to the run folder."""
    write_atomically(run.path / EVALUATION, as_json(numbers))
