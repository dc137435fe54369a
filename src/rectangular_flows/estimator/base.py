"""A rectangular flow by scikit-learn's conventions: a transformer with a density."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted, validate_data
from torch import Tensor

from ..atlas import Atlas, Model
from ..data.columns import UsedColumns, WholeTable
from ..data.discrete import Levels
from ..data.tables import check_spread, spread_of
from ..errors import OverflowWarning, warn
from ..evaluation.explain import Explanation, explain
from ..evaluation.left_out import Broken
from ..evaluation.measure import measure
from ..evaluation.scores import SCORES, calibrate, score_rows
from ..evaluation.verdict import Verdict
from ..runs.build import build_flow, without_reconstruction
from ..runs.calibration import Calibration
from ..training import fit
from ..training.setup import threads_for
from .fitting import check_rows, dimension_of, periodic_of, settings_of, split_rows, used_in, with_charts
from .frames import Array, as_frame, given_type, is_frame, refuse_dates, refuse_masked
from .saving import load_estimator, save_estimator

_SUMMARY_ROWS = 2_000  # held-out rows kept for it


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
        periodic: columns that are angles, by name or position from 1, each with its period: ["wind:degrees", "hour:24"],
            {"wind": 360, "hour": 24}, "all" or "all:radians". Without a period, 360 or 2π is guessed from the values.
        charts: flows that cover the data together, each a part of them, for separate pieces and closed surfaces; "auto":
            as many as the data need. With more than one, flow_ is an :class:`~rectangular_flows.Atlas`.
        layers: couplings of the ambient flow.
        hidden: widths of the network of each coupling.
        latent: the latent density: "auto" (a mixture for few rows, splines for many), "spline", "autoregressive",
            "realnvp", "mixture", "affine" or "identity".
        beta: weight of the squared reconstruction error, in standardised units; with a target_error, its first value.
        target_error: mean squared reconstruction error to meet, in standardised units; beta then adapts. "auto": little
            more than what the manifold reaches without the likelihood. None: beta stays as it is.
        volume: gradient of the log-volume: "auto" (the cheapest that adds next to nothing to the variance of the gradient),
            "exact" or "stochastic".
        probes: random tangents for each row, if stochastic.
        epochs: passes over the data; "auto": by the number of rows.
        batch_size: rows a step.
        learning_rate: peak of the cosine schedule; "auto": 0.01, and less for more than a hundred columns.
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
    periodic: str | Sequence[str | int] | Mapping[str, float | str] | None = None
    charts: int | Literal["auto"] = 1
    layers: int = 5
    hidden: tuple[int, ...] = (64, 64)
    latent: str = "auto"
    beta: float = 50.0
    target_error: float | Literal["auto"] | None = "auto"
    volume: Literal["auto", "exact", "stochastic"] = "auto"
    probes: int = 1
    epochs: int | Literal["auto"] = "auto"
    batch_size: int = 250
    learning_rate: float | Literal["auto"] = "auto"
    patience: int | Literal["auto"] | None = "auto"
    validation_fraction: float | Literal["auto"] = "auto"
    time: float | None = None
    dtype: Literal["float32", "float64"] = "float32"
    device: str = "auto"
    random_state: Any = None
    verbose: bool = False

    flow_: Model = field(init=False)
    history_: list[dict[str, Any]] = field(init=False)
    calibration_: Calibration | None = field(init=False)
    latent_dim_: int = field(init=False)
    n_features_in_: int = field(init=False)
    feature_names_in_: Array = field(init=False)
    _verdict: Verdict | None = field(init=False)
    _held_out: Tensor | None = field(init=False)
    _trained_on: int | None = field(init=False)
    data_frame_: bool = field(init=False)
    _used: UsedColumns = field(init=False)
    _levels: Levels = field(init=False)

    # --- fitting

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Learn the manifold and the density from the rows of X, (N, D). y is not used."""
        values, share = self._values(X, reset=True), self.validation_fraction
        if share != "auto" and (isinstance(share, str) or not 0 < share < 1):
            raise ValueError(f"expected 0 < validation_fraction < 1, or 'auto'; got {share!r}")
        seed = int(check_random_state(self.random_state).randint(2**31))
        kept, held_out = split_rows(len(values), share, seed)
        self._used = used_in(values[kept], self._names, bool(self.periodic))  # those of all rows may not vary in these
        rows, train, validation = (self._as_rows(part) for part in (values, values[kept], values[held_out]))
        periodic = periodic_of(self, rows, self._used_names)
        self.latent_dim_ = dimension_of(self, rows, seed, periodic)
        check_rows(len(train), len(rows), self.latent_dim_)
        self._levels = Levels.of(self._used.pick(values[kept]), {found.column for found in periodic})
        settings = settings_of(self, seed, self.latent_dim_)
        if periodic:
            whole = without_reconstruction(settings.training, self.latent_dim_, rows.shape[1])
            settings = replace(settings, training=whole)
        settings = with_charts(settings, train, seed, periodic)
        flow = build_flow(
            settings.model,
            train,
            seed,
            start_latent=not settings.training.start_latent,
            dtype=getattr(torch, self.dtype),
            columns=self._used_names if hasattr(self, "feature_names_in_") else (),
            periodic=periodic,
            given=given_type(X),
        )
        with self._display() as display, threads_for(flow, settings.training.batch_size):
            run = fit(
                flow,
                train,
                settings.training,
                validation=validation if len(validation) > 1 else train,
                on_step=display.on_step,
                on_epoch=display.on_epoch,
                on_scatter=display.on_scatter,
            )
        self.flow_, self.data_frame_ = flow, is_frame(X)
        self.history_ = [line.flat() for line in run.history]
        self.calibration_ = calibrate(flow, validation, train)
        self._verdict, self._held_out, self._trained_on = None, validation[:_SUMMARY_ROWS], len(train)
        return self

    def _display(self) -> Any:
        from rich.console import Console

        from ..runs.display import TrainingDisplay

        return TrainingDisplay(Console(stderr=True), type(self).__name__, quiet=not self.verbose)

    def _rows(self, X: ArrayLike) -> Tensor:
        """The columns that the model sees, in float64: training and scoring round them, having looked at them."""
        return self._as_rows(self._values(X))

    def _as_rows(self, values: Array) -> Tensor:
        return torch.from_numpy(np.array(self._used.pick(values), order="C"))

    def _values(self, X: ArrayLike, reset: bool = False) -> Array:
        """All columns, checked."""
        if not reset:
            check_is_fitted(self)
        refuse_masked(X, "X")
        refuse_dates(X)
        values: Array = validate_data(self, X, reset=reset, dtype=np.float64, ensure_min_samples=2 if reset else 1)
        if reset:
            check_spread(spread_of(values, values[0]), self._names, "X")
        return values

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[no-untyped-call]
        tags.transformer_tags.preserves_dtype = []
        tags.non_deterministic = False
        return tags

    # --- the manifold

    @property
    def _n_features_out(self) -> int:
        return self.flow_.charts[0].latent.features + isinstance(self.flow_, Atlas)

    def transform(self, X: ArrayLike) -> Array:
        """Coordinates on the manifold, z = f†(x), (N, D) → (N, d); of a sphere those of unit vectors.

        With several charts, the first column is the number of the chart, from 0. Rows where f† overflows have NaN, with a
        warning.
        """
        found = self._apply(self._encode, self._rows(X).to(self.flow_.row_dtype))
        lost = ~np.isfinite(found).all(axis=1)
        if lost.any():
            found[lost] = np.nan
            text = f"{int(lost.sum())} of {len(found)} rows are so far from the data that they have no coordinates"
            warn(OverflowWarning, f"{text}: they are NaN")
        return found

    def inverse_transform(self, Z: ArrayLike) -> Any:
        """Points of the manifold, f(z), (N, d) → (N, D); a DataFrame for a DataFrame."""
        check_is_fitted(self)
        points = self._used.restore(self._apply(self._decode, self._coordinates(Z).to(self.flow_.dtype)))
        return as_frame(points, self._names, Z.index) if is_frame(Z) else points  # type: ignore[union-attr]

    def reconstruction_error(self, X: ArrayLike) -> Array:
        """Squared distance of every row from its projection, in the units of X, (N,); infinite where that overflows."""
        values = self._values(X)
        found = self._apply(self.flow_.reconstruction_error, self._as_rows(values).to(self.flow_.row_dtype))
        return np.nan_to_num(found + self._broken(values, X).error, nan=np.inf, posinf=np.inf)

    def _coordinates(self, Z: ArrayLike) -> Tensor:
        """Coordinates on the manifold, checked."""
        refuse_masked(Z, "Z")
        values = check_array(Z, dtype=np.float64, input_name="Z", ensure_min_samples=0)
        if values.shape[1] != self._n_features_out:
            raise ValueError(f"expected Z of {self._n_features_out} columns, the coordinates; got {values.shape[1]}")
        charts = len(self.flow_.charts)
        if isinstance(self.flow_, Atlas) and not np.isin(values[:, 0], np.arange(charts)).all():
            raise ValueError(f"expected the number of a chart, from 0 to {charts - 1}, in the first column of Z")
        return torch.from_numpy(np.array(values))

    def _encode(self, rows: Tensor) -> Tensor:
        """Coordinates; before them, of an atlas, the number of the chart."""
        if not isinstance(self.flow_, Atlas):
            return self.flow_.encode(rows)
        chart, z = self.flow_.encode(rows)
        return torch.cat((chart[:, None].to(z.dtype), z), dim=1)

    def _decode(self, z: Tensor) -> Tensor:
        """The inverse of :meth:`_encode`."""
        flow = self.flow_
        return flow.decode(z[:, 0].long(), z[:, 1:]) if isinstance(flow, Atlas) else flow.decode(z)

    @torch.no_grad()
    def _apply(self, function: Callable[[Tensor], Tensor], rows: Tensor) -> Array:
        """A function of the flow, on batches of rows."""
        rows = rows.to(self.flow_.device)
        return torch.cat([function(part) for part in rows.split(self.flow_.rows_at_once())]).cpu().numpy()

    # --- the density

    def scores(self, X: ArrayLike, *names: str) -> dict[str, Array]:
        """Scores of every row by name, (N,) each, out of one pass over the rows.

        Args:
            X: (N, D).
            names: of :data:`rectangular_flows.evaluation.scores.SCORES`; all that apply unless given.
        """
        values, calibration = self._values(X), self.calibration_
        found = score_rows(self.flow_, self._as_rows(values), check=True)
        usual = [name for name, score in SCORES.items() if score.applies(self.flow_, calibration)]
        scores = {name: SCORES[name](found, calibration) for name in names or usual}
        unusual = calibration.outlier_score(found) if "p_value" in scores and calibration is not None else None
        return self._broken(values, X).added(scores, calibration, unusual)

    def _broken(self, values: Array, X: ArrayLike) -> Broken:
        kind = given_type(X)  # in which the rows have lost digits that the columns left out have
        values = values if kind is None else values.astype(str(kind).removeprefix("torch."))
        return Broken(WholeTable(tuple(self._names), self._used, self._trained_on or 0), values)

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
        values = self._values(X)
        found: Explanation = explain(self.flow_, self.calibration_, self._as_rows(values), self._used_names)
        found = self._broken(values, X).explained(found, self.calibration_)
        if not is_frame(X):
            return found
        columns = {"outlier_score": found.score, **found.table(difference=True)}
        return as_frame(np.stack(list(columns.values()), axis=1), list(columns), X.index)  # type: ignore[union-attr]

    def sample(
        self,
        n_samples: int = 1,
        random_state: Any = None,
        *,
        scatter: bool | None = None,
        rounded: bool | None = None,
    ) -> Any:
        """New rows, (n_samples, D); a DataFrame if ``fit`` was given one.

        Args:
            n_samples: how many.
            random_state: of the draws; the estimator's unless given.
            scatter: whether rows scatter around the manifold as data do, drawn from the density in all columns, or lie
                exactly on it; None: they scatter, if the model has such a density.
            rounded: whether columns with few distinct values in X take the nearest of these; None: if they scatter.
        """
        check_is_fitted(self)
        state = check_random_state(self.random_state if random_state is None else random_state)
        generator = torch.Generator().manual_seed(int(state.randint(2**31)))
        scatter = self.flow_.scatter is not None if scatter is None else scatter
        drawn = self.flow_.sample(n_samples, generator=generator, scatter=scatter).cpu().numpy()
        levels = getattr(self, "_levels", Levels())  # of a version that did not know them, where it was pickled
        rows = self._used.restore(levels.nearest(drawn) if (scatter if rounded is None else rounded) else drawn)
        return as_frame(rows, self._names) if self.data_frame_ else rows

    @property
    def _names(self) -> list[str]:
        """Of the columns: x1, x2, … where X had none."""
        names = getattr(self, "feature_names_in_", None)
        return [f"x{i + 1}" for i in range(self.n_features_in_)] if names is None else [str(name) for name in names]

    @property
    def _used_names(self) -> list[str]:
        """Of the columns that the model sees."""
        return [self._names[i] for i in self._used.kept]

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
        flow, names = self.flow_, self._used_names if hasattr(self, "feature_names_in_") else ()
        reference = self.calibration_.reference[: self._trained_on]  # of few rows, those held out are known as well
        known = flow.to_data_units(torch.from_numpy(reference).to(flow.device, flow.row_dtype))
        found = measure(flow, known, rows, names, count=self._trained_on)
        if X is None:
            self._verdict = found
        return found

    # --- keeping

    def save(self, folder: str | Path) -> None:
        """Write the fitted estimator to a folder, without any pickle; :meth:`load` reads it."""
        save_estimator(self, folder)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """The estimator that :meth:`save` wrote."""
        return load_estimator(cls, folder)

    def _facts(self) -> dict[str, Any]:
        """What a subclass saves beside."""
        return {}

    def _take_facts(self, fitted: dict[str, Any]) -> None:
        """The inverse of :meth:`_facts`."""
