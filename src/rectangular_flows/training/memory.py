"""Steps within a memory budget: how many rows to take at once, and gradients that add up over the parts of a batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from ..data.rows import Rows, take
from ..errors import NumericalError
from ..volume.precision import never_rounded
from .atlas import AtlasObjective
from .compiled import Compiled
from .distributed import World
from .objective import Objective, Part, Place, Terms

_MOST_ROWS = 2.0**62
_FEW = 64  # rows to measure on: bundles of fewer are computed otherwise
_SLACK = 2.0  # what a backward pass needs beside the saved tensors
_AGAIN = 1.5  # times the memory where tangents of half the precision are computed again: their own, and the others'
_MANY, _STRETCH = 8, 2.0  # parts of a batch; with more, calls take a tenth of the time, so that the budget may stretch


def saved_bytes(
    objective: Objective | AtlasObjective,
    rows: Tensor,
    part: Part = "all",
    weight: float = 1.0,
    place: Place | None = None,
) -> int:
    """Bytes that the graph of the objective keeps for the backward pass, parameters not counted."""
    parameters = {p.untyped_storage().data_ptr() for p in objective.parameters()}
    kept: dict[int, int] = {}

    def count(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()  # an output that its own node keeps would be a circle which nothing ever collects

    hooks = torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor)
    with torch.enable_grad(), hooks, never_rounded():
        terms = objective(rows, weight, part, place)
        return sum(kept.values()) if terms.loss.requires_grad else 0


def _guessed_bytes(objective: Objective | AtlasObjective, rows: Tensor) -> float:
    """For one row: every layer keeps a few activations of the primal, twice, and of each tangent."""
    layers = objective.flow.charts[0].layers()
    tangents = min(objective.flow.latent_dim, objective.flow.ambient_dim - objective.flow.latent_dim + 1)
    return 6.0 * rows.element_size() * (2 + tangents) * sum(layer.activation_size for layer in layers)


def rows_within(
    objective: Objective | AtlasObjective,
    rows: Tensor,
    budget_mib: float,
    part: Part = "all",
    weight: float = 1.0,
    batch: int = 0,
) -> int:
    """The most rows whose graph fits the budget, at least one; measured on one row, and on a few where they fit.

    Args:
        objective: of the run.
        rows: those that may be measured on.
        budget_mib: for the graph, and what the backward pass needs beside it.
        part: of the objective.
        weight: of the likelihood; without it there is no volume.
        batch: rows of a batch for which the budget may be exceeded, up to twice, rather than take it in more than eight
            parts; 0: it may not.
    """
    budget = budget_mib * 2**20 / _SLACK
    if getattr(objective.volume, "tangent_dtype", None) is not None:  # rows may have to be computed again without it
        budget /= _AGAIN
    share = objective.volume_fraction if isinstance(objective, Objective) and part == "all" and weight > 0 else 1.0

    def kept(few: Tensor, counted: int) -> float:
        return saved_bytes(objective, few, part, weight, Place(len(few), counted=counted)) / len(few)

    def mean(few: Tensor, whole: float) -> float:
        """By one row: what all keep, and the share of what a volume adds."""
        return whole if share == 1 else share * whole + (1 - share) * kept(few, 0)

    try:
        whole = kept(rows[:1], 1)
        few = rows[: int(min(_FEW, budget / max(whole, 1)))]  # measuring has to keep to the budget as well
        if len(few) > 1:
            whole = kept(few, len(few))
        each = mean(few if len(few) else rows[:1], whole)
    except RuntimeError:  # layers that are linearised by torch.func forbid such hooks
        each = _guessed_bytes(objective, rows)
    most = min(budget / each, _MOST_ROWS) if each else len(rows)
    return max(1, int(max(most, min(_STRETCH * most, math.ceil(batch / _MANY)))))


class RowsAtOnce:
    """How many rows of a batch each kind of step takes at once; measured where it is not known.

    Args:
        objective: of the run.
        rows: of the run; the first are measured on.
        like: a tensor of the dtype and on the device of a step.
        budget_mib: that a step's graph may take.
        world: the processes of the run, which agree.
        batch: as in :func:`rows_within`.
    """

    def __init__(
        self,
        objective: Objective | AtlasObjective,
        rows: Rows,
        like: Tensor,
        budget_mib: float,
        world: World,
        batch: int = 0,
    ):
        self._objective, self._budget, self._world, self._batch = objective, budget_mib, world, batch
        self._take = partial(take, rows, slice(_FEW), like.device, like.dtype)

    def __call__(self, part: Part, weight: float, known: dict[str, int]) -> int:
        """Rows of all processes together, for steps with this part of the objective and weight of the likelihood.

        What was measured is in ``known``, which is kept with the run: graphs of other weights may differ, and with them the
        parts and how sums are rounded.
        """
        kind = f"{part}, {'with' if weight > 0 else 'without'} the likelihood"
        if kind not in known:
            found = rows_within(self._objective, self._take(), self._budget, part, weight, self._batch)
            known[kind] = int(self._world.agree(found))
        return known[kind]


def in_parts(batch: Tensor, most: int, volumes: int) -> list[tuple[Tensor, Place]]:
    """A batch in even parts of at most so many rows, each with its share of the first ``volumes``, which come first.

    Example:
        >>> [(part.tolist(), place.counted) for part, place in in_parts(torch.arange(7), 3, 2)]
        [([0, 2, 3], 1), ([1, 4, 5], 1), ([6], 0)]
    """
    first, rest, found = batch[:volumes], batch[volumes:], []
    sizes = [len(part) for part in even_parts(batch, most)]
    for size, count in zip(sizes, _counts(sizes, volumes), strict=True):
        rows = torch.cat([first[:count], rest[: size - count]])
        weight = count / size * len(batch) / volumes if volumes else 1.0
        found.append((rows, Place(size, counted=count, volume_weight=weight)))
        first, rest = first[count:], rest[size - count :]
    return found


def _counts(sizes: Sequence[int], volumes: int) -> list[int]:
    """Of so many volumes, those of each part: never more than of the part before.

    A process that draws no probes for one part then draws none for those after it, so that probes hang on the row alone.

    Example:
        >>> _counts([9, 9, 9, 9, 5], 39), _counts([3, 3, 1], 2)
        ([9, 9, 8, 8, 5], [1, 1, 0])
    """
    last = min(sizes[-1], volumes // len(sizes))
    found: list[int] = []
    for i in range(len(sizes) - 1):
        found.append(math.ceil((volumes - last - sum(found)) / (len(sizes) - 1 - i)))
    return [*found, last]


def even_parts(batch: Tensor, most: int) -> tuple[Tensor, ...]:
    """A batch in as few parts as have at most so many rows each, all of nearly one size.

    Example:
        >>> [len(part) for part in even_parts(torch.arange(10), 4)]
        [4, 4, 2]
        >>> [len(part) for part in even_parts(torch.arange(9), 8)]
        [5, 4]
    """
    return batch.split(math.ceil(len(batch) / math.ceil(len(batch) / most)))


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
