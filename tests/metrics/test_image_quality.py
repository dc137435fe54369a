import itertools
import math
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rectangular_flows.metrics import image_quality
from rectangular_flows.metrics.frechet import fid_like
from rectangular_flows.metrics.image_quality import Compared, compare_images, kid, polynomial_mmd, precision_recall

REAL = Path(os.environ.get("RNF_DATA", Path(__file__).parents[3] / "shared" / "data"))


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


def nuclear(x, y):
    """FID of as few rows as one likes: tr (Σ₁Σ₂)^½ is the nuclear norm of the centred rows' product, X Yᵀ/(n − 1)."""
    a, b = x - x.mean(0), y - y.mean(0)
    scale = math.sqrt((len(x) - 1) * (len(y) - 1))
    cross = np.linalg.svd(a @ b.T, compute_uv=False).sum() / scale
    traces = np.square(a).sum() / (len(x) - 1) + np.square(b).sum() / (len(y) - 1)
    return np.square(x.mean(0) - y.mean(0)).sum() + traces - 2 * cross


@pytest.mark.parametrize(("n", "m"), [(10, 10), (10, 25), (60, 200)])
def test_fid_with_fewer_and_more_rows_than_columns(n, m):
    x, y = normal(0, n, 40) * np.linspace(0, 2, 40), normal(1, m, 40) + 0.1
    assert fid_like(x, y) == pytest.approx(nuclear(x, y), rel=1e-10)
    assert fid_like(x, x) == pytest.approx(0, abs=1e-12)


@pytest.mark.slow
def test_fid_of_the_networks_width_and_few_rows():
    x, y = np.abs(normal(5, 60, 2048)).astype(np.float32), np.abs(normal(6, 50, 2048)).astype(np.float16)
    assert fid_like(x, y) == pytest.approx(nuclear(x.astype(np.float64), y.astype(np.float64)), rel=1e-9)


def slow_mmd(x, y):
    """Pair by pair."""

    def k(a, b):
        return (sum(p * q for p, q in zip(a, b, strict=True)) / len(a) + 1) ** 3

    within = [[k(a, b) for a, b in itertools.permutations(rows, 2)] for rows in (x, y)]
    between = [k(a, b) for a in x for b in y]
    return float(np.mean(within[0]) + np.mean(within[1]) - 2 * np.mean(between))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 9), st.integers(2, 9), st.integers(1, 5))
def test_mmd_pair_by_pair(seed, m, n, columns):
    random = np.random.default_rng(seed)
    x, y = random.standard_normal((m, columns)), random.standard_normal((n, columns)) + 1
    assert polynomial_mmd(x, y) == pytest.approx(slow_mmd(x, y), rel=1e-10, abs=1e-10)
    assert polynomial_mmd(y, x) == pytest.approx(polynomial_mmd(x, y), rel=1e-10, abs=1e-10)


def test_mmd_is_unbiased():
    """In one dimension, for N(0, 1) and N(1, 1): E k by the moments of products; the mean over draws is within its error."""
    exact = sum(
        weight * c
        for weight, c in zip(
            (1, 3, 3, 1),
            # E(xy)^p within N(0,1), within N(1,1), between: squares of moments 1, 0, 1, 0 and 1, 1, 2, 4
            (p * p + q * q - 2 * p * q for p, q in zip((1, 0, 1, 0), (1, 1, 2, 4), strict=True)),
            strict=True,
        )
    )
    values = [polynomial_mmd(normal(s, 6, 1), normal(s + 10_000, 8, 1) + 1) for s in range(4000)]
    assert np.mean(values) == pytest.approx(exact, abs=4 * np.std(values) / math.sqrt(len(values)))


def test_kid_is_the_mean_over_subsets(monkeypatch):
    """Its mean is that of all rows, and so is its value, to the chance of the subsets."""
    x, y = normal(0, 80, 3), normal(1, 60, 3) + 0.5
    monkeypatch.setattr(image_quality, "_SUBSET", 20)
    value, _ = kid(x, y, subsets=2000)
    other = [polynomial_mmd(x[np.random.default_rng(s).permutation(80)[:20]], y[:20]) for s in range(50)]
    assert value == pytest.approx(slow_mmd(x, y), abs=4 * np.std(other) / math.sqrt(500))
    assert kid(x, y, subsets=5, seed=1) == kid(x, y, subsets=5, seed=1) != kid(x, y, subsets=5, seed=2)


@pytest.mark.parametrize("shift", [0.5, 1.0])
def test_standard_error_of_kid(shift, monkeypatch):
    """Against the spread of the value over data sets, which the spread over subsets alone, s/√S, is far below."""
    monkeypatch.setattr(image_quality, "_SUBSET", 60)
    found = [kid(normal(s, 200, 4), normal(s + 1000, 200, 4) + shift, subsets=60, seed=s) for s in range(120)]
    values, errors = np.array(found).T
    assert errors.mean() == pytest.approx(values.std(ddof=1), rel=0.25)


def test_kid_of_one_distribution(monkeypatch):
    """Unbiased, so as often below 0 as above; the standard error is too large rather than too small."""
    monkeypatch.setattr(image_quality, "_SUBSET", 40)
    found = [kid(normal(s, 100, 4), normal(s + 1000, 100, 4), subsets=30) for s in range(100)]
    values, errors = np.array(found).T
    assert abs(values.mean()) < 4 * values.std() / 10
    assert (np.abs(values) < 2 * errors).mean() > 0.9


def slow_precision_recall(real, generated, k):
    """By the definition, every distance from differences."""

    def share(points, manifold):
        inside = 0
        radii = [
            sorted(math.dist(a, b) for j, b in enumerate(manifold) if j != i)[k - 1] for i, a in enumerate(manifold)
        ]
        for p in points:
            inside += any(math.dist(p, a) <= r for a, r in zip(manifold, radii, strict=True))
        return inside / len(points)

    return share(generated, real), share(real, generated)


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 4),
    st.integers(1, 4),
    st.floats(0.2, 3),
    st.sampled_from([0.0003, 0.001, 64]),
)
def test_precision_and_recall_by_definition(seed, k, columns, scale, block):
    random = np.random.default_rng(seed)
    real, generated = random.standard_normal((17, columns)) + 100, random.standard_normal((12, columns)) * scale + 100.5
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(image_quality, "_MEGABYTES", block)
        found = precision_recall(real, generated, k=k)
    assert found == pytest.approx(slow_precision_recall(real, generated, k))


def test_precision_without_recall_and_the_reverse():
    """Samples from one of two real clusters; then samples from those two and a third that is not real."""
    a, b, c = (normal(s, 200, 2) + centre for s, centre in enumerate(([0, 0], [50, 0], [0, 50])))
    again = normal(9, 400, 2)
    precision, recall = precision_recall(np.concatenate([a, b]), again)
    assert precision > 0.95
    assert recall == pytest.approx(0.5, abs=0.02)
    precision, recall = precision_recall(
        np.concatenate([a, b]), np.concatenate([again[:200], again[200:] + np.array([50, 0]), c])
    )
    assert precision == pytest.approx(2 / 3, abs=0.03)
    assert recall > 0.95


def test_ties_and_copies_are_inside():
    grid = np.stack(np.meshgrid(np.arange(5.0), np.arange(5.0)), axis=-1).reshape(-1, 2) + 0.1
    assert precision_recall(grid, grid + np.array([1, 0]), k=1) == (1, 1)  # every distance equals a radius
    assert precision_recall(grid, grid + np.array([0, 1.01]), k=1).precision == pytest.approx(20 / 25)
    many = np.repeat(normal(0, 5, 3), 4, axis=0)  # radius 0
    assert precision_recall(many, many, k=3) == (1, 1)
    assert precision_recall(many, many + 1e-6, k=3) == (0, 0)


def test_compare_images():
    x = normal(0, 700, 6).astype(np.float16)
    quality = compare_images(x[:200] * 1.5, x[200:450], x[450:], seed=3)
    assert quality.n == 200
    assert quality.fid.value > 2 * quality.fid.floor
    assert quality.kid.value - quality.kid.floor > 4 * quality.kid_standard_error
    assert abs(quality.kid.floor) < 4 * quality.kid_floor_standard_error
    assert quality.precision.value < quality.precision.floor - 0.1
    assert quality.recall.floor > 0.8
    assert quality == compare_images(x[:200] * 1.5, x[200:450], x[450:], seed=3)


def test_compared_by_the_functions_themselves():
    """Nothing is drawn where all sets are equally large, but for their order."""
    x = normal(1, 300, 5)
    g, r, f = x[:100] + 1, x[100:200], x[200:]
    quality = compare_images(g, r, f)
    assert quality.fid.value == pytest.approx(fid_like(g, r))
    assert quality.fid.floor == pytest.approx(fid_like(f, r))
    for which, rows in (("value", g), ("floor", f)):
        shares = tuple(getattr(getattr(quality, name), which) for name in ("precision", "recall"))
        assert shares == precision_recall(r, rows)
    assert isinstance(quality.kid, Compared)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: kid(np.ones((9, 2)), np.ones((8, 2)), subsets=1), "at least 2 subsets; got 1"),
        (lambda: kid(np.ones((3, 2)), np.ones((8, 2))), "at least 4 rows in a; got 3"),
        (lambda: precision_recall(np.ones((3, 2)), np.ones((8, 2))), "at least 4 rows in real; got 3"),
        (lambda: precision_recall(np.ones((3, 2)), np.ones((8, 2)), k=0), "k of at least 1; got 0"),
        (
            lambda: compare_images(np.ones((9, 2)), np.ones((9, 2)), np.ones((9, 3))),
            "same columns in generated_features and real_features and floor_features; got 2 and 2 and 3",
        ),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "expected"), [("mnist", 4.563), ("fashion-mnist", 5.059)])
def test_real_features(name, expected):
    """The first 5,000 training against the first 5,000 test images, as noted where the features are kept."""
    paths = [REAL / "inception" / f"{name}-{part}-first5000.npy" for part in ("train", "test")]
    for path in paths:
        if not path.is_file():
            pytest.skip(f"no {path}: set RNF_DATA")
    assert fid_like(*(np.load(path) for path in paths)) == pytest.approx(expected, abs=6e-4)
