"""``rnf evaluate``: every metric compares what it says it compares."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from rectangular_flows import RectangularFlow, flows
from rectangular_flows.data.truths import Circle
from rectangular_flows.evaluation import evaluate
from rectangular_flows.evaluation import evaluate as evaluate_module
from rectangular_flows.evaluation.evaluate import (
    METRICS,
    Metric,
    TooFewRowsError,
    evaluate_run,
    keep_evaluation,
)
from rectangular_flows.metrics import circle_fit, fid_like, sliced_wasserstein
from rectangular_flows.metrics.coverage import coverage, uniform_distance
from rectangular_flows.paper import tabular
from rectangular_flows.runs.prepared import Prepared
from rectangular_flows.settings import DataSettings, FitSettings
from tests.conftest import shaken

ROWS = 80


@pytest.fixture(scope="module")
def run():
    """A model whose samples are nothing like its data, and training rows that differ a little from the test rows."""
    flow = shaken(
        RectangularFlow(flows.RealNVP(3), flows.RealNVP(2), flows.Standardise(torch.full((3,), 9.0), torch.ones(3)))
    )
    random = np.random.default_rng(0)
    train, validation, test = (random.normal(size=(ROWS, 3)) * [1, 5, 0.2] + shift for shift in (0.3, 0.2, 0.0))
    data = Prepared(train, validation, test, ("a", "b", "c"))
    return SimpleNamespace(flow=flow, data=data, settings=FitSettings())


def test_samples_are_compared_with_test_rows_and_training_rows_with_test_rows(run):
    numbers = evaluate_run(run, ROWS, seed=3)
    samples = run.flow.sample(ROWS, generator=torch.Generator().manual_seed(3)).numpy()
    scale = run.data.train.std(axis=0, ddof=1)
    drawn, test, train = (rows / scale for rows in (samples, run.data.test, run.data.train))
    assert numbers["fid_like"] == pytest.approx(fid_like(drawn, test), rel=1e-9)
    assert numbers["fid_like_floor"] == pytest.approx(fid_like(train, test), rel=1e-9)
    assert numbers["sliced_wasserstein"] == pytest.approx(sliced_wasserstein(drawn, test, seed=3), rel=1e-9)
    assert numbers["sliced_wasserstein_floor"] == pytest.approx(sliced_wasserstein(train, test, seed=3), rel=1e-9)
    assert numbers["c2st"] > 0.9 > numbers["c2st_floor"] > 0.3
    assert numbers["fid_like"] > 10 * numbers["fid_like_floor"] > 0


def test_the_fid_like_score_is_of_all_samples_as_in_the_papers_tables(run):
    numbers = evaluate_run(run, 5 * ROWS, seed=3)
    samples = run.flow.sample(5 * ROWS, generator=torch.Generator().manual_seed(3)).numpy()
    scale = run.data.train.std(axis=0, ddof=1)
    assert numbers["fid_like"] == pytest.approx(fid_like(samples / scale, run.data.test / scale), rel=1e-9)
    assert evaluate_module.TABLE_SAMPLES == tabular.SAMPLES == 50_000


def test_likelihood_and_error_are_means_over_the_test_rows(run):
    numbers = evaluate_run(run, ROWS, most=30)
    test = torch.from_numpy(run.data.test[:30])
    with torch.no_grad():
        assert numbers["negative_log_likelihood"] == pytest.approx(-float(run.flow.log_prob(test).mean()))
        assert numbers["reconstruction_error"] == pytest.approx(float(run.flow.reconstruction_error(test).mean()))
    assert (numbers["test_rows"], numbers["samples"], numbers["seed"]) == (30, ROWS, 0)
    assert not [
        name for name in numbers if name.startswith(("model_", "circle_", "sphere_", "coverage", "fid_standard"))
    ]


def test_images_are_judged_in_both_units():
    flow = shaken(
        RectangularFlow(flows.RealNVP(4), flows.RealNVP(2), [Shaped(), flows.Logit((1, 2, 2), 0.05)]), amount=0.05
    )
    rows = torch.rand(40, 1, 2, 2, dtype=torch.float64)
    run = SimpleNamespace(flow=flow, data=Prepared(rows, rows, rows[:12], ()), settings=FitSettings())
    numbers = evaluate_run(run)
    y = flow.to_model_units(rows[:12])
    with torch.no_grad():
        expected = -float(flow.in_model_units.log_prob(y).mean())
        error = float(flow.in_model_units.reconstruction_error(y).mean())
    assert numbers["model_negative_log_likelihood"] == pytest.approx(expected)
    assert numbers["model_reconstruction_error"] == pytest.approx(error)
    assert numbers["samples"] == 0
    assert "fid_like" not in numbers


class Shaped(flows.Injection):
    """Four numbers as an image."""

    def __init__(self):
        super().__init__((4,), (1, 2, 2))

    def forward(self, z):
        return z.reshape(-1, 1, 2, 2)

    def inverse(self, x):
        return x.flatten(1)


def test_the_truth_is_used_where_it_is_known():
    flow = shaken(RectangularFlow(flows.RealNVP(2, 2, (8,)), flows.RealNVP(1, 1)))
    angle = np.random.default_rng(0).uniform(0, 6, 40)
    rows = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    settings = FitSettings(DataSettings("circle"))
    run = SimpleNamespace(flow=flow, data=Prepared(rows, rows, rows, ("x", "y")), settings=settings)
    numbers, fit = evaluate_run(run, 50), circle_fit(flow)
    for name in ("kl", "sector_kl", "total_variation", "mass", "mean_distance", "max_distance", "speed_spread", "gap"):
        assert numbers[f"circle_{name}"] == getattr(fit, name)
    found = coverage(flow, Circle(), torch.from_numpy(rows))
    for level in (50, 90, 99):
        assert numbers[f"coverage_{level}"] == found.share(level / 100)
        assert numbers[f"coverage_{level}_floor"] == found.true_share(level / 100)
        assert numbers[f"coverage_{level}_standard_error"] == found.standard_error(level / 100)
    assert numbers["integral_transform"] == uniform_distance(found.uniforms[:, 0])
    assert numbers["integral_transform_floor"] == uniform_distance(found.true_uniforms[:, 0])
    assert numbers["true_distance"] == found.distances.mean()


def largest_of(subject):
    return {"": float(subject.test.max()), "_floor": 0.0, "_standard_error": 0.5}


def test_a_metric_is_one_entry(run, monkeypatch, tmp_path):
    largest = Metric("largest value", largest_of)
    monkeypatch.setattr(evaluate, "METRICS", {"largest": largest})
    numbers = evaluate_run(run, ROWS)
    assert numbers["largest"] == run.data.test.max()
    assert (numbers["largest_floor"], numbers["largest_standard_error"]) == (0.0, 0.5)
    keep_evaluation(SimpleNamespace(path=tmp_path), {"largest": 1.5})
    assert (tmp_path / "evaluation.json").read_text() == '{\n "largest": 1.5\n}\n'


def test_every_metric_has_a_label():
    assert all(metric.label for metric in METRICS.values())
    assert len({metric.label for metric in METRICS.values()}) == len(METRICS)


def test_mistakes_are_told(run):
    with pytest.raises(TooFewRowsError, match=r"at least 10 test rows to evaluate on; got 9\. Give more --rows"):
        evaluate_run(run, most=9)
    few = SimpleNamespace(**{**vars(run), "data": Prepared(run.data.train, run.data.train, run.data.test[:5], ())})
    with pytest.raises(TooFewRowsError, match=r"got 5\. Train with a larger --test-fraction"):
        evaluate_run(few)
    for options, message in (({"most": 0}, "rows; got 0"), ({"samples": -1}, "samples; got -1")):
        with pytest.raises(ValueError, match=f"positive number of {message}"):
            evaluate_run(run, **options)
