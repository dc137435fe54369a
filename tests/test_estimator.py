import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import rectangular_flows as rnf
from rectangular_flows.data.repeats import RepeatedRowsWarning
from rectangular_flows.errors import LeftOutWarning

QUICK = {"latent_dim": 1, "layers": 2, "hidden": (8,), "latent": "realnvp", "epochs": 2, "dtype": "float64"}


def of_unseen_rows(estimator):
    """Checks that count the outliers among the rows of fit; contamination is a promise about rows that it has not seen."""
    reason = "the threshold comes from rows held out, so that fewer of the rows of fit exceed it"
    checks = ("check_outliers_train", "check_outliers_fit_predict")
    return dict.fromkeys(checks, reason) if isinstance(estimator, rnf.RectangularFlowOutlierDetector) else {}


@parametrize_with_checks([rnf.RectangularFlowEstimator(**QUICK)])
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


@pytest.mark.slow  # the detector is an estimator, and its own behaviour is tested below
@parametrize_with_checks([rnf.RectangularFlowOutlierDetector(**QUICK)], expected_failed_checks=of_unseen_rows)
def test_scikit_learn_conventions_of_the_detector(estimator, check):
    check(estimator)


def helix(rows=300, seed=0):
    angle = np.random.default_rng(seed).normal(size=rows)
    return np.stack([np.cos(angle), np.sin(angle), 0.2 * angle], axis=1)


@pytest.fixture(scope="module")
def fitted():
    settings = {"latent_dim": 1, "epochs": 20, "batch_size": 100, "learning_rate": 1e-2, "random_state": 0}
    return rnf.RectangularFlowEstimator(**settings).fit(helix(1000))


def test_it_finds_a_helix(fitted):
    X = helix(200, seed=1)
    assert fitted.reconstruction_error(X).mean() < 0.02
    assert fitted.reconstruction_error(X + np.array([0, 0, 3])).mean() > 1
    Z = fitted.transform(X)
    assert Z.shape == (200, 1)
    np.testing.assert_allclose(fitted.inverse_transform(Z), X, atol=0.8)
    # angle and coordinate go together
    angle = X[:, 2] / 0.2
    assert abs(np.corrcoef(np.argsort(np.argsort(angle)), np.argsort(np.argsort(Z[:, 0])))[0, 1]) > 0.95
    assert fitted.score_samples(X).shape == (200,)
    assert fitted.get_feature_names_out().shape == (1,)


def test_samples_are_reproducible(fitted):
    first = fitted.sample(10, random_state=3)
    assert np.array_equal(first, fitted.sample(10, random_state=3))
    assert not np.array_equal(first, fitted.sample(10, random_state=4))
    assert first.shape == (10, 3)


def test_fitting_is_reproducible():
    X = helix()
    first, again = (rnf.RectangularFlowEstimator(**QUICK, random_state=5).fit(X).score_samples(X) for _ in range(2))
    assert np.array_equal(first, again)
    other = rnf.RectangularFlowEstimator(**QUICK, random_state=6).fit(X).score_samples(X)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("kind", [rnf.RectangularFlowEstimator, rnf.RectangularFlowOutlierDetector])
def test_saved_and_loaded(kind, tmp_path):
    X = helix()
    estimator = kind(**QUICK, random_state=0).fit(X)
    estimator.save(tmp_path)
    again = kind.load(tmp_path)
    assert np.array_equal(estimator.score_samples(X), again.score_samples(X))
    assert again.get_params() == estimator.get_params()
    assert again.history_ == estimator.history_
    if kind is rnf.RectangularFlowOutlierDetector:
        assert np.array_equal(estimator.predict(X), again.predict(X))
    other = ({rnf.RectangularFlowEstimator, rnf.RectangularFlowOutlierDetector} - {kind}).pop()
    with pytest.raises(ValueError, match=r"another kind of estimator|a plain RectangularFlowEstimator"):
        other.load(tmp_path)
    rnf.save(estimator.flow_, tmp_path / "plain")
    with pytest.raises(ValueError, match="not an estimator"):
        kind.load(tmp_path / "plain")


def test_numbers_of_numpy_are_saved(tmp_path):
    settings = {**QUICK, "latent_dim": np.int64(1), "hidden": (np.int64(8),), "beta": np.float64(20)}
    estimator = rnf.RectangularFlowEstimator(**settings, random_state=0).fit(helix())
    estimator.save(tmp_path)
    again = rnf.RectangularFlowEstimator.load(tmp_path)
    assert np.array_equal(estimator.transform(helix()), again.transform(helix()))


@pytest.mark.parametrize(("dtype", "atol"), [("float32", 0.05), ("float64", 1e-5)])
def test_a_large_offset_changes_little(dtype, atol):
    """Rounding alone: single precision has no two values of the first column."""
    shift = np.array([1e8, 0, 0])
    settings = {**QUICK, "dtype": dtype, "random_state": 0}
    estimator = rnf.RectangularFlowEstimator(**settings).fit(helix() + shift)
    plain = rnf.RectangularFlowEstimator(**settings).fit(helix())
    found, expected = (fitted.sample(50, scatter=False) for fitted in (estimator, plain))
    np.testing.assert_allclose(found - shift, expected, atol=atol)
    points = estimator.inverse_transform(estimator.transform(helix() + shift))
    np.testing.assert_allclose(points - shift, plain.inverse_transform(plain.transform(helix())), atol=atol)


def test_in_a_pipeline_and_a_grid():
    X = helix()
    pipeline = make_pipeline(StandardScaler(), rnf.RectangularFlowEstimator(**QUICK, random_state=0))
    assert pipeline.fit(X).transform(X).shape == (300, 1)
    grid = GridSearchCV(rnf.RectangularFlowEstimator(**QUICK, random_state=0), {"beta": [1.0, 20.0]}, cv=2).fit(X)
    assert grid.best_params_["beta"] in (1.0, 20.0)
    assert np.isfinite(grid.cv_results_["mean_test_score"]).all()


def test_outliers():
    X = helix(1000)
    settings = {"latent_dim": 1, "epochs": 20, "batch_size": 100, "learning_rate": 3e-3, "random_state": 0}
    detector = rnf.RectangularFlowOutlierDetector(contamination=0.05, **settings).fit(X)
    alarms = int(np.sum(detector.predict(helix(1000, seed=3)) == -1))
    assert 20 <= alarms <= 90  # of 50 expected; the threshold itself comes from some 200 rows
    assert np.mean(detector.predict(X) == -1) < 0.05  # these it knows
    off = helix(100, seed=2) + np.array([0, 0, 2.0])  # beside the manifold
    far = np.array([[np.cos(a), np.sin(a), 0.2 * a] for a in (7.0, -8.0)])  # on it, where there is nothing
    assert np.mean(detector.predict(off) == -1) > 0.95
    assert (detector.predict(far) == -1).all()
    assert (detector.decision_function(X) == detector.score_samples(X) - detector.offset_).all()


@pytest.mark.parametrize("kind", [rnf.RectangularFlowEstimator, rnf.RectangularFlowOutlierDetector])
def test_pickled_after_it_was_used(kind):
    """What it remembers of rows stays behind."""
    X = helix(100)
    fitted = kind(**{**QUICK, "epochs": 1}, random_state=0).fit(X)
    fitted.explain(X[:3])
    scores = fitted.score_samples(X)
    again = pickle.loads(pickle.dumps(fitted))  # noqa: S301
    np.testing.assert_array_equal(again.score_samples(X), scores)
    np.testing.assert_array_equal(again.explain(X[:3]).score, fitted.explain(X[:3]).score)


def test_dates_are_refused_by_name():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(helix(50), columns=list("abc"))
    frame["when"] = pandas.Timestamp("2026-01-01") + pandas.to_timedelta(np.arange(50), unit="D")
    with pytest.raises(ValueError, match=r"'when' of X hold dates or durations\. .*total_seconds"):
        rnf.RectangularFlowEstimator(**QUICK).fit(frame)


def test_copies_of_rows_are_noticed():
    with pytest.warns(RepeatedRowsWarning, match="rows repeat others"):
        rnf.RectangularFlowEstimator(**{**QUICK, "epochs": 1}).fit(np.tile(helix(60), (4, 1)))


def test_automatic_dimension():
    estimator = rnf.RectangularFlowEstimator(**{**QUICK, "latent_dim": "auto"}, random_state=0).fit(helix())
    assert estimator.latent_dim_ == 1


def test_as_many_dimensions_as_columns():
    estimator = rnf.RectangularFlowEstimator(**{**QUICK, "latent_dim": 3}, random_state=0).fit(helix())
    assert estimator.reconstruction_error(helix()).max() < 1e-20


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"latent_dim": 4}, r"latent_dim from 1 to the number of columns.*got 4 with n_features = 3"),
        ({"latent_dim": 0}, "got 0"),
        ({"latent_dim": "many"}, "got 'many'"),
        ({"validation_fraction": 1.5}, "validation_fraction < 1.*got 1.5"),
        ({"volume": "rough"}, "exact, stochastic, auto; got rough"),
        ({"time": 9.0}, "time plans the epochs, and epochs=.* fixes them: give one of the two"),
        ({"probes": 7}, "probes is for volume = stochastic; this run has volume = auto"),
    ],
)
def test_mistakes_are_told(settings, message):
    with pytest.raises(ValueError, match=message):
        rnf.RectangularFlowEstimator(**{**QUICK, **settings}).fit(helix())


def test_data_that_cannot_be_fitted_are_told():
    with pytest.raises(ValueError, match=r"vary and differ from each other; 'x1', 'x2' hold one value"):
        rnf.RectangularFlowEstimator(**QUICK).fit(helix() * [0, 0, 1])
    with pytest.raises(ValueError, match=r"'x2' holds one value. Leave them out"):
        rnf.RectangularFlowEstimator(**QUICK, periodic=["x1:radians"]).fit(helix() * [1, 0, 1])
    with pytest.raises(ValueError, match=r"more rows to train on than latent_dim = 2; got n_samples = 3, of which 1"):
        rnf.RectangularFlowEstimator(**{**QUICK, "latent_dim": 2}).fit(helix()[:3])
    with pytest.raises(ValueError, match=r"0 ≤ contamination ≤ 0\.5, or 'auto'; got 0\.9"):
        rnf.RectangularFlowOutlierDetector(contamination=0.9).fit(helix())


def test_columns_that_tell_no_rows_apart_are_left_out(tmp_path):
    pandas = pytest.importorskip("pandas")
    a, b, c = helix().T
    X = pandas.DataFrame({"k": np.full(300, 7.0), "a": a, "b": b, "again": a, "c": c})
    with pytest.warns(LeftOutWarning, match="'k' holds one value; 'again' equals 'a' in every row"):
        fitted = rnf.RectangularFlowOutlierDetector(**QUICK, random_state=0).fit(X)
    plain = rnf.RectangularFlowOutlierDetector(**QUICK, random_state=0).fit(X[["a", "b", "c"]])
    np.testing.assert_array_equal(fitted.score_samples(X), plain.score_samples(X[["a", "b", "c"]]))
    samples, few = fitted.sample(20, random_state=1), plain.sample(20, random_state=1)
    np.testing.assert_array_equal(samples, few.assign(k=7.0, again=few["a"])[X.columns])
    found, less = fitted.explain(X[:9]), plain.explain(X[["a", "b", "c"]][:9])
    assert (found[["why_k", "why_again", "difference_k", "difference_again"]] == 0).all(axis=None)
    assert (found["nearest_k"] == 7).all()
    np.testing.assert_array_equal(found["nearest_again"], less["nearest_a"])
    np.testing.assert_array_equal(found[less.columns], less)
    assert fitted.inverse_transform(fitted.transform(X)).shape == (300, 5)
    assert "a" in str(fitted.summary())
    fitted.save(tmp_path / "model")
    loaded = rnf.RectangularFlowOutlierDetector.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.sample(20, random_state=1), samples)
    odd = X[:9].assign(k=[7.0] * 7 + [7.5, 9.0], again=X["a"][:9] + np.eye(9)[8])  # no row of fit was there
    assert (loaded.predict(odd)[7:] == -1).all()
    np.testing.assert_array_equal(loaded.score_samples(odd)[:7], plain.score_samples(X[["a", "b", "c"]])[:7])
    names = ("log_density_ambient", "outlier_score", "p_value")
    found, usual = loaded.scores(odd, *names), plain.scores(X[["a", "b", "c"]][:9], *names)
    nats = np.log(242) * np.array([0] * 7 + [1, 2])  # 240 rows were trained on
    np.testing.assert_allclose(found["log_density_ambient"], usual["log_density_ambient"] - nats)
    np.testing.assert_allclose(found["outlier_score"], usual["outlier_score"] + nats)
    assert (found["p_value"][:7] == usual["p_value"][:7]).all()
    assert (found["p_value"][7:] < 0.05).all()
    for error in (loaded.reconstruction_error(odd), loaded.scores(odd, "reconstruction_error")["reconstruction_error"]):
        expected = plain.reconstruction_error(X[["a", "b", "c"]])[:9] + np.array([0] * 7 + [0.25, 5.0])
        np.testing.assert_allclose(error, expected)
    why = loaded.explain(odd)
    names = [f"why_{name}" for name in X.columns]
    np.testing.assert_allclose(why[names].sum(axis=1), -loaded.score_samples(odd))
    assert (why["why_k"][7:] > 1).all()
    assert why["why_again"][8] == why["why_k"][8]
    assert (why["difference_k"].tolist(), why["difference_again"][8]) == ([0] * 7 + [0.5, 2], 1)


def test_a_column_that_varies_in_a_row_that_is_not_trained_on():
    X = np.column_stack([helix(60), np.zeros(60)])
    lone = [rnf.RectangularFlowEstimator(**QUICK, random_state=0) for _ in range(8)]
    warned = 0
    for row, estimator in enumerate(lone):  # a fifth of the rows is held out
        X[:, 3] = np.arange(60) == row
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            estimator.fit(X)
        warned += any("'x4' holds one value" in str(one.message) for one in found)
        assert np.isfinite(estimator.score(X))
    assert 0 < warned < 8


def test_clones_and_repr():
    estimator = rnf.RectangularFlowOutlierDetector(latent_dim=3, contamination=0.2)
    assert clone(estimator).get_params() == estimator.get_params()
    assert "contamination=0.2" in repr(estimator)


def test_a_summary_is_the_verdict_on_the_rows_held_out(tmp_path):
    X = np.random.default_rng(0).normal(size=(300, 3)) * [1, 1, 0.1]
    est = rnf.RectangularFlowEstimator(latent_dim=2, epochs=2, random_state=0).fit(X)
    summary = est.summary()
    assert (summary.held_out, summary.train, summary.latent_dim) == (60, 240, 2)
    assert str(summary).splitlines()[-1] == summary.sentences
    assert est.summary() is summary
    new = np.random.default_rng(1).normal(size=(100, 3)) * [1, 1, 0.1]
    assert est.summary(new).held_out == 100
    est.save(tmp_path / "kept")
    again = rnf.RectangularFlowEstimator.load(tmp_path / "kept")
    assert again.summary() == summary
    assert again.summary(new).kept.share == pytest.approx(est.summary(new).kept.share)
    rnf.RectangularFlowEstimator(latent_dim=2, epochs=1, random_state=0).fit(X).save(tmp_path / "without")
    with pytest.raises(ValueError, match=r"Give rows of your own: summary\(X\)"):
        rnf.RectangularFlowEstimator.load(tmp_path / "without").summary()


def test_a_latent_space_that_closes(tmp_path):
    X = np.random.default_rng(0).normal([0.5, 0, 0], size=(300, 3))
    X = 10 + 3 * X / np.linalg.norm(X, axis=1, keepdims=True)
    est = rnf.RectangularFlowEstimator(latent_space="sphere", epochs=2, layers=1, latent="mixture", random_state=0)
    est.fit(X)
    z = est.transform(X)
    assert est.latent_dim_ == 2
    assert z.shape == (300, 3)
    assert len(est.get_feature_names_out()) == 3
    np.testing.assert_allclose(np.linalg.norm(z, axis=1), 1, atol=1e-5)
    assert np.abs(np.linalg.norm(est.inverse_transform(z) - 10, axis=1) - 3).max() < 0.1
    est.save(tmp_path / "model")
    again = rnf.RectangularFlowEstimator.load(tmp_path / "model")
    assert again.latent_space == "sphere"
    np.testing.assert_array_equal(again.score_samples(X), est.score_samples(X))
    with pytest.raises(ValueError, match="sphere has dimension 2; got latent_dim 1"):
        rnf.RectangularFlowEstimator(latent_space="sphere", latent_dim=1).fit(X)


def test_periodic_columns(tmp_path):
    """Hours across midnight: a turn changes nothing, samples are hours, and all survives saving."""
    random = np.random.default_rng(0)
    hour = random.normal(0, 2, 200) % 24
    X = np.stack([hour, 3 + np.cos(hour * np.pi / 12) + 0.05 * random.normal(size=200)], axis=1)
    settings = {"latent_dim": 1, "layers": 2, "hidden": (8,), "epochs": 4, "random_state": 0, "dtype": "float64"}
    est = rnf.RectangularFlowEstimator(periodic=["1:24"], **settings).fit(X)
    for name, values in est.scores(X).items():
        np.testing.assert_allclose(est.scores(X + np.array([24, 0]))[name], values, rtol=1e-6, atol=1e-8)
    samples = est.sample(200, random_state=0)
    assert ((samples[:, 0] >= 0) & (samples[:, 0] < 24)).all()
    est.save(tmp_path / "est")
    again = rnf.RectangularFlowEstimator.load(tmp_path / "est")
    np.testing.assert_array_equal(again.score_samples(X), est.score_samples(X))
    assert clone(again).get_params()["periodic"] == ("1:24",)
    assert str(est.summary())
    whole = rnf.RectangularFlowEstimator(**settings | {"latent_dim": "auto", "epochs": 1}, periodic={"x1": 24}).fit(X)
    assert whole.latent_dim_ == 2
    assert whole.reconstruction_error(X).max() < 1e-15
