"""``rnf reproduce``: what is asked for, and of which experiment."""

import pytest

from rectangular_flows.cli import main
from rectangular_flows.data.tables import DataError
from rectangular_flows.paper import options
from rectangular_flows.paper.circle import PRESETS, Circle, Grid
from rectangular_flows.paper.experiment import Experiment
from rectangular_flows.paper.images import Images
from rectangular_flows.paper.ood import OutOfDistribution
from rectangular_flows.paper.options import EXPERIMENTS, Request
from rectangular_flows.paper.tabular import Tabular

IMAGES = ("exact", "k1", "two-step")
FIVE = (0, 1, 2, 3, 4)


@pytest.fixture
def asked(monkeypatch):
    """The experiments that were to run, instead of running them."""
    calls = []
    monkeypatch.setattr(Experiment, "run", lambda self: calls.append((type(self), self.request)) or 0)
    return calls


def test_each_experiment_has_its_defaults(asked, tmp_path):
    for what in EXPERIMENTS:
        assert main(["reproduce", what, "-o", str(tmp_path)]) == 0
    tables = ("power", "gas", "hepmass", "miniboone"), ("exact", "k1", "k10", "two-step")
    assert asked == [
        (Circle, Request(tmp_path, ("circle",), tuple(PRESETS.values()), FIVE)),
        (Tabular, Request(tmp_path, *tables, FIVE)),
        (Images, Request(tmp_path, ("mnist", "fashion-mnist", "cifar10"), IMAGES)),
        (OutOfDistribution, Request(tmp_path, ("mnist", "fashion-mnist"), IMAGES)),
    ]


def test_what_is_given_is_passed_on(asked, tmp_path):
    command = ["reproduce", "images", "-o", str(tmp_path), "--sets", "cifar10,mnist", "--methods", "best,exact"]
    more = ["--seeds", "3", "--epochs", "4", "--jobs", "2", "-n", "50", "--published-samples", "0", "--skip-fid"]
    assert main([*command, *more]) == 0
    own = {"samples": 50, "published_samples": 0, "skip_fid": True}
    # names come in their own order, whatever the order in which they were given
    assert asked == [(Images, Request(tmp_path, ("mnist", "cifar10"), ("exact", "best"), (0, 1, 2), 4, 2, own))]
    assert main(["reproduce", "circle", "--grid", "-o", str(tmp_path)]) == 0
    assert asked[1] == (Grid, Request(tmp_path, ("circle",), tuple(PRESETS.values()), FIVE, more={"grid": True}))
    chosen = ["--methods", "circle-ml,circle", "--seeds", "0..4,10..14"]
    assert main(["reproduce", "circle", "-o", str(tmp_path), *chosen]) == 0
    assert asked[2] == (Circle, Request(tmp_path, ("circle",), ("circle", "circle-ml"), (*FIVE, 10, 11, 12, 13, 14)))


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (
            "images --sets mnits",
            "among mnist, fashion-mnist, cifar10; got 'mnits'. Did you mean 'mnist'",
        ),
        ("images --methods k10", "expected a method among exact, k1, two-step, best; got 'k10'"),
        ("tabular --sets powr", "Did you mean 'power'"),
        ("tabular --methods exact,k2", "got 'k2'"),
        ("tabular --seeds 0", "at least one seed; got 0"),
        ("tabular --seeds 1,2,1", "expected different seeds; got 1,2,1"),
        ("tabular --seeds 4..0", "expected a range from a number to one no less, such as 0..4; got 4..0"),
        ("tabular --seeds=-1", "expected --seeds as a number of seeds, or as a list such as 0..4,10..14; got '-1'"),
        ("tabular --seeds 1,x", "or as a list such as 0..4,10..14; got '1,x'"),
        ("tabular --grid", "--grid is for circle; got it for tabular"),
        ("ood --sets mnist", "--sets is for tabular and images; got it for ood"),
        ("ood --published-samples 0", "--published-samples is for images; got it for ood"),
        ("circle -n 10", "--samples is for images and ood; got it for circle"),
        ("circle --methods exact", "expected a method among circle, circle-baseline, circle-ml, circle-two-step"),
        ("circle --grid --methods circle", "--grid has settings of its own: leave out --methods"),
        ("images --no-square", "--no-square is for ood"),
        ("ood --network own.pt", "--network is for images"),
        (
            "all --sets mnist --skip-fid",
            "--sets, --skip-fid: not for all experiments at once. Name one: circle, tabular",
        ),
    ],
)
def test_an_option_that_does_not_apply_is_refused(asked, capsys, command, text):
    assert main(["reproduce", *command.split()]) == 2
    assert text in capsys.readouterr().err
    assert asked == []


def test_all_runs_every_experiment_and_the_grid(asked, tmp_path):
    assert main(["reproduce", "all", "-o", str(tmp_path), "--epochs", "3", "--jobs", "1"]) == 0
    assert [kind for kind, _ in asked] == [Circle, Grid, Tabular, Images, OutOfDistribution]
    assert {(request.epochs, request.jobs) for _, request in asked} == {(3, 1)}
    assert [request.seeds for _, request in asked] == [FIVE, FIVE, FIVE, (0,), (0,)]


def test_all_goes_on_without_data_and_says_so_at_the_end(asked, monkeypatch, capsys, tmp_path):
    def missing(self):
        raise DataError("no such rows")

    monkeypatch.setattr(Tabular, "run", missing)
    assert main(["reproduce", "all", "-o", str(tmp_path)]) == 2
    assert "tabular: no such rows" in capsys.readouterr().err
    assert len(asked) == 4


def test_all_reports_a_failed_run(monkeypatch, tmp_path):
    codes = iter([0, 1, 0, 0, 0])
    monkeypatch.setattr(Experiment, "run", lambda self: next(codes))
    assert main(["reproduce", "all", "-o", str(tmp_path)]) == 1


def test_parsing_imports_nothing_heavy():
    assert not {"torch", "numpy", "rich"} & set(vars(options))
