"""Rectangular flows by scikit-learn's conventions: a transformer with a density."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from .data.rows import shuffled
from .manifold import RectangularFlow
from .runs.build import build_flow
from .settings import DEFAULT_PRESET, FitSettings, read_preset
from .storage.models import load_model, read_description, save_model
from .training import fit
from .training.setup import threads_for

Array = NDArray[Any]
_FITTED = "estimator"
_GIVEN = (
    *("layers", "hidden", "latent", "beta", "target_error", "volume", "probes"),
    *("epochs", "batch_size", "learning_rate", "patience", "dtype", "device"),
)


class RectangularFlowEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A low-dimensional manifold in a table, the density on it, and coordinates of every row.

    Densities are with respect to the manifold's own length, area or volume, in the units of X; see
    :class:`~rectangular_flows.RectangularFlow`.

    Args:
        latent_dim: d, the dimension of the manifold, from 1 to the number of columns; or "auto", by the intrinsic
            dimension of the data.
        layers: couplings of f̃.
        hidden: widths of the network of each coupling.
        latent: h: "spline", "autoregressive", "realnvp", "mixture", "affine" or "identity".
        beta: weight of the squared reconstruction error, in standardised units.
        target_error: mean squared reconstruction error to meet, in standardised units; beta then adapts.
        volume: "exact" or "stochastic" gradient of the log-volume.
        probes: random tangents for each row, if stochastic.
        epochs: passes over the data; "auto": by the number of rows, some 3,000 steps.
        batch_size: rows a step.
        learning_rate: peak of the cosine schedule.
        patience: stop after so many epochs without a better objective on the validation rows; None trains to the end.
        validation_fraction: share of the rows that chooses the best weights.
        dtype: "float32" or "float64".
        device: "auto", "cpu", "cuda", …
        random_state: a seed, a NumPy RandomState, or None.
        verbose: whether to show progress.

    Attributes:
        flow_: the trained :class:`~rectangular_flows.RectangularFlow`.
        history_: one dictionary a validation.
        latent_dim_: d.
        n_features_in_: D.

    Example:
        >>> import numpy as np
        >>> angle = np.random.default_rng(0).normal(size=200)
        >>> X = np.stack([np.cos(angle), np.sin(angle), 0.1 * angle], axis=1)
        >>> est = RectangularFlowEstimator(latent_dim=1, epochs=2, random_state=0).fit(X)
        >>> est.transform(X).shape, est.score_samples(X).shape, est.sample(5).shape
        ((200, 1), (200,), (5, 3))
    """

    n_features_in_: int
    feature_names_in_: Array
    history_: list[dict[str, Any]]

    def __init__(
        self,
        *,
        latent_dim: int | Literal["auto"] = 2,
        layers: int = 6,
        hidden: tuple[int, ...] = (64, 64),
        latent: str = "spline",
        beta: float = 50.0,
        target_error: float | None = None,
        volume: Literal["exact", "stochastic"] = "exact",
        probes: int = 1,
        epochs: int | Literal["auto"] = "auto",
        batch_size: int = 500,
        learning_rate: float = 2e-3,
        patience: int | None = None,
        validation_fraction: float = 0.1,
        dtype: Literal["float32", "float64"] = "float32",
        device: str = "auto",
        random_state: Any = None,
        verbose: bool = False,
    ):
        self.latent_dim = latent_dim
        self.layers = layers
        self.hidden = hidden
        self.latent = latent
        self.beta = beta
        self.target_error = target_error
        self.volume = volume
        self.probes = probes
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.dtype = dtype
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    # --- fitting

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Learn the manifold and the density from the rows of X, (N, D). y is not used."""
        rows = self._rows(X, reset=True)
        if not 0 < self.validation_fraction < 1:
            raise ValueError(f"expected 0 < validation_fraction < 1; got {self.validation_fraction}")
        self.latent_dim_ = self._dimension(rows)
        seed = int(check_random_state(self.random_state).randint(2**31))
        order = shuffled(len(rows), seed)
        held_out = max(1, round(self.validation_fraction * len(rows)))
        validation, train = rows[order[:held_out]], rows[order[held_out:].sort().values]
        if len(train) <= self.latent_dim_:
            raise ValueError(
                f"expected more rows to train on than latent_dim = {self.latent_dim_}; got n_samples = {len(rows)}, of "
                f"which {held_out} validate. Give more rows, or a smaller latent_dim"
            )
        settings = self._settings(seed)
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
        self.flow_ = flow
        self.history_ = [line.flat() for line in run.history]
        self._judge(validation if len(validation) >= 20 else rows)
        return self

    def _settings(self, seed: int) -> FitSettings:
        """Those of ``rnf fit``, and in their place what the estimator was given."""
        given = {name: _plain(getattr(self, name)) for name in _GIVEN}
        if (self.volume, self.probes) == ("exact", 1):  # its default, which says nothing
            del given["probes"]
        given |= {"latent_dim": self.latent_dim_, "seed": seed}
        return FitSettings.from_flat(given, read_preset(DEFAULT_PRESET))

    def _display(self) -> Any:
        from rich.console import Console

        from .runs.display import TrainingDisplay

        return TrainingDisplay(Console(stderr=True), type(self).__name__, quiet=not self.verbose)

    def _dimension(self, rows: Tensor) -> int:
        columns = rows.shape[1]
        if self.latent_dim == "auto":
            from .metrics.dimension import estimate_dimension

            return estimate_dimension(rows.numpy()).suggestion if columns > 1 else 1
        if not isinstance(self.latent_dim, int | np.integer) or not 1 <= self.latent_dim <= columns:
            raise ValueError(
                f"expected latent_dim from 1 to the number of columns, or 'auto'; got {self.latent_dim!r} with "
                f"n_features = {columns}"
            )
        return int(self.latent_dim)

    def _rows(self, X: ArrayLike, reset: bool = False) -> Tensor:
        if not reset:
            check_is_fitted(self)
        least = 2 if reset else 1
        values = validate_data(self, X, reset=reset, dtype=np.float64, ensure_min_samples=least)
        if reset:
            constant = np.flatnonzero(values.max(axis=0) == values.min(axis=0))
            if len(constant):
                raise ValueError(f"columns {constant.tolist()} of X are constant; drop them: they have no density")
        rows = torch.from_numpy(np.array(values))
        return (
            rows if reset else rows.to(getattr(torch, self.dtype))
        )  # training rounds them itself, having looked at them

    def _judge(self, rows: Tensor) -> None:
        """What a subclass learns about rows it did not train on."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[no-untyped-call]
        tags.transformer_tags.preserves_dtype = []
        tags.non_deterministic = False
        return tags

    # --- the manifold

    @property
    def _n_features_out(self) -> int:
        return self.latent_dim_

    def transform(self, X: ArrayLike) -> Array:
        """Coordinates on the manifold, z = f†(x), (N, D) → (N, d)."""
        return self._apply(self._flow.encode, X)

    def inverse_transform(self, Z: ArrayLike) -> Array:
        """Points of the manifold, f(z), (N, d) → (N, D)."""
        flow = self._flow
        z = torch.from_numpy(np.array(Z, dtype=np.float64)).to(getattr(torch, self.dtype))
        with torch.no_grad():
            return flow.decode(z.to(_device(flow))).cpu().numpy()

    def reconstruction_error(self, X: ArrayLike) -> Array:
        """Squared distance of every row from its projection, in the units of X, (N,)."""
        return self._apply(self._flow.reconstruction_error, X)

    # --- the density

    def score_samples(self, X: ArrayLike) -> Array:
        """Log-density of the projection of every row, (N,)."""
        return self._apply(self._flow.log_prob, X)

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Minus the training objective, in standardised units: log-density less beta times the squared distance."""
        flow, rows = self._flow, self._rows(X).to(_device(self._flow))
        with torch.no_grad():
            units = flow.to_model_units(rows)
            error = flow.in_model_units.reconstruction_error(units)
            return float((flow.in_model_units.log_prob(units) - self.beta * error).mean())

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Array:
        """New rows, (n_samples, D); by ``random_state``, or else by the estimator's."""
        flow = self._flow
        state = check_random_state(self.random_state if random_state is None else random_state)
        generator = torch.Generator().manual_seed(int(state.randint(2**31)))
        return flow.sample(n_samples, generator=generator).cpu().numpy()

    @property
    def _flow(self) -> RectangularFlow:
        check_is_fitted(self)
        return self.flow_

    def _apply(self, function: Any, X: ArrayLike) -> Array:
        return self._over(function, self._rows(X))

    def _over(self, function: Any, rows: Tensor) -> Array:
        rows = rows.to(_device(self.flow_))
        with torch.no_grad():
            parts = [function(part) for part in rows.split(self.flow_.rows_at_once())]
        return torch.cat(parts).cpu().numpy()

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
            "history": self.history_,
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
        estimator.history_ = fitted["history"]
        estimator._take_facts(fitted)
        return estimator

    def _facts(self) -> dict[str, Any]:
        return {}

    def _take_facts(self, fitted: dict[str, Any]) -> None:
        pass


def _plain(value: Any) -> Any:
    """As JSON has it."""
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    return value.item() if isinstance(value, np.generic) else value


def _device(flow: RectangularFlow) -> torch.device:
    return next(flow.parameters()).device


__all__ = ["RectangularFlowEstimator"]
