"""The state of a run as one safetensors file, read without unpickling anything."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..atlas import Model
from ..storage.files import DamagedFileError, pack_tensors, unpack_tensors
from ..storage.models import load_weights
from .average import Average
from .run import Progress

CHECKPOINT, BEFORE = "checkpoint/state.safetensors", "checkpoint/previous.safetensors"
"""The last state, and the one before it."""


def pack_checkpoint(
    flow: Model,
    optimiser: torch.optim.Optimizer,
    average: Average,
    progress: Progress,
    best_weights: Mapping[str, Tensor],
    history: str = "",
) -> bytes:
    """Everything that resuming needs. Random draws are functions of seed and step, so no generator is in it."""
    tensors = {f"flow.{name}": value for name, value in flow.state_dict().items()}
    tensors |= {f"best.{name}": value for name, value in best_weights.items()}
    tensors |= {f"average.{i}": value for i, value in enumerate(average.values)}
    for i, state in optimiser.state_dict()["state"].items():
        tensors |= {f"optimiser.{i}.{name}": value for name, value in state.items()}
    return pack_tensors(tensors, {"progress": json.dumps(asdict(progress)), "history": history})


def unpack_checkpoint(
    content: bytes, file: Path, flow: Model, optimiser: torch.optim.Optimizer, average: Average
) -> tuple[Progress, dict[str, Tensor], str | None]:
    """Put the state back into flow, optimiser and average.

    Returns:
        The progress, the best weights so far, and the lines of the history; none in a state of version 0.1.

    Raises:
        ValueError: the file is damaged, or of another model.
    """
    parts: dict[str, dict[str, Tensor]] = {"flow": {}, "best": {}, "average": {}, "optimiser": {}}
    for name, tensor in unpack_tensors(content, file).items():
        part, _, rest = name.partition(".")
        parts.setdefault(part, {})[rest] = tensor
    metadata = _metadata(content)
    if "progress" not in metadata:
        raise DamagedFileError(f"{file} is damaged, or not the state of a run: it does not say how far it was")
    load_weights(flow, parts["flow"], str(file))
    state: dict[int, dict[str, Any]] = {}
    for name, tensor in parts["optimiser"].items():
        number, _, key = name.partition(".")
        state.setdefault(int(number), {})[key] = tensor
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
    for parameter, values in optimiser.state.items():
        for key, value in values.items():  # laid out in memory as the parameter is, which fused steps rely on
            if value.shape == parameter.shape:
                values[key] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)
    if len(average.values) != len(parts["average"]):
        raise ValueError(f"{file} has {len(parts['average'])} averaged tensors; expected {len(average.values)}")
    for i, value in enumerate(average.values):
        value.copy_(parts["average"][str(i)])
    device = next(iter(flow.state_dict().values())).device
    best = {name: tensor.to(device) for name, tensor in parts["best"].items()}
    return Progress(**json.loads(metadata["progress"])), best, metadata.get("history")


def _metadata(content: bytes) -> dict[str, str]:
    """What a safetensors file says beside its tensors: its header is JSON after eight bytes with its length."""
    head = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    found: dict[str, str] = head.get("__metadata__", {})
    return found
