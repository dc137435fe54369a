"""How many rows a step may take at once, so that its graph stays within a budget."""

from __future__ import annotations

import torch
from torch import Tensor

from .objective import Objective, Part

_SLACK = 2.0  # what a backward pass needs beside the saved tensors


def saved_bytes(objective: Objective, rows: Tensor, part: Part = "all") -> int:
    """Bytes that the graph of the objective keeps for the backward pass, parameters not counted."""
    parameters = {p.untyped_storage().data_ptr() for p in objective.parameters()}
    kept: dict[int, int] = {}

    def count(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        terms = objective(rows, 1.0, part)
        return sum(kept.values()) if terms.loss.requires_grad else 0


def rows_within(objective: Objective, rows: Tensor, budget_mib: float, part: Part = "all") -> int:
    """The most rows whose graph fits the budget, at least one; measured on a few rows."""
    few = rows[:8]
    each = saved_bytes(objective, few, part) / len(few)
    return max(1, int(budget_mib * 2**20 / (_SLACK * each))) if each else len(rows)


__all__ = ["rows_within", "saved_bytes"]
