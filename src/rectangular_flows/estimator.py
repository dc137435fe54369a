"""Rectangular flows by scikit-learn's conventions: a transformer with a density, and an outlier detector."""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, OutlierMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted, validate_data
from torch import Tensor

from .data.rows import shuffled
from .data.tables import check_spread, spread_of
from .errors import OverflowWarning, warn
from .evaluation.explain import Explanation, explain
from .evaluation.measure import measure
from .evaluation.scores import SCORES, calibrate, score_rows
from .evaluation.verdict import Verdict
from .flows.spaces import Space
from .manifold import RectangularFlow
from .runs.build import build_flow
from .runs.calibration import Calibration
from .settings import DEFAULT_PRESET, FitSettings, read_preset
from .storage.models import load_model, read_description, save_model
from .training import fit
from .training.setup import threads_for

Array = NDArray[Any]
_FITTED = "estimator"
_GIVEN = (
    *("latent_space", "layers", "hidden", "latent", "beta", "target_error", "volume", "probes"),
    *("epochs", "batch_size", "learning_rate", "patience", "time", "dtype", "device"),
)
_SUMMARY_ROWS = 2_000  # held-out rows kept for it
_AUTO_SHARE = 0.01  # of usual rows that contamination = "auto" lets be called outliers


def validation_rows(rows: int) -> int:
    """How many of so many rows are held out: a tenth, and up to a fifth where that makes fewer than 200."""
    return max(rows // 10, min(rows // 5, 200))


# dataclasses, because these write the constructor that scikit-learn reads the parameters from; also that of a subclass
@dataclass(kw_only=True, eq=False, repr=False)
class RectangularFlowEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A low-dimensional manifold in a table, the density on it, and coordinates of every row.

    Densities are with respect to the manifold's own length, area or volume, in the units of X; see
    :class:`~rectangular_flows.RectangularFlow`.

    Args:
        latent_dim: d, the dimension of the manifold, from 1 to the number of columns; or "auto", the smallest that keeps
            95 % of the variance of rows held out.
        latent_space: what the manifold is an image of, if it closes up: "circle", "torus:2", "sphere", "line*circle", …; its
            dimension is then d. None: a plane.
        layers: couplings of the ambient flow.
        hidden: widths of the network of each coupling.
        latent: the latent density: "auto" (a mixture for few rows, splines for many), "spline", "autoregressive",
            "realnvp", "mixture", "affine" or "identity".
        beta: weight of the squared reconstruction error, in standardised units; with a target_error, its first value.
        target_error: mean squared reconstruction error to meet, in standardised units; beta then adapts. "auto": little
            more than what the manifold reaches without the likelihood. None: beta stays as it is.
        volume: "exact" or "stochastic" gradient of the log-volume.
        probes: random tangents for each row, if stochastic.
        epochs: passes over the data; "auto": by the number of rows.
        batch_size: rows a step.
        learning_rate: peak of the cosine schedule.
        patience: stop after this many epochs without a better objective on the validation rows; "auto": after a fifth of
            all; None trains to the end.
        validation_fraction: share of the rows that chooses the best weights and calibrates the outlier score; "auto": a
            tenth, and up to a fifth where that makes fewer than 200 rows.
        time: seconds that fit may take, if epochs is "auto"; None: as long as it needs.
        dtype: "float32" or "float64".
        device: "auto", "cpu", "cuda", …
        random_state: a seed, a NumPy RandomState, or None.
        verbose: whether to show progress.

    Attributes:
        flow_: the trained :class:`~rectangular_flows.RectangularFlow`.
        history_: one dictionary for each validation.
        calibration_: the scores of held-out rows, for the outlier score.
        latent_dim_: d.
        n_features_in_: D.
        data_frame_: whether ``fit`` was given a pandas DataFrame; ``sample`` then gives one.

    Example:
        >>> import numpy as np
        >>> angle = np.random.default_rng(0).normal(size=200)
        >>> X = np.stack([np.cos(angle), np.sin(angle), 0.1 * angle], axis=1)
        >>> est = RectangularFlowEstimator(latent_dim=1, epochs=2, random_state=0).fit(X)
        >>> est.transform(X).shape, est.score_samples(X).shape, est.sample(5).shape
        ((200, 1), (200,), (5, 3))
    """

    latent_dim: int | Literal["auto"] = "auto"
    latent_space: str | None = None
    layers: int = 5
    hidden: tuple[int, ...] = (64, 64)
    latent: str = "auto"
    beta: float = 50.0
    target_error: float | Literal["auto"] | None = "auto"
    volume: Literal["exact", "stochastic"] = "exact"
    probes: int = 1
    epochs: int | Literal["auto"] = "auto"
    batch_size: int = 250
    learning_rate: float = 6e-3
    patience: int | Literal["auto"] | None = "auto"
    validation_fraction: float | Literal["auto"] = "auto"
    time: float | None = None
    dtype: Literal["float32", "float64"] = "float32"
    device: str = "auto"
    random_state: Any = None
    verbose: bool = False

    flow_: RectangularFlow = field(init=False)
    history_: list[dict[str, Any]] = field(init=False)
    calibration_: Calibration | None = field(init=False)
    latent_dim_: int = field(init=False)
    n_features_in_: int = field(init=False)
    feature_names_in_: Array = field(init=False)
    _verdict: Verdict | None = field(init=False)
    _held_out: Tensor | None = field(init=False)
    _trained_on: int | None = field(init=False)
    data_frame_: bool = field(init=False)

    # --- fitting

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Learn the manifold and the density from the rows of X, (N, D). y is not used."""
        rows = self._rows(X, reset=True)
        share = self.validation_fraction
        if share != "auto" and (isinstance(share, str) or not 0 < share < 1):
            raise ValueError(f"expected 0 < validation_fraction < 1, or 'auto'; got {share!r}")
        seed = int(check_random_state(self.random_state).randint(2**31))
        self.latent_dim_ = self._dimension(rows, seed)
        order = shuffled(len(rows), seed)
        held_out = max(1, validation_rows(len(rows)) if isinstance(share, str) else round(share * len(rows)))
        validation, train = rows[order[:held_out]], rows[order[held_out:].sort().values]
        if len(train) <= self.latent_dim_:
            raise ValueError(
                f"expected more rows to train on than latent_dim = {self.latent_dim_}; got n_samples = {len(rows)}, of "
                f"which {held_out} validate. Give more rows, or a smaller latent_dim"
            )
        settings = self._settings(seed, self.latent_dim_)
        names = getattr(self, "feature_names_in_", ())
        flow = build_flow(
            settings.model,
            train,
            seed,
            start_latent=not settings.training.start_latent,
            dtype=getattr(torch, self.dtype),
            columns=[str(name) for name in names],
        )
        with self._display() as display, threads_for(flow, settings.training.batch_size):
            run = fit(
                flow,
                train,
                settings.training,
                validation=validation if len(validation) > 1 else train,
                on_step=display.on_step,
                on_epoch=display.on_epoch,
            )
        self.flow_, self.data_frame_ = flow, _is_frame(X)
        self.history_ = [line.flat() for line in run.history]
        self.calibration_ = calibrate(flow, validation, train)
        self._verdict, self._held_out, self._trained_on = None, validation[:_SUMMARY_ROWS], len(train)
        return self

    def _settings(self, seed: int, latent_dim: int) -> FitSettings:
        """Those of ``rnf fit``, and in their place what the estimator was given."""
        given = {name: _plain(getattr(self, name)) for name in _GIVEN}
        if (self.volume, self.probes) == ("exact", 1):  # its default, which says nothing
            del given["probes"]
        given |= {"latent_dim": latent_dim, "seed": seed}
        return FitSettings.from_flat(given, read_preset(DEFAULT_PRESET))

    def _display(self) -> Any:
        from rich.console import Console

        from .runs.display import TrainingDisplay

        return TrainingDisplay(Console(stderr=True), type(self).__name__, quiet=not self.verbose)

    def _dimension(self, rows: Tensor, seed: int) -> int:
        columns = rows.shape[1]
        if self.latent_dim == "auto" and self.latent_space is not None:
            return Space.of(self.latent_space).dimension
        if self.latent_dim == "auto":
            from .runs.dimension import choose_dimension

            return choose_dimension(self._settings(seed, 1).model, rows, seed, getattr(torch, self.dtype)).value
        if not isinstance(self.latent_dim, int | np.integer) or not 1 <= self.latent_dim <= columns:
            raise ValueError(
                f"expected latent_dim from 1 to the number of columns, or 'auto'; got {self.latent_dim!r} with "
                f"n_features = {columns}"
            )
        return int(self.latent_dim)

    def _rows(self, X: ArrayLike, reset: bool = False) -> Tensor:
        """In float64: training and scoring round them, having looked at them."""
        if not reset:
            check_is_fitted(self)
        refuse_masked(X, "X")
        values = validate_data(self, X, reset=reset, dtype=np.float64, ensure_min_samples=2 if reset else 1)
        if reset:
            constant = np.flatnonzero(values.max(axis=0) == values.min(axis=0))
            if len(constant):
                raise ValueError(f"columns {constant.tolist()} of X are constant; drop them: they have no density")
            check_spread(spread_of(values, values[0]), self._names, "X")
        return torch.from_numpy(np.array(values))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[no-untyped-call]
        tags.transformer_tags.preserves_dtype = []
        tags.non_deterministic = False
        return tags

    # --- the manifold

    @property
    def _n_features_out(self) -> int:
        return self.flow_.latent.features

    def transform(self, X: ArrayLike) -> Array:
        """Coordinates on the manifold, z = f†(x), (N, D) → (N, d); of a sphere those of unit vectors.

        Rows where f† overflows have NaN, with a warning.
        """
        found = self._apply("encode", self._rows(X))
        lost = ~np.isfinite(found).all(axis=1)
        if lost.any():
            found[lost] = np.nan
            text = f"{int(lost.sum())} of {len(found)} rows are so far from the data that they have no coordinates"
            warn(OverflowWarning, f"{text}: they are NaN")
        return found

    def inverse_transform(self, Z: ArrayLike) -> Any:
        """Points of the manifold, f(z), (N, d) → (N, D); a DataFrame for a DataFrame."""
        check_is_fitted(self)
        points = self._apply("decode", self._coordinates(Z))
        return _frame(points, self._names, Z.index) if _is_frame(Z) else points  # type: ignore[union-attr]

    def reconstruction_error(self, X: ArrayLike) -> Array:
        """Squared distance of every row from its projection, in the units of X, (N,); infinite where that overflows."""
        return np.nan_to_num(self._apply("reconstruction_error", self._rows(X)), nan=np.inf, posinf=np.inf)

    def _coordinates(self, Z: ArrayLike) -> Tensor:
        """Coordinates on the manifold, checked."""
        refuse_masked(Z, "Z")
        values = check_array(Z, dtype=np.float64, input_name="Z", ensure_min_samples=0)
        if values.shape[1] != self._n_features_out:
            raise ValueError(f"expected Z of {self._n_features_out} columns, the coordinates; got {values.shape[1]}")
        return torch.from_numpy(np.array(values))

    @torch.no_grad()
    def _apply(self, method: str, rows: Tensor) -> Array:
        """A method of the flow, on batches of rows."""
        rows = rows.to(self.flow_.device, self.flow_.dtype)
        parts = [getattr(self.flow_, method)(part) for part in rows.split(self.flow_.rows_at_once())]
        return torch.cat(parts).cpu().numpy()

    # --- the density

    def scores(self, X: ArrayLike, *names: str) -> dict[str, Array]:
        """Scores of every row by name, (N,) each, out of one pass over the rows.

        Args:
            X: (N, D).
            names: of :data:`rectangular_flows.evaluation.scores.SCORES`; all that apply unless given.
        """
        rows = self._rows(X)
        found, calibration = score_rows(self.flow_, rows, check=True), self.calibration_
        usual = [name for name, score in SCORES.items() if score.applies(self.flow_, calibration)]
        return {name: SCORES[name](found, calibration) for name in names or usual}

    def score_samples(self, X: ArrayLike) -> Array:
        """Log-density of the projection of every row, (N,)."""
        return self.scores(X, "log_density")["log_density"]

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Mean log-density of the rows themselves in all columns, in the units of X.

        It is comparable across latent dimensions, weights of the reconstruction error and networks, and across other
        libraries' densities; so grid search and cross-validation choose by it.
        """
        return float(self.scores(X, "log_density_ambient")["log_density_ambient"].mean())

    def explain(self, X: ArrayLike) -> Any:
        """Why rows are unusual: what each column adds to the outlier score, in nats, and the nearest typical point.

        Returns:
            An :class:`~rectangular_flows.evaluation.explain.Explanation`, with arrays ``score`` (N,), ``contributions``,
            ``nearest`` and ``difference`` (N, D). For a DataFrame, a DataFrame with the columns ``outlier_score``,
            ``why_COLUMN``, ``nearest_COLUMN`` and ``difference_COLUMN``.

        Raises:
            ValueError: the model has no density in all columns: version 0.1 made it.
        """
        found: Explanation = explain(self.flow_, self.calibration_, self._rows(X), self._names)
        if not _is_frame(X):
            return found
        columns = {"outlier_score": found.score, **found.table(difference=True)}
        return _frame(np.stack(list(columns.values()), axis=1), list(columns), X.index)  # type: ignore[union-attr]

    def sample(self, n_samples: int = 1, random_state: Any = None, *, scatter: bool | None = None) -> Any:
        """New rows, (n_samples, D); a DataFrame if ``fit`` was given one.

        Args:
            n_samples: how many.
            random_state: of the draws; the estimator's unless given.
            scatter: whether rows scatter around the manifold as data do, drawn from the density in all columns, or lie
                exactly on it; None: they scatter, if the model has such a density.
        """
        check_is_fitted(self)
        state = check_random_state(self.random_state if random_state is None else random_state)
        generator = torch.Generator().manual_seed(int(state.randint(2**31)))
        scatter = self.flow_.scatter is not None if scatter is None else scatter
        rows = self.flow_.sample(n_samples, generator=generator, scatter=scatter).cpu().numpy()
        return _frame(rows, self._names) if self.data_frame_ else rows

    @property
    def _names(self) -> list[str]:
        """Of the columns: x1, x2, … where X had none."""
        names = getattr(self, "feature_names_in_", None)
        return [f"x{i + 1}" for i in range(self.n_features_in_)] if names is None else [str(name) for name in names]

    def summary(self, X: ArrayLike | None = None) -> Verdict:
        """What the fit is worth: numbers beside those of plain methods, and one or two sentences; print it.

        Args:
            X: rows that ``fit`` has not seen, (N, D); by default those that it held out to choose the best weights.

        Raises:
            ValueError: no rows, in an estimator that was saved without a summary.
        """
        check_is_fitted(self)
        if X is None and self._verdict is not None:
            return self._verdict
        rows = self._held_out if X is None else self._rows(X)
        if rows is None:
            raise ValueError(
                "this estimator was saved without a summary, and its rows are not kept. Give rows of your own: summary(X); "
                "or call summary() before save()"
            )
        if self.calibration_ is None or self.calibration_.reference is None:
            raise ValueError("an estimator of version 0.1 does not keep what a summary needs; fit it again")
        flow, names = self.flow_, getattr(self, "feature_names_in_", ())
        reference = self.calibration_.reference[: self._trained_on]  # of few rows, those held out are known as well
        known = flow.to_data_units(torch.from_numpy(reference).to(flow.device, flow.dtype))
        found = measure(flow, known, rows, [str(name) for name in names], count=self._trained_on)
        if X is None:
            self._verdict = found
        return found

    # --- keeping

    def save(self, folder: str | Path) -> None:
        """Write the fitted estimator to a folder, without any pickle; :meth:`load` reads it."""
        check_is_fitted(self)
        parameters = {name: _plain(value) for name, value in self.get_params().items()}  # type: ignore[no-untyped-call]
        try:
            json.dumps(parameters)
        except TypeError:
            parameters["random_state"] = None
        names = getattr(self, "feature_names_in_", None)
        fitted = {
            "parameters": parameters,
            "n_features_in": self.n_features_in_,
            "feature_names_in": None if names is None else [str(name) for name in names],
            "data_frame": self.data_frame_,
            "history": self.history_,
            "calibration": None if self.calibration_ is None else self.calibration_.listed(),
            "train_rows": self._trained_on,
            "verdict": None if self._verdict is None else self._verdict.numbers(),
            **self._facts(),
        }
        save_model(self.flow_, folder, **{_FITTED: fitted})

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """The estimator that :meth:`save` wrote."""
        fitted = read_description(folder)["facts"].get(_FITTED)
        if fitted is None:
            raise ValueError(f"{folder} holds a model, but not an estimator; load it with rectangular_flows.load")
        parameters: dict[str, Any] = {
            name: tuple(v) if isinstance(v, list) else v for name, v in fitted["parameters"].items()
        }
        unknown = sorted(set(parameters) - set(inspect.signature(cls).parameters))
        if unknown:
            raise ValueError(
                f"another kind of estimator was saved in {folder}: {cls.__name__} has no {', '.join(unknown)}"
            )
        estimator = cls(**parameters)
        estimator.flow_ = load_model(folder)
        estimator.latent_dim_ = estimator.flow_.latent_dim
        estimator.n_features_in_ = fitted["n_features_in"]
        if fitted["feature_names_in"] is not None:
            estimator.feature_names_in_ = np.array(fitted["feature_names_in"], dtype=object)
        estimator.data_frame_ = fitted.get("data_frame", False)
        estimator.history_ = fitted["history"]
        estimator.calibration_ = Calibration.of_estimator(fitted)
        kept = fitted.get("verdict")
        estimator._verdict = None if kept is None else Verdict.from_numbers(kept)
        estimator._held_out, estimator._trained_on = None, fitted.get("train_rows")
        estimator._take_facts(fitted)
        return estimator

    def _facts(self) -> dict[str, Any]:
        return {}

    def _take_facts(self, fitted: dict[str, Any]) -> None:
        pass


def refuse_masked(X: Any, name: str) -> None:
    """Refuse a masked array with masked entries, whose mask would be lost."""
    if isinstance(X, np.ma.MaskedArray) and np.ma.getmaskarray(X).any():
        raise ValueError(
            f"{name} is a masked array with {int(np.ma.getmaskarray(X).sum())} masked entries, which count as missing. Drop "
            "those rows, or fill them in"
        )


def _is_frame(X: Any) -> bool:
    """Whether it is a pandas DataFrame; pandas is not imported for this."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(X, pandas.DataFrame)


def _frame(values: Array, columns: list[str], index: Any = None) -> Any:
    """As a DataFrame; as it is where pandas is not installed."""
    try:
        pandas = importlib.import_module("pandas")
    except ImportError:
        return values
    return pandas.DataFrame(values, index=index, columns=columns)


def _plain(value: Any) -> Any:
    """As JSON has it."""
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    return value.item() if isinstance(value, np.generic) else value


@dataclass(kw_only=True, eq=False, repr=False)
class RectangularFlowOutlierDetector(OutlierMixin, RectangularFlowEstimator):
    """Rows that do not belong: unlikely under the density in all columns, or far from every known row.

    ``score_samples`` is here minus the outlier score of ``rnf score``, from tail probabilities among rows that were held
    out of training (see :class:`~rectangular_flows.runs.calibration.Calibration`); the log-density on the manifold alone
    is :meth:`log_density`.

    Args:
        contamination: the share of new rows like those of ``fit`` that ``predict`` calls outliers, from 0 to 0.5. It is a
            promise about rows that the model has not seen; of the rows of ``fit`` themselves, somewhat fewer exceed the
            threshold. 0 calls those outliers that are more unusual than every known row; "auto" is 0.01.
        settings: every other argument of :class:`RectangularFlowEstimator`.

    Attributes:
        offset_: ``decision_function`` is ``score_samples`` less this.

    Example:
        >>> import numpy as np
        >>> X = np.random.default_rng(0).normal(size=(200, 3)) * [1, 1, 0.01]
        >>> detector = RectangularFlowOutlierDetector(latent_dim=2, epochs=2, random_state=0).fit(X)
        >>> detector.predict([[0.0, 0.0, 5.0]])
        array([-1])
    """

    contamination: float | Literal["auto"] = 0.1
    offset_: float = field(init=False)

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Learn what is usual from the rows of X, and the threshold that calls ``contamination`` of them outliers."""
        share = _AUTO_SHARE if self.contamination == "auto" else self.contamination
        if isinstance(share, str) or not 0 <= share <= 0.5:
            raise ValueError(f"expected 0 ≤ contamination ≤ 0.5, or 'auto'; got {self.contamination!r}")
        super().fit(X, y)
        if self.calibration_ is None:
            raise ValueError("no row has a finite density under the model: check the data for extreme values")
        self.offset_ = -self.calibration_.threshold(share)
        return self

    def p_value(self, X: ArrayLike) -> Array:
        """Share of usual rows that are at least as unusual as each row, (N,): conformal p-values."""
        return self.scores(X, "p_value")["p_value"]

    def log_density(self, X: ArrayLike) -> Array:
        """Log-density of the projection of every row, (N,)."""
        return super().score_samples(X)

    def score_samples(self, X: ArrayLike) -> Array:
        """The higher, the more usual, (N,)."""
        return -self.scores(X, "outlier_score")["outlier_score"]

    def decision_function(self, X: ArrayLike) -> Array:
        """Negative for outliers, (N,)."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: ArrayLike) -> Array:
        """−1 for outliers and 1 for the others, (N,)."""
        return np.where(self.decision_function(X) < 0, -1, 1)

    def _facts(self) -> dict[str, Any]:
        return {"offset": self.offset_}

    def _take_facts(self, fitted: dict[str, Any]) -> None:
        if "offset" not in fitted:
            raise ValueError(
                "a plain RectangularFlowEstimator was saved there; load it with RectangularFlowEstimator.load"
            )
        self.offset_ = fitted["offset"]
