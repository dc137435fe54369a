"""What an atlas and its view in model units share."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from ..flows.injection import Shape
from ..manifold import Batched, Manifold, squared_distance


class Charts(Batched):
    """Several charts: points by their chart and their coordinates on it."""

    @abstractmethod
    def _flows(self) -> list[Manifold]:
        """The charts, in the units of this view."""

    @abstractmethod
    def chart_of(self, x: Tensor) -> Tensor:
        """The number of the most responsible chart of every row, (B,)."""

    @property
    def data_shape(self) -> Shape:
        return self._flows()[0].data_shape

    @property
    def latent_dim(self) -> int:
        """d, the same for all charts."""
        return self._flows()[0].latent_dim

    def rows_at_once(self) -> int:
        flows = self._flows()
        return max(1, min(flow.rows_at_once() for flow in flows) // len(flows))

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The most responsible chart of every row, (B,), and the coordinates on it, (B, d)."""
        chart = self.chart_of(x)
        return chart, self._each(chart, lambda flow, rows: flow.encode(rows), x)

    def decode(self, chart: Tensor, z: Tensor) -> Tensor:
        """The points with coordinates z, (B, d), on the charts of these numbers, (B,)."""
        return self._at(chart, lambda flow, part: flow.decode(part), z)

    def project(self, x: Tensor) -> Tensor:
        """x̂, the projection on the most responsible chart."""
        return self._each(self.chart_of(x), lambda flow, rows: flow.project(rows), x)

    def reconstruction_error(self, x: Tensor) -> Tensor:
        """‖x − x̂‖², (B,), float64."""
        return squared_distance(x, self.project(x))

    def jacobian(self, chart: Tensor, z: Tensor) -> Tensor:
        """∂f_k/∂z, (B, D, d)."""
        return self._at(chart, lambda flow, part: flow.jacobian(part), z)

    def log_volume(self, chart: Tensor, z: Tensor) -> Tensor:
        """½ log det JᵀJ, (B,)."""
        return self._at(chart, lambda flow, part: flow.log_volume(part), z)

    def singular_values(self, chart: Tensor, z: Tensor) -> Tensor:
        """Of the Jacobian, in falling order, (B, d)."""
        return torch.linalg.svdvals(self.jacobian(chart, z))

    def _at(self, chart: Tensor, function: Any, z: Tensor) -> Tensor:
        """The same for coordinates on charts that somebody names."""
        most = len(self._flows()) - 1
        if chart.shape != z.shape[:1]:
            raise ValueError(
                f"expected a chart for each row of z, shape {tuple(z.shape[:1])}; got {tuple(chart.shape)}"
            )
        wrong = torch.unique(chart[~torch.isin(chart, torch.arange(most + 1, device=chart.device))]).tolist()
        if wrong:
            raise ValueError(f"expected charts from 0 to {most}; got {', '.join(map(str, wrong[:5]))}")
        return self._each(chart, function, z)

    def _each(self, chart: Tensor, function: Any, rows: Tensor) -> Tensor:
        """A function of every chart and the rows that it is asked for, in the order of the rows."""
        flows = self._flows()
        found = [(k, torch.nonzero(chart == k).flatten()) for k in range(len(flows))]
        found = [(k, index) for k, index in found if len(index)] or [(0, torch.nonzero(chart == 0).flatten())]
        values = torch.cat([function(flows[k], rows[index]) for k, index in found])
        return values[torch.cat([index for _, index in found]).argsort()]
