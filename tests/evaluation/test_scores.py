"""The table of scores: values by definition, directions, and what is made of them in files."""

import numpy as np
import pytest
import torch

import rectangular_flows as rnf
from rectangular_flows import flows
from rectangular_flows.data.tables import read_table
from rectangular_flows.densities.scatter import Scatter
from rectangular_flows.errors import NonFiniteError
from rectangular_flows.estimator import base as estimator_base
from rectangular_flows.evaluation import scored as scored_file
from rectangular_flows.evaluation import scores
from rectangular_flows.evaluation.scored import open_scoring, write_scores
from rectangular_flows.evaluation.scores import SCORES, Score, as_held_out, calibrate, register_score, score_rows
from rectangular_flows.metrics.out_of_distribution import CombinedScore
from rectangular_flows.runs.calibration import Calibration
from tests.conftest import shaken
from tests.scored import score_file

SCALE = torch.tensor([1.0, 10.0, 0.1], dtype=torch.float64)


def plane(scale=SCALE):
    """The first two columns, standard normal in the model's units; the third is off the manifold."""
    outer = [flows.Standardise(torch.zeros(3, dtype=torch.float64), scale)]
    return rnf.RectangularFlow(flows.Identity(3), flows.Identity(2), outer, pad=flows.Pad(2, 3, order="first")).double()


def normal(rows, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 3, generator=generator, dtype=torch.float64) * SCALE


def test_values_by_definition():
    flow = shaken(
        rnf.RectangularFlow(flows.RealNVP(3), flows.RealNVP(2), flows.Standardise(torch.ones(3), 2 * torch.ones(3)))
    )
    x = normal(7)
    found, y = score_rows(flow, x), flow.to_model_units(x)
    expected = {
        "log_density": flow.log_prob(x),
        "log_density_model": flow.in_model_units.log_prob(y),
        "reconstruction_error": flow.reconstruction_error(x),
        "reconstruction_error_model": flow.in_model_units.reconstruction_error(y),
    }
    for name, value in expected.items():
        np.testing.assert_allclose(SCORES[name](found), value.detach(), rtol=1e-10)
    usual = score_rows(flow, normal(50, seed=1))
    calibration = Calibration.of(usual)
    pairs = [(s.model_log_prob.numpy(), s.model_squared_distance.numpy()) for s in (usual, found)]
    np.testing.assert_allclose(SCORES["outlier_score"](found, calibration), -CombinedScore(*pairs[0])(*pairs[1]))
    expected = np.abs(pairs[1][0] - pairs[0][0].mean())
    np.testing.assert_allclose(SCORES["typicality"](found, calibration), expected)


def test_the_outlier_score_rises_with_distance_and_with_unlikelihood():
    flow = plane()
    calibration = calibrate(flow, normal(500))
    off = torch.tensor([[0.0, 0, t] for t in (0, 0.1, 0.3, 1, 10)], dtype=torch.float64)
    unlikely = torch.tensor([[t, 10 * t, 0] for t in (0, 1, 2, 4, 30)], dtype=torch.float64)
    for rows in (off, unlikely):
        values = SCORES["outlier_score"](score_rows(flow, rows), calibration)
        assert values[0] >= 0
        assert (np.diff(values) > 0.1).all()


def test_directions_are_those_of_the_values():
    """Of usual rows and of rows far away, every score is worse for the second."""
    flow, train = plane(), normal(300, seed=4)
    flow.fit_scatter(train, normal(100, seed=5))
    calibration, far = calibrate(flow, normal(500), train), normal(50, seed=2) + 10 * SCALE
    inside, outside = (score_rows(flow, rows) for rows in (normal(50, seed=3), far))
    for score in SCORES.values():
        better = np.median(score(inside, calibration)) > np.median(score(outside, calibration))
        assert better == score.higher_is_usual, score.name


def test_units_of_a_calibration():
    """A unit of the second column is a tenth of a deviation: in data units it drowns the third, in model units not."""
    flow = plane(torch.tensor([1.0, 1.0, 10.0], dtype=torch.float64))
    x = torch.tensor([[0.0, 0.0, 40.0]], dtype=torch.float64)
    found = score_rows(flow, x)
    model = Calibration(np.array([-2.0, -1.0]), np.array([16.0, 16.0]))
    data = Calibration(np.array([-2.0, -1.0]), np.array([16.0, 16.0]), model_units=False)
    assert model.pair(found)[1] == pytest.approx(16)
    assert data.pair(found)[1] == pytest.approx(1600)
    assert SCORES["outlier_score"](found, data) > SCORES["outlier_score"](found, model)


def test_what_is_needed_is_asked_for():
    found = score_rows(plane(), normal(3))
    with pytest.raises(ValueError, match="outlier_score needs a calibration"):
        SCORES["outlier_score"](found)
    with pytest.raises(ValueError, match="there is a score 'typicality' already"):
        register_score(SCORES["typicality"])


@pytest.mark.parametrize("scatter", [False, True])
def test_batches_change_nothing_and_each_row_is_encoded_once(monkeypatch, scatter):
    flow, x, ticks, encoded = plane(), normal(25), [], []
    if scatter:
        flow.fit_scatter(normal(100, seed=4), normal(50, seed=5))
    whole = score_rows(flow, x)
    monkeypatch.setattr(scores, "_AT_ONCE", 10)
    inverse = flows.Pad.inverse
    monkeypatch.setattr(flows.Pad, "inverse", lambda self, y: encoded.append(len(y)) or inverse(self, y))
    parts = score_rows(flow, x, tick=ticks.append)
    assert ticks == encoded == [10, 10, 5]
    for name, value in vars(whole).items():
        torch.testing.assert_close(getattr(parts, name), value, equal_nan=not scatter)


def test_rows_where_the_model_overflows(monkeypatch):
    flow, x, score = plane(), normal(9), rnf.RectangularFlow.score
    x[4] = torch.tensor([100.0, 0, 0.3])
    expected = score_rows(flow, x)

    def overflowing(self, rows, check=True):
        if rows.abs().max() > 90:
            raise NonFiniteError("too far")
        return score(self, rows, check=check)

    monkeypatch.setattr(rnf.RectangularFlow, "score", overflowing)
    found = score_rows(flow, x)
    assert SCORES["log_density"](found)[4] == SCORES["log_density_model"](found)[4] == -np.inf
    assert SCORES["reconstruction_error"](found)[4] == pytest.approx(0.09)  # which needs no log-volume
    assert SCORES["reconstruction_error_model"](found)[4] == pytest.approx(9)
    fine = np.arange(9) != 4
    for name in ("log_density", "reconstruction_error_model"):
        np.testing.assert_array_equal(SCORES[name](found)[fine], SCORES[name](expected)[fine])
    calibration = Calibration.of(found)
    assert len(calibration.log_density) == 8
    assert SCORES["outlier_score"](found, calibration)[4] == np.inf
    monkeypatch.setattr(rnf.RectangularFlow, "to_model_units", lambda self, rows: overflowing(self, rows))
    assert SCORES["reconstruction_error"](score_rows(flow, x[4:5]))[0] == np.inf


@pytest.fixture(scope="module")
def detector(tmp_path_factory):
    folder = tmp_path_factory.mktemp("detector")
    X = normal(120).numpy()
    settings = {"latent_dim": 2, "epochs": 1, "layers": 1, "hidden": (4,), "latent": "affine", "random_state": 0}
    fitted = rnf.RectangularFlowOutlierDetector(**settings).fit(X)
    fitted.save(folder / "model")
    np.savetxt(folder / "x.csv", X, delimiter=",", header="x1,x2,x3", comments="")
    return fitted, X, folder


def test_a_saved_detector_scores_as_it_does_in_python(detector, tmp_path):
    fitted, X, folder = detector
    scored = score_file(rnf.SavedRun(folder / "model"), str(folder / "x.csv"), coordinates=True)
    names = ["log_density", "reconstruction_error", "log_density_ambient", "outlier_score", "p_value"]
    assert list(scored.columns) == ["row", *names, "z1", "z2"]
    np.testing.assert_allclose(scored.columns["p_value"], fitted.p_value(X), rtol=1e-6)
    np.testing.assert_allclose(scored.columns["outlier_score"], -fitted.score_samples(X), rtol=1e-6)
    np.testing.assert_allclose(scored.columns["reconstruction_error"], fitted.reconstruction_error(X), rtol=1e-5)
    np.testing.assert_allclose(scored.columns["z2"], fitted.transform(X)[:, 1], rtol=1e-6)
    scoring = open_scoring(rnf.SavedRun(folder / "model"), str(folder / "x.csv"), coordinates=True)
    assert write_scores(scoring, tmp_path / "new" / "scores.csv").notes == []
    written = read_table(tmp_path / "new" / "scores.csv")
    assert written.columns == tuple(scored.columns)
    np.testing.assert_array_equal(written.values, np.stack(list(scored.columns.values()), axis=1))


def test_without_a_calibration_there_is_no_outlier_score(detector, tmp_path):
    fitted, _, folder = detector
    rnf.save(fitted.flow_, tmp_path / "plain")
    scoring = open_scoring(rnf.SavedRun(tmp_path / "plain"), str(folder / "x.csv"))
    assert scoring.columns == ("row", "log_density", "reconstruction_error", "log_density_ambient")
    assert write_scores(scoring, tmp_path / "scores.csv").notes == [
        "no outlier_score, which needs a calibration; it was saved without one"
    ]


def test_a_score_from_outside_the_package(detector, monkeypatch):
    fitted, X, folder = detector
    monkeypatch.setattr(scores, "SCORES", dict(SCORES))
    monkeypatch.setattr(estimator_base, "SCORES", scores.SCORES)
    monkeypatch.setattr(scored_file, "SCORES", scores.SCORES)
    register_score(Score("radius", "distance from 0 on the manifold", "", False, lambda s, _: s.z.norm(dim=1)))
    scored = score_file(rnf.SavedRun(folder / "model"), str(folder / "x.csv"))
    expected = np.linalg.norm(fitted.transform(X), axis=1)
    np.testing.assert_allclose(scored.columns["radius"], expected, rtol=1e-5)
    np.testing.assert_allclose(fitted.scores(X, "radius")["radius"], expected, rtol=1e-5)
    assert "radius" in fitted.scores(X)


def test_the_table_as_it_stands():
    """Name, whether larger is more usual, needs a calibration, is in model units, is written, needs a density in R^D."""
    facts = ("name", "higher_is_usual", "calibrated", "model_units", "written", "ambient")
    assert [tuple(getattr(score, fact) for fact in facts) for score in SCORES.values()] == [
        ("log_density", True, False, False, True, False),
        ("log_density_model", True, False, True, False, False),
        ("reconstruction_error", False, False, False, True, False),
        ("reconstruction_error_model", False, False, True, False, False),
        ("log_density_ambient", True, False, False, True, True),
        ("outlier_score", False, True, False, True, False),
        ("p_value", True, True, False, True, False),
        ("typicality", False, True, False, False, False),
    ]
    assert len({score.label for score in SCORES.values()}) == len(SCORES)
    assert all(score.unit for score in SCORES.values())


def test_rows_trained_on_are_no_more_usual_than_those_held_out():
    low, high = torch.tensor([1.0, 2.0, 30.0]), torch.tensor([6.0, 7.0, 8.0])
    assert as_held_out(torch.cat([high, low]), 3).tolist() == [1.0, 2.0, 3.0, 1.0, 2.0, 30.0]
    assert torch.equal(
        as_held_out(torch.cat([low, high]), 3), torch.cat([low, high])
    )  # never more usual than they were
    strange = torch.tensor([6.0, 7.0, 8.0, -torch.inf, torch.nan, 2.0, -torch.inf])
    torch.testing.assert_close(
        as_held_out(strange, 2), torch.tensor([1.0, 2.0, 3.0, -torch.inf, torch.nan, 2.0, -torch.inf]), equal_nan=True
    )
    assert torch.equal(as_held_out(low, 0), low)
    assert torch.equal(as_held_out(torch.tensor([5.0, -torch.inf]), 1), torch.tensor([5.0, -torch.inf]))


def test_few_rows_are_as_unusual_as_those_held_out():
    flow, rows = plane(), normal(40)
    rows[30:, 2] += 0.5  # farther from the plane than all others
    flow.fit_scatter(rows[:30], rows[:30])
    found = calibrate(flow, rows[30:], rows[:30]).ambient
    assert np.sort(found[:30])[14] <= np.sort(found[30:])[4] + 1e-9


def test_few_rows_are_cross_fitted_in_eight_parts(monkeypatch):
    """Each eighth by a scatter fitted to the others; with fewer than four rows, as they are."""
    sizes = []
    fitted = Scatter.fitted.__func__

    def counting(cls, at, judged, *given, **options):
        sizes.append((len(at.u), len(judged.u)))
        return fitted(cls, at, judged, *given, **options)

    flow, rows = plane(), normal(26)
    flow.fit_scatter(rows[:20], rows[20:])
    monkeypatch.setattr(Scatter, "fitted", classmethod(counting))
    found = calibrate(flow, rows[20:], rows[:20])
    assert sizes == [(22, 4)] * 2 + [(23, 3)] * 6
    assert len(found.ambient) == 26
    sizes.clear()
    calibrate(flow, rows[:1], rows[1:4])
    assert sizes == [(3, 1)] * 4
    sizes.clear()
    calibrate(flow, rows[:1], rows[1:3])
    assert sizes == []
