"""What is usual for a model: the scores of rows that were held out of training, and a p-value for every other row."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import ArrayLike

from ..manifold import Scores
from ..metrics.arrays import Array
from ..metrics.out_of_distribution import CombinedScore, Tail
from ..storage.files import pack_tensors, unpack_tensors
from ..storage.manifest import commit, read_files
from ..storage.models import CALIBRATION as FILE
from ..storage.models import WEIGHTS

# which of a row's scores the two are, by the names under which they are kept: those of version 0.1 are in data units
_MODEL = {"model_log_prob": "model_log_prob", "model_squared_distance": "model_squared_distance"}
_DATA = {"log_density": "log_prob", "reconstruction_error": "squared_distance"}


_ROWS = {"ambient": "smooth_log_prob", "distance": "neighbour_distance", "reference": "reference_rows"}
NEIGHBOUR = 3  # whose distance says how far a row is from all known ones
REFERENCE_ROWS = 5_000
_FOLDS = 50  # most parts in which held-out rows are left out of their own tails


@dataclass(frozen=True, eq=False)
class Calibration:
    """The scores of held-out rows that say what is usual.

    The outlier score of a row is the larger of two −log tail probabilities among these rows: that of its smooth log-density
    in R^D (which leaves out how often single values occur), and that of its distance from the nearest known rows, both in
    the model's units:

        s(x) = max(−log P̂(log p ≤ log p(x)), −log P̂(δ ≥ δ(x))).

    Where there is no density in R^D (models of images, and models of version 0.1), it is Fisher's combination of the
    log-density on the manifold and the squared distance from it: see
    :class:`~rectangular_flows.metrics.out_of_distribution.CombinedScore`.

    Attributes:
        log_density: of the projections, (N,).
        squared_distance: from the manifold, (N,).
        model_units: whether both are in the model's units; those of version 0.1 are in the units of the data.
        ambient: smooth log-densities in R^D, (N,), or None.
        distance: from the third nearest of the reference rows, (N,), or None.
        reference: rows that were trained on, in the model's units, (R, D), or None.
    """

    log_density: Array
    squared_distance: Array
    model_units: bool = True
    ambient: Array | None = None
    distance: Array | None = None
    reference: Array | None = None

    @classmethod
    def of(cls, scores: Scores, reference: Array | None = None, distance: Array | None = None) -> Calibration:
        """From the scores of held-out rows, without those that are not finite.

        Args:
            scores: of the rows.
            reference: rows that were trained on, in the model's units.
            distance: of the rows from the reference rows, if these are not to be computed because they share rows.
        """
        names = [*_MODEL, *(() if reference is None else ("smooth_log_prob",))]
        values = np.stack([np.asarray(getattr(scores, name), dtype=np.float64) for name in names])
        if reference is not None:
            if distance is None:
                distance = neighbour_distance(reference, scores.model_rows.double().numpy())
            values = np.concatenate([values, distance[None]])
        values = values[:, np.isfinite(values).all(axis=0)]
        return cls(values[0], values[1], True, *values[2:], *(() if reference is None else (reference,)))

    @classmethod
    def from_kept(cls, kept: Mapping[str, ArrayLike]) -> Calibration:
        """The inverse of :meth:`kept`; also takes what version 0.1 kept."""
        model_units = set(_MODEL) <= set(kept)
        density, distance = (np.asarray(kept[name], dtype=np.float64) for name in (_MODEL if model_units else _DATA))
        more = {key: np.asarray(kept[name], dtype=np.float64) for key, name in _ROWS.items() if name in kept}
        return cls(density, distance, model_units, **more)

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
        more = {name: getattr(self, key) for key, name in _ROWS.items() if getattr(self, key) is not None}
        return {**dict(zip(names, (self.log_density, self.squared_distance), strict=True)), **more}

    def listed(self) -> dict[str, list[float]]:
        """The same as JSON has it."""
        return {name: values.tolist() for name, values in self.kept().items()}

    def save(self, folder: Path) -> None:
        """Keep it with the model that is in the folder; it counts no more when that changes."""
        content = pack_tensors({name: torch.from_numpy(values) for name, values in self.kept().items()})
        commit(folder, {FILE: content}, made_from=(WEIGHTS,))

    @classmethod
    def load(cls, folder: Path) -> Calibration | None:
        """What :meth:`save` kept; None where there is nothing, or fewer than two rows."""
        return cls.from_files(read_files(folder, (FILE,)), folder)

    @classmethod
    def from_files(cls, files: Mapping[str, bytes], folder: Path) -> Calibration | None:
        """The same from the content of the files that were read from a folder."""
        found = cls.from_kept(unpack_tensors(files[FILE], folder / FILE)) if FILE in files else None
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

    # --- the outlier score

    def tails(self, scores: Scores) -> dict[str, Array]:
        """The two parts of the outlier score of other rows by name, (N,) each: −log of a tail probability."""
        if self.reference is None or self.ambient is None or self.distance is None:
            density, squared = self.pair(scores)
            return {
                "log_density": -Tail(-self.log_density)(-density),
                "distance": -Tail(self.squared_distance)(squared),
            }
        return self.ambient_tails(scores.smooth_log_prob.double().numpy(), scores.model_rows.double().numpy())

    def ambient_tails(self, ambient: Array, model_rows: Array) -> dict[str, Array]:
        """The same from log-densities in R^D, (N,), and the rows in the model's units, (N, D)."""
        return _tails(self._laws, ambient, self._neighbours(model_rows))

    @cached_property
    def _laws(self) -> tuple[Tail, Tail]:
        if self.ambient is None or self.distance is None:
            raise ValueError("this calibration has no density in R^D")
        return Tail(-self.ambient), Tail(self.distance)

    def __getstate__(self) -> dict[str, Any]:
        """Without what was remembered of rows, which cannot be pickled."""
        return {name: value for name, value in vars(self).items() if name != "_found"}

    def outlier_score(self, scores: Scores) -> Array:
        """How unusual other rows are, (N,): the larger, the more. It is computed once, since the p-value needs it too."""
        if scores not in self._found:
            unusual = np.asarray(
                -self.combined(*self.pair(scores))
                if self.reference is None
                else np.maximum(*self.tails(scores).values())
            )
            unusual.flags.writeable = False  # several may have it
            self._found[scores] = unusual
        return self._found[scores]

    @cached_property
    def _found(self) -> WeakKeyDictionary[Scores, Array]:
        """The outlier scores of rows, as long as somebody has the scores they come from."""
        return WeakKeyDictionary()

    @cached_property
    def usual(self) -> Array:
        """Outlier scores of the held-out rows, rising, each by the tails of others, as it is for a new row.

        By tails to which it belongs, a row would look more usual than a new one like it.
        """
        if self.ambient is None or self.distance is None:
            values, score = (self.log_density, self.squared_distance), _combined
        else:
            values, score = (self.ambient, self.distance), _larger_tail
        count = len(values[0])
        if count < 3:  # two are needed for a tail
            return np.sort(score(values, values)) if count else np.zeros(0)
        folds, found = np.arange(count) % min(count, _FOLDS), np.empty(count)
        for fold in range(folds.max() + 1):
            mine = folds == fold
            found[mine] = score((values[0][~mine], values[1][~mine]), (values[0][mine], values[1][mine]))
        return np.sort(found)

    def p_value(self, outlier_score: Array) -> Array:
        r"""Conformal p-values of outlier scores, (N,).

        .. math:: p = (1 + \#\{i : s_i \ge s\}) / (n + 1)

        Of rows like the held-out ones, a share of at most α has p ≤ α on average, whatever the model is. This would be exact
        for a fixed score; here the tails come from the same rows, and :attr:`usual` leaves each one out of its own.

        Reference: Vovk, Gammerman & Shafer, Algorithmic learning in a random world (2005).
        """
        above = len(self.usual) - np.searchsorted(self.usual, outlier_score, side="left")
        return np.asarray((1 + above) / (len(self.usual) + 1), dtype=np.float64)

    def threshold(self, share: float) -> float:
        """The outlier score above which at most a share of usual rows lies: scores above it have p ≤ share."""
        count = len(self.usual)
        if not count:
            raise ValueError("no row held out of training has a finite score: check the data for extreme values")
        least = math.floor(share * (count + 1) + 1e-9)  # usual rows that may lie at or above, and the row itself
        if least > count:
            return -math.inf
        return float(self.usual[count - max(least, 1)])  # with none: rows more unusual than every known one

    def _neighbours(self, rows: Array) -> Array:
        distance = np.full(len(rows), np.inf)
        finite = np.isfinite(rows).all(axis=1) & (np.abs(rows) < _LARGEST).all(axis=1)
        if finite.any():
            search = self._search
            distance[finite] = search.kneighbors(rows[finite])[0][:, -1]
        return distance

    @cached_property
    def _search(self) -> Any:
        return _search(self.reference)


def _tails(laws: tuple[Tail, Tail], ambient: Array, distance: Array) -> dict[str, Array]:
    unlikely = np.where(np.isnan(ambient), np.inf, -ambient)
    return {"ambient": -laws[0](unlikely), "neighbours": -laws[1](distance)}


def _larger_tail(known: tuple[Array, Array], other: tuple[Array, Array]) -> Array:
    """The outlier score of other rows from the log-densities in R^D and distances of known ones."""
    larger: Array = np.maximum(*_tails((Tail(-known[0]), Tail(known[1])), *other).values())
    return larger


def _combined(known: tuple[Array, Array], other: tuple[Array, Array]) -> Array:
    """The same from densities on the manifold and squared distances from it."""
    return -CombinedScore(*known)(*other)


_LARGEST = 1e150  # whose square is a number


def neighbour_distance(reference: Array, rows: Array, *, themselves: bool = False) -> Array:
    """Distance of rows from the third nearest reference row, (N,).

    Args:
        reference: (R, D).
        rows: (N, D).
        themselves: whether the rows are the reference rows, of which each is to leave out itself.
    """
    search = _search(reference, 1 if themselves else 0)
    found: Array = search.kneighbors(rows)[0][:, -1]
    return found


def _search(reference: Any, more: int = 0) -> Any:
    from sklearn.neighbors import NearestNeighbors

    return NearestNeighbors(n_neighbors=min(NEIGHBOUR + more, len(reference))).fit(reference)
