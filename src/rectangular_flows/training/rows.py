"""Rows of data: held out, put in order by a seed, and brought to the device a batch at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import NonFiniteError
from ..flows.injection import Shape

Rows = Tensor | np.ndarray[Any, Any]
_CHUNK = 100_000


def split(data: Rows, validation: Rows | None, shape: Shape, seed: int) -> tuple[Rows, Rows]:
    """The rows to train on and those to validate on: a tenth of the data, by seed, unless given.

    Raises:
        ValueError: a shape is wrong.
        NonFiniteError: some rows are not finite.
    """
    check(data, "data", shape)
    if validation is not None:
        check(validation, "validation", shape)
        return data, validation
    order = shuffled(len(data), seed, -1)
    count = max(1, len(data) // 10)
    held_out, kept = order[:count], order[count:].sort().values
    return (data[kept], data[held_out]) if isinstance(data, Tensor) else (data[kept.numpy()], data[held_out.numpy()])


def check(rows: Rows, name: str, shape: Shape) -> None:
    """Whether rows can be trained on."""
    if tuple(rows.shape[1:]) != shape:
        raise ValueError(f"expected {name} of shape (N, {', '.join(map(str, shape))}); got {tuple(rows.shape)}")
    if len(rows) < 2:
        raise ValueError(f"expected at least two rows of {name}; got {len(rows)}")
    bad = 0
    for i in range(0, len(rows), _CHUNK):
        part = take(rows, slice(i, i + _CHUNK))
        bad += int((~torch.isfinite(part).flatten(1).all(dim=1)).sum())
    if bad:
        raise NonFiniteError(f"{bad} of {len(rows)} rows of {name} have NaN or infinite entries; drop or repair them")


def take(
    rows: Rows, index: Tensor | slice, device: torch.device | None = None, dtype: torch.dtype | None = None
) -> Tensor:
    """Some of the rows as a tensor; of a memory-mapped array no others are read."""
    if isinstance(rows, Tensor):
        chosen = rows[index if isinstance(index, slice) else index.to(rows.device)]
    else:
        chosen = torch.from_numpy(np.array(rows[index if isinstance(index, slice) else index.numpy()]))
    return chosen.to(device=device, dtype=dtype)


def shuffled(count: int, *seed: int) -> Tensor:
    """A random order of the rows, a function of the seeds."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(mix(*seed)))


def mix(*parts: int) -> int:
    """One seed from several numbers: neighbouring numbers give unrelated seeds."""
    state = np.random.SeedSequence([part % 2**32 for part in parts]).generate_state(1, np.uint64)
    return int(state[0] >> np.uint64(1))


__all__ = ["Rows", "check", "mix", "shuffled", "split", "take"]
