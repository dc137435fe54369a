"""What a flow, its view in model units and an atlas share: shape, type and device, rows in batches, checks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Literal

import torch
from torch import Tensor, nn

from ..errors import check_finite, in_transform
from ..flows.injection import Injection, Shape, check_shape


class Batched(ABC):
    """A model of rows, which it takes a batch at a time."""

    @abstractmethod
    def parameters(self) -> Iterator[nn.Parameter]:
        """Of all its parts."""

    @abstractmethod
    def rows_at_once(self) -> int:
        """Rows whose bundle of d tangents takes about 128 MiB in float32 when no graph is kept."""

    @property
    @abstractmethod
    def data_shape(self) -> Shape:
        """Event shape of x; its entries number D."""

    @property
    def ambient_dim(self) -> int:
        """D."""
        return prod(self.data_shape)

    @property
    def kind(self) -> Literal["table", "image"]:
        """What a row is: a row of a table, or an image (C, H, W)."""
        return "image" if len(self.data_shape) == 3 else "table"

    @property
    def dtype(self) -> torch.dtype:
        """Of the parameters; float32 for a flow that has none."""
        return next((p.dtype for p in self.parameters()), torch.float32)

    @property
    def row_dtype(self) -> torch.dtype:
        """The preferred type of rows; the model's own type is accepted too.

        Float64 for a table that is standardised or has periodic columns: rows that were rounded before lose digits there.
        """
        return torch.float64 if any(link.takes_float64 for link in self.unit_layers()) else self.dtype

    def unit_layers(self) -> list[Injection]:
        """The trailing layers, in generative order, that turn the model's units into the user's; a view has none."""
        return []

    @property
    def device(self) -> torch.device:
        """Of the parameters; the CPU for a flow that has none."""
        return next((p.device for p in self.parameters()), torch.device("cpu"))

    def in_batches(self, function: Callable[[Tensor], Tensor], rows: Tensor, batch_size: int | None = None) -> Tensor:
        """The function of all rows, (B, …), a batch at a time to bound memory.

        Args:
            function: of rows; its values have them as their first dimension too.
            rows: points or coordinates, (B, …).
            batch_size: rows at a time; :meth:`rows_at_once` when no graph is kept, all of them otherwise.
        """
        return torch.cat([function(part) for part in self._batches(rows, batch_size)])

    def _batches(self, rows: Tensor, batch_size: int | None) -> Sequence[Tensor]:
        if batch_size is not None and batch_size < 1:
            raise ValueError(f"expected batch_size ≥ 1 or None; got {batch_size}")
        if batch_size is None:
            if in_transform(rows) or self._keeps_graph(rows):
                return [rows]
            batch_size = self.rows_at_once()
        return rows.split(batch_size) if len(rows) > batch_size else [rows]

    def _keeps_graph(self, rows: Tensor) -> bool:
        """Whether a function of rows and parameters can be differentiated afterwards."""
        return torch.is_grad_enabled() and (rows.requires_grad or any(p.requires_grad for p in self.parameters()))

    def _dtype_beside(self, values: Tensor) -> torch.dtype:
        """Of the parameters; a flow that has none takes that of the values."""
        return next((p.dtype for p in self.parameters()), values.dtype)

    def _check_rows(self, x: Tensor) -> None:
        """Refuse anything but a tensor of rows in a type that the flow takes."""
        self._check_kind(x, self.data_shape, self.row_dtype)

    def _check_kind(self, values: Tensor, shape: Shape, other: torch.dtype | None = None) -> None:
        """Refuse anything but a tensor of the flow's type, or of another one, and of that event shape."""
        if not isinstance(values, Tensor):
            raise TypeError(f"expected a torch.Tensor; got {type(values).__name__}. Use torch.as_tensor(x, dtype=…)")
        check_shape(values, shape)
        own = self._dtype_beside(values)
        if values.dtype not in (own, other):
            both = f"{own}, as the flow has" + (f", or {other}" if other not in (None, own) else "")
            raise ValueError(f"expected {both}; got {values.dtype}. Use x.to({other or own}), or flow.to(x.dtype)")

    def _check(self, x: Tensor, finite: bool = True) -> None:
        self._check_rows(x)
        if finite:
            check_finite(x, "input", "Drop or repair those rows before scoring them.")


def squared_distance(x: Tensor, x_hat: Tensor) -> Tensor:
    """‖x − x̂‖² of every row, (B,), float64."""
    return (x.double() - x_hat.double()).flatten(1).square().sum(dim=1)
