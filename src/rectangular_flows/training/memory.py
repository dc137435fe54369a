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


def _guessed_bytes(objective: Objective, rows: Tensor) -> float:
    """For one row: every layer keeps a few activations of the primal, twice, and of each tangent."""
    layers = objective.flow.layers()
    tangents = min(objective.flow.latent_dim, objective.flow.ambient_dim - objective.flow.latent_dim + 1)
    return 6.0 * rows.element_size() * (2 + tangents) * sum(layer.activation_size for layer in layers)


def rows_within(objective: Objective, rows: Tensor, budget_mib: float, part: Part = "all") -> int:
    """The most rows whose graph fits the budget, at least one; measured on one row, and on a few where these fit."""
    budget, few = budget_mib * 2**20 / _SLACK, rows[:8]
    try:
        each: float = saved_bytes(objective, rows[:1], part)
        if len(few) * each <= budget:  # measuring has to keep to the budget as well
            each = saved_bytes(objective, few, part) / len(few)
    except (
        RuntimeError
    ):  # the codimension identity differentiates by torch.func, which forbids looking at what is saved
        each = _guessed_bytes(objective, few)
    return max(1, int(budget / each)) if each else len(rows)
