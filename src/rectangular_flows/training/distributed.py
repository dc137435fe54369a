"""More than one process: each takes its share of every batch, gradients are averaged, process 0 reports and writes.

Run a script that calls :func:`~rectangular_flows.fit` with ``torchrun --nproc-per-node=4 script.py``.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


class World:
    """The processes of a run: one, unless torchrun started more."""

    def __init__(self, device: torch.device):
        self.size = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = int(os.environ.get("RANK", "0"))
        self.device = device
        if device.type == "cuda" and self.size > 1 and device.index is None:
            self.device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        self._started = False
        if self.size > 1 and not dist.is_initialized():
            dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
            self._started = True

    @property
    def first(self) -> bool:
        """Whether this process reports and writes."""
        return self.rank == 0

    def wrap(self, module: nn.Module) -> nn.Module:
        """The module with its gradients averaged over the processes."""
        if self.size == 1:
            return module
        # a pass of the two-step method, or a likelihood of weight 0, leaves some parameters without a gradient
        return nn.parallel.DistributedDataParallel(module, find_unused_parameters=True)

    def share(self, rows: Tensor) -> Tensor:
        """This process's part of the indices of a batch: equal parts, the first ones taking the remainder."""
        return rows[self.rank :: self.size]

    def correction(self, rows: Tensor) -> float:
        """The factor of this process's mean that makes the average over processes the mean over the batch."""
        return len(self.share(rows)) * self.size / len(rows)

    def synchronised(self, module: nn.Module, last: bool) -> Any:
        """Gradients of all parts of a batch but the last are only added up."""
        if self.size == 1 or last:
            return nullcontext()
        return module.no_sync()  # type: ignore[operator]

    def agree(self, value: float) -> float:
        """Process 0's value, so that all decide alike."""
        if self.size == 1:
            return value
        shared = torch.tensor(value, dtype=torch.float64, device=self.device)
        dist.broadcast(shared, src=0)
        return float(shared)

    def any(self, value: bool) -> bool:
        """Whether it is true in some process."""
        if self.size == 1:
            return value
        shared = torch.tensor(float(value), device=self.device)
        dist.all_reduce(shared, dist.ReduceOp.MAX)
        return bool(shared)

    @contextmanager
    def open(self) -> Iterator[None]:
        """Leave the group of processes at the end, if it was made here: all at once, when nothing uses it any more."""
        try:
            yield
            if self._started:
                dist.barrier()  # or the last ones would be left by the first while they still talk to it
        finally:
            if self._started:
                gc.collect()  # modules that average gradients are parts of cycles, and must not outlive the group
                dist.destroy_process_group()
