"""The numbers of a verdict, from a flow, rows that it was trained on and rows that it was not."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..atlas import Atlas, Model, by_chart
from ..data.discrete import Levels
from ..data.rows import Rows, shuffled, take
from ..densities import ClosedMixture
from ..errors import NumericalError
from ..flows import Standardise
from ..manifold.ambient import unit_log_det
from ..metrics.arrays import Array
from ..metrics.dimension import DuplicateRowsWarning, maximum_likelihood
from ..metrics.pieces import count_pieces, crowding, link_length, off_planes, usual_distance
from ..metrics.two_sample import classifier_two_sample, equally_many, sliced_wasserstein
from .verdict import ENOUGH, Density, Kept, Numerics, Samples, Shape, Verdict

_KNOWN_ROWS, _HELD_OUT_ROWS, _GRAPH_ROWS, _JACOBIANS = 5_000, 2_000, 1_000, 200
_TREES, _PLANES, _BEYOND_ERRORS = 40, 500, 2.0
_OF_MEDIAN = 2.2  # the mean of a squared Gaussian over its median
_FAR = 2.0  # times the usual distance from known rows
_KEPT_95 = 0.05
_SWAMPED, _GAP, _FEW = 0.1, 100.0, 0.1  # share of a deviation; width of a gap beside what it parts; share beyond it


@torch.no_grad()
def measure(
    flow: Model,
    train: Rows,
    held_out: Rows,
    columns: Sequence[str] = (),
    *,
    count: int | None = None,
    seed: int = 0,
) -> Verdict:
    """The verdict on a flow.

    Args:
        flow: trained, on any device.
        train: rows it was trained on, (N, *data_shape), of which 5,000 are used.
        held_out: rows it was not trained on, (M, *data_shape), of which 2,000 are used.
        columns: their names.
        count: of the rows it was trained on, if ``train`` is a part of them.
        seed: of subsets and samples.

    Cost: about 3 s on one core for a table of ten columns; three small classifiers take most of it.
    """
    images = flow.kind == "image"
    known = _some(flow, train, _HELD_OUT_ROWS if images else _KNOWN_ROWS, seed)
    new = _some(flow, held_out, _HELD_OUT_ROWS, seed)
    facts: dict[str, Any] = {"latent_dim": flow.latent_dim, "ambient_dim": flow.ambient_dim, "kind": flow.kind}
    facts |= {"charts": len(flow.charts), "angles": flow.angles > 0}
    facts |= {"train": len(train) if count is None else count, "held_out": len(new)}
    if len(new) < ENOUGH or len(known) < ENOUGH:
        return Verdict(**facts)
    names = tuple(columns) or tuple(f"x{i + 1}" for i in range(flow.ambient_dim))
    y, y_new = (flow.in_batches(flow.to_model_units, rows) for rows in (known, new))
    facts["kept"] = _kept(flow, y, y_new, () if images else names)
    facts["numerics"] = _numerics(flow, y_new)
    if images:
        return Verdict(**facts)
    levels = Levels.of(_array(y))
    facts["swamped"] = tuple(names[i] for i in _swamped(flow, _array(known)))
    facts["rounded"] = tuple(dict.fromkeys(names[flow.column_of[i]] for i in levels.columns))
    draw = torch.Generator().manual_seed(seed)
    on_manifold = _drawn(flow, flow.sample(_GRAPH_ROWS, generator=draw))
    facts["shape"] = _shape(flow, y, y_new, levels.nearest(on_manifold), levels.step, seed)
    if flow.scatter is not None:
        sets = [_drawn(flow, flow.sample(_GRAPH_ROWS, generator=draw, scatter=True))]
        sets.append(_drawn(flow, flow.alone("plain").sample(_GRAPH_ROWS, generator=draw, scatter=True)))
        model, mixture = map(levels.nearest, sets)
        facts["samples"] = _samples(model, mixture, _array(y), _array(y_new), seed)
        facts["density"] = _density(flow, known, new, y, y_new)
    return Verdict(**facts)


def _swamped(flow: Model, rows: Array) -> list[int]:
    """Columns whose values, but for a few across a wide gap, span next to nothing of their standard deviation.

    In the user's units. Heavy tails have no such gaps, and where the others are all alike there is nothing to tell apart.
    """
    units = flow.unit_layers()
    deviation = rows.std(axis=0)
    if len(units) == 1 and isinstance(
        units[0], Standardise
    ):  # of all training rows; these may be without those far out
        deviation = units[0].scale.flatten().cpu().numpy()
    found = []
    for i, column in enumerate(np.sort(rows, axis=0).T):
        gaps = np.diff(column)
        at = int(gaps.argmax()) + 1
        most = max(column[:at], column[at:], key=len)
        span = most[-1] - most[0]
        alone = len(most) >= (1 - _FEW) * len(column) and gaps[at - 1] > _GAP * span
        span = span if alone else column[-1] - column[0]
        if 0 < span < _SWAMPED * deviation[i]:
            found.append(i)
    return found


def _some(flow: Model, rows: Rows, most: int, seed: int) -> Tensor:
    chosen: Any = slice(None) if len(rows) <= most else shuffled(len(rows), seed)[:most].sort().values
    return take(rows, chosen, flow.device, flow.row_dtype)


def _array(rows: Tensor) -> Array:
    found: Array = rows.flatten(1).double().cpu().numpy()
    return found


def _drawn(flow: Model, samples: Tensor) -> Array:
    """Samples in the model's units, without those that overflowed."""
    rows = _array(flow.in_batches(flow.to_model_units, samples))
    return rows[np.isfinite(rows).all(axis=1) & (np.abs(rows) < 1e100).all(axis=1)]


def _ratio(top: Array, bottom: Array) -> tuple[float, float]:
    """A ratio of means of paired values, and its standard error by the delta method."""
    if not bottom.mean() > 0:
        return float("nan"), float("nan")
    ratio = top.mean() / bottom.mean()
    return float(ratio), float((top - ratio * bottom).std(ddof=1) / np.sqrt(len(top)) / bottom.mean())


def _squares(flow: Model, rows: Tensor) -> Array:
    """Squared errors of reconstruction, (N, D)."""
    view = flow.in_model_units
    return np.square(_array(rows) - _array(flow.in_batches(view.project, rows)))


def _kept(flow: Model, y: Tensor, y_new: Tensor, names: Sequence[str]) -> Kept:
    train, rows = _array(y), _array(y_new)
    mean = train.mean(axis=0)
    _, spread, directions = np.linalg.svd(train - mean, full_matrices=False)
    main = directions[: flow.latent_dim]
    around = rows - mean
    left = np.square(around - around @ main.T @ main)
    error, total = _squares(flow, y_new), np.square(around)
    lost, lost_error = _ratio(error.sum(axis=1), total.sum(axis=1))
    exact = left.mean() <= 1e-9 * total.mean()  # as many components as columns, or data on a plane
    against = (float("nan"),) * 2 if exact else _ratio(error.sum(axis=1), left.sum(axis=1))
    lost_of, all_of = error.sum(axis=0), total.sum(axis=0)
    if flow.periodic is not None:  # two of the model's columns to one of the user's
        own = np.equal.outer(np.arange(flow.ambient_dim), flow.column_of)
        lost_of, all_of = own @ lost_of, own @ all_of
    shares = 1 - lost_of / np.maximum(all_of, 1e-300)
    explained = np.cumsum(np.square(spread)) / np.square(spread).sum()
    return Kept(
        share=1 - lost,
        standard_error=lost_error,
        pca=1 - float(left.sum() / total.sum()),
        against_pca=against[0],
        against_pca_error=against[1],
        against_training=float(error.mean() / max(_squares(flow, y).mean(), 1e-300)),
        columns=dict(zip(names, shares.tolist(), strict=True)) if names else {},
        pca_95=int(np.searchsorted(explained, 1 - _KEPT_95 - 1e-9) + 1),
    )


def _samples(samples: Array, mixture: Array, train: Array, rows: Array, seed: int) -> Samples:
    scale = np.maximum(train.std(axis=0), 1e-300)
    model, new, known = equally_many(samples / scale, rows / scale, train / scale, seed=seed)
    other = mixture[: len(new)] / scale
    sets = {"": model, "_floor": known, "_mixture": other}
    distances = {f"wasserstein{name}": sliced_wasserstein(part, new, seed=seed) for name, part in sets.items()}
    accuracies = {
        f"classifier{name}": classifier_two_sample(part, new, seed=seed, trees=_TREES) for name, part in sets.items()
    }
    return Samples(len(new), standard_error=float(np.sqrt(0.25 / (2 * len(new)))), **distances, **accuracies)


def _density(flow: Model, known: Tensor, new: Tensor, y: Tensor, y_new: Tensor) -> Density:
    model, mixture = (_array(each.ambient_log_prob(new)[:, None])[:, 0] for each in (flow, flow.alone("plain")))
    units = _array(flow.in_batches(lambda rows: unit_log_det(flow.charts[0], rows), new)[:, None])[:, 0]
    space = None if isinstance(flow, Atlas) or flow.scatter is None else flow.scatter.space
    if isinstance(flow, Atlas) or space is None:
        gaussian = gaussian_log_density(_array(y), _array(y_new)) + units
    else:
        one = ClosedMixture(space, components=1).double()
        one.initialise(flow.coordinates(known).w.double().cpu())
        gaussian = one.log_prob(flow.coordinates(new).w.double().cpu()).numpy() + units
    train = flow.ambient_log_prob(known[:_HELD_OUT_ROWS])
    errors = [values.std(ddof=1) / np.sqrt(len(values)) for values in (model, model - mixture)]
    return Density(
        model=float(model.mean()),
        standard_error=float(errors[0]),
        mixture=float(mixture.mean()),
        gaussian=float(gaussian.mean()),
        over_mixture_error=float(errors[1]),
        train=float(train.mean()),
    )


def gaussian_log_density(train: Array, rows: Array) -> Array:
    """Of rows under the one Gaussian that has mean and covariance of the training rows, (N,)."""
    mean, size = train.mean(axis=0), train.shape[1]
    covariance = (train - mean).T @ (train - mean) / len(train)
    covariance += 1e-10 * np.diag(np.diag(covariance) + 1e-30)
    root = np.linalg.cholesky(covariance)
    white = np.linalg.solve(root, (rows - mean).T)
    height: Array = -0.5 * np.square(white).sum(axis=0) - np.log(np.diag(root)).sum() - size / 2 * np.log(2 * np.pi)
    return height


def _shape(flow: Model, y: Tensor, y_new: Tensor, samples: Array, step: float, seed: int) -> Shape:
    train, rows = _array(y), _array(y_new)
    usual = crowding(rows, train)
    reach = _FAR * max(usual_distance(usual), step)
    far = crowding(samples, train) > reach if len(samples) else np.zeros(0, dtype=bool)
    centre, root = train.mean(axis=0), np.linalg.pinv(np.cov(train.T).reshape(train.shape[1], -1), hermitian=True)
    radii = [np.einsum("ij,jk,ik->i", part - centre, root, part - centre) for part in (train, samples)]
    amid = radii[1] <= np.quantile(radii[0], 0.999)
    lost = _GRAPH_ROWS - len(samples)  # those that overflowed
    data = train[:_GRAPH_ROWS]
    data = data[: len(samples)] if ENOUGH <= len(samples) < len(data) else data
    length = max(link_length(data), 1.5 * step)
    some = train[:_HELD_OUT_ROWS]
    factor = np.linalg.svd(some - some.mean(axis=0), full_matrices=False)
    gaussian = np.random.default_rng(seed).normal(size=(len(some), len(factor[1]))) * factor[1] @ factor[2]
    return Shape(
        pieces=count_pieces(data, length),
        sample_pieces=count_pieces(samples[: len(data)], length) if len(samples) >= ENOUGH else 0,
        between=float((far & amid).sum() / _GRAPH_ROWS),
        beyond=float(((far & ~amid).sum() + lost) / _GRAPH_ROWS),
        floor=float((usual > reach).mean()),
        torn=_torn(flow, torch.cat([y_new, y])[:_GRAPH_ROWS], reach),
        samples=_GRAPH_ROWS,
        dimension=_dimension(some),
        dimension_gaussian=_dimension(gaussian),
        **_planes(flow, y_new[:_PLANES], y, seed),
    )


def _planes(flow: Model, rows: Tensor, y: Tensor, seed: int) -> dict[str, float]:
    """Shares of the variance of rows and of noise that planes lose; these go through neighbours within twice the error.

    Where rows are dense, neighbours are nearer than the noise, and planes through them lose less than the noise. How much
    less is seen from the projections of the same rows with noise as large as the usual error.
    """
    on = [_array(flow.in_batches(flow.in_model_units.project, part)) for part in (rows, y)]
    fine = [np.isfinite(there).all(axis=1) for there in on]
    sets = [_array(part)[good] for part, good in zip((rows, y), fine, strict=True)]
    on = [there[good] for there, good in zip(on, fine, strict=True)]
    if min(map(len, sets)) < ENOUGH:
        return {}
    errors = np.square(sets[0] - on[0]).sum(axis=1)
    usual = float(np.sqrt(min(errors.mean(), _OF_MEDIAN * np.median(errors))))  # few rows far off do not count
    off = off_planes(sets[0], sets[1], flow.latent_dim, _BEYOND_ERRORS * usual)
    found = {"planes": float(off.sum() / np.square(sets[0] - sets[1].mean(axis=0)).sum())}
    if usual > 0:
        random, width = np.random.default_rng(seed), usual / np.sqrt(max(flow.ambient_dim - flow.latent_dim, 1))
        new, train = (there + width * random.standard_normal(there.shape) for there in on)
        off = off_planes(new, train, flow.latent_dim, _BEYOND_ERRORS * usual)
        found["planes_of_noise"] = float(off.mean() / usual**2)
    return found


def _dimension(rows: Array) -> float:
    """By the distances of up to twenty neighbours; all columns where rows are the same."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DuplicateRowsWarning)
        try:
            return maximum_likelihood(rows).value
        except ValueError:
            return float(rows.shape[1])


def _torn(flow: Model, rows: Tensor, reach: float) -> float:
    """Share of rows whose coordinates and those of the nearest row have a mean that decodes to elsewhere."""
    from sklearn.neighbors import NearestNeighbors

    at = _array(rows)
    partner = torch.from_numpy(NearestNeighbors(n_neighbors=2).fit(at).kneighbors(at)[1][:, 1]).to(rows.device)
    on = flow.in_batches(flow.in_model_units.project, rows)
    between = flow.in_batches(flow.in_model_units.project, (on + on[partner]) / 2)  # where a seam is between the two
    for chart, index in by_chart(flow, rows):
        view, inside = chart.in_model_units, torch.isin(partner[index], index)
        z, others = (chart.in_batches(view.encode, rows[i]) for i in (index[inside], partner[index[inside]]))
        if len(z):
            middle = chart.in_batches(view.decode, chart.latent.space.between(z, others))
            between[index[inside]] = middle
    here = _array(on)
    there = here[partner.cpu().numpy()]
    off = np.linalg.norm(_array(between) - (here + there) / 2, axis=1)
    apart = np.linalg.norm(here - there, axis=1)
    return float((~(off <= np.maximum(2 * apart, reach))).mean())


def _numerics(flow: Model, rows: Tensor) -> Numerics:
    trips, found = [], []
    few = max(1, min(_JACOBIANS, 20_000_000 // (flow.latent_dim * flow.ambient_dim)))
    for chart, index in by_chart(flow, rows):
        view = chart.in_model_units
        z = chart.in_batches(view.encode, rows[index])
        try:
            back = chart.in_batches(view.left_inverse, chart.in_batches(view.decode, z))
            off = chart.latent.space.difference(back, z)
            trips.append((off.norm(dim=1) / (1 + z.norm(dim=1))).double().cpu().numpy())
        except NumericalError:
            trips.append(np.full(len(z), np.inf))
        some = max(1, few * len(z) // len(rows))
        found.append(chart.in_batches(view.singular_values, z[:some]).double().cpu().numpy())
    trip, values = np.concatenate(trips), np.concatenate(found)
    ratios = values[:, 0] / np.maximum(values[:, -1], 1e-300)
    tolerance = torch.finfo(flow.dtype).eps ** 0.5
    return Numerics(
        round_trip=float(np.median(trip)),
        round_trip_worst=float(trip.max()),
        round_trip_missed=float((~(trip <= tolerance)).mean()),
        condition=float(np.median(ratios)),
        condition_worst=float(ratios.max()),
        precision=str(flow.dtype).removeprefix("torch."),
    )
