"""``rnf reproduce``: what is asked for, and of whom."""

import pytest

from rectangular_flows.cli import main
from rectangular_flows.data.tables import DataError
from rectangular_flows.paper import circle, images, ood_reproduction, tabular


@pytest.fixture
def asked(monkeypatch):
    """The experiments that were asked for, instead of doing them."""
    calls = []

    def stand_in(module, name):
        monkeypatch.setattr(module, name, lambda *args, **_: calls.append((name, *args)) or 0)

    stand_in(circle, "reproduce_command")
    stand_in(circle, "grid_command")
    stand_in(tabular, "tabular_command")
    stand_in(images, "images_command")
    stand_in(ood_reproduction, "ood_reproduction_command")
    return calls


def test_all_does_every_experiment_with_its_defaults(asked, tmp_path):
    assert main(["reproduce", "all", "-o", str(tmp_path), "--epochs", "3", "--jobs", "1"]) == 0
    names = ["reproduce_command", "grid_command", "tabular_command", "images_command", "ood_reproduction_command"]
    assert [call[0] for call in asked] == names
    assert asked[0][1:] == (tmp_path / "circle", 5, 3, 1)
    assert asked[1][1:] == (tmp_path / "circle-grid", 3, 1)
    assert asked[2][3:5] == (["exact", "K = 1", "K = 10", "two-step"], 5)
    assert asked[3][2:5] == (["mnist", "fashion-mnist", "cifar10"], ["exact", "K = 1", "two-step"], 1)
    assert asked[4][2:4] == (["exact", "K = 1", "two-step"], 1)


def test_all_goes_on_without_data_and_says_so_in_the_end(asked, monkeypatch, capsys, tmp_path):
    def missing(*_, **__):
        raise DataError("no such rows")

    monkeypatch.setattr(tabular, "tabular_command", missing)
    assert main(["reproduce", "all", "-o", str(tmp_path)]) == 2
    assert "tabular: no such rows" in capsys.readouterr().err
    assert len(asked) == 4


def test_options_of_one_experiment_are_not_for_all(asked, capsys):
    assert main(["reproduce", "all", "--sets", "mnist", "--skip-fid"]) == 2
    said = capsys.readouterr().err
    assert "--sets, --skip-fid" in said
    assert "circle, tabular, images, ood" in said
    assert asked == []


def test_an_hour_a_run_only_if_asked_for(asked, tmp_path):
    assert main(["reproduce", "images", "--methods", "best,exact", "-o", str(tmp_path)]) == 0
    assert asked[0][3] == ["exact", "exact, longer"]
