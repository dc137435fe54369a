"""A fitted estimator on disk: its model, its parameters, and what fitting found."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..data.columns import UsedColumns
from ..data.discrete import Levels
from ..evaluation.verdict import Verdict
from ..runs.calibration import Calibration
from ..storage.models import load_model, read_description, save_model
from .fitting import plain

if TYPE_CHECKING:
    from .base import RectangularFlowEstimator

_FITTED = "estimator"
_E = TypeVar("_E", bound="RectangularFlowEstimator")


def save_estimator(estimator: RectangularFlowEstimator, folder: str | Path) -> None:
    """Write a fitted estimator to a folder, without any pickle."""
    check_is_fitted(estimator)
    parameters = {name: plain(value) for name, value in estimator.get_params().items()}  # type: ignore[no-untyped-call]
    try:
        json.dumps(parameters)
    except TypeError:
        parameters["random_state"] = None
    names = getattr(estimator, "feature_names_in_", None)
    fitted = {
        "parameters": parameters,
        "n_features_in": estimator.n_features_in_,
        "feature_names_in": None if names is None else [str(name) for name in names],
        "data_frame": estimator.data_frame_,
        "used": estimator._used.listed(),
        "levels": getattr(estimator, "_levels", Levels()).listed(),
        "history": estimator.history_,
        "calibration": None if estimator.calibration_ is None else estimator.calibration_.listed(),
        "train_rows": estimator._trained_on,
        "verdict": None if estimator._verdict is None else estimator._verdict.numbers(),
        **estimator._facts(),
    }
    save_model(estimator.flow_, folder, **{_FITTED: fitted})


def load_estimator(cls: type[_E], folder: str | Path) -> _E:
    """The estimator that :func:`save_estimator` wrote."""
    fitted = read_description(folder)["facts"].get(_FITTED)
    if fitted is None:
        raise ValueError(f"{folder} holds a model, but not an estimator; load it with rectangular_flows.load")
    parameters: dict[str, Any] = {
        name: tuple(v) if isinstance(v, list) else v for name, v in fitted["parameters"].items()
    }
    unknown = sorted(set(parameters) - set(inspect.signature(cls).parameters))
    if unknown:
        raise ValueError(f"another kind of estimator was saved in {folder}: {cls.__name__} has no {', '.join(unknown)}")
    estimator = cls(**parameters)
    estimator.flow_ = load_model(folder)
    estimator.latent_dim_ = estimator.flow_.latent_dim
    estimator.n_features_in_ = fitted["n_features_in"]
    if fitted["feature_names_in"] is not None:
        estimator.feature_names_in_ = np.array(fitted["feature_names_in"], dtype=object)
    estimator.data_frame_ = fitted.get("data_frame", False)
    used = fitted.get("used", {"count": estimator.n_features_in_, "constant": [], "copies": []})  # older: all of them
    estimator._used = UsedColumns.from_list(used)
    estimator._levels = Levels.from_list(fitted.get("levels", {}), estimator.flow_.ambient_dim)  # older: none
    estimator.history_ = fitted["history"]
    estimator.calibration_ = Calibration.of_estimator(fitted)
    kept = fitted.get("verdict")
    estimator._verdict = None if kept is None else Verdict.from_numbers(kept)
    estimator._held_out, estimator._trained_on = None, fitted.get("train_rows")
    estimator._take_facts(fitted)
    return estimator
