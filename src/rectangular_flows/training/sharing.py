"""One model in all processes of a run."""

from __future__ import annotations

from ..atlas import Model
from ..storage.models import DESCRIPTION, WEIGHTS, build_model, model_files
from .distributed import World


def same_model(world: World, flow: Model | None) -> Model:
    """Process 0's model: its weights, and its scatter if it has one.

    Args:
        world: the processes.
        flow: the model, or in other processes than the first one of the same architecture, which is changed in place, or
            None, where it is built by its description.
    """
    if flow is not None and world.size == 1:
        return flow
    made = model_files(flow, {}) if flow is not None and world.first else {}
    files = {name: world.from_first(made.get(name, b"")) for name in (DESCRIPTION, WEIGHTS)}
    return flow if flow is not None and world.first else build_model(files, "process 0", flow=flow, device=world.device)
