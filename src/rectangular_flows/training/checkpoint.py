"""The state of a run as one safetensors file: written atomically, read without unpickling anything."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from ..manifold import RectangularFlow
from ..storage.files import load_tensors, save_tensors
from ..storage.models import load_weights
from .average import Average
from .run import Progress

FILE = "state.safetensors"


def save_checkpoint(
    path: Path,
    flow: RectangularFlow,
    optimiser: torch.optim.Optimizer,
    average: Average,
    progress: Progress,
    best_weights: dict[str, Tensor],
) -> None:
    """Everything that resuming needs. Random draws are functions of seed and step, so no generator is in it."""
    tensors = {f"flow.{name}": value for name, value in flow.state_dict().items()}
    tensors |= {f"best.{name}": value for name, value in best_weights.items()}
    tensors |= {f"average.{i}": value for i, value in enumerate(average.values)}
    for i, state in optimiser.state_dict()["state"].items():
        tensors |= {f"optimiser.{i}.{name}": value for name, value in state.items()}
    path.mkdir(parents=True, exist_ok=True)
    save_tensors(path / FILE, tensors, {"progress": json.dumps(asdict(progress))})


def load_checkpoint(
    path: Path, flow: RectangularFlow, optimiser: torch.optim.Optimizer, average: Average
) -> tuple[Progress, dict[str, Tensor]]:
    """Put the state back into flow, optimiser and average; return the progress and the best weights so far.

    Raises:
        ValueError: the file is damaged, or of another model.
    """
    file = path / FILE
    parts: dict[str, dict[str, Tensor]] = {"flow": {}, "best": {}, "average": {}, "optimiser": {}}
    for name, tensor in load_tensors(file).items():
        part, _, rest = name.partition(".")
        parts[part][rest] = tensor
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
    with safe_open(file, "pt") as opened:
        progress = Progress(**json.loads(opened.metadata()["progress"]))
    return progress, {name: tensor.to(device) for name, tensor in parts["best"].items()}
