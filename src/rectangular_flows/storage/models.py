"""Models on disk: weights as safetensors, and a JSON description that rebuilds the model with nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .. import densities, flows
from .._version import __version__
from ..atlas import Atlas, Model
from ..densities import mixture  # noqa: F401 - a description may name its class
from ..flows.allowance import AllowanceError
from ..flows.description import as_dtype, build, describe
from ..manifold import RectangularFlow
from .files import DamagedFileError, pack_tensors, unpack_tensors
from .legacy import old_files
from .limits import check_bytes, in_words
from .manifest import commit, read_files, read_manifest
from .texts import parse_json

WEIGHTS, DESCRIPTION = "model.safetensors", "model.json"
CALIBRATION = "calibration.safetensors"
"""What is usual for the model: see :mod:`rectangular_flows.runs.calibration`."""
_FORMAT = 1
_KINDS: dict[str, Any] = {"format": int, "dtype": str, "model": dict | None, "facts": dict}
_NAMES = {"format": "a number", "dtype": "a name", "model": "an object or null", "facts": "an object"}
_ROOM, _LEAST_ROOM = 32, 2**26  # bytes that building may take: for each of the weights, and in any case


def save_model(flow: Model, folder: str | Path, **facts: Any) -> None:
    """Write ``model.safetensors`` and ``model.json`` to a folder, which is made if need be.

    Args:
        flow: the model. Parts without a description (a zuko flow made outside, a lambda) are possible; the model then
            has to be passed to :func:`load_model`.
        folder: where.
        facts: more to keep with the model, such as column names; JSON values.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    there = [name for name in (WEIGHTS, DESCRIPTION) if (folder / name).exists()]
    if there and read_manifest(folder) is None and not old_files(folder):
        raise FileExistsError(f"{folder / there[0]} is in the way, and not ours. Choose another folder")
    commit(folder, model_files(flow, facts))


def model_files(flow: Model, facts: Mapping[str, Any]) -> dict[str, bytes]:
    """The files of a model, name → content."""
    dtype = str(flow.dtype).removeprefix("torch.")
    content: dict[str, Any] = {
        "format": _FORMAT,
        "version": __version__,
        "dtype": dtype,
        "model": None,
        "facts": dict(facts),
    }
    try:
        content["model"] = describe(flow)
    except TypeError as error:
        charts = [{"scatter": describe(chart.scatter), "nearest": chart.nearest} for chart in flow.charts]
        content |= {
            "undescribed": str(error),
            **(charts[0] if isinstance(flow, RectangularFlow) else {"charts": charts}),
        }
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    return {WEIGHTS: pack_tensors(flow.state_dict()), DESCRIPTION: text.encode()}


def load_model(folder: str | Path, *, flow: Model | None = None, device: str | torch.device = "cpu") -> Model:
    """The model in a run folder, ready to use.

    Args:
        folder: a folder that ``fit(…, out=folder)`` or :func:`save_model` wrote.
        flow: the model itself, if it has parts that could not be described; its weights are replaced.
        device: where to put it.

    Raises:
        FileNotFoundError: there is no model in the folder.
        DamagedFileError: a file is not the one that was saved.
    """
    return build_model(read_files(folder, (DESCRIPTION, WEIGHTS)), folder, flow=flow, device=device)


def build_model(
    files: Mapping[str, bytes],
    folder: str | Path,
    *,
    flow: Model | None = None,
    device: str | torch.device = "cpu",
) -> Model:
    """The model from the content of its files, which were read from a folder."""
    folder = Path(folder)
    description = description_in(files, folder)
    if WEIGHTS not in files:
        raise DamagedFileError(f"{folder / WEIGHTS} is missing")
    if flow is None:
        if description["model"] is None:
            raise ValueError(f"the model in {folder} has to be passed, load(…, flow=…): {description['undescribed']}")
        for room in (flows, densities):  # which import their classes at first use; a description finds imported ones
            for name in room.__all__:
                getattr(room, name)
        flow = _built(description["model"], folder, len(files[WEIGHTS]))
    elif flow.scatter is None:  # fitted at the end of training, so that the code which makes the model has none
        for chart, described in zip(flow.charts, _fitted(description, len(flow.charts)), strict=True):
            chart.set_scatter(_built(described.get("scatter"), folder, len(files[WEIGHTS])))
            chart.set_nearest(described.get("nearest", 0))
    if not isinstance(flow, RectangularFlow | Atlas):
        raise ValueError(
            f"{folder / DESCRIPTION} describes a {type(flow).__name__}; expected a RectangularFlow or an Atlas"
        )
    flow.to(as_dtype(description["dtype"]))
    load_weights(flow, unpack_tensors(files[WEIGHTS], folder / WEIGHTS), str(folder / WEIGHTS))
    return flow.to(device).eval()


def _fitted(description: Mapping[str, Any], charts: int) -> list[Any]:
    """What the description has of each chart that was fitted at the end of training."""
    model = description["model"]
    if model is None:
        found = description.get("charts", [description])
    elif "charts" in model["arguments"]:
        found = [chart["arguments"] for chart in model["arguments"]["charts"]]
    else:
        found = [model["arguments"]]
    return found if len(found) == charts else [{}] * charts


def load_weights(flow: Model, weights: Mapping[str, Tensor], source: str) -> None:
    """Replace the weights of a flow by others of the same names and shapes."""
    try:
        flow.load_state_dict(dict(weights))
    except RuntimeError as error:
        raise ValueError(f"the weights in {source} do not fit the model: {error}") from error


def read_description(folder: str | Path) -> dict[str, Any]:
    """What ``model.json`` says, checked for being one we understand."""
    return description_in(read_files(folder, (DESCRIPTION,)), folder)


def description_in(files: Mapping[str, bytes], folder: str | Path) -> dict[str, Any]:
    """The same from the content of the files that were read from a folder."""
    path = Path(folder) / DESCRIPTION
    if DESCRIPTION not in files:
        raise FileNotFoundError(
            f"no model in {folder}: expected {DESCRIPTION} and {WEIGHTS} there, as 'rnf fit … --out {folder}' writes them"
        )
    description = parse_json(files[DESCRIPTION], path)
    for key, kind in _KINDS.items():
        if key not in description or not isinstance(description[key], kind) or description[key] is True:
            raise DamagedFileError(
                f"{path} is damaged: expected {key!r} there, {_NAMES[key]}; got {description.get(key)!r:.60}"
            )
    try:
        as_dtype(description["dtype"])
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    _check_facts(description["facts"], path)
    known = description["format"]
    if known > _FORMAT:
        raise ValueError(
            f"{path} has format {known}, from rectangular-flows {description.get('version')}; this is {__version__}, "
            f"which reads formats up to {_FORMAT}. Upgrade it."
        )
    return description


def _check_facts(facts: dict[str, Any], path: Path) -> None:
    """Refuse facts that are not of the kind that their readers expect."""
    for key in ("columns", "sphere"):
        names = facts.get(key)
        if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
            raise ValueError(f"{path} is damaged: expected {key!r} as a list of names; got {names!r:.60}")
    if not isinstance(facts.get("estimator", {}), dict):
        raise ValueError(f"{path} is damaged: expected 'estimator' as an object; got {facts['estimator']!r:.60}")


def _built(description: Any, folder: Path, size: int) -> Any:
    """A model or a part of one, which may take no more memory than its weights make likely.

    A description is short however large the model is that it describes. Its weights are not.
    """
    check_bytes(size, f"the model in {folder}")
    try:
        return build(description, _ROOM * size + _LEAST_ROOM)
    except AllowanceError as error:
        raise ValueError(
            f"{folder / DESCRIPTION} describes a model that takes {error}, far more than the {in_words(size)} of its "
            f"weights in {WEIGHTS}: it is damaged, or made to exhaust your machine."
        ) from error
    except ValueError as error:
        raise ValueError(f"{folder / DESCRIPTION}: {error}") from error


load, save = load_model, save_model  # the names of the package: rnf.load, rnf.save
