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
from ..flows.description import build, describe
from ..manifold import RectangularFlow
from .files import DamagedFileError, pack_tensors, unpack_tensors
from .legacy import old_files
from .manifest import commit, read_files, read_manifest

WEIGHTS, DESCRIPTION = "model.safetensors", "model.json"
CALIBRATION = "calibration.safetensors"
"""What is usual for the model: see :mod:`rectangular_flows.runs.calibration`."""
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
    there = [name for name in (WEIGHTS, DESCRIPTION) if (folder / name).exists()]
    if there and read_manifest(folder) is None and not old_files(folder):
        raise FileExistsError(f"{folder / there[0]} is in the way, and not ours. Choose another folder")
    commit(folder, model_files(flow, facts))


def model_files(flow: RectangularFlow, facts: Mapping[str, Any]) -> dict[str, bytes]:
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
        content |= {"undescribed": str(error), "scatter": describe(flow.scatter)}
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    return {WEIGHTS: pack_tensors(flow.state_dict()), DESCRIPTION: text.encode()}


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
        DamagedFileError: a file is not the one that was saved.
    """
    return build_model(read_files(folder, (DESCRIPTION, WEIGHTS)), folder, flow=flow, device=device)


def build_model(
    files: Mapping[str, bytes],
    folder: str | Path,
    *,
    flow: RectangularFlow | None = None,
    device: str | torch.device = "cpu",
) -> RectangularFlow:
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
        flow = build(description["model"])
    elif flow.scatter is None:  # fitted at the end of training, so that the code which makes the model has none
        described = description if description["model"] is None else description["model"]["arguments"]
        flow.set_scatter(build(described.get("scatter")))
    if not isinstance(flow, RectangularFlow):
        raise ValueError(f"{folder / DESCRIPTION} describes a {type(flow).__name__}; expected a RectangularFlow")
    flow.to(getattr(torch, description["dtype"]))
    load_weights(flow, unpack_tensors(files[WEIGHTS], folder / WEIGHTS), str(folder / WEIGHTS))
    return flow.to(device).eval()


def load_weights(flow: RectangularFlow, weights: Mapping[str, Tensor], source: str) -> None:
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
    try:
        description = json.loads(files[DESCRIPTION])
        known = description["format"]
        _ = description["model"], description["dtype"], description["facts"]
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedFileError(f"{path} is damaged: {error!r}") from error
    if known > _FORMAT:
        raise ValueError(
            f"{path} has format {known}, from rectangular-flows {description.get('version')}; this is {__version__}, "
            f"which reads formats up to {_FORMAT}. Upgrade it."
        )
    return description


load, save = load_model, save_model  # the names of the package: rnf.load, rnf.save
