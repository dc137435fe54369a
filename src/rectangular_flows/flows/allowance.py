"""A limit on what may be built: how much memory tensors take, and how many are made, checked before each is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

_SCALAR_BYTES = 4
MOST_TENSORS = 10_000


class AllowanceError(ValueError):
    """More was to be built than is allowed."""


class Allowance(TorchFunctionMode):
    """Within it, torch makes no more new tensors than allowed.

    Args:
        most_bytes: of all tensors that are made, those included that are let go of again.
        most_tensors: how many; by default 10,000.

    Raises:
        AllowanceError: when one too many is about to be made.

    Example:
        >>> import torch
        >>> with Allowance(1000):
        ...     _ = torch.zeros(10_000)
        Traceback (most recent call last):
        rectangular_flows.flows.allowance.AllowanceError: more than 1000 bytes of tensors
    """

    def __init__(self, most_bytes: float, most_tensors: int | None = None):
        super().__init__()
        self.most_bytes = most_bytes
        self.most_tensors = MOST_TENSORS if most_tensors is None else most_tensors
        self.bytes = self.tensors = 0

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        size = _SIZES.get(getattr(func, "__name__", ""))
        if size is not None:
            self.bytes += _SCALAR_BYTES * max(0, size((*args, *([kwargs["size"]] if "size" in kwargs else ()))))
            self.tensors += 1
            if self.bytes > self.most_bytes:
                raise AllowanceError(f"more than {self.most_bytes:.0f} bytes of tensors")
            if self.tensors > self.most_tensors:
                raise AllowanceError(f"more than {self.most_tensors:,} tensors")
        return func(*args, **kwargs)


def _by_shape(args: tuple[Any, ...]) -> int:
    """Of a shape as one argument, or as several numbers; a tensor before it does not count."""
    shape = next((arg for arg in args if isinstance(arg, list | tuple)), None)
    return prod(shape if shape is not None else [arg for arg in args if isinstance(arg, int)])


def _by_count(args: tuple[Any, ...]) -> int:
    return int(max((abs(arg) for arg in args if isinstance(arg, int | float)), default=0))


def _square(args: tuple[Any, ...]) -> int:
    sides = [arg for arg in args if isinstance(arg, int)]
    return prod(sides if len(sides) > 1 else sides * 2)


def _repeated(args: tuple[Any, ...]) -> int:
    return args[0].numel() * _by_shape(args) if isinstance(args[0], Tensor) else 0


_SIZES: dict[str, Callable[[tuple[Any, ...]], int]] = {
    **dict.fromkeys(
        ("empty", "zeros", "ones", "full", "rand", "randn", "randint", "normal", "empty_strided"), _by_shape
    ),
    **dict.fromkeys(("new_empty", "new_zeros", "new_ones", "new_full"), _by_shape),
    **dict.fromkeys(("arange", "randperm", "linspace", "logspace"), _by_count),
    "eye": _square,
    "repeat": _repeated,
}
"""Functions of torch that make tensors of a size given by numbers alone, and how many entries their arguments ask for."""
