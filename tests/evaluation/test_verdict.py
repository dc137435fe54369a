"""The verdict: each number against another computation, each fault in a flow made to have it, and none in good ones."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist
from scipy.stats import multivariate_normal
from sklearn.decomposition import PCA

from rectangular_flows import RectangularFlow, flows
from rectangular_flows.cli import command_line
from rectangular_flows.data.discrete import Levels
from rectangular_flows.densities import MixtureDensity
from rectangular_flows.evaluation import judgement
from rectangular_flows.evaluation.judgement import astray, faults
from rectangular_flows.evaluation.measure import _GRAPH_ROWS, _shape, gaussian_log_density, measure
from rectangular_flows.evaluation.run_verdict import judge
from rectangular_flows.evaluation.verdict import Verdict
from rectangular_flows.metrics import classifier_two_sample, sliced_wasserstein
from rectangular_flows.metrics.pieces import off_planes
from rectangular_flows.metrics.two_sample import equally_many
from rectangular_flows.runs.prepared import Prepared


def flat(d, D, train=None, held_out=None, latent=None, outer=()):
    """The plane of the first d coordinates, with its scatter."""
    latent = flows.Identity(d) if latent is None else latent
    flow = RectangularFlow(flows.Identity(D), latent, outer, pad=flows.Pad(d, D, order="first"))
    if train is not None:
        flow.fit_scatter(*(torch.from_numpy(part).float() for part in (train, held_out)))
    return flow


def judged(rows, d, **options):
    """The verdict on a plane, which halves of the rows are for and against."""
    train, held_out = rows[::2], rows[1::2]
    return measure(flat(d, rows.shape[1], train, held_out, **options), train, held_out)


def names(verdict):
    return [fault.name for fault in verdict.faults]


def table(count=1200, deviations=(1, 1, 0.1), seed=0):
    return np.random.default_rng(seed).normal(size=(count, len(deviations))) * deviations


def arc(count, span, noise=0.02, seed=0):
    """Around the origin, symmetric about the second axis."""
    random = np.random.default_rng(seed)
    angle = np.pi / 2 + random.uniform(-span / 2, span / 2, count)
    return np.stack([np.cos(angle), np.sin(angle)], 1) + noise * random.normal(size=(count, 2))


# --- the numbers


@pytest.fixture(scope="module")
def skew():
    """A flow that changes units, rows that it does not fit, and its verdict."""
    random = np.random.default_rng(3)
    rows = random.normal(size=(900, 3)) @ [[1, 0.5, 0], [0, 1, 0.2], [0.1, 0, 0.3]] + [1, 0, 0]
    rows *= [2.0, 1.0, 0.5]
    train, held_out = rows[:600].astype(np.float32), rows[600:].astype(np.float32)
    units = flows.Standardise(torch.tensor([2.0, 0.0, 0.0]), torch.tensor([2.0, 1.0, 0.5]))
    flow = flat(2, 3, train, held_out, outer=units)
    return flow, train, held_out, measure(flow, train, held_out, ("a", "b", "c"))


def test_the_share_of_variance_kept_beside_pca(skew):
    _, train, held_out, verdict = skew
    y, new = ((part - [2.0, 0, 0]) / [2.0, 1.0, 0.5] for part in (train.astype(float), held_out.astype(float)))
    error, total = new[:, 2] ** 2, (new - y.mean(0)) ** 2  # the plane drops the third column
    assert verdict.kept.share == pytest.approx(1 - error.sum() / total.sum(), rel=1e-5)
    assert verdict.kept.columns == pytest.approx(
        {"a": 1, "b": 1, "c": 1 - error.sum() / total[:, 2].sum()}, rel=1e-5, abs=1e-6
    )
    pca = PCA(2).fit(y)
    left = ((new - pca.inverse_transform(pca.transform(new))) ** 2).sum(axis=1)
    assert verdict.kept.pca == pytest.approx(1 - left.sum() / total.sum(), rel=1e-5)
    assert verdict.kept.against_pca == pytest.approx(error.sum() / left.sum(), rel=1e-4)
    assert verdict.kept.against_training == pytest.approx(error.mean() / (y[:, 2] ** 2).mean(), rel=1e-4)
    assert verdict.kept.pca_95 == np.searchsorted(np.cumsum(PCA().fit(y).explained_variance_ratio_), 0.95) + 1
    random = np.random.default_rng(0)  # standard errors by the bootstrap
    drawn = [random.integers(0, len(new), len(new)) for _ in range(1500)]
    assert verdict.kept.standard_error == pytest.approx(
        np.std([error[i].sum() / total[i].sum() for i in drawn]), rel=0.1
    )
    assert verdict.kept.against_pca_error == pytest.approx(
        np.std([error[i].sum() / left[i].sum() for i in drawn]), rel=0.1
    )


def test_log_densities_beside_a_mixture_and_a_gaussian(skew):
    flow, train, held_out, verdict = skew
    found = flow.ambient_log_prob(torch.from_numpy(held_out)).detach().numpy()
    assert verdict.density.model == pytest.approx(found.mean())
    assert verdict.density.standard_error == pytest.approx(found.std(ddof=1) / len(found) ** 0.5)
    assert verdict.density.train == pytest.approx(float(flow.ambient_log_prob(torch.from_numpy(train)).detach().mean()))
    wide = train.astype(float)
    one = multivariate_normal(wide.mean(0), np.cov(wide.T, ddof=0)).logpdf(held_out)
    assert verdict.density.gaussian == pytest.approx(one.mean(), abs=1e-4)
    mixture = MixtureDensity.fitted(torch.from_numpy(train), torch.from_numpy(held_out))  # in the units of the data
    log_prob = mixture.log_prob(torch.from_numpy(held_out).double()).detach().numpy()
    assert verdict.density.mixture == pytest.approx(log_prob.mean(), abs=1e-3)
    paired = (found - log_prob).std(ddof=1) / len(found) ** 0.5
    assert verdict.density.over_mixture_error == pytest.approx(paired, abs=1e-3)


def test_a_gaussian_is_that_of_scipy():
    x, y = table(300, (1, 5, 0.2, 3)), table(50, (2, 3, 1, 1), seed=1)
    expected = multivariate_normal(x.mean(0), np.cov(x.T, ddof=0)).logpdf(y)
    assert gaussian_log_density(x, y) == pytest.approx(expected, rel=1e-6)


def test_samples_are_compared_with_held_out_rows_beside_the_floor_and_the_mixture(skew):
    flow, train, held_out, verdict = skew
    draw = torch.Generator().manual_seed(0)
    flow.sample(1000, generator=draw)
    parts = [flow.sample(1000, generator=draw, scatter=kind) for kind in (True, flow.scatter.alone("plain"))]
    scale = train.astype(float).std(axis=0)
    samples, new, known = equally_many(parts[0].double().numpy() / scale, held_out / scale, train / scale)
    mixture = parts[1].double().numpy()[: len(new)] / scale
    assert verdict.samples.rows == 300
    for name, rows in (("", samples), ("_floor", known), ("_mixture", mixture)):
        distance, accuracy = (getattr(verdict.samples, f"{kind}{name}") for kind in ("wasserstein", "classifier"))
        assert distance == pytest.approx(sliced_wasserstein(rows, new), rel=1e-3)
        assert accuracy == pytest.approx(classifier_two_sample(rows, new, trees=40), abs=0.02)
    assert verdict.samples.standard_error == pytest.approx((0.25 / 600) ** 0.5)


def test_one_part_of_the_scatter_alone(skew):
    flow, _, held_out, _ = skew
    at = flow.coordinates(torch.from_numpy(held_out))
    for i, part in enumerate(("manifold", "joint", "plain")):
        assert torch.allclose(flow.scatter.alone(part).log_prob(at), flow.scatter.parts(at)[:, i])
    assert 0 < float(flow.scatter.weights[0]) < 1  # its own weights are as they were
    with pytest.raises(ValueError, match="expected one of manifold, joint, plain; got 'both'"):
        flow.scatter.alone("both")


def test_samples_where_no_data_are_are_counted():
    """Data beyond ±2 and a manifold with the standard normal density on the line between."""
    random = np.random.default_rng(0)
    rows = np.stack([random.choice([-3.0, 3.0], 1000), np.zeros(1000)], 1) + 0.05 * random.normal(size=(1000, 2))
    train, held_out = rows[:500], rows[500:]
    verdict = measure(flat(1, 2, train, held_out), train, held_out)
    drawn = np.pad(flat(1, 2).sample(1000, generator=torch.Generator().manual_seed(0)).numpy()[:, :1], ((0, 0), (0, 1)))
    third = np.sort(cdist(held_out, train), axis=1)[:, 2]
    far = np.sort(cdist(drawn, train), axis=1)[:, 2] > 2 * np.quantile(third, 0.99)
    assert verdict.shape.between + verdict.shape.beyond == pytest.approx(far.mean())
    assert verdict.shape.between > 0.9
    assert verdict.shape.floor == (third > 2 * np.quantile(third, 0.99)).mean()
    assert (verdict.shape.pieces, verdict.shape.sample_pieces) == (2, 1)


def test_samples_that_overflowed_are_beyond_the_data():
    rows = table(400, (1, 1))
    train, held_out = torch.from_numpy(rows[:300]).float(), torch.from_numpy(rows[300:]).float()
    for lost in (0, 7):
        samples = np.resize(rows[:300], (_GRAPH_ROWS - lost, 2))
        shape = _shape(flat(1, 2), train, held_out, samples, 0.0, 0)
        assert shape.beyond == pytest.approx(lost / _GRAPH_ROWS)


class Circle(flows.Injection):
    """z ↦ (cos z, sin z), cut open at ±π."""

    def forward(self, z):
        return torch.cat([z.cos(), z.sin()], dim=1)

    def inverse(self, x):
        return torch.atan2(x[:, 1:], x[:, :1])


def test_neighbours_on_both_sides_of_a_cut_are_torn():
    angle = np.random.default_rng(0).uniform(-np.pi, np.pi, 400)
    angle[:2] = np.pi - 1e-3, 1e-3 - np.pi
    rows = np.stack([np.cos(angle), np.sin(angle)], 1)
    flow = RectangularFlow(flows.Identity(1), flows.Identity(1), Circle(1, 2), pad=flows.Pad(1, 1, order="first"))
    shape = measure(flow, rows[:200], rows[200:]).shape
    order = np.concatenate([angle[200:], angle[:200]])
    distance = cdist(*[np.stack([np.cos(order), np.sin(order)], 1)] * 2) + 9 * np.eye(400)
    across = np.abs(order - order[distance.argmin(axis=1)]) > np.pi
    assert shape.torn == across.mean() > 0


def test_a_curve_has_fewer_dimensions_than_its_gaussian():
    curve, cloud = (
        measure(flat(1, 2), rows[::2], rows[1::2]).shape for rows in (arc(800, 4, 0.002), table(800, (1, 1)))
    )
    assert curve.dimension == pytest.approx(1, abs=0.2)
    assert (cloud.dimension, curve.dimension_gaussian) == pytest.approx((2, 2), abs=0.25)
    assert cloud.dimension_gaussian == pytest.approx(cloud.dimension, abs=0.2)


def test_planes_lie_nearer_than_a_manifold_astray():
    rows = arc(1600, 4, 0.002)
    found = measure(flat(1, 2), rows[::2], rows[1::2])
    y, new = rows[::2], rows[1::2]
    errors = np.square(new[:500, 1])  # the manifold is the first axis
    reach = 2 * np.sqrt(min(errors.mean(), 2.2 * np.median(errors)))
    off = off_planes(new[:500], y, 1, reach).sum() / np.square(new[:500] - y.mean(axis=0)).sum()
    assert found.shape.planes == pytest.approx(off, rel=1e-4)
    assert found.shape.planes < 0.01
    assert 1 - found.kept.share > 0.1
    noisy = [
        [part * [1, 0] + reach / 2 * random.normal(size=part.shape) for part in (new[:500], y)]
        for random in map(np.random.default_rng, range(1, 9))
    ]
    of_noise = [off_planes(*sets, 1, reach).mean() / (reach / 2) ** 2 for sets in noisy]
    assert abs(found.shape.planes_of_noise - np.mean(of_noise)) < 3 * np.std(of_noise)
    assert 3 * np.std(of_noise) < 0.5 * np.mean(of_noise)
    assert astray(found)


@pytest.mark.parametrize(("d", "D", "noise"), [(1, 2, 0.1), (2, 3, 0.1), (2, 3, 0.4), (3, 9, 0.3)])
def test_planes_through_noise_lose_what_noise_explains(d, D, noise):
    rows = table(5000, (1,) * d + (noise,) * (D - d))
    found = measure(flat(d, D), rows[:4500], rows[4500:])
    assert found.shape.planes / (1 - found.kept.share) == pytest.approx(found.shape.planes_of_noise, rel=0.25)
    assert not astray(found)


def test_few_rows_far_off_do_not_widen_the_neighbourhoods_of_planes():
    random = np.random.default_rng(0)
    rows = random.normal(size=(1200, 2)) * [1, 0.01]
    rows[::30, 1] += 3
    y, new = rows[:900], rows[900:]
    errors, total = np.square(new[:, 1]), np.square(new - y.mean(axis=0)).sum()
    usual, wide = (2 * np.sqrt(value) for value in (2.2 * np.median(errors), errors.mean()))
    near, far = (off_planes(new, y, 1, reach).sum() / total for reach in (usual, wide))
    found = measure(flat(1, 2), y, new).shape.planes
    assert found == pytest.approx(near, rel=1e-3)
    assert abs(found - far) > 0.1 * far


def test_round_trip_and_singular_values():
    scale = flows.ActNorm(3)
    with torch.no_grad():
        scale.log_scale.copy_(torch.tensor([0.0, -1.0, 0.0]))
    flow = RectangularFlow(scale, flows.Identity(2), pad=flows.Pad(2, 3, order="first"))
    rows = table(100)
    found = measure(flow, rows[:50], rows[50:]).numerics
    assert (found.condition, found.condition_worst) == pytest.approx((np.e, np.e), rel=1e-5)
    assert 0 <= found.round_trip <= found.round_trip_worst < 1e-6
    assert (found.round_trip_missed, found.precision) == (0, "float32")


# --- good fits


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("deviations", [(1, 1, 0.1), (1, 1, 1, 1), (1,) * 8])
def test_gaussian_tables_on_their_plane_are_good(deviations, seed):
    verdict = judged(table(800, deviations, seed), len(deviations) - 1)
    assert names(verdict) == []
    assert verdict.good
    assert verdict.sentences.startswith("Good: the manifold keeps")


def test_few_rows_are_judged_with_patience():
    verdict = judged(table(80), 2)
    assert verdict.good
    assert verdict.samples.standard_error > 0.05


def test_a_column_of_few_values_is_no_fault():
    rows = table(1000, (1, 1, 0.2))
    rows[:, 0] = np.round(2 * rows[:, 0]) / 2
    verdict = judged(rows, 2)
    assert verdict.good
    assert verdict.rounded == ("x1",)
    assert "x1: few distinct values, to which samples are rounded" in str(verdict)


@pytest.mark.parametrize(("value", "told"), [(1e3, False), (1e5, True), (1e20, True)])
@pytest.mark.parametrize("standardised", [False, True])
def test_columns_swamped_by_a_fill_value(value, told, standardised):
    rows = table(2000)
    rows[100, 1] = value
    outer = []
    if standardised:
        mean, scale = torch.from_numpy(rows.mean(axis=0)), torch.from_numpy(rows.std(axis=0))
        outer = [flows.Standardise(mean, scale)]
    verdict = measure(flat(2, 3, outer=outer), rows[::2], rows[1::2], ("a", "b", "c"))
    assert verdict.swamped == (("b",) if told else ())
    assert ("swamped" in names(verdict)) == told
    assert Verdict.from_numbers(json.loads(json.dumps(verdict.numbers()))).swamped == verdict.swamped
    if told:
        assert verdict.sentences.startswith("Not good: a few values of 'b' lie so far from all others")
        # rows without that value, of the same model: its scale still says so
        again = measure(flat(2, 3, outer=outer), np.delete(rows, 100, axis=0)[::2], rows[1::2], ("a", "b", "c"))
        assert again.swamped == (("b",) if standardised else ())


@pytest.mark.parametrize("share", [0.0007, 0.005, 0.015, 0.05])
def test_columns_swamped_by_many_fill_values(share):
    random = np.random.default_rng(1)
    rows = table(3000)
    rows[random.random(3000) < share, 2] = -999999
    units = flows.Standardise(torch.from_numpy(rows.mean(axis=0)), torch.from_numpy(rows.std(axis=0)))
    assert measure(flat(2, 3, outer=[units]), rows[::2], rows[1::2]).swamped == ("x3",)


@pytest.mark.parametrize(("share", "told"), [(0.08, True), (0.3, False)])
def test_values_far_apart_are_two_pieces_where_they_are_many(share, told):
    random = np.random.default_rng(1)
    rows = table(3000)
    rows[random.random(3000) < share, 2] += 1e5
    units = flows.Standardise(torch.from_numpy(rows.mean(axis=0)), torch.from_numpy(rows.std(axis=0)))
    assert measure(flat(2, 3, outer=[units]), rows[::2], rows[1::2]).swamped == (("x3",) if told else ())


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", ["cauchy", "lognormal", "sparse", "rare", "events"])
def test_heavy_tails_swamp_nothing(kind, seed):
    random = np.random.default_rng(seed)
    heavy = {
        "cauchy": lambda: random.standard_cauchy(1500),
        "lognormal": lambda: np.exp(3 * random.normal(size=1500)),
        "sparse": lambda: (random.random(1500) < 0.003) * 5.0,
        "rare": lambda: (random.random(1500) < 0.01) * random.exponential(size=1500),
        "events": lambda: (random.random(1500) < 0.012) * np.exp(2 * random.normal(size=1500)),
    }[kind]()
    rows = np.c_[table(1500), heavy]
    units = flows.Standardise(torch.from_numpy(rows.mean(axis=0)), torch.from_numpy(rows.std(axis=0)))
    assert measure(flat(3, 4, outer=[units]), rows[::2], rows[1::2]).swamped == ()


def test_rounding_goes_to_the_nearest_value():
    rows = np.random.default_rng(0).normal(size=(300, 2))
    rows[:, 0] = np.array([0.0, 1.0, 5.0])[np.arange(300) % 3]
    levels = Levels.of(rows)
    other = np.random.default_rng(1).uniform(-2, 8, size=(100, 2))
    nearest = levels.values[0][np.abs(other[:, :1] - levels.values[0]).argmin(axis=1)]
    assert levels.nearest(other).tolist() == np.stack([nearest, other[:, 1]], 1).tolist()
    assert levels.step == 2.5


# --- bad ones


def test_too_small_a_dimension_is_named_with_one_that_would_do():
    verdict = judged(table(1000, (1,) * 9), 2)
    (first, *_) = verdict.faults
    assert first.name == "dimension"
    assert "2 dimensions are too few: the manifold keeps only 2" in verdict.sentences
    assert "Try --latent-dim 8, or auto." in verdict.sentences


def test_reconstruction_worse_than_pca():
    turn = np.array([[np.cos(0.3), 0, np.sin(0.3)], [0, 1, 0], [-np.sin(0.3), 0, np.cos(0.3)]])
    verdict = judged(table(1000, (1, 1, 0.05)) @ turn, 2)
    assert "worse than PCA" in names(verdict)
    assert "times that of PCA" in verdict.sentences
    assert "eave --target-error at auto" in verdict.sentences


def test_rings_are_bridged():
    random = np.random.default_rng(0)
    rows = arc(2000, 2 * np.pi, 0.05) * random.choice([1, 2], size=(2000, 1))
    verdict = judged(rows, 1)
    assert names(verdict)[0] == "bridged"
    assert "the data fall into 2 pieces" in verdict.sentences
    assert "One chart cannot separate pieces" in verdict.sentences
    assert "ry --charts auto" in verdict.sentences


def test_a_line_through_an_arc_is_undertrained():
    verdict = judged(arc(1000, 1.5 * np.pi), 1)
    assert names(verdict)[0] == "undertrained"
    assert "has not found the shape of the data" in verdict.sentences
    assert "--epochs" in verdict.sentences


def test_too_few_rows_for_the_dimensions():
    verdict = judged(table(120, (1,) * 9), 8)
    assert "rows" in names(verdict)
    assert "Give more rows" in verdict.sentences


def test_a_collapsed_direction():
    scale = flows.ActNorm(3)
    with torch.no_grad():
        scale.log_scale.copy_(torch.tensor([0.0, -12.0, 0.0]))
    rows = table(400, (1, 6e-6, 0.1))
    flow = RectangularFlow(scale, flows.Identity(2), pad=flows.Pad(2, 3, order="first"))
    verdict = measure(flow, rows[:200], rows[200:])
    assert names(verdict)[0] == "collapsed"
    assert "smaller --latent-dim" in verdict.sentences


@pytest.fixture(scope="module")
def good():
    return judged(table(1000), 2)


@pytest.mark.parametrize(
    ("part", "change", "name", "advice"),
    [
        ("samples", {"classifier": 0.9}, "samples", "--epochs"),
        ("samples", {"classifier": 0.62, "classifier_mixture": 0.5}, "samples", "a Gaussian mixture 50 %"),
        ("density", {"mixture": 5.0}, "density", "--epochs"),
        ("density", {"train": 9.0}, "rows", "give more rows"),
        ("shape", {"between": 0.2}, "bridged", "one chart cannot"),
        ("shape", {"sample_pieces": 3}, "torn", "samples in 3"),
        ("shape", {"torn": 0.2}, "torn", "tears 20 %"),
        ("shape", {"beyond": 0.3}, "wild", "--epochs"),
        ("numerics", {"round_trip_missed": 0.5}, "round trip", "--dtype float64"),
    ],
)
def test_each_number_can_be_a_fault(good, part, change, name, advice):
    assert faults(good) == []
    bad = replace(good, **{part: replace(getattr(good, part), **change)})
    (fault,) = faults(bad)
    assert fault.name == name
    assert advice in f"{fault.what} {fault.advice}"


def test_a_thin_bridge_is_said(good):
    bridged = replace(good, shape=replace(good.shape, pieces=2, sample_pieces=1, between=0.021))
    assert bridged.good
    assert "A bridge joins the 2 pieces of the data on the manifold" in bridged.sentences
    assert "2.1 % of its own samples lie where there are no data." in bridged.sentences
    assert "bridge" not in good.sentences


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("samples", {"classifier": 0.9, "standard_error": 0.2}),
        ("density", {"mixture": 5.0, "over_mixture_error": 3.0}),
        ("kept", {"against_pca": 2.0, "against_pca_error": 0.4}),
        ("kept", {"share": 0.5, "standard_error": 0.5}),
        ("kept", {"share": 0.8, "standard_error": 0.195}),  # within one of what planes lose, too
        ("shape", {"between": 0.2, "floor": 0.2}),
        ("shape", {"between": 0.03}),
    ],
)
def test_what_chance_explains_is_no_fault(good, part, change):
    assert faults(replace(good, **{part: replace(getattr(good, part), **change)})) == []


def test_flags_in_advice_exist(good):
    text = Path(judgement.__file__).read_text(encoding="utf-8")
    (action,) = [a for a in command_line(["fit"])._actions if a.dest == "command"]
    known = action.choices["fit"]._option_string_actions
    assert {*re.findall(r"--[a-z][a-z-]+", text)} <= {*known}


# --- keeping


def test_numbers_survive_a_file(good):
    kept = json.loads(json.dumps(good.numbers()))
    assert (kept["good"], kept["faults"]) == (True, [])
    assert Verdict.from_numbers(kept) == good
    few = Verdict(2, 5, 60, 7)
    assert Verdict.from_numbers(json.loads(json.dumps(few.numbers()))) == few


def test_too_few_held_out_rows_are_said():
    rows = table(200)
    verdict = measure(flat(2, 3, rows[:100], rows[100:]), rows[:100], rows[100:119])
    assert verdict.good is None
    assert measure(flat(2, 3), rows[:100], rows[100:120]).good is not None
    assert measure(flat(2, 3), rows[:20], rows[100:]).good is not None
    assert measure(flat(2, 3), rows[:19], rows[100:]).good is None
    assert str(verdict).startswith("Not judged: 19 rows were held out of training, and it takes 20.")


def test_validation_rows_stand_in_for_too_few_test_rows():
    rows = table(200)
    flow = flat(2, 3, rows[:100], rows[100:])
    data = Prepared(rows[:100], rows[100:190], rows[190:], ("a", "b", "c"))
    assert judge(flow, data).held_out == 90
    assert [judge(flow, replace(data, test=rows[-count:])).held_out for count in (30, 20, 19)] == [30, 20, 90]


def test_a_flow_without_scatter_is_judged_by_its_manifold():
    rows = table(400)
    verdict = measure(flat(2, 3), rows[:200], rows[200:])
    assert verdict.samples is None
    assert verdict.density is None
    assert verdict.good
    assert "no density in all columns" in str(verdict)
