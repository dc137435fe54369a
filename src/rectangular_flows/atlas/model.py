r"""An atlas: several rectangular flows, its charts, that cover one manifold or several pieces together.

.. math:: p(x) = \sum_k \pi_k\, p_k(x_k)\, e^{-\|x - x_k\|^2 / 2\sigma^2}, \qquad x_k = f_k(f_k^\dagger(x)),

for x on one of the charts: each of them counts where x lies on it, up to σ. Distances are in the model's units.

**What is normalised.** Every p_k integrates to one over its chart, so p does over their union where charts that overlap run
along each other, nearer than σ, and count as one sheet; a chart that leaves another at less than σ counts twice there. The
density in R^D has no such condition: it is a mixture of densities in R^D, and integrates to one exactly.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn

from ..densities.scatter import Scatter
from ..errors import warn
from ..flows.description import Described
from ..flows.injection import Injection
from ..flows.periodic import Periodic
from ..manifold import Manifold, ModelUnits, RectangularFlow, Scores, squared_distance
from ..partition import Partition, partition
from ..volume import Exact
from .charts import Charts
from .scores import scores_of, unit_change

_NEGLIGIBLE = 50.0  # nats that a chart is behind the nearest by its distance alone, at which it counts no more
_WIDER = 3.0  # times the distance of rows: see width_of
_LEAST_SIGMA = 0.04
_SPREAD = 0.1  # σ before it is fitted: standard deviations of standardised columns


class Atlas(Charts, Described, nn.Module):
    """Several charts with weights, as one model: the methods are those of :class:`~rectangular_flows.RectangularFlow`.

    Args:
        charts: flows on the same data and of the same latent dimension, with the same layers that change units.
        weights: π, one positive number for each chart; equal ones unless given. They are trained.
        sigma: σ, in the model's units: how near to a chart counts as on it. Training fits it to held-out rows.

    Example:
        >>> from rectangular_flows import flows
        >>> charts = [RectangularFlow(flows.RealNVP(3), flows.RealNVP(2)) for _ in range(2)]
        >>> atlas = Atlas(charts, weights=[0.3, 0.7])
        >>> x = torch.randn(10, 3)
        >>> chart, z = atlas.encode(x)
        >>> torch.allclose(atlas.decode(chart, z), atlas.project(x), atol=1e-5)
        True
        >>> atlas.log_prob(x).shape, atlas.sample(100).shape
        (torch.Size([10]), torch.Size([100, 3]))
    """

    sigma: Tensor
    charts: Sequence[RectangularFlow]

    def __init__(
        self, charts: Sequence[RectangularFlow], weights: Sequence[float] | None = None, sigma: float = _SPREAD
    ):
        super().__init__()
        flows = list(charts)
        if not flows or not all(isinstance(chart, RectangularFlow) for chart in flows):
            raise TypeError("expected charts as a sequence of at least one RectangularFlow")
        for name in ("data_shape", "latent_dim"):
            found = [getattr(chart, name) for chart in flows]
            if len(set(found)) > 1:
                raise ValueError(f"expected charts of one {name}; got {', '.join(map(str, found))}")
        units = [nn.ModuleList(chart.unit_layers()).state_dict() for chart in flows]
        if any(
            unit.keys() != units[0].keys() or not all(torch.equal(unit[name], units[0][name]) for name in unit)
            for unit in units
        ):
            raise ValueError("expected charts with the same layers that change units (Standardise, Logit); got others")
        shares = torch.ones(len(flows)) if weights is None else torch.tensor([float(weight) for weight in weights])
        if shares.shape != (len(flows),) or not bool((shares > 0).all()) or not bool(shares.isfinite().all()):
            raise ValueError(f"expected {len(flows)} positive weights, one for each chart; got {weights}")
        if not sigma > 0:
            raise ValueError(f"expected sigma > 0; got {sigma}")
        self.charts = nn.ModuleList(flows)  # type: ignore[assignment]
        dtype, device = flows[0].dtype, flows[0].device
        self.logits = nn.Parameter((shares / shares.sum()).log().to(device, dtype))
        self.register_buffer("sigma", torch.tensor(float(sigma), dtype=dtype, device=device))
        self.start: Partition | None = None

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
        return nn.Module.parameters(self, recurse)

    def _flows(self) -> list[Manifold]:
        return list(self.charts)

    @property
    def weights(self) -> Tensor:
        """π, (K,)."""
        return self.logits.softmax(dim=0)

    # --- units

    @property
    def _first(self) -> RectangularFlow:
        return self.charts[0]

    @property
    def in_model_units(self) -> AtlasUnits:
        """The same atlas in the model's units."""
        return AtlasUnits(self)

    def unit_layers(self) -> list[Injection]:
        return self._first.unit_layers()

    @property
    def periodic(self) -> Periodic | None:
        """The layer of columns that are angles, which an atlas has none of."""
        return self._first.periodic

    @property
    def angles(self) -> int:
        """Of columns that are angles."""
        return self._first.angles

    @property
    def column_of(self) -> list[int]:
        """The column of the data that each of the model's belongs to."""
        return self._first.column_of

    def to_model_units(self, x: Tensor) -> Tensor:
        """x as the model sees it."""
        return self._first.to_model_units(x)

    def to_data_units(self, y: Tensor) -> Tensor:
        """The inverse of :meth:`to_model_units`."""
        return self._first.to_data_units(y)

    # --- starting from data

    @torch.no_grad()
    def initialise(self, x: Tensor, *, latent: bool = True) -> None:
        """Part the rows, separate pieces first, and start every chart from its own part: see :mod:`.partition`.

        Args:
            x: rows, (B, *data_shape), in random order.
            latent: whether to start the latent densities too.
        """
        self._check(x)
        y = self.to_model_units(x)
        self.start = partition(y.double().cpu().numpy(), len(self.charts))
        inside = self.start(y)
        for k, chart in enumerate(self.charts):
            chart.initialise(x[inside[:, k]], latent=False)
        if latent:
            self.initialise_latent(x)

    @torch.no_grad()
    def initialise_latent(self, x: Tensor) -> None:
        """Start the latent densities and the weights from the rows of each chart, where the charts are now."""
        y = self.to_model_units(x)
        chart = self.chart_of(x) if self.start is None else self.start.one_of(y, 0)
        for k, flow in enumerate(self._flows()):
            rows = x[chart == k]
            if len(rows) > flow.latent_dim + 1:
                flow.latent.initialise(flow.in_batches(flow.encode, rows))
        counts = torch.bincount(chart, minlength=len(self.charts)) + 1.0
        self.logits.copy_((counts / counts.sum()).log())

    def latent_parameters(self) -> Iterator[nn.Parameter]:
        """Of the latent densities and the weights."""
        yield self.logits
        for flow in self._flows():
            yield from flow.latent.parameters()

    # --- which chart

    def log_joint(self, y: Tensor) -> Tensor:
        r"""log π_k + log p_k(y_k) − ‖y − y_k‖²/2σ² of rows in the model's units, (B, K), float64.

        −∞ for charts that are farther than the nearest one by 100 σ² or more, squared: their volumes are not computed.
        """
        views = [chart.in_model_units for chart in self.charts]
        z = [view.encode(y) for view in views]
        apart = torch.stack([squared_distance(y, view.decode(at)) for view, at in zip(views, z, strict=True)], dim=1)
        penalty = apart.nan_to_num(torch.inf, torch.inf) / (2 * self.sigma.double() ** 2)
        matters = penalty - penalty.detach().min(dim=1, keepdim=True).values < _NEGLIGIBLE
        found = []
        for k, (view, at) in enumerate(zip(views, z, strict=True)):
            value = torch.full_like(penalty[:, k], -torch.inf)
            rows = torch.nonzero(matters[:, k]).flatten()
            if len(rows):
                density = view.latent.log_prob(at[rows]) - Exact()(view, at[rows])[1]
                value = value.index_put((rows,), density.double() - penalty[rows, k])
            found.append(value)
        return torch.stack(found, dim=1) + self.logits.double().log_softmax(dim=0)

    @torch.no_grad()
    def responsibilities(self, x: Tensor) -> Tensor:
        """The share of each chart in the density at x, (B, K), float64: rows sum to one."""
        self._check(x)
        return self.in_batches(lambda rows: self.log_joint(self.to_model_units(rows)).softmax(dim=1), x)

    @torch.no_grad()
    def chart_of(self, x: Tensor) -> Tensor:
        self._check_rows(x)
        return self.in_batches(lambda rows: _best(self.log_joint(self.to_model_units(rows))), x)

    # --- the density on the manifold

    def log_prob(self, x: Tensor, *, batch_size: int | None = None, check: bool = True) -> Tensor:
        """Log-density of the projection of x with respect to the Riemannian measure, in the user's units, (B,).

        Args:
            x: points, (B, *data_shape).
            batch_size: rows at a time.
            check: raise on non-finite input, and warn where a chart is not numerically invertible.
        """
        self._check(x, finite=check)

        def part(rows: Tensor) -> Tensor:
            chart = self.chart_of(rows)
            y_hat = self._each(chart, lambda flow, some: flow.in_model_units.project(flow.to_model_units(some)), rows)
            change = self._each(chart, lambda flow, some: unit_change(flow, some, check), rows)
            return torch.logsumexp(self.log_joint(y_hat), dim=1).to(change.dtype) + change

        return self.in_batches(part, x, batch_size)

    @torch.no_grad()
    def score(self, x: Tensor, *, batch_size: int | None = None, check: bool = True) -> Scores:
        """Chart, coordinates, projection, log-density and distance of every row, in both units.

        Args:
            x: rows, (B, *data_shape).
            batch_size: rows at a time.
            check: as in :meth:`log_prob`.
        """
        self._check(x, finite=check)
        return Scores.cat([scores_of(self, part, check) for part in self._batches(x, batch_size)])

    # --- the density in R^D

    @property
    def scatter(self) -> tuple[Scatter, ...] | None:
        """The densities of rows around the charts, one each; None while a chart has none."""
        found = tuple(chart.scatter for chart in self.charts if chart.scatter is not None)
        return found if len(found) == len(self.charts) else None

    def set_scatter(self, scatter: None) -> None:
        """Let the densities of rows around the charts go."""
        for chart in self.charts:
            chart.set_scatter(scatter)

    @property
    def nearest(self) -> int:
        """Steps that the encoders of the charts take to their nearest point."""
        return self._first.nearest

    def set_nearest(self, steps: int) -> None:
        """Let the encoder of every chart take so many steps to its nearest point."""
        for chart in self.charts:
            chart.set_nearest(steps)

    @property
    def can_scatter(self) -> bool:
        """Whether the layers of all charts allow a density in R^D."""
        return all(chart.can_scatter for chart in self.charts)

    @torch.no_grad()
    def fit_scatter(
        self,
        train: Tensor,
        held_out: Tensor,
        seed: int = 0,
        steps: int = 0,
        on_step: Callable[[int, int], None] | None = None,
    ) -> None:
        """Fit the density of rows around every chart: of those rows that it is responsible for, each drawn by its shares.

        Args:
            train: rows that the atlas was trained on, (N, *data_shape).
            held_out: others, (M, *data_shape), M ≥ 1.
            seed: of the draws and of all that is fitted.
            steps: as of a flow; charts share them by their weights.
            on_step: as of a flow.
        """
        before = 0
        draw = torch.Generator().manual_seed(seed)
        sides = [torch.multinomial(self.responsibilities(x).cpu(), 1, generator=draw)[:, 0] for x in (train, held_out)]
        for k, chart in enumerate(self.charts):
            own, judged = train[sides[0].to(train.device) == k], held_out[sides[1].to(held_out.device) == k]
            own = own if len(own) > 1 else train
            share = round(steps * len(own) / len(train))

            def watch(step: int, _: int, before: int = before) -> None:
                if on_step is not None:
                    on_step(min(before + step, steps), steps)

            chart.fit_scatter(own, judged if len(judged) else own, seed, share, watch)
            before += share

    def ambient_log_prob(self, x: Tensor, *, batch_size: int | None = None, smooth: bool = False) -> Tensor:
        r"""Log-density of x itself in R^D, log Σ_k π_k p_k(x), with the scatter of every chart, (B,), float64.

        Args:
            x: rows, (B, *data_shape).
            batch_size: rows at a time.
            smooth: as of a flow.

        Raises:
            ValueError: the charts have no scatter; see :meth:`fit_scatter`.
        """
        parts = [chart.ambient_log_prob(x, batch_size=batch_size, smooth=smooth) for chart in self.charts]
        return torch.logsumexp(torch.stack(parts, dim=1) + self.logits.double().log_softmax(dim=0), dim=1)

    def alone(self, part: str) -> Atlas:
        """The same charts with one part of the density in R^D alone."""
        found = copy.copy(self)
        found._modules = {
            **self._modules,
            "charts": nn.ModuleList([chart.alone(part) for chart in self.charts]),
        }
        return found

    # --- sampling, called as that of a flow

    @torch.no_grad()
    def sample(
        self,
        count: int,
        *,
        generator: torch.Generator | None = None,
        batch_size: int | None = None,
        scatter: bool = False,
    ) -> Tensor:
        """Independent draws: a chart by its weight, then a point of it; (count, *data_shape).

        Args:
            count: how many.
            generator: of random numbers.
            batch_size: rows at a time.
            scatter: with the scatter of data around the charts; otherwise exactly on them.
        """
        if count < 0:
            raise ValueError(f"expected a number of samples ≥ 0; got {count}")
        device = self.device if generator is None else generator.device
        odds = self.weights.float().to(device)
        chart = torch.multinomial(odds, max(count, 1), replacement=True, generator=generator)[:count].to(self.device)
        options = {"generator": generator, "batch_size": batch_size, "scatter": scatter}
        return self._each(chart, lambda flow, rows: flow.sample(len(rows), **options), chart)

    # --- after training

    @torch.no_grad()
    def fit_sigma(self, held_out: Tensor) -> None:
        """σ from rows held out: see :func:`width_of`."""
        least = self.in_batches(lambda rows: self.distances(self.to_model_units(rows)).min(dim=1).values, held_out)
        self.sigma.fill_(width_of(least))

    def distances(self, y: Tensor) -> Tensor:
        """Squared distances of rows in the model's units from every chart, (B, K), float64."""
        views = [chart.in_model_units for chart in self.charts]
        return torch.stack([squared_distance(y, view.project(y)) for view in views], dim=1)

    @torch.no_grad()
    def drop_idle(self, x: Tensor) -> None:
        """Drop the charts that are the most responsible one of no row, with a warning."""
        counts = torch.bincount(self.chart_of(x), minlength=len(self.charts))
        busy = torch.nonzero(counts).flatten().tolist()
        if len(busy) == len(self.charts):
            return
        idle = [str(k) for k in range(len(self.charts)) if k not in busy]
        warn(
            IdleChartWarning, f"charts {', '.join(idle)} lost all rows to others and were dropped; {len(busy)} are left"
        )
        kept = [self.charts[k] for k in busy]
        self.charts = nn.ModuleList(kept)  # type: ignore[assignment]
        self.logits = nn.Parameter(self.logits[busy].log_softmax(dim=0))
        self._arguments = ((kept,), {"weights": None, "sigma": float(self.sigma)})


class IdleChartWarning(UserWarning):
    """A chart of an atlas lost all rows to others."""


class AtlasUnits(Charts):
    """A view of an atlas in the model's units.

    Args:
        atlas: whose charts it shares.
    """

    def __init__(self, atlas: Atlas):
        self.atlas = atlas
        self._views: list[Manifold] = [ModelUnits(chart) for chart in atlas.charts]

    def _flows(self) -> list[Manifold]:
        return self._views

    def parameters(self) -> Iterator[nn.Parameter]:
        return self.atlas.parameters()

    @torch.no_grad()
    def chart_of(self, x: Tensor) -> Tensor:
        return self.in_batches(lambda rows: _best(self.atlas.log_joint(rows)), x)


def width_of(squared: Tensor) -> float:
    """σ for rows at these squared distances from the nearest chart, in the model's units: three times their size.

    Both of two charts that overlap are off by as much, and count as one all the same. Where rows have no noise, charts
    are off by more near their ends, where they have few rows: σ is at least 0.04.
    """
    found = squared[squared.isfinite()]
    return max(_WIDER * float(found.mean().sqrt()), _LEAST_SIGMA) if len(found) else _SPREAD


def _best(joint: Tensor) -> Tensor:
    return joint.nan_to_num(-torch.inf, torch.inf).argmax(dim=1)
