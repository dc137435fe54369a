import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.tree import DecisionTreeClassifier

from rectangular_flows.metrics import out_of_distribution
from rectangular_flows.metrics.out_of_distribution import (
    CombinedScore,
    Detection,
    detect,
    stump_accuracy,
)

TIED = st.lists(st.integers(-4, 4), min_size=1, max_size=12)
SCORES = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=12)


@settings(max_examples=50, deadline=None)
@given(st.one_of(TIED, SCORES), st.one_of(TIED, SCORES))
def test_measures_against_brute_force(inside, outside):
    found, a, b = detect(inside, outside), np.array(inside, dtype=float), np.array(outside, dtype=float)
    assert found.auroc == pytest.approx(np.mean([(x > y) + (x == y) / 2 for x in a for y in b]), abs=1e-12)
    precision = 0.0
    for threshold, count in zip(*np.unique(a, return_counts=True), strict=True):
        true, false = np.sum(a >= threshold), np.sum(b >= threshold)
        precision += count / len(a) * true / (true + false)
    assert found.aupr == pytest.approx(precision, abs=1e-12)
    threshold = max(t for t in a if np.mean(a >= t) >= 0.95 - 1e-9)
    assert found.fpr95 == pytest.approx(np.mean(b >= threshold), abs=1e-12)
    assert detect(outside, inside).auroc == pytest.approx(1 - found.auroc, abs=1e-12)
    assert found.accuracy is None


def test_95_percent_of_twenty_is_nineteen():
    assert detect(np.arange(20.0), [0.5, 1.0, -1.0, 5.0]).fpr95 == 0.5


def test_constants_and_infinities():
    same = np.zeros(7)
    assert detect(same, same) == Detection(0.5, 0.5, 1.0, None)
    assert detect([0.0, np.inf], [-np.inf, -np.inf]) == Detection(1.0, 1.0, 0.0, None)
    assert detect([-np.inf], [-np.inf]).auroc == 0.5
    assert detect([0.0, 1.0], [-np.inf, np.inf]).fpr95 == 0.5


def test_a_known_auroc():
    """Two Gaussians a apart: Φ(a/√2), within 4 standard errors."""
    random = np.random.default_rng(0)
    found = detect(random.standard_normal(20_000) + 1, random.standard_normal(20_000)).auroc
    assert found == pytest.approx(stats.norm.cdf(1 / np.sqrt(2)), abs=4 * 0.0025)


@settings(max_examples=40, deadline=None)
@given(TIED, TIED, TIED, TIED)
def test_the_stump_is_scikit_learns(a, b, c, d):
    """For scores that float32 holds exactly."""
    label, score = np.repeat([1, 0], [len(a), len(b)]), np.concatenate([a, b])
    tree = DecisionTreeClassifier(max_depth=1, random_state=0).fit(score[:, None], label)
    label, score = np.repeat([1, 0], [len(c), len(d)]), np.concatenate([c, d])
    assert stump_accuracy(a, b, c, d) == np.mean(tree.predict(score[:, None]) == label)


def test_the_stump_in_cases():
    low, high = np.arange(0.0, 10), np.arange(10.0, 20)
    assert stump_accuracy(high, low, high, low) == 1.0
    assert stump_accuracy(low, high, low, high) == 1.0  # either way round
    assert stump_accuracy(high, low, low, high) == 0.0
    assert stump_accuracy([1.0], [1.0], [1.0] * 3, [1.0]) in (0.25, 0.75)  # nothing to cut at
    assert stump_accuracy([0.0, 1.0], [-np.inf, -5.0], [0.5, np.inf], [-np.inf, -9.0]) == 1.0
    assert stump_accuracy([np.inf], [-np.inf], [1.0, 5.0], [-1.0]) == 1.0


def test_the_stump_works_in_double():
    """Log-densities near −10⁹ that differ by 1 are one number in float32."""
    low, high = -1e9 + np.arange(0.0, 10), -1e9 + np.arange(10.0, 20)
    assert stump_accuracy(high, low, high, low) == 1.0
    close = np.nextafter(1.0, 2)
    assert stump_accuracy([close], [1.0], [close], [1.0]) == 1.0


def fitted(count=1000, seed=0):
    random = np.random.default_rng(seed)
    return CombinedScore(random.standard_normal(count), random.exponential(size=count))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(2, 40),
    st.booleans(),
    st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)),
    st.floats(-1e6, 1e6),
)
def test_the_combined_score_is_monotone(seed, count, tied, pair, other):
    random = np.random.default_rng(seed)
    density, error = random.standard_normal(count) * 10, random.exponential(size=count)
    if tied:
        density, error = density.round(-1), error.round()
    score = CombinedScore(density, error)
    low, high = sorted(pair)
    worse, better = score([low, high], [other, other])
    assert worse <= better <= 0
    better, worse = score([other, other], [low, high])
    assert worse <= better <= 0


def test_beyond_what_was_seen_it_goes_on_falling():
    score = fitted()
    far = -np.logspace(1, 6, 20)
    assert (np.diff(score(far, np.ones(20))) < 0).all()
    assert (np.diff(score(np.zeros(20), -far)) < 0).all()
    assert np.isneginf(score([-np.inf, 0.0], [1.0, np.inf])).all()
    assert np.isfinite(score([np.inf], [-np.inf])).all()


def test_it_is_continuous_where_the_laws_meet():
    score = fitted()
    density = np.linspace(-3, 0, 30_001)
    assert np.abs(np.diff(score(density, np.full(30_001, 0.5)))).max() < 0.02


def test_the_tails_are_right_beyond_the_data():
    """A Gaussian at −5 and an exponential at 15, far beyond 1000 values: log p within a factor of 2 of the truth."""
    score = fitted()
    middle = score([0.0], [0.0])[0] - np.log(0.5)  # what an error of 0 adds
    assert 0.5 < (score([-5.0], [0.0])[0] - middle) / stats.norm.logcdf(-5) < 2
    assert 0.5 < (score([0.0], [15.0])[0] - np.log(0.5)) / -15 < 2


def test_the_law_of_the_tail():
    """Excesses at the quantiles of a generalised Pareto law give its index and scale back; light tails count as ξ = 0."""
    level = (np.arange(1, 20_001) - 0.5) / 20_000
    index, scale = out_of_distribution._pareto(stats.genpareto(0.3, scale=2).ppf(level))
    assert index == pytest.approx(0.3, abs=0.01)
    assert scale == pytest.approx(2, rel=0.01)
    assert out_of_distribution._pareto(stats.uniform().ppf(level)) == (0.0, pytest.approx(0.5))
    assert out_of_distribution._pareto(stats.genpareto(0.9).ppf(level))[0] == 0.5


def test_ties_count_half():
    """Five of ten at 0 and five at 1: P̂(· ≤ 0) = 1/4, P̂(· ≤ 1) = 3/4; a constant error has P̂ = 1/2."""
    score = CombinedScore(np.repeat([0.0, 1.0], 5), np.zeros(10))
    np.testing.assert_allclose(score([0.0, 1.0], [0.0, 0.0]), np.log([1 / 8, 3 / 8]))


def test_fishers_p_values_are_uniform_for_independent_scores():
    """Kolmogorov's distance of 4000 new points, with fits from 4000: below 0.04 (0.03 is the 1 % point of two samples)."""
    random = np.random.default_rng(1)
    s = fitted(4000)(random.standard_normal(4000), random.exponential(size=4000))
    assert stats.kstest(stats.chi2(4).sf(-2 * s), "uniform").statistic < 0.04


def test_it_sees_either_fault():
    """Half of the outside is unlikely on the manifold, half is off it: each alone sees half of it, the combination all."""
    random = np.random.default_rng(2)
    inside = random.standard_normal(500), random.exponential(size=500)
    faults = np.arange(500) % 2 == 0
    outside = random.standard_normal(500) - 8 * faults, random.exponential(size=500) + 12 * ~faults
    score = fitted()
    assert detect(inside[0], outside[0]).auroc < 0.8
    assert detect(-inside[1], -outside[1]).auroc < 0.8
    assert detect(score(*inside), score(*outside)).auroc > 0.98


def test_order_and_repetition_of_the_fit_do_not_matter():
    random = np.random.default_rng(3)
    density, error = random.standard_normal(100), random.exponential(size=100)
    order = random.permutation(100)
    where = np.linspace(-5, 5, 50), np.linspace(0, 9, 50)
    first, second = CombinedScore(density, error), CombinedScore(density[order], error[order])
    np.testing.assert_allclose(first(*where), second(*where), rtol=1e-12)


@pytest.mark.parametrize("count", [2, 3, 10])
def test_fits_on_few_or_equal_values(count):
    score = CombinedScore(np.ones(count), np.zeros(count))
    best, unlikely, unlikelier, off = score([1.0, 0.0, -1.0, 1.0], [0.0, 0.0, 0.0, 1.0])
    assert best > unlikely > unlikelier
    assert best > off
    few = CombinedScore(np.arange(count), np.arange(count))
    assert (np.diff(few([-1.0, -2.0, -3.0], [0.0, 0.0, 0.0])) < 0).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: detect([], [1.0]), "at least 1 rows in inside; got 0"),
        (lambda: detect([1.0], [[1.0]]), r"outside of shape \(N,\); got \(1, 1\)"),
        (lambda: detect([1.0, np.nan], [1.0]), "no NaN in inside; got 1 of 2"),
        (lambda: detect(["a"], [1.0]), "real numbers in inside"),
        (lambda: CombinedScore([1.0], [1.0]), "at least 2 points.*got 1"),
        (lambda: CombinedScore([1.0, -np.inf], [1.0, 1.0]), "got 2, 1 of them finite"),
        (lambda: CombinedScore([1.0, 2.0], [1.0]), "got 1 for 2"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
