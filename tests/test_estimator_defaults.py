"""What holds with the defaults of both scikit-learn classes on tables nobody has looked at: units, promises, comparisons."""

import warnings

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.model_selection import GridSearchCV, ShuffleSplit

import rectangular_flows as rnf
from rectangular_flows.errors import LeftOutWarning

QUICK = {"layers": 2, "hidden": (8,), "latent": "mixture", "epochs": 4, "random_state": 0}


def sheet(rows, seed, noise=0.1):
    random = np.random.default_rng(seed)
    z = random.normal(size=(rows, 2))
    X = np.stack([z[:, 0], z[:, 1], z[:, 0] * z[:, 1], np.sin(z[:, 0])], axis=1)
    return X + noise * random.normal(size=X.shape)


def helix(rows, seed, noise=0.05):
    random = np.random.default_rng(seed)
    angle = random.uniform(-3, 3, size=rows)
    X = np.stack([np.cos(angle), np.sin(angle), 0.5 * angle, 0 * angle], axis=1)
    return X + noise * random.normal(size=X.shape)


@pytest.mark.parametrize("factor", [1e6, 1e-6])
@pytest.mark.parametrize("column", [0, 2])
def test_units_do_not_change_the_outlier_scores(column, factor):
    """Multiplied and shifted columns: the same ranks, the same verdicts, and log-densities that differ by log factor."""
    scale, shift = np.ones(4), np.zeros(4)
    scale[column], shift[column] = factor, 3 * factor
    X, other = sheet(150, 0), np.concatenate([sheet(60, 1), 3 * sheet(20, 2)])
    settings = {**QUICK, "latent_dim": 2, "dtype": "float64", "contamination": 0.2}
    plain = rnf.RectangularFlowOutlierDetector(**settings).fit(X)
    scaled = rnf.RectangularFlowOutlierDetector(**settings).fit(X * scale + shift)
    first, again = plain.score_samples(other), scaled.score_samples(other * scale + shift)
    np.testing.assert_allclose(again, first, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(plain.predict(other), scaled.predict(other * scale + shift))
    found = plain.score(other) - scaled.score(other * scale + shift)
    assert found == pytest.approx(np.log(factor), abs=1e-4)
    anomalies = sheet(40, 3)
    anomalies[:, column] += 20 * X[:, column].std()
    assert (scaled.predict(anomalies * scale + shift) == -1).all()


@pytest.mark.parametrize("factor", [1000.0, -1e-3])
def test_a_column_given_twice_counts_once_in_any_unit(factor):
    rows = np.random.default_rng(0).normal(size=(150, 4)) @ np.random.default_rng(1).normal(size=(4, 4))
    scores = []
    for times in (1.0, factor):
        table = np.c_[rows, times * rows[:, 0]]
        with pytest.warns(UserWarning, match="left out: 'x5' (equals|is)"):
            model = rnf.RectangularFlowEstimator(latent_dim=2, epochs=2, random_state=0).fit(table)
        scores.append(model.score_samples(table))
        assert model.inverse_transform(model.transform(table)).shape == table.shape
    np.testing.assert_array_equal(*scores)


def test_rows_in_single_precision_keep_the_rules_of_columns_left_out():
    rows = np.random.default_rng(0).normal(size=(200, 3))
    table = np.c_[rows, np.full(200, 0.1), rows[:, 0] * 1000, rows[:, 0] * 1000]
    with pytest.warns(LeftOutWarning):
        model = rnf.RectangularFlowOutlierDetector(latent_dim=2, epochs=2, random_state=0).fit(table)
    usual = (model.predict(table) == -1).mean()
    assert abs((model.predict(table.astype(np.float32)) == -1).mean() - usual) < 0.02
    assert abs((model.predict(table.round(5)) == -1).mean() - usual) < 0.02
    table[:, 5] += 5_000
    assert (model.predict(table) == -1).all()
    drawn = model.sample(50, random_state=0)
    np.testing.assert_allclose(drawn[:, 4:], 1000 * drawn[:, [0, 0]], rtol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_usual_rows_of_few_with_a_column_of_two_values_are_usual(seed):
    """The density is of rows with noise in such columns, and so are those that it is compared with."""
    random = np.random.default_rng(seed)
    rows = random.normal(size=(500, 3))
    rows[:, 2] = rows[:, 2] > 0
    model = rnf.RectangularFlowOutlierDetector(latent_dim=2, epochs=4, random_state=0).fit(rows[:200])
    assert (model.predict(rows[200:]) == -1).mean() <= 0.2
    assert 0.3 < np.median(model.p_value(rows[200:])) < 0.7


def test_digits_that_single_precision_has_lost_are_missed():
    rows = np.random.default_rng(0).normal(size=(150, 3))
    rows[:, 0] = 1.7e9 + 60 * rows[:, 0]
    with pytest.raises(ValueError, match=r"column 1 varies by .*float32 cannot tell .*\(float64\) from the start"):
        rnf.RectangularFlowEstimator(latent_dim=2, epochs=2).fit(rows.astype(np.float32))
    rnf.RectangularFlowEstimator(latent_dim=2, epochs=2).fit(rows)


@pytest.mark.parametrize("factors", [(1e6, 1, 1, 1), (1, 1, 1e-6, 1), (1e6, 7.3, 1e-6, 0.01)])
def test_units_change_no_rank_at_all(factors):
    """In single precision, the default: the model sees the same numbers."""
    factor, X, other = np.array(factors), sheet(150, 0), np.concatenate([sheet(60, 1), 3 * sheet(20, 2)])
    settings = {**QUICK, "latent_dim": 2, "epochs": 30}
    plain = rnf.RectangularFlowOutlierDetector(**settings).fit(X)
    scaled = rnf.RectangularFlowOutlierDetector(**settings).fit(X * factor)
    for name in ("outlier_score", "p_value", "log_density_ambient"):
        first, again = plain.scores(other, name)[name], scaled.scores(other * factor, name)[name]
        if name == "log_density_ambient":
            again = again + np.log(factor).sum()
        np.testing.assert_allclose(again, first, rtol=1e-9, atol=1e-9)
        np.testing.assert_array_equal(np.argsort(again, kind="stable"), np.argsort(first, kind="stable"))


def test_false_alarms_of_unseen_rows_are_as_promised():
    """Over seeds, the share of usual rows called outliers; each threshold comes from some 130 rows, which varies it too."""
    shares = {0.1: [], 0.3: []}
    for seed in range(5):
        detector = rnf.RectangularFlowOutlierDetector(**{**QUICK, "random_state": seed}, latent_dim=2)
        detector.fit(sheet(150, seed))
        p = detector.p_value(sheet(400, seed + 100))
        for share, found in shares.items():
            found.append((p <= share).mean())
    for share, found in shares.items():
        # five thresholds from 150 rows each, and 2,000 rows judged: both are binomial
        spread = 3 * np.sqrt(share * (1 - share) * (1 / (5 * 150) + 1 / 2000))
        assert abs(np.mean(found) - share) < spread + 0.01
        assert max(found) < 2 * share


def test_contamination():
    X, other = sheet(150, 0), sheet(1000, 1)
    none, auto, tenth = (
        rnf.RectangularFlowOutlierDetector(**QUICK, latent_dim=2, contamination=share).fit(X)
        for share in (0, "auto", 0.1)
    )
    alarms = [int((detector.predict(other) == -1).sum()) for detector in (none, auto, tenth)]
    assert alarms[0] <= alarms[1] <= alarms[2]
    assert alarms[0] < binom.ppf(0.999, 1000, 3 / 150)  # more unusual than all of some 150 known rows
    assert alarms[2] > 20
    assert none.offset_ == -none.calibration_.usual[-1]
    np.testing.assert_array_equal(tenth.predict(other) == -1, tenth.p_value(other) <= 0.1)
    assert (none.predict(100 * other[:20]) == -1).all()


def test_rows_that_overflow_are_outliers():
    detector = rnf.RectangularFlowOutlierDetector(**QUICK, latent_dim=2).fit(sheet(150, 0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = detector.score_samples(np.array([[1e30, 0, 0, 0], [0, 0, 0, 0.0]]))
    assert found[0] < found[1] - 10
    assert not np.isnan(found).any()


@pytest.mark.slow
def test_grid_search_chooses_as_new_rows_would():
    """Scores of other dimensions and weights are in the same units, near the truth, and rank the models as new rows do."""
    settings = {"layers": 3, "hidden": (16,), "latent": "mixture", "epochs": 12, "batch_size": 50, "random_state": 0}
    settings |= {"learning_rate": 1e-2, "target_error": None}
    X, fresh = helix(300, 0), helix(1500, 5)
    grid = [{"latent_dim": [1, 3]}, {"latent_dim": [1], "beta": [1e-3]}]
    once = ShuffleSplit(n_splits=1, test_size=0.3, random_state=0)
    search = GridSearchCV(rnf.RectangularFlowEstimator(**settings), grid, cv=once).fit(X)
    truth = truth_of_helix(fresh)
    found = {}
    for given in search.cv_results_["params"]:
        found[str(given)] = rnf.RectangularFlowEstimator(**{**settings, **given}).fit(X).score(fresh)
    assert max(found.values()) < truth + 0.05  # no density is better than the true one
    assert min(found.values()) > truth - 2
    assert found[str(search.best_params_)] > max(found.values()) - 0.3


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_grid_search_finds_the_manifold_of_a_noisy_helix(seed):
    """Trained to the end, the curve that follows the data has the likeliest rows, by however little."""
    X, fresh = (helix(rows, at)[:, :3] for rows, at in ((1000, seed), (1000, seed + 5)))
    grid = {"beta": [1e-2, 1.0, 50.0], "latent_dim": [1, 2]}
    once = ShuffleSplit(n_splits=1, test_size=0.3, random_state=seed)
    search = GridSearchCV(rnf.RectangularFlowEstimator(target_error=None, random_state=seed), grid, cv=once).fit(X)
    assert search.best_params_["beta"] == 50.0
    off = 3 - search.best_params_["latent_dim"]  # dimensions in which noise is left
    assert np.sqrt(search.best_estimator_.reconstruction_error(fresh).mean()) < 1.1 * 0.05 * np.sqrt(off)


def truth_of_helix(X, noise=0.05):
    """Mean log-density of the helix with noise: a Gaussian around every point, over a fine grid of angles."""
    angle = np.linspace(-3, 3, 2001)
    curve = np.stack([np.cos(angle), np.sin(angle), 0.5 * angle, 0 * angle], axis=1)
    squared = np.square(X[:, None] - curve).sum(axis=2)
    return float(np.mean(np.log(np.exp(-squared / (2 * noise**2)).mean(axis=1)) - 2 * np.log(2 * np.pi * noise**2)))


@pytest.mark.parametrize("rows", [4, 6, 12])
def test_fewer_rows_than_columns(rows):
    random = np.random.default_rng(0)
    X = random.normal(size=(rows, 15))
    detector = rnf.RectangularFlowOutlierDetector(**{**QUICK, "latent_dim": "auto"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rnf.densities.FewerComponentsWarning)
        detector.fit(X)
    assert detector.latent_dim_ < rows
    assert np.isfinite(detector.score(random.normal(size=(5, 15))))
    if rows == 12:  # with fewer than nine, no p-value is below 0.1
        assert (detector.predict(1e3 * random.normal(size=(5, 15))) == -1).all()


@pytest.mark.parametrize("values", [2, 5])
def test_discrete_columns(values):
    random = np.random.default_rng(0)
    X = random.normal(size=(200, 4))
    X[:, 1] = random.integers(0, values, size=200)
    X[:, 2] = X[:, 1]  # and one more that repeats it
    with pytest.warns(LeftOutWarning, match="'x3' equals 'x2' in every row"):
        detector = rnf.RectangularFlowOutlierDetector(**{**QUICK, "latent_dim": "auto"}).fit(X)
    assert np.isfinite(detector.score(X))
    odd = X[:20].copy()
    odd[:, 2] = values - 1 - odd[:, 1] + 0.5  # breaks the rule
    assert (detector.predict(odd) == -1).mean() > 0.9


def test_the_same_defaults_as_the_command_line():
    """What the estimator says of itself is what the preset has."""
    from rectangular_flows.settings import DEFAULT_PRESET, read_preset

    preset, own = read_preset(DEFAULT_PRESET), rnf.RectangularFlowEstimator().get_params()
    both = set(preset) & set(own)
    assert {"latent_dim", "latent", "target_error", "batch_size", "patience", "epochs", "beta"} <= both
    for name in both:
        value = list(own[name]) if isinstance(own[name], tuple) else own[name]
        assert value == preset[name], name
