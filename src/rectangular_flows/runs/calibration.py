"""What is usual for a model: the log-densities and distances of rows that were held out of training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from ..manifold import Scores
from ..metrics.arrays import Array
from ..metrics.out_of_distribution import CombinedScore
from ..storage.files import load_tensors, save_tensors

FILE = "calibration.safetensors"
# which of a row's scores the two are, by the names under which they are kept: those of version 0.1 are in data units
_MODEL = {"model_log_prob": "model_log_prob", "model_squared_distance": "model_squared_distance"}
_DATA = {"log_density": "log_prob", "reconstruction_error": "squared_distance"}


@dataclass(frozen=True, eq=False)
class Calibration:
    """The two scores of held-out rows that say what is usual.

    Attributes:
        log_density: of the projections, (N,).
        squared_distance: from the manifold, (N,).
        model_units: whether both are in the model's units; those of version 0.1 are in the units of the data.
    """

    log_density: Array
    squared_distance: Array
    model_units: bool = True

    @classmethod
    def of(cls, scores: Scores) -> Calibration:
        """From the scores of held-out rows, without those that are not finite."""
        pair = np.stack([np.asarray(getattr(scores, name), dtype=np.float64) for name in _MODEL])
        return cls(*pair[:, np.isfinite(pair).all(axis=0)])

    @classmethod
    def from_kept(cls, kept: Mapping[str, ArrayLike]) -> Calibration:
        """The inverse of :meth:`kept`; also takes what version 0.1 kept."""
        model_units = set(_MODEL) <= set(kept)
        density, distance = (np.asarray(kept[name], dtype=np.float64) for name in (_MODEL if model_units else _DATA))
        return cls(density, distance, model_units)

    @classmethod
    def of_estimator(cls, fitted: Mapping[str, Any]) -> Calibration | None:
        """From what a saved estimator kept with its model; None where that is nothing."""
        if "usual" in fitted:  # an outlier detector of version 0.1
            return cls.from_kept(dict(zip(_DATA, fitted["usual"], strict=True)))
        kept = fitted.get("calibration")
        return None if kept is None else cls.from_kept(kept)

    def kept(self) -> dict[str, Array]:
        """By names that say which units they are in."""
        names = _MODEL if self.model_units else _DATA
        return dict(zip(names, (self.log_density, self.squared_distance), strict=True))

    def listed(self) -> dict[str, list[float]]:
        """The same as JSON has it."""
        return {name: values.tolist() for name, values in self.kept().items()}

    def save(self, folder: Path) -> None:
        """Keep it with the model."""
        save_tensors(folder / FILE, {name: torch.from_numpy(values) for name, values in self.kept().items()})

    @classmethod
    def load(cls, folder: Path) -> Calibration | None:
        """What :meth:`save` kept; None where there is nothing, or fewer than two rows."""
        found = cls.from_kept(load_tensors(folder / FILE)) if (folder / FILE).exists() else None
        return found if found is not None and len(found.log_density) > 1 else None

    def pair(self, scores: Scores) -> tuple[Array, Array]:
        """Log-density and squared distance of other rows, in the units of the calibration."""
        names = (_MODEL if self.model_units else _DATA).values()
        log_density, distance = (getattr(scores, name).double().numpy() for name in names)
        return log_density, distance

    @cached_property
    def combined(self) -> CombinedScore:
        """Both as one score."""
        return CombinedScore(self.log_density, self.squared_distance)
