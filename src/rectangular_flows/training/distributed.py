"""More than one process: each takes its share of every batch, gradients are added up, process 0 reports and writes.

Run ``torchrun --nproc-per-node=4 -m rectangular_flows fit …``, or a script that calls :func:`~rectangular_flows.fit`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..errors import NonFiniteError, NumericalError
from .setup import choose_device

_PATIENCE = timedelta(
    days=7
)  # process 0 may read, fit or judge for hours while others wait; the dead are noticed anyway
_ERROR = "error"
_store: Any = None  # where the processes of the last group leave a word
_groups = 0


class PeerError(RuntimeError):
    """Another process of the run stopped, and so this one has to.

    Attributes:
        exit_code: what the other one ended with, or will.
        known: whether it left a word about why.
    """

    def __init__(self, message: str, exit_code: int = 1, known: bool = True):
        super().__init__(message)
        self.exit_code, self.known = exit_code, known


class World:
    """The processes of a run: one, unless torchrun started more. They talk to each other inside :meth:`open`.

    Args:
        device: its name as in :class:`~rectangular_flows.TrainingConfig`; of several processes on a machine each takes the
            GPU of its own number.
    """

    def __init__(self, device: str = "auto"):
        self.size = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = int(os.environ.get("RANK", "0"))
        self.local_rank = int(os.environ.get("LOCAL_RANK", self.rank))
        if self.size > 1 and device.startswith("cuda:"):
            raise ValueError(f"expected device 'auto', 'cuda' or 'cpu' with several processes; got {device!r} for all")
        name = "cuda" if device == "auto" and torch.cuda.is_available() else device
        self.device = choose_device(f"cuda:{self.local_rank}" if self.size > 1 and name == "cuda" else name)
        self._wire = self.device if self.device.type == "cuda" else torch.device("cpu")

    @property
    def first(self) -> bool:
        """Whether this process reports and writes."""
        return self.rank == 0

    @contextmanager
    def open(self) -> Iterator[None]:
        """Join the other processes, and leave them at the end: all at once, or with a word about what went wrong here."""
        if self.size == 1 or dist.is_initialized():
            yield
            return
        self._join()
        try:
            yield
            self.wait()  # or the last ones would be left by the first while they still talk to it
        except BaseException as error:
            self._leave_word(error)
            if self.device.type != "cuda":  # where leaving would wait for the others; the end of the process tells them
                _end_group()
            raise
        _end_group()

    def _join(self) -> None:
        global _store, _groups
        on_gpu = self.device.type == "cuda"
        if on_gpu:
            torch.cuda.set_device(self.device)
        base, rank, size = next(dist.rendezvous("env://"))  # type: ignore[attr-defined]
        _groups += 1  # the store may be that of the group before
        _store = dist.PrefixStore(f"rnf-{_groups}", base)  # type: ignore[attr-defined]
        dist.init_process_group(
            "nccl" if on_gpu else "gloo",
            store=_store,
            rank=rank,
            world_size=size,
            timeout=_PATIENCE,
            device_id=self.device if on_gpu else None,
        )

    # --- what processes tell each other

    def share(self, rows: Tensor) -> Tensor:
        """This process's part of the rows: every ``size``-th from its own number on."""
        return rows[self.rank :: self.size]

    def total(self, values: Tensor) -> Tensor:
        """The sum over all processes, the same bits in each."""
        if self.size == 1:
            return values
        shared = values.to(self._wire, copy=True)
        with self._talking():
            dist.all_reduce(shared)
        return shared.to(values.device)

    def any(self, value: bool) -> bool:
        """Whether it is true in some process."""
        return bool(self.total(torch.tensor(float(value))) > 0)

    def agree(self, value: float) -> float:
        """Process 0's value, so that all decide alike."""
        own = torch.tensor(value if self.first else 0.0, dtype=torch.float64)
        return float(self.total(own))

    def from_first(self, content: bytes) -> bytes:
        """Process 0's bytes; what the others give does not matter."""
        if self.size == 1:
            return content
        length = int(self.agree(len(content)))
        own = content if self.first else bytes(length)
        shared = torch.frombuffer(bytearray(own or b"\0"), dtype=torch.uint8).to(self._wire)
        with self._talking():
            dist.broadcast(shared, src=0)
        return shared.cpu().numpy().tobytes()[:length]

    def texts(self, own: str) -> list[str]:
        """What each process says."""
        said = own.encode()
        lengths = torch.zeros(self.size)
        lengths[self.rank] = len(said)
        letters = torch.zeros(self.size, int(self.total(lengths).max()), dtype=torch.uint8)
        letters[self.rank, : len(said)] = torch.frombuffer(bytearray(said or b"\0"), dtype=torch.uint8)[: len(said)]
        return [row.numpy().tobytes().rstrip(b"\0").decode() for row in self.total(letters)]

    def wait(self) -> None:
        """Until all processes are here."""
        self.any(False)

    def add_up(self, parameters: Sequence[nn.Parameter], terms: Tensor, failure: NumericalError | None) -> Tensor:
        """Replace gradients by their sums over the processes; the sums of the terms.

        A parameter that has a gradient in no process has none after it. One exchange does it all.

        Raises:
            NumericalError: a computation failed in some process; raised in each of them.
        """
        if self.size == 1:
            if failure is not None:
                raise failure
            return terms
        parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        there = terms.new_tensor([*(p.grad is not None for p in parameters), failure is not None])
        sums = self.total(torch.cat([part.flatten() for part in (*parts, there, terms)]))
        *gradients, there, terms = sums.split([p.numel() for p in parameters] + [len(there), len(terms)])
        if there[-1] > 0:
            text = next(text for text in self.texts(str(failure or "")) if text)
            raise failure if failure is not None and str(failure) == text else NonFiniteError(text)
        for parameter, gradient, some in zip(parameters, gradients, there[:-1].tolist(), strict=True):
            # in the parameter's own order of memory, which a fused optimiser takes for granted
            parameter.grad = torch.empty_like(parameter).copy_(gradient.view_as(parameter)) if some else None
        return terms

    # --- when one of them fails

    @contextmanager
    def _talking(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:  # the connection to another process broke
            raise _why_lost() from error

    def _leave_word(self, error: BaseException) -> None:
        """Tell the others why this process stops, before they notice that it did."""
        if isinstance(error, PeerError) or _store is None:
            return
        code = getattr(error, "exit_code", 2 if isinstance(error, ValueError | OSError) else 1)
        with suppress(RuntimeError):  # whoever keeps the words may be gone
            _store.set(_ERROR, json.dumps({"rank": self.rank, "text": str(error), "code": code}))


def joined() -> bool:
    """Whether this process has joined others."""
    return _store is not None


def _why_lost() -> PeerError:
    with suppress(RuntimeError, AttributeError):
        if _store.check([_ERROR]):
            found = json.loads(_store.get(_ERROR))
            return PeerError(f"process {found['rank']} stopped: {found['text']}", found["code"])
    text = "another process of this run ended without a word (it may have been killed, perhaps for lack of memory)"
    return PeerError(text, known=False)


def _end_group() -> None:
    """Leave the group; others that wait for this process then notice."""
    with suppress(RuntimeError):
        dist.destroy_process_group()
