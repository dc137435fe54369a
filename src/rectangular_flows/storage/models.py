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
from ..densities import mixture  # noqa: F401 - a description may name its class
from ..flows.allowance import AllowanceError
from ..flows.description import as_dtype, build, describe
from ..manifold import RectangularFlow
from .files import load_tensors, save_tensors, write_atomically
from .limits import check_bytes, in_words
from .texts import read_json

WEIGHTS, DESCRIPTION = "model.safetensors", "model.json"
_FORMAT = 1
_KINDS: dict[str, Any] = {"format": int, "dtype": str, "model": dict | None, "facts": dict}
_NAMES = {"format": "a number", "dtype": "a name", "model": "an object or null", "facts": "an object"}
_ROOM, _LEAST_ROOM = 32, 2**26  # bytes that building may take: for each of the weights, and in any case


def save_model(flow: RectangularFlow, folder: str | Path, **facts: Any) -> None:
    """Write ``model.safetensors`` and ``model.json`` to a folder, which is made if need be.

    Args:
        flow: the model. Parts without a description (a zuko flow made outside, a lambda) are possible; the model then
            has to be passed to :func:`load_model`.
        folder: where.
        facts: more to keep with the model, such as column names; JSON values.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    dtype = str(flow.dtype).removeprefix("torch.")
    content: dict[str, Any] = {"format": _FORMAT, "version": __version__, "dtype": dtype, "model": None, "facts": facts}
    try:
        content["model"] = describe(flow)
    except TypeError as error:
        content |= {"undescribed": str(error), "scatter": describe(flow.scatter)}
    save_tensors(folder / WEIGHTS, flow.state_dict())
    write_atomically(folder / DESCRIPTION, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def load_model(
    folder: str | Path, *, flow: RectangularFlow | None = None, device: str | torch.device = "cpu"
) -> RectangularFlow:
    """The model in a run folder, ready to use.

    Args:
        folder: a folder that ``fit(…, out=folder)`` or :func:`save_model` wrote.
        flow: the model itself, if it has parts that could not be described; its weights are replaced.
        device: where to put it.
    """
    folder = Path(folder)
    description = read_description(folder)
    if flow is None:
        if description["model"] is None:
            raise ValueError(f"the model in {folder} has to be passed, load(…, flow=…): {description['undescribed']}")
        for room in (flows, densities):  # which import their classes at first use; a description finds imported ones
            for name in room.__all__:
                getattr(room, name)
        flow = _built(description["model"], folder)
    elif flow.scatter is None:  # fitted at the end of training, so that the code which makes the model has none
        described = description if description["model"] is None else description["model"]["arguments"]
        flow.set_scatter(_built(described.get("scatter"), folder))
    if not isinstance(flow, RectangularFlow):
        raise ValueError(f"{folder / DESCRIPTION} describes a {type(flow).__name__}; expected a RectangularFlow")
    flow.to(as_dtype(description["dtype"]))
    load_weights(flow, load_tensors(folder / WEIGHTS), str(folder / WEIGHTS))
    return flow.to(device).eval()


def load_weights(flow: RectangularFlow, weights: Mapping[str, Tensor], source: str) -> None:
    """Replace the weights of a flow by others of the same names and shapes."""
    try:
        flow.load_state_dict(dict(weights))
    except RuntimeError as error:
        raise ValueError(f"the weights in {source} do not fit the model: {error}") from error


def read_description(folder: str | Path) -> dict[str, Any]:
    """What ``model.json`` says, checked for being one we understand."""
    path = Path(folder) / DESCRIPTION
    if not path.exists():
        raise FileNotFoundError(
            f"no model in {folder}: expected {DESCRIPTION} and {WEIGHTS} there, as 'rnf fit … --out {folder}' writes them"
        )
    description = read_json(path)
    for key, kind in _KINDS.items():
        if key not in description or not isinstance(description[key], kind) or description[key] is True:
            raise ValueError(
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


def _built(description: Any, folder: Path) -> Any:
    """A model or a part of one, which may take no more memory than its weights make likely.

    A description is short however large the model is that it describes. Its weights are not.
    """
    weights = folder / WEIGHTS
    size = weights.stat().st_size if weights.exists() else 0
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
