"""What is usual, kept with the model; that of version 0.1 is in the units of the data."""

import numpy as np
import pytest
import torch

from rectangular_flows.manifold import Scores
from rectangular_flows.metrics.out_of_distribution import CombinedScore, Tail
from rectangular_flows.runs.calibration import FILE, Calibration, neighbour_distance
from rectangular_flows.storage.files import load_tensors, save_tensors


def scores(rows=6):
    values = [torch.arange(rows, dtype=torch.float64) + 10 * i for i in range(6)]
    return Scores(torch.zeros(rows, 1), torch.zeros(rows, 2), *values, torch.zeros(rows, 2))


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


# --- the outlier score and its p-values


def ambient_scores(ambient, rows):
    """Scores with these smooth log-densities in R^D and rows in the model's units."""
    count, none = len(ambient), torch.zeros(len(ambient), dtype=torch.float64)
    values = none, none, none, none, none, torch.as_tensor(ambient, dtype=torch.float64)
    return Scores(torch.zeros(count, 1), torch.zeros(count, 2), *values, torch.as_tensor(rows, dtype=torch.float64))


def calibrated(seed=0, count=200):
    random = np.random.default_rng(seed)
    reference = random.normal(size=(300, 2))
    rows = random.normal(size=(count, 2))
    return Calibration.of(ambient_scores(-0.5 * np.square(rows).sum(1), rows), reference), reference, rows


def test_outlier_score_by_its_formula():
    """In the bulk, the larger of two −log shares of held-out rows that are at least as extreme; ties count half."""
    calibration, reference, rows = calibrated()
    ambient = -0.5 * np.square(rows).sum(1)
    distance = np.sort(np.linalg.norm(rows[:, None] - reference, axis=2), axis=1)[:, 2]
    np.testing.assert_allclose(calibration.distance, distance)
    found = calibration.outlier_score(ambient_scores(ambient, rows))
    share = np.array([(ambient < a).mean() + (ambient == a).mean() / 2 for a in ambient])
    far = np.array([(distance > d).mean() + (distance == d).mean() / 2 for d in distance])
    bulk = (share > 0.11) & (far > 0.11)
    assert bulk.sum() > 100
    np.testing.assert_allclose(found[bulk], np.maximum(-np.log(share), -np.log(far))[bulk])
    assert found[~bulk].min() > found[bulk].max() - 0.1  # a law of the tail goes on from there
    worse = calibration.outlier_score(ambient_scores([-50.0, -100.0, -2.0], [[0, 0], [0, 0], [1e3, 0]]))
    assert worse[1] > worse[0] > found.max()
    assert worse[2] > found.max()
    assert list(calibration.tails(ambient_scores(ambient, rows))) == ["ambient", "neighbours"]


def test_rows_that_are_not_finite_are_the_most_unusual():
    calibration, _, _ = calibrated()
    strange = ambient_scores([-1e300, -np.inf, np.nan, -1.0, -1.0], [[0, 0], [0, 0], [0, 0], [np.nan, 0], [np.inf, 0]])
    found = calibration.outlier_score(strange)
    assert (found[1:] == np.inf).all()
    assert (calibration.p_value(found) == 1 / 201).all()
    assert (found > calibration.threshold(0.0)).all()


def test_p_values_by_their_formula():
    calibration, _, _ = calibrated(count=57)
    usual = calibration.usual
    assert len(usual) == 57
    assert (np.diff(usual) >= 0).all()
    for value in [*usual[::7], usual[3] + 1e-9, -1.0, 1e9, np.inf]:
        expected = (1 + sum(1 for s in usual if s >= value)) / 58
        assert calibration.p_value(np.array([value]))[0] == pytest.approx(expected)


@pytest.mark.parametrize(("count", "parts"), [(3, 3), (20, 20), (50, 50), (57, 50), (130, 50)])
def test_rows_are_left_out_of_their_own_tails(count, parts):
    """In at most fifty parts: every fiftieth row is judged by all others."""
    calibration, reference, rows = calibrated(count=count)
    ambient = -0.5 * np.square(rows).sum(1)
    expected = np.empty(count)
    for part in range(parts):
        mine = np.arange(count) % parts == part
        others = Calibration.of(ambient_scores(ambient[~mine], rows[~mine]), reference)
        expected[mine] = others.outlier_score(ambient_scores(ambient[mine], rows[mine]))
    np.testing.assert_allclose(calibration.usual, np.sort(expected))


@pytest.mark.parametrize("count", [10, 19, 50, 200])
@pytest.mark.parametrize("share", [0.01, 0.05, 0.1, 0.3, 0.5, 1.0])
def test_the_threshold_goes_with_the_p_values(count, share):
    calibration, _, _ = calibrated(count=count)
    threshold = calibration.threshold(share)
    values = np.concatenate([calibration.usual, calibration.usual + 1e-9, [0.0, 1e9]])
    if share * (count + 1) >= 1:
        np.testing.assert_array_equal(calibration.p_value(values) <= share, values > threshold)
    else:  # no p-value is so small: rows more unusual than every known one
        assert threshold == calibration.threshold(0.0) == calibration.usual[-1]


@pytest.mark.parametrize("dependence", [0.0, 1.0])
@pytest.mark.parametrize("count", [10, 20, 50, 200])
def test_no_more_false_alarms_than_promised(count, dependence):
    """Over many calibrations, new rows like the held-out ones have p ≤ α in a share of at most α, and of not much less."""
    rates = {0.05: [], 0.1: [], 0.2: []}
    for seed in range(80):
        random = np.random.default_rng([seed, count])

        def draw(rows, random=random):
            density = random.normal(size=rows)
            return density, np.exp(0.8 * random.normal(size=rows) - dependence * density)

        calibration = Calibration(*draw(count), True, *draw(count), np.zeros((1, 1)))
        density_tail, distance_tail = calibration._laws
        density, distance = draw(200)
        p = calibration.p_value(np.maximum(-density_tail(-density), -distance_tail(distance)))
        for share, found in rates.items():
            found.append((p <= share).mean())
    for share, found in rates.items():
        error = np.std(found) / np.sqrt(len(found))
        assert np.mean(found) < share + 3 * error
        if count == 200:
            assert np.mean(found) > share - 0.01 - 3 * error


def test_that_without_a_density_in_all_columns():
    """Models of images and those of version 0.1: Fisher's combination, and p-values of it."""
    random = np.random.default_rng(0)
    calibration = Calibration(random.normal(size=100), random.exponential(size=100))
    found = scores()
    expected = -CombinedScore(calibration.log_density, calibration.squared_distance)(*calibration.pair(found))
    np.testing.assert_array_equal(calibration.outlier_score(found), expected)
    assert list(calibration.tails(found)) == ["log_density", "distance"]
    np.testing.assert_allclose(sum(calibration.tails(found).values()), expected)
    rates = []
    for _ in range(50):
        calibration = Calibration(random.normal(size=100), random.exponential(size=100))
        p = calibration.p_value(-calibration.combined(random.normal(size=200), random.exponential(size=200)))
        rates.append((p <= 0.1).mean())
    assert np.mean(rates) == pytest.approx(0.1, abs=0.02)


def test_all_of_it_is_kept(tmp_path):
    calibration, reference, _rows = calibrated()
    calibration.save(tmp_path)
    others = ambient_scores(np.linspace(-9, 0, 20), np.random.default_rng(1).normal(size=(20, 2)))
    listed = Calibration.of_estimator({"calibration": calibration.listed()})
    for again in (Calibration.load(tmp_path), listed):
        np.testing.assert_array_equal(again.reference, reference)
        np.testing.assert_array_equal(again.outlier_score(others), calibration.outlier_score(others))
        np.testing.assert_array_equal(again.usual, calibration.usual)
        assert again.threshold(0.07) == calibration.threshold(0.07)


def test_nothing_finite_to_calibrate_on_is_told():
    calibration = Calibration.of(ambient_scores([np.nan, -np.inf], np.zeros((2, 2))), np.zeros((3, 2)))
    with pytest.raises(ValueError, match="no row held out of training has a finite score"):
        calibration.threshold(0.1)


def test_neighbours_of_the_reference_itself():
    reference = np.array([[0.0], [1.0], [3.0], [7.0], [15.0]])
    assert neighbour_distance(reference, reference, themselves=True).tolist() == [7, 6, 4, 7, 14]
    assert neighbour_distance(reference, np.array([[0.0]])).tolist() == [3]
    assert neighbour_distance(reference[:2], np.array([[5.0]])).tolist() == [5]  # fewer than three


def test_scores_are_computed_once_and_not_to_be_changed():
    calibration, _, rows = calibrated(count=20)
    scores = ambient_scores(-0.5 * np.square(rows).sum(1), rows)
    found = calibration.outlier_score(scores)
    assert calibration.outlier_score(scores) is found
    assert not found.flags.writeable
    assert calibration.outlier_score(ambient_scores(np.zeros(20), rows)) is not found


def test_distances_that_are_given_are_not_computed():
    """Rows that are among the reference rows have known distances; those of rows left out go with them."""
    rows = np.array([[0.0, 0], [1, 0], [2, 0], [3, 0]])
    given = np.array([4.0, 3.0, 2.0, 1.0])
    found = Calibration.of(ambient_scores([-1.0, np.nan, -3.0, -4.0], rows), rows, given)
    assert found.distance.tolist() == [4, 2, 1]
    assert found.ambient.tolist() == [-1, -3, -4]
    assert found.reference is rows
    assert Calibration.of(ambient_scores([-1.0], rows[:1])).reference is None


@pytest.mark.parametrize("ambient", [True, False])
@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_what_is_usual_of_hardly_any_rows(ambient, count):
    """Below three none can be left out of its own tails."""
    values = np.array([-1.0, -5.0, -2.0])[:count], np.array([3.0, 1.0, 2.0])[:count]
    more = {"ambient": values[0], "distance": values[1], "reference": np.zeros((3, 1))} if ambient else {}
    calibration = Calibration(*values, **more)
    if count == 1:
        return  # has no tail, and is not kept
    usual = calibration.usual
    assert len(usual) == count
    assert (np.diff(usual) >= 0).all()
    if count == 2:
        tails = [Tail(-values[0])(-values[0]), Tail(values[1])(values[1])]
        own = np.maximum(-tails[0], -tails[1]) if ambient else -CombinedScore(*values)(*values)
        np.testing.assert_array_equal(usual, np.sort(own))


def test_rows_too_large_to_square_are_far_from_all():
    calibration, _, _ = calibrated()
    found = calibration._neighbours(np.array([[1e150, 0], [-1e150, 0], [9e149, 0], [0, np.nan], [0, 0]]))
    assert (np.isinf(found[[0, 1, 3]])).all()
    assert found[2] == pytest.approx(9e149)
    assert 0 < found[4] < 1
    assert np.isinf(calibration._neighbours(np.array([[np.nan, 0.0]]))).all()


def test_there_are_no_tails_without_a_density_in_all_columns():
    with pytest.raises(ValueError, match=r"no density in R\^D"):
        Calibration(np.ones(3), np.ones(3)).ambient_tails(np.ones(2), np.ones((2, 2)))
