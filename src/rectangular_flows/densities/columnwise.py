r"""Columns one after another: each a mixture of Gaussians and of uniform cells, given all columns before it.

.. math:: p(y) = \prod_i \Bigl[\sum_k a_{ik}\, \mathcal N(y_i;\ \mu_{ik}, \sigma_{ik}^2)
          + \sum_b c_{ib}\, \frac{1[y_i \in C_{ib}]}{|C_{ib}|}\Bigr],

where a masked network of the columns before i gives weights, means and widths. Cells take what no smooth density can:
columns of few values, values that occur again and again, sharp edges. The network sees the cell beside the value.

References: Germain et al., MADE, arXiv:1502.03509; Nash & Durkan, Autoregressive energy machines, arXiv:1904.05626 (residual
blocks).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..adam import EagerAdam
from .base import Density, draw_normal
from .cells import FINEST, cell_edges, shared_values

_BEND = 10.0  # standard deviations beyond which the network sees less and less of a difference
_RIDGE = 1e-3  # of the variance of a column, in the linear start
_NARROW = 0.05  # least width of a Gaussian where it starts, in deviations of the residual
_MOST_CELLS, _ALL_CELLS = 64, 2_000  # of a column, and of all
_AT_ONCE = 2_000  # rows
_RATE, _BATCH, _CLIP, _DECAY, _WARM_UP = 1e-2, 250, 5.0, 0.99, 20
_DROPOUT, _FEW = 0.2, 5_000  # share of the blocks' units left out while training on fewer rows
_VALIDATIONS, _WAIT, _JUDGED = 30, 8, 2_000


class ColumnwiseDensity(Density):
    """The density above.

    Args:
        features: D.
        cells: the most that a column has.
        components: Gaussians of a column.
        hidden: width of the network.
        blocks: residual blocks of the network.

    Samples from the cell of a value that many rows share have that value, as data do.

    Cost: one pass of the network a density; D passes a sample.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> rows = torch.randn(500, 2)
        >>> density = ColumnwiseDensity.started(rows)
        >>> density.log_prob(rows).shape, density.sample(5).shape
        (torch.Size([500]), torch.Size([5, 2]))
    """

    edges: Tensor
    known: Tensor
    shared: Tensor
    is_shared: Tensor
    lower: Tensor

    def __init__(self, features: int, cells: int = 1, components: int = 8, hidden: int = 128, blocks: int = 2):
        super().__init__()
        self.features, self.cells, self.components = features, cells, components
        self.outputs = 3 * components + cells
        column, unit = torch.arange(features), torch.arange(hidden) % max(features - 1, 1)
        sees = torch.cat([column, column.repeat_interleave(cells)])
        self.first = _Masked(unit[:, None] >= sees)
        inner = unit[:, None] >= unit
        self.blocks = nn.ModuleList(nn.ModuleList([_Masked(inner), _Masked(inner)]) for _ in range(blocks))
        self.last = _Masked(column.repeat_interleave(self.outputs)[:, None] > unit)
        self.linear = nn.Parameter(torch.zeros(features, features))
        for layer in (self.last, *(block[1] for block in self.blocks)):  # type: ignore[index]
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)
        self.register_buffer("lower", torch.ones(features, features).tril(-1), persistent=False)
        self.register_buffer("edges", torch.full((features, cells + 1), math.inf))
        self.register_buffer("known", torch.zeros(features, cells, dtype=torch.bool))
        self.register_buffer("shared", torch.zeros(features, cells))
        self.register_buffer("is_shared", torch.zeros(features, cells, dtype=torch.bool))

    @classmethod
    def started(cls, rows: Tensor, seed: int = 0) -> ColumnwiseDensity:
        """With as many cells as the rows ask for, started from them, (N, D)."""
        most = max(4, min(_MOST_CELLS, _ALL_CELLS // rows.shape[1]))
        values = rows.double().cpu().numpy().T
        edges = [cell_edges(column, most, seed) for column in values]
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            density = cls(rows.shape[1], max(len(edge) for edge in edges) - 1)
        for i, edge in enumerate(edges):
            density.edges[i, : len(edge)] = torch.from_numpy(edge)
            density.known[i, : len(edge) - 1] = True
            for value in shared_values(values[i], most):
                cell = int(edge.searchsorted(value, side="right")) - 1
                density.shared[i, cell], density.is_shared[i, cell] = float(value), True
        density.to(rows.device, rows.dtype).initialise(rows)
        return density

    @torch.no_grad()
    def initialise(self, z: Tensor) -> None:
        """Start as linear regressions on the columns before, residuals at their quantiles; cells at their shares."""
        rows, count = z.double(), self.components
        spread = rows.std(dim=0, correction=0).clamp_min(1e-30)
        centred = (rows - rows.mean(dim=0)) / spread
        root = torch.linalg.cholesky(centred.mT @ centred / len(rows) + _RIDGE * torch.eye(len(spread)).to(rows))
        inverse = torch.linalg.solve_triangular(root, torch.eye(len(spread)).to(rows), upper=False)
        linear = (-root.diagonal()[:, None] * inverse).tril(-1) * spread[:, None] / spread
        residuals = rows - rows @ linear.mT
        places = (torch.arange(count, device=rows.device, dtype=rows.dtype) + 0.5) / count
        means = torch.quantile(residuals[:20_000], places, dim=0).mT
        gaps = torch.gradient(means, dim=1)[0] if count > 1 else spread[:, None]
        least = _NARROW * residuals.std(dim=0, correction=0)[:, None]
        place, inside = self._cells(z)
        shares = (F.one_hot(place, self.cells) * inside[..., None]).sum(dim=0) + 0.5
        start = torch.zeros(self.features, self.outputs, dtype=rows.dtype, device=rows.device)
        start[:, :count] = -math.log(count)
        start[:, count : 2 * count] = means
        start[:, 2 * count : 3 * count] = torch.maximum(gaps, least).clamp_min(FINEST).log()
        start[:, 3 * count :] = (shares / shares.sum(dim=1, keepdim=True)).log()
        self.linear.copy_(linear)
        self.last.bias.copy_(start.flatten())

    # --- the density

    def log_prob(self, z: Tensor) -> Tensor:
        """log p(z), (B, D) → (B,)."""
        return torch.cat([self._log_prob(part) for part in z.split(_AT_ONCE)])

    def _log_prob(self, z: Tensor, dropout: float = 0.0) -> Tensor:
        count = self.components
        place, inside = self._cells(z)
        given = self.last(self._hidden(z, place, inside, dropout)).unflatten(1, (self.features, self.outputs))
        weights = self._log_weights(given)
        log_width = given[..., 2 * count : 3 * count].clamp_min(math.log(FINEST))
        centre = F.linear(z, self.linear * self.lower)[..., None] + given[..., count : 2 * count]
        off = (z[..., None] - centre) * (-log_width).exp()
        smooth = weights[..., :count] - log_width - 0.5 * (off * off + math.log(2 * math.pi))
        chosen = weights[..., count:].gather(-1, place[..., None])
        width = (self.edges[:, 1:] - self.edges[:, :-1]).expand(len(z), -1, -1).gather(-1, place[..., None])
        flat = torch.where(inside[..., None], chosen - width.log(), -torch.inf)
        return torch.cat([smooth, flat], dim=-1).logsumexp(dim=-1).sum(dim=1)

    def _log_weights(self, given: Tensor) -> Tensor:
        """Of the Gaussians and the cells of every column, (B, D, K + cells)."""
        cells = given[..., 3 * self.components :].masked_fill(~self.known[: given.shape[1]], -torch.inf)
        return torch.cat([given[..., : self.components], cells], dim=-1).log_softmax(dim=-1)

    def _cells(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Which cell every value lies in, and whether it lies in one, (B, D) each."""
        place = torch.searchsorted(self.edges, z.detach().mT.contiguous(), right=True).mT - 1
        last = self.known.sum(dim=1) - 1
        return place.clamp_min(0).minimum(last), (place >= 0) & (place <= last)

    def _hidden(self, z: Tensor, place: Tensor, inside: Tensor, dropout: float = 0.0) -> Tensor:
        where = F.one_hot(place, self.cells) * inside[..., None]
        seen = torch.cat([z / (1 + z.abs() / _BEND), where.flatten(1).to(z.dtype)], dim=1)
        hidden: Tensor = self.first(seen)
        for block in self.blocks:
            first, second = block.children()
            inner = F.silu(first(F.silu(hidden)))
            hidden = hidden + second(F.dropout(inner, dropout) if dropout else inner)
        return F.silu(hidden)

    # --- samples

    @torch.no_grad()
    def sample(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        parts = [self._sample(min(_AT_ONCE, count - i), generator) for i in range(0, count, _AT_ONCE)]
        return torch.cat(parts) if parts else self.linear.new_zeros(0, self.features)

    def _sample(self, count: int, generator: torch.Generator | None) -> Tensor:
        K, z = self.components, self.linear.new_zeros(count, self.features)
        device = z.device if generator is None else generator.device
        weight, bias = self.last.weight.view(self.features, self.outputs, -1), self.last.bias.view(self.features, -1)
        masks = self.last.mask.view_as(weight)
        for i in range(self.features):
            hidden = self._hidden(z, *self._cells(z))
            given = F.linear(hidden, weight[i] * masks[i], bias[i])
            cells = given[:, 3 * K :].masked_fill(~self.known[i], -torch.inf)
            odds = torch.cat([given[:, :K], cells], dim=1).softmax(dim=1)
            part = torch.multinomial(odds.to(device), 1, generator=generator).to(z.device)
            smooth = part.clamp_max(K - 1)
            centre = z @ (self.linear * self.lower)[i] + given[:, K : 2 * K].gather(1, smooth)[:, 0]
            width = given[:, 2 * K : 3 * K].gather(1, smooth)[:, 0].clamp_min(math.log(FINEST)).exp()
            low = (part - K).clamp_min(0)[:, 0]
            uniform = torch.rand(count, dtype=z.dtype, device=device, generator=generator).to(z.device)
            drawn = centre + width * draw_normal((count,), z, generator)
            in_cell = self.edges[i, low] + uniform * (self.edges[i, low + 1] - self.edges[i, low])
            in_cell = torch.where(self.is_shared[i, low], self.shared[i, low], in_cell)
            z[:, i] = torch.where(part[:, 0] < K, drawn, in_cell)
        return z

    # --- training

    @torch.no_grad()
    def train_on(
        self,
        rows: Tensor,
        held_out: Tensor,
        steps: int,
        seed: int = 0,
        least: float = -math.inf,
        on_step: Callable[[int, int], None] | None = None,
    ) -> None:
        """Maximum likelihood by Adam on averaged weights; ends with those that were best on the rows held out.

        Args:
            rows: (N, D).
            held_out: others, (M, D), M ≥ 1, of which at most 2,000 judge.
            steps: the most; it stops early where the rows held out get no better.
            seed: of batches and dropout.
            least: mean log-density of the rows held out that a third of the steps must reach, or it is given up.
            on_step: called after every step with its number and ``steps``.
        """
        parameters: list[Tensor] = [p.requires_grad_() for p in self.parameters()]
        optimiser = EagerAdam(parameters, _RATE)
        generator, judged = torch.Generator().manual_seed(seed), held_out[:_JUDGED]
        dropout = _DROPOUT if len(rows) < _FEW else 0.0
        average = [p.detach().clone() for p in parameters]
        best, weights, waited = float(self.log_prob(judged).mean()), copy.deepcopy(average), 0
        every = max(10, steps // _VALIDATIONS)
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            for step in range(1, steps + 1):
                batch = rows[torch.randint(len(rows), (min(_BATCH, len(rows)),), generator=generator).to(rows.device)]
                rate = 0.5 * (1 + math.cos(math.pi * step / steps)) * min(1.0, step / _WARM_UP)
                optimiser.param_groups[0]["lr"] = _RATE * rate
                for parameter in parameters:
                    parameter.grad = None
                with torch.enable_grad():
                    (-self._log_prob(batch, dropout).mean()).backward()
                nn.utils.clip_grad_norm_(parameters, _CLIP)
                optimiser.step()
                keep = min(_DECAY, (1 + step) / (10 + step))
                for mean, parameter in zip(average, parameters, strict=True):
                    mean.lerp_(parameter, 1 - keep)
                if on_step is not None:
                    on_step(step, steps)
                if step % every and step < steps:
                    continue
                current = [p.detach().clone() for p in parameters]
                _copy(parameters, average)
                value = float(self.log_prob(judged).mean())
                waited += 1
                if value > best:
                    best, weights, waited = value, copy.deepcopy(average), 0
                _copy(parameters, current)
                if waited > _WAIT or (step > steps / 3 and best < least):
                    break
        _copy(parameters, weights)
        self.requires_grad_(False)


class _Masked(nn.Linear):
    """A linear layer some of whose weights are nought, (outputs, inputs)."""

    mask: Tensor

    def __init__(self, mask: Tensor):
        super().__init__(mask.shape[1], mask.shape[0])
        self.register_buffer("mask", mask.to(self.weight.dtype), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight * self.mask, self.bias)


def _copy(parameters: list[Tensor], values: list[Tensor]) -> None:
    for parameter, value in zip(parameters, values, strict=True):
        parameter.copy_(value)
