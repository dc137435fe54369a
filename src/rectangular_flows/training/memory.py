"""Steps within a memory budget: how many rows to take at once, and gradients that add up over the parts of a batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..errors import NumericalError
from .atlas import AtlasObjective
from .compiled import Compiled
from .distributed import World
from .objective import Objective, Part, Place, Terms

_MOST_ROWS = 2.0**62
_SLACK = 2.0  # what a backward pass needs beside the saved tensors


def saved_bytes(objective: Objective | AtlasObjective, rows: Tensor, part: Part = "all") -> int:
    """Bytes that the graph of the objective keeps for the backward pass, parameters not counted."""
    parameters = {p.untyped_storage().data_ptr() for p in objective.parameters()}
    kept: dict[int, int] = {}

    def count(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()  # an output that its own node keeps would be a circle which nothing ever collects

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        terms = objective(rows, 1.0, part)
        return sum(kept.values()) if terms.loss.requires_grad else 0


def _guessed_bytes(objective: Objective | AtlasObjective, rows: Tensor) -> float:
    """For one row: every layer keeps a few activations of the primal, twice, and of each tangent."""
    layers = objective.flow.charts[0].layers()
    tangents = min(objective.flow.latent_dim, objective.flow.ambient_dim - objective.flow.latent_dim + 1)
    return 6.0 * rows.element_size() * (2 + tangents) * sum(layer.activation_size for layer in layers)


def rows_within(objective: Objective | AtlasObjective, rows: Tensor, budget_mib: float, part: Part = "all") -> int:
    """The most rows whose graph fits the budget, at least one; measured on one row, and on a few where these fit."""
    budget, few = budget_mib * 2**20 / _SLACK, rows[:8]
    try:
        each: float = saved_bytes(objective, rows[:1], part)
        if len(few) * each <= budget:  # measuring has to keep to the budget as well
            each = saved_bytes(objective, few, part) / len(few)
    except RuntimeError:  # layers that are linearised by torch.func forbid such hooks
        each = _guessed_bytes(objective, few)
    return max(1, int(min(budget / each, _MOST_ROWS))) if each else len(rows)


def backward_in_parts(
    objective: Objective | AtlasObjective | Compiled,
    parts: Sequence[tuple[Tensor, Place]],
    weight: float,
    part: Part,
    world: World,
) -> Terms:
    """Add the gradient of a batch, one part of it at a time, over all processes; return its terms without a graph.

    Args:
        objective: in whose parameters the gradient is left.
        parts: the rows of this process in each part of the batch, and which of them these are.
        weight: of the likelihood.
        part: of the objective.
        world: whose processes have the other rows.
    """
    rows, first, failure = sum(place.rows for _, place in parts), parts[0][0], None
    sums = torch.zeros(3, dtype=first.dtype, device=first.device)
    try:
        for chunk, place in parts:
            if not len(chunk):
                continue
            terms = objective(chunk, weight, part, place)
            share = place.rows / rows
            (terms.loss * share).backward()
            values = (terms.loss, terms.negative_log_likelihood, terms.reconstruction)
            sums += share * torch.stack([value.detach() for value in values])
    except NumericalError as error:
        failure = error
    return Terms(*world.add_up([p for p in objective.parameters() if p.requires_grad], sums, failure))
