"""What a run needs from its machine: a device, seeded generators, threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ..atlas import Model

_SMALL_STEP = 2**19  # scalars of a bundle; in smaller ones threads only wait for each other


def choose_device(name: str) -> torch.device:
    """The device of that name; "auto" is a GPU if there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"the device {name!r} cannot be used on this machine: {str(error).splitlines()[0]}") from error
    return device


def seed_everything(seed: int, device: torch.device) -> None:
    """Seed the generators that a step draws from."""
    # not torch.manual_seed: where CUDA is not started, each call would add to a queue for when it is
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


@contextmanager
def threads_for(flow: Model, batch_size: int) -> Iterator[None]:
    """One thread for steps so small that more would only wait for each other."""
    threads = torch.get_num_threads()
    widest = max(link.activation_size for chart in flow.charts for link in chart.layers())
    if batch_size * flow.latent_dim * widest < _SMALL_STEP:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
