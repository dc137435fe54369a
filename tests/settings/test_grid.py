import pytest

from rectangular_flows.settings import read_preset
from rectangular_flows.settings.grid import grid, parse_axis

BASE = read_preset("table")


def test_values_of_an_axis():
    assert parse_axis("seed=0..4") == ("seed", [0, 1, 2, 3, 4])
    assert parse_axis("latent-dim=2, 5") == ("latent_dim", [2, 5])
    assert parse_axis("latent_dim=auto,3") == ("latent_dim", ["auto", 3])
    assert parse_axis("hidden=64,64;128") == ("hidden", [(64, 64), (128,)])
    assert parse_axis("learning_rate=1e-3,0.01") == ("learning_rate", [1e-3, 1e-2])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed", "such as seed=0..4; got --over 'seed'"),
        ("seed=", "such as seed=0..4"),
        ("sed=1", "unknown setting 'sed'.*Did you mean 'seed'"),
        ("seed=4..0", "expected a range from a number to one no less.*got 4..0"),
        ("seed=0,0", "expected different values of seed"),
        ("seed=a", "seed"),
        ("seed=0..99999999999", "expected a range"),
    ],
)
def test_mistakes_in_an_axis(text, message):
    with pytest.raises(ValueError, match=message):
        parse_axis(text)


def test_every_combination_is_there_once_with_a_folder_of_its_own():
    points = grid([("seed", [0, 1]), ("latent_dim", [2, 3, 5])], {"data": "a.csv", "epochs": 4}, BASE)
    assert [(p.settings.training.seed, p.settings.model.latent_dim) for p in points] == [
        *((0, 2), (0, 3), (0, 5)),
        *((1, 2), (1, 3), (1, 5)),
    ]
    assert {p.settings.training.epochs for p in points} == {4}
    assert points[0].folder == "seed=0,latent_dim=2"
    assert points[0].title == "seed 0, latent_dim 2"


def test_impossible_combinations_are_found_before_anything_runs():
    with pytest.raises(ValueError, match="probes is for volume = stochastic"):
        grid([("volume", ["stochastic", "exact"]), ("probes", [1, 2])], {}, BASE)
    with pytest.raises(ValueError, match="each setting once"):
        grid([("seed", [0]), ("seed", [1])], {}, BASE)
    with pytest.raises(ValueError, match="folders of different names"):
        grid([("data", ["a/b", "a b"])], {}, BASE)
