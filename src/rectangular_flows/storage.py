"""Models on disk: weights as safetensors, and a JSON description that rebuilds the model with nothing else.

Nothing is ever unpickled. Files are written beside their final name and moved there, so that a reader sees the old file
or the new one, never half of one.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tempfile
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from ._version import __version__
from .flows.description import build, describe
from .manifold import RectangularFlow

WEIGHTS, DESCRIPTION = "model.safetensors", "model.json"
_FORMAT = 1
_CHUNK_BYTES = 2**26


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write a file so that it is there completely or not at all."""
    path = Path(path)
    data = content.encode() if isinstance(content, str) else content
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Named tensors as one safetensors file, atomically."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomically(path, save(plain, dict(metadata or {})))


def load_tensors(path: Path) -> dict[str, Tensor]:
    """The inverse of :func:`save_tensors`.

    Raises:
        ValueError: the file is damaged or not safetensors.
    """
    try:
        return load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged, or not a safetensors file: {error}") from error


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
    dtype = next((str(p.dtype) for p in flow.parameters()), "torch.float32").removeprefix("torch.")
    description = {"format": _FORMAT, "version": __version__, "dtype": dtype, "model": model, "facts": facts}
    if reason is not None:
        description["undescribed"] = reason
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
    if flow is None:
        if description["model"] is None:
            raise ValueError(f"the model in {folder} has to be passed, load(…, flow=…): {description['undescribed']}")
        flow = build(description["model"])
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


def save_figure(path: Path, figure: Any, dpi: int = 150) -> None:
    """Write a figure of matplotlib, by the suffix of the path, so that it is there completely or not at all."""
    file = io.BytesIO()
    figure.savefig(file, format=path.suffix[1:] or "png", dpi=dpi)
    write_atomically(path, file.getvalue())


def fingerprint(rows: Any) -> str:
    """SHA-256 of dtype, shape and values of rows: tells whether a run goes on with the data it began with."""
    digest = hashlib.sha256(f"{str(rows.dtype).removeprefix('torch.')} {tuple(rows.shape)}".encode())
    step = max(1, _CHUNK_BYTES // (prod(rows.shape[1:]) * rows.dtype.itemsize))
    for i in range(0, len(rows), step):
        part = rows[i : i + step]
        part = part.detach().cpu().numpy() if isinstance(part, Tensor) else part
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


__all__ = [
    "DESCRIPTION",
    "WEIGHTS",
    "fingerprint",
    "load_model",
    "load_tensors",
    "load_weights",
    "read_description",
    "save_figure",
    "save_model",
    "save_tensors",
    "write_atomically",
]
