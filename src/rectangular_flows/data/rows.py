"""Rows of a table or images: held out, shuffled by a seed, and taken as tensors a batch at a time."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..errors import NonFiniteError
from ..storage.files import parts_of
from ._files import Array
from .pixels import ImageRows


class Picked:
    """Some rows of an array, read when they are asked for: memory-mapped files and images are never copied whole."""

    def __init__(self, values: Array | ImageRows, index: Array):
        self.values, self.index = values, index
        self.shape, self.dtype = (len(index), *values.shape[1:]), values.dtype

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, key: slice | Array) -> Array:
        return np.asarray(self.values[self.index[key]])


Rows = Tensor | Array | ImageRows | Picked


def pick(values: Rows, index: Array) -> Rows:
    """Some of the rows; a memory-mapped array stays on disk, and images stay bytes."""
    if isinstance(values, Picked):
        return Picked(values.values, values.index[index])
    if isinstance(values, np.memmap | ImageRows):
        return Picked(values, index)
    return values[index]


def split(
    data: Rows, validation: Rows | None, shape: tuple[int, ...], seed: int, read: bool = True
) -> tuple[Rows, Rows]:
    """Training and validation rows, checked; without validation rows, a tenth of the data is held out by seed.

    Of several processes one does ``read`` all of them, to see whether they are finite.
    """
    check(data, "data", shape, read)
    if validation is not None:
        check(validation, "validation", shape, read)
        return data, validation
    order = shuffled(len(data), seed, -1)
    count = max(1, len(data) // 10)
    held_out, kept = order[:count], order[count:].sort().values
    return pick(data, kept.numpy()), pick(data, held_out.numpy())


def check(rows: Rows, name: str, shape: tuple[int, ...], read: bool = True) -> None:
    """Raise an error for rows that cannot be trained on."""
    if tuple(rows.shape[1:]) != shape:
        raise ValueError(f"expected {name} of shape (N, {', '.join(map(str, shape))}); got {tuple(rows.shape)}")
    if len(rows) < 2:
        raise ValueError(f"expected at least two rows of {name}; got {len(rows)}")
    parts = parts_of(rows) if read else ()
    bad = sum(int((~torch.isfinite(take(rows, part)).flatten(1).all(dim=1)).sum()) for part in parts)
    if bad:
        raise NonFiniteError(f"{bad} of {len(rows)} rows of {name} have NaN or infinite entries; drop or repair them")


def take(
    rows: Rows, index: Tensor | slice, device: torch.device | None = None, dtype: torch.dtype | None = None
) -> Tensor:
    """Some of the rows as a tensor; no others of a memory-mapped array are read."""
    if isinstance(rows, Tensor):
        chosen = rows[index if isinstance(index, slice) else index.to(rows.device)]
    else:
        chosen = torch.from_numpy(np.array(rows[index if isinstance(index, slice) else index.numpy()]))
    return chosen.detach().to(device=device, dtype=dtype)


def shuffled(count: int, *seed: int) -> Tensor:
    """A random order of the rows, a function of the seeds."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(mix(*seed)))


def mix(*parts: int) -> int:
    """One seed from several numbers: neighbouring numbers give unrelated seeds."""
    state = np.random.SeedSequence([part % 2**32 for part in parts]).generate_state(1, np.uint64)
    return int(state[0] >> np.uint64(1))
