r"""Why a row is unusual: what each of its columns adds to the outlier score, and what a typical row like it has there.

A row is repaired, one column at a time: of all columns, the one whose best other value lowers the outlier score s most is
given that value, and the column's contribution is by how much s falls. The values tried in a column are those of the known
rows that are nearest by all *other* columns, so a value is judged by what goes with it. This goes on until the row is no
more unusual than half of the usual ones, or no column helps. What is left of s is shared by squared distance from the
nearest typical point (model units), so that

.. math:: \sum_j c_j(x) = s(x), \qquad c_j \ge 0, \text{ in nats.}

Rows and columns are compared in the model's units: the units of a column change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ..atlas import Model
from ..data.columns import UsedColumns
from ..data.rows import Rows, take
from ..errors import NumericalError
from ..manifold import Scores
from ..metrics.arrays import Array
from ..runs.calibration import Calibration
from ..runs.saved import SavedRun
from .scores import score_rows

_NEAREST = 5  # known rows whose values are tried in a column
_FAR = 2.0  # standard deviations; two values farther apart than this are just different
_STEPS = 8  # columns repaired at most
_LEAST = 0.02  # nats that a repair has to gain
_CELLS = 2**24  # of the largest array at a time
_LARGEST = 1e15  # standard deviations, beyond which a value is taken for this


@dataclass(frozen=True, eq=False)
class Explanation:
    """Why rows are unusual.

    Attributes:
        score: the outlier score of every row, (N,), in nats.
        contributions: of every column to it, (N, D): they add up to the score.
        nearest: the nearest typical point on the manifold, (N, D), in the units of the data.
        difference: of the row from it, (N, D).
        columns: D names.
        p_value: of the outlier scores, (N,).
        values: of the row itself, (N, D).
    """

    score: Array
    contributions: Array
    nearest: Array
    difference: Array
    columns: tuple[str, ...]
    p_value: Array
    values: Array

    @classmethod
    def cat(cls, parts: Sequence[Explanation]) -> Explanation:
        """The explanations of several parts of the rows as one."""
        names = ("score", "contributions", "nearest", "difference", "p_value", "values")
        whole = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
        return cls(columns=parts[0].columns, **whole)

    def with_columns(self, used: UsedColumns, values: Array, columns: Sequence[str], surprise: Array) -> Explanation:
        """With the columns that the model leaves out.

        Args:
            used: which columns the model sees.
            values: all columns of the rows, (N, D).
            columns: their names.
            surprise: what the columns left out add to the score, (N,).
        """
        nearest, contributions = used.restore(self.nearest), used.spread(self.contributions)
        difference, off = used.spread(self.difference), used.off(values)
        difference[:, used.left_out] = off
        count = np.maximum((off != 0).sum(axis=1), 1)
        contributions[:, used.left_out] = (off != 0) * (surprise / count)[:, None]
        whole = {"contributions": contributions, "nearest": nearest, "difference": difference, "values": values}
        return replace(self, score=self.score + surprise, columns=tuple(columns), **whole)

    def table(self, difference: bool = False) -> dict[str, Array]:
        """As columns of a file: ``why_COLUMN``, ``nearest_COLUMN`` and, if asked for, ``difference_COLUMN``."""
        parts = {"why": self.contributions, "nearest": self.nearest}
        parts |= {"difference": self.difference} if difference else {}
        return {f"{part}_{c}": values[:, j] for part, values in parts.items() for j, c in enumerate(self.columns)}

    def most_unusual(
        self, count: int = 5, name: Callable[[int], str] = lambda row: f"row {row + 1}"
    ) -> list[UnusualRow]:
        """The rows with the largest scores, falling, and their reasons.

        Args:
            count: how many.
            name: of a row by its index.
        """
        order = [int(i) for i in np.argsort(-self.score, kind="stable")[:count]]
        return [UnusualRow(i, name(i), float(self.score[i]), float(self.p_value[i]), self.reasons(i)) for i in order]

    def reasons(self, row: int, most: int = 3) -> list[Reason]:
        """The columns that add most to the score of a row, largest first; those that add a tenth of the first, at least."""
        order = np.argsort(-self.contributions[row], kind="stable")[:most]
        least = 0.1 * self.contributions[row, order[0]]
        return [
            Reason(
                self.columns[j],
                float(self.contributions[row, j]),
                float(self.values[row, j]),
                float(self.nearest[row, j]),
            )
            for j in order
            if self.contributions[row, j] >= least
        ]


@dataclass(frozen=True)
class Reason:
    """One column of an unusual row: what it adds to the score, its value, and what is typical there."""

    column: str
    nats: float
    value: float
    nearest: float

    def __str__(self) -> str:
        both = [f"{self.value:.4g}", f"{self.nearest:.4g}"]
        if both[0] == both[1]:
            both = [f"{self.value:.10g}", f"{self.nearest:.10g}"]
        return f"{self.column} = {both[0]}, typical {both[1]} ({self.nats:.3g} nats)"


@dataclass(frozen=True)
class UnusualRow:
    """An unusual row: its index and name, its outlier score and p-value, and the columns that add most to the score."""

    index: int
    name: str
    score: float
    p_value: float
    reasons: list[Reason]

    def __str__(self) -> str:
        return (
            f"{self.name}: outlier score {self.score:.3g}, p = {self.p_value:.2g}; {'; '.join(map(str, self.reasons))}"
        )


def unusual_rows(run: SavedRun, rows: Rows, name: str, count: int = 6) -> list[UnusualRow]:
    """The most unusual of some rows, and why; none where the run has no density in all columns.

    Args:
        run: of a table.
        rows: (N, D).
        name: of a row, before its number.
        count: how many.
    """
    flow, calibration = run.flow, run.calibration
    if not can_explain(flow, calibration) or calibration is None or run.sphere is not None or not len(rows):
        return []
    score = calibration.outlier_score(score_rows(flow, rows))
    order = np.sort(np.argsort(-score, kind="stable")[:count])
    found = explain(flow, calibration, take(rows, torch.from_numpy(order), dtype=flow.row_dtype), run.columns)
    return found.most_unusual(count, lambda row: f"{name} {order[row] + 1}")


def can_explain(flow: Model, calibration: Calibration | None) -> bool:
    """Whether a model has what an explanation needs: a density in all columns of a table, and known rows."""
    known = calibration is not None and calibration.reference is not None
    return flow.kind == "table" and flow.scatter is not None and known


@torch.no_grad()
def explain(
    flow: Model,
    calibration: Calibration | None,
    rows: Rows,
    columns: Sequence[str],
    *,
    scores: Scores | None = None,
) -> Explanation:
    """What each column adds to the outlier score of every row.

    Args:
        flow: a model with a density in R^D.
        calibration: of the model, with reference rows.
        rows: (N, D).
        columns: D names.
        scores: of the rows, if they are known.

    Raises:
        ValueError: the model has no density in R^D, or no calibration.

    Cost: for each row some 5 D densities for every column repaired, and R D for R reference rows.
    """
    if flow.kind == "image":
        raise ValueError("explanations are for tables; this is a model of images")
    if not can_explain(flow, calibration) or calibration is None or calibration.reference is None:
        raise ValueError(
            "an explanation needs a density in all columns and a calibration, which this model has not: it was not "
            "finished, made by version 0.1, or saved without them. Train it again"
        )
    scores = score_rows(flow, rows) if scores is None else scores
    repair = _Repair(flow, calibration)
    step = max(1, _CELLS // calibration.reference.size)
    y = scores.model_rows.double().nan_to_num(0.0).clamp(-_LARGEST, _LARGEST)
    whole = calibration.outlier_score(scores)
    parts = [repair(y[i : i + step], whole[i : i + step]) for i in range(0, len(y), step)]
    nearest = repair.to_data(torch.cat([part[1] for part in parts])).cpu().double().numpy()
    values = take(rows, slice(None)).double().cpu()
    turned = None if flow.periodic is None else flow.periodic.difference(values, torch.from_numpy(nearest)).numpy()
    difference = values.numpy() - nearest if turned is None else turned
    contributions = np.concatenate([part[0] for part in parts])
    p_value = calibration.p_value(whole)
    return Explanation(whole, contributions, nearest, difference, tuple(columns), p_value, values.numpy())


class _Repair:
    """Repairs rows in the model's units, and says which columns it took."""

    def __init__(self, flow: Model, calibration: Calibration):
        assert calibration.reference is not None
        self.flow, self.calibration = flow, calibration
        self.reference = torch.from_numpy(calibration.reference)
        # which of the model's columns belong to each of the user's, (D, model's): a periodic one has two
        self.own = torch.tensor(flow.column_of) == torch.arange(flow.ambient_dim)[:, None]
        self.level = float(np.median(calibration.usual))
        usual = self.score(self.reference)
        self.typical = self.reference[torch.from_numpy(usual <= max(self.level, float(np.quantile(usual, 0.5))))]

    def __call__(self, y: Tensor, score: Array) -> tuple[Array, Tensor]:
        """Contributions to the scores, (n, D), and the nearest typical points on the manifold, (n, D)."""
        now, left, found = y.clone(), score.copy(), np.zeros((len(y), len(self.own)))
        open_ = left > self.level
        for _ in range(min(_STEPS, len(self.own))):
            rows = np.flatnonzero(open_)
            if not len(rows):
                break
            best, columns, values = self._best(now[rows])
            gain = np.subtract(left[rows], best, where=np.isfinite(best), out=np.zeros(len(rows)))
            helped = gain > _LEAST
            chosen = rows[helped]
            now[chosen] = values[torch.from_numpy(helped)]
            found[chosen, columns[helped]] += gain[helped]
            left[chosen] = best[helped]
            open_[rows[~helped]] = False
            open_ &= left > self.level
        return self._with_rest(found, left, now)

    def _with_rest(self, found: Array, left: Array, now: Tensor) -> tuple[Array, Tensor]:
        """Share what is left of the scores by squared distance from the nearest typical point."""
        goal = now.clone()
        stuck = np.flatnonzero(left > self.level)
        if len(stuck):
            goal[stuck] = self.typical[_gaps(now[stuck], self.typical).sum(dim=2).argmin(dim=1)]
        goal = self._projected(goal)
        squares = self._by_column((now - goal).square()).numpy()
        total = squares.sum(axis=1, keepdims=True)
        shares = np.where(total > 0, squares / np.where(total > 0, total, 1), 1 / len(self.own))
        return found + np.multiply(shares, left[:, None], where=shares > 0, out=np.zeros_like(shares)), goal

    def _by_column(self, values: Tensor) -> Tensor:
        """Sums of the model's columns over each of the user's, (…, model's) → (…, D)."""
        return values if self.own.shape[0] == self.own.shape[1] else values @ self.own.to(values).mT

    def _best(self, y: Tensor) -> tuple[Array, Array, Tensor]:
        """The lowest score that changing one column gives and which column, (n,) each, and the row with it, (n, model's)."""
        n, width = y.shape
        near = self.reference[_rows_nearby(self._by_column(_gaps(y, self.reference)))]
        tried = torch.where(self.own[None, :, None], near, y[:, None, None])
        scores = self.score(tried.view(-1, width)).reshape(n, -1)
        best = scores.argmin(axis=1)
        rows = tried.view(n, -1, width)[torch.arange(n), torch.from_numpy(best)]
        return scores[np.arange(n), best], best // near.shape[2], rows

    def score(self, y: Tensor) -> Array:
        """Outlier scores of rows in the model's units, (n,)."""
        x = self.to_data(y)
        ambient = torch.cat([_ambient(self.flow, part) for part in x.split(self.flow.rows_at_once())])
        return np.maximum(*self.calibration.ambient_tails(ambient.cpu().numpy(), y.numpy()).values())

    def to_data(self, y: Tensor) -> Tensor:
        """Rows in the user's units, as the flow takes them."""
        return self.flow.to_data_units(y.to(self.flow.device, self.flow.row_dtype))

    def _projected(self, y: Tensor) -> Tensor:
        """On the manifold; a row that the model cannot take stays where it is."""

        def project(part: Tensor) -> Tensor:
            return self.flow.in_model_units.project(part)

        return _safely(project, y.to(self.flow.device, self.flow.dtype), lambda row: row).cpu().double()


def _gaps(y: Tensor, reference: Tensor) -> Tensor:
    """Squared differences of rows from reference rows, column by column, bounded, (n, R, D)."""
    return (y[:, None] - reference).abs_().clamp_max_(_FAR).square_()


def _rows_nearby(gaps: Tensor) -> Tensor:
    """The reference rows nearest by all columns but one, for each column, (n, R, D) → (n, D, K)."""
    total, count = gaps.sum(dim=2), min(_NEAREST, gaps.shape[1])
    others = ((total - gaps[:, :, column]) for column in range(gaps.shape[2]))
    return torch.stack([each.topk(count, dim=1, largest=False).indices for each in others], dim=1)


def _ambient(flow: Model, x: Tensor) -> Tensor:
    """Smooth log-densities in R^D, (n,); −∞ where the model overflows."""

    def smooth(rows: Tensor) -> Tensor:
        return flow.ambient_log_prob(rows, smooth=True)

    found = _safely(smooth, x, lambda row: torch.full((1,), -torch.inf, dtype=torch.float64).to(row.device))
    return torch.where(found.isfinite(), found, -torch.inf)


def _safely(function: Callable[[Tensor], Tensor], rows: Tensor, otherwise: Callable[[Tensor], Tensor]) -> Tensor:
    """The function of all rows, and something else of those it fails for."""
    try:
        return function(rows)
    except NumericalError:
        if len(rows) == 1:
            return otherwise(rows)
        return torch.cat([_safely(function, part, otherwise) for part in rows.tensor_split(2)])
