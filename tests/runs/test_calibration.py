"""What is usual, kept with the model; that of version 0.1 is in the units of the data."""

import numpy as np
import pytest
import torch

from rectangular_flows.manifold import Scores
from rectangular_flows.metrics.out_of_distribution import CombinedScore
from rectangular_flows.runs.calibration import FILE, Calibration
from rectangular_flows.storage.files import load_tensors, save_tensors


def scores(rows=6):
    values = [torch.arange(rows, dtype=torch.float64) + 10 * i for i in range(4)]
    return Scores(torch.zeros(rows, 1), torch.zeros(rows, 2), *values)


def test_it_is_in_model_units_and_says_so(tmp_path):
    found = scores()
    found.model_log_prob[2], found.model_squared_distance[4] = -torch.inf, torch.nan
    calibration = Calibration.of(found)
    assert calibration.log_density.tolist() == [20, 21, 23, 25]
    assert calibration.squared_distance.tolist() == [30, 31, 33, 35]
    calibration.save(tmp_path)
    assert set(load_tensors(tmp_path / FILE)) == {"model_log_prob", "model_squared_distance"}
    again = Calibration.load(tmp_path)
    assert again.model_units
    assert again.log_density.tolist() == calibration.log_density.tolist()
    assert again.squared_distance.tolist() == calibration.squared_distance.tolist()
    density, distance = again.pair(scores())
    assert (density[0], distance[0]) == (20, 30)


def test_that_of_version_0_1_is_in_data_units(tmp_path):
    kept = {"log_density": torch.tensor([1.0, 2.0]), "reconstruction_error": torch.tensor([3.0, 4.0])}
    save_tensors(tmp_path / FILE, kept)
    detector = {"usual": [[1.0, 2.0], [3.0, 4.0]]}
    for found in (Calibration.load(tmp_path), Calibration.of_estimator(detector)):
        assert not found.model_units
        density, distance = found.pair(scores())
        assert (density[0], distance[0]) == (0, 10)
        assert found.squared_distance.tolist() == [3, 4]
        assert not Calibration.from_kept(found.kept()).model_units


def test_what_an_estimator_keeps():
    calibration = Calibration.of(scores())
    again = Calibration.of_estimator({"calibration": calibration.listed()})
    np.testing.assert_array_equal(again.log_density, calibration.log_density)
    assert again.model_units
    assert Calibration.of_estimator({"calibration": None}) is None
    assert Calibration.of_estimator({}) is None


def test_nothing_was_kept(tmp_path):
    assert Calibration.load(tmp_path) is None
    Calibration(np.ones(1), np.ones(1)).save(tmp_path)  # too few rows to learn from
    assert Calibration.load(tmp_path) is None
    Calibration(np.ones(2), np.ones(2)).save(tmp_path)
    assert Calibration.load(tmp_path) is not None


def test_both_as_one_score():
    random = np.random.default_rng(0)
    density, distance = random.normal(size=50), random.exponential(size=50)
    found = Calibration(density, distance).combined
    where = [-3.0, 0.0], [0.1, 5.0]
    assert found(*where) == pytest.approx(CombinedScore(density, distance)(*where))
