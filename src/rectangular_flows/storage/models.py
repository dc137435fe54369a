"""Models on disk: weights as safetensors, and a JSON description that rebuilds the model with nothing else.

Nothing is ever unpickled. Files are written beside their final name and moved there, so that a reader sees the old file
or the new one, never half of one.
"""

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
from ..flows.description import build, describe
from ..manifold import RectangularFlow
from .files import load_tensors, save_tensors, write_atomically

WEIGHTS, DESCRIPTION = "model.safetensors", "model.json"
_FORMAT = 1


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
    try:
        model, reason = describe(flow), None
    except TypeError as error:
        model, reason = None, str(error)
    dtype = str(flow.dtype).removeprefix("torch.")
    description = {"format": _FORMAT, "version": __version__, "dtype": dtype, "model": model, "facts": facts}
    if reason is not None:
        description |= {"undescribed": reason, "scatter": describe(flow.scatter)}
    save_tensors(folder / WEIGHTS, flow.state_dict())
    write_atomically(folder / DESCRIPTION, json.dumps(description, indent=1, ensure_ascii=False) + "\n")


def load_model(
    folder: str | Path, *, flow: RectangularFlow | None = None, device: str | torch.device = "cpu"
) -> RectangularFlow:
    """The model in a run folder, ready to use.

    Args:
        folder: a folder that ``fit(…, out=folder)`` or :func:`save_model` wrote.
        flow: the model itself, if it has parts that could not be described; its weights are replaced.
        device: where to put it.

    Raises:
        FileNotFoundError: there is no model in the folder.
        ValueError: the files do not belong together, or are from a later version.
    """
    folder = Path(folder)
    description = read_description(folder)
    for room in (flows, densities):  # which import their classes at first use; a description finds imported ones
        for name in room.__all__:
            getattr(room, name)
    if flow is None:
        if description["model"] is None:
            raise ValueError(f"the model in {folder} has to be passed, load(…, flow=…): {description['undescribed']}")
        flow = build(description["model"])
    elif isinstance(flow, RectangularFlow):  # whoever made it anew has not fitted its density in R^D
        kept = description["model"] or {"arguments": description}
        flow.set_scatter(build(kept["arguments"].get("scatter")))
    if not isinstance(flow, RectangularFlow):
        raise ValueError(f"{folder / DESCRIPTION} describes a {type(flow).__name__}; expected a RectangularFlow")
    flow.to(getattr(torch, description["dtype"]))
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
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
        known = description["format"]
        _ = description["model"], description["dtype"], description["facts"]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged: {error!r}") from error
    if known > _FORMAT:
        raise ValueError(
            f"{path} has format {known}, from rectangular-flows {description.get('version')}; this is {__version__}, "
            f"which reads formats up to {_FORMAT}. Upgrade it."
        )
    return description


load, save = load_model, save_model  # the names of the package: rnf.load, rnf.save
