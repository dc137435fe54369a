"""The verdict on a fit: numbers that stand beside what plain methods reach on the same rows; all in the model's units.

:func:`~.measure.measure` computes them, :mod:`.judgement` says what they mean, :mod:`.verdict_text` puts them into words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from math import nan
from typing import Any

ENOUGH = 20  # held-out rows, below which nothing is judged


@dataclass(frozen=True)
class Kept:
    """How much of the variance of held-out rows the manifold keeps."""

    share: float
    standard_error: float
    pca: float
    """What as many principal components keep of the same rows, fitted on training rows."""
    against_pca: float
    """Squared error over that of PCA; below 1 is better."""
    against_pca_error: float
    against_training: float
    """Squared error over that of training rows."""
    columns: dict[str, float]
    """The share of every column, of tables."""
    pca_95: int
    """Principal components that keep 95 % of the variance of training rows."""


@dataclass(frozen=True)
class Samples:
    """Samples with scatter against held-out rows, equally many; columns in deviations."""

    rows: int
    wasserstein: float
    wasserstein_floor: float
    wasserstein_mixture: float
    classifier: float
    classifier_floor: float
    classifier_mixture: float
    standard_error: float
    """Of an accuracy."""


@dataclass(frozen=True)
class Density:
    """Mean log-density in all columns of held-out rows, nats, in the units of the data."""

    model: float
    standard_error: float
    mixture: float
    gaussian: float
    over_mixture_error: float
    """Standard error of model − mixture, row by row."""
    train: float
    """Of the model, for training rows."""


@dataclass(frozen=True)
class Shape:
    """Whether the manifold lies where the data do: its own samples, without scatter, beside the data."""

    pieces: int
    sample_pieces: int
    between: float
    """Share of samples far from every row, though amid the data."""
    beyond: float
    """Share of samples far from every row, outside of the data."""
    floor: float
    """Share of held-out rows that are far from every training row."""
    torn: float
    """Share of nearest rows between which the manifold leads elsewhere."""
    samples: int
    dimension: float
    """The intrinsic dimension of the data by nearest neighbours."""
    dimension_gaussian: float
    """The same estimate for a Gaussian with the covariance of the data: less than D, by its bias."""
    planes: float = nan
    """Share of the variance of held-out rows that planes of d dimensions through their neighbours lose."""
    planes_of_noise: float = nan
    """Share of noise around the manifold, as large as the usual error, that such planes lose."""


@dataclass(frozen=True)
class Numerics:
    """The round trip z → f(z) → z, relative, and the ratio of the singular values of J."""

    round_trip: float
    round_trip_worst: float
    round_trip_missed: float
    """Share of rows beyond the tolerance of the precision."""
    condition: float
    condition_worst: float
    precision: str


_PARTS: dict[str, Any] = {"kept": Kept, "samples": Samples, "density": Density, "shape": Shape, "numerics": Numerics}


@dataclass(frozen=True)
class Verdict:
    """The numbers of a fit. ``str()`` of it is the text that the commands print.

    Attributes:
        latent_dim: d.
        ambient_dim: D.
        train: rows that the model was trained on.
        held_out: rows held out that were used, of tests or validation; below 20 nothing is judged and the parts are None.
        kind: "table" or "image".
        kept: of the variance.
        samples: against data; None for images, and models without a density in R^D.
        density: in R^D; None for the same.
        shape: of the manifold; None for images.
        numerics: round trip and conditioning.
        charts: of the model.
        angles: whether some columns are angles, which have one chart.
        finished: whether training was; what is judged may else be its start.
        rounded: columns with few distinct values: samples are rounded to these before they are compared.
        swamped: columns whose scale is that of a few values far out, so that the model sees the others as one.
    """

    latent_dim: int
    ambient_dim: int
    train: int
    held_out: int
    kind: str = "table"
    kept: Kept | None = None
    samples: Samples | None = None
    density: Density | None = None
    shape: Shape | None = None
    numerics: Numerics | None = None
    rounded: tuple[str, ...] = ()
    swamped: tuple[str, ...] = ()
    charts: int = 1
    angles: bool = False
    finished: bool = True

    @property
    def faults(self) -> list[Any]:
        """What is wrong, the gravest first: :class:`~.judgement.Fault` each."""
        from .judgement import faults

        return faults(self)

    @property
    def good(self) -> bool | None:
        """Whether nothing is wrong; None where there were too few rows to tell."""
        return not self.faults if self.kept is not None else None

    @property
    def sentences(self) -> str:
        """The verdict in one or two sentences."""
        from .verdict_text import sentences

        return sentences(self)

    def __str__(self) -> str:
        from .verdict_text import text

        return text(self)

    def numbers(self) -> dict[str, Any]:
        """All numbers and the judgement, as JSON has them; :meth:`from_numbers` reads them."""
        own: dict[str, Any] = {name: value for name, value in asdict(self).items() if value is not None}
        own |= {"rounded": list(self.rounded), "swamped": list(self.swamped)}
        return {**own, "good": self.good, "faults": [fault.name for fault in self.faults], "text": self.sentences}

    @classmethod
    def from_numbers(cls, numbers: Mapping[str, Any]) -> Verdict:
        """What :meth:`numbers` wrote."""
        known = {f.name: numbers[f.name] for f in fields(cls) if f.name in numbers}
        parts = {name: part(**_numbers(known[name])) for name, part in _PARTS.items() if name in known}
        names = {name: tuple(known.get(name, ())) for name in ("rounded", "swamped")}
        return cls(**{**known, **parts, **names})


def _numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    """With NaN where a file has null, since JSON has no NaN."""
    return {
        name: _numbers(value) if isinstance(value, Mapping) else nan if value is None else value
        for name, value in values.items()
    }
