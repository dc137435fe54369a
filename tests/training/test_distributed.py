"""Several processes do as one. Each number of processes is started once, with this file as their program."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

import rectangular_flows as rnf
from rectangular_flows.densities.base import drawing_for
from rectangular_flows.errors import NonFiniteError, RankDeficientError
from rectangular_flows.training.distributed import PeerError
from rectangular_flows.training.objective import Objective, Place
from rectangular_flows.volume import Auto, Exact, Stochastic

sys.path.insert(0, str(Path(__file__).parent))
from processes import finish, start

ROWS, BATCH = 43, 21  # so that the last batch is one row
CASES = {
    "exact": {},
    "one-probe": {"volume": Stochastic()},
    "two-probes": {"volume": Stochastic(2)},
    "gaussian-cg": {"volume": Stochastic(2, "gaussian", "cg")},
    "rademacher-pcg": {"volume": Stochastic(3, "rademacher", "pcg")},
    "fraction": {"volume_fraction": 0.1},
    "fraction-in-parts": {"volume": Stochastic(), "volume_fraction": 0.3, "memory": 0.05},
    "auto": {"volume": Auto()},
    "two-step": {"method": "two-step", "clip": 1.0},
    "everything": {
        **{"target_error": "auto", "anneal": (1, 1), "start_latent": True, "latent_epochs": 1, "ema": 0.9},
        **{"tail_weight": 0.5, "monitor": "own", "volume": Stochastic()},
    },
}
TOLERANCE = {"rtol": 1e-8, "atol": 1e-9}  # float64: the order in which rows are added up differs


def rows(count, seed):
    u = torch.randn(count, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.cat([u, (u[:, :1] * u[:, 1:2]).sin(), u.square().sum(dim=1, keepdim=True) / 10], dim=1)


def train(name, out=None, seed=0, **options):
    torch.manual_seed(seed)
    ambient = rnf.flows.RealNVP(5, 2, (8,), mixing="free")  # with parameters that are not contiguous
    flow = rnf.RectangularFlow(ambient, rnf.flows.RealNVP(3, 1, (8,))).double()
    config = rnf.TrainingConfig(**{"epochs": 2, "batch_size": BATCH, "scatter": False, **CASES[name]})
    metrics = {"own": lambda flow, x: float(flow.project(x).std())}
    return rnf.fit(flow, rows(ROWS, 0), config, validation=rows(17, 1), metrics=metrics, out=out, **options)


def numbers(run):
    """Everything a training leaves that is a number: weights, scatter, and its lines but for the time."""
    lines = [[v for k, v in line.flat().items() if k != "seconds"] for line in run.history]
    return {**run.flow.state_dict(), "history": torch.tensor(lines, dtype=torch.float64)}


def stop_at(step):
    def on_step(run):
        if run.progress.step == step:
            os.kill(os.getpid(), signal.SIGTERM)

    return on_step


class Failing:
    """A volume that fails in its fourth step, where it is to."""

    def __init__(self, error, fails):
        self.error, self.fails, self.calls = error, fails, 0

    def __call__(self, flow, z):
        self.calls += 1
        if self.fails and self.calls > 4:
            raise self.error
        return Exact()(flow, z)


def fit_with(volume, out):
    flow = rnf.RectangularFlow(rnf.flows.RealNVP(5, 2, (8,)), rnf.flows.RealNVP(3, 1, (8,)))
    config = rnf.TrainingConfig(epochs=3, batch_size=12, volume=volume, scatter=False, memory=1e9)
    return rnf.fit(flow, rows(ROWS, 0), config, out=out)


def program(folder, resume_from):
    """What each of several processes does."""
    rank = int(os.environ["RANK"])
    for name in CASES:
        run = train(name, seed=rank)  # others than process 0 begin with other weights, and must not keep them
        torch.save(numbers(run), folder / f"{name}-{rank}.pt")
    with pytest.raises(KeyboardInterrupt, match="everything is saved"):
        train("one-probe", folder / "stopped", on_step=stop_at(2))
    if resume_from.exists():
        torch.save(numbers(train("one-probe", resume_from, resume=True)), folder / f"resumed-{rank}.pt")
    say = {"number": RankDeficientError("rank lost."), "word": ValueError("the disk is gone")}
    for name, error in say.items():
        with pytest.raises((NonFiniteError, ValueError, PeerError)) as caught:
            fit_with(Failing(error, rank == 1), folder / name)
        found = caught.value
        (folder / f"{name}-{rank}.txt").write_text(f"{type(found).__name__} {getattr(found, 'exit_code', '')} {found}")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Of two and of three processes; the latter resume what the former left."""
    found = {size: tmp_path_factory.mktemp(str(size)) for size in (2, 3)}
    for size, folder in found.items():
        ended = finish(start(size, __file__, folder, found[2] / "stopped" if size == 3 else folder / "none"))
        assert [code for code, *_ in ended] == [0] * size, ended
    return found


def close(found, expected):
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value, **TOLERANCE, equal_nan=True)


@pytest.mark.parametrize("name", CASES)
def test_several_processes_do_as_one(folders, name):
    one = numbers(train(name))
    for size, folder in folders.items():
        for rank in range(size):
            close(torch.load(folder / f"{name}-{rank}.pt"), one)


def test_a_run_of_two_processes_resumes_on_three_and_one_of_three_on_one(folders):
    one = numbers(train("one-probe"))
    for rank in range(3):
        close(torch.load(folders[3] / f"resumed-{rank}.pt"), one)
    close(numbers(train("one-probe", folders[3] / "stopped", resume=True)), one)


@pytest.mark.parametrize("size", [2, 3])
def test_an_error_in_one_process_stops_all_and_loses_no_step(folders, size):
    """Numerical trouble is the same error in each; of another error all learn, and process 0 saves the last step."""
    numbers, words = (
        [(folders[size] / f"{name}-{i}.txt").read_text() for i in range(size)] for name in ("number", "word")
    )
    assert len({*numbers}) == 1
    assert numbers[0].startswith("NonFiniteError  training stopped in epoch 1, step 3: rank lost.")
    assert words[1] == "ValueError  the disk is gone"
    assert {*words[:1], *words[2:]} == {"PeerError 2 process 1 stopped: the disk is gone"}
    with safe_open(folders[size] / "word" / "checkpoint" / "state.safetensors", "pt") as state:
        assert json.loads(state.metadata()["progress"])["step"] == 2


@pytest.mark.parametrize("volume", [Exact(), Stochastic(2)])
@pytest.mark.parametrize("size", [2, 3, 7])
def test_terms_of_shares_add_up(volume, size):
    """Also where a share has no row with a volume, and rows of all places are there once."""
    torch.manual_seed(0)
    flow = rnf.RectangularFlow(rnf.flows.RealNVP(5, 2, (8,)), rnf.flows.RealNVP(3, 1, (8,))).double()
    objective, x = Objective(flow, volume, 3.0, volume_fraction=0.3), rows(8, 2)

    def terms(place):
        torch.manual_seed(5)
        found = objective(x[place.first :: place.step], 0.7, "all", place)
        return torch.stack([*vars(found).values()])

    whole = terms(Place(8))
    torch.testing.assert_close(sum(terms(Place(8, rank, size)) for rank in range(size)), whole)


def test_draws_outside_are_as_ever():
    with drawing_for(7, 1, 3):
        pass
    torch.manual_seed(0)
    first = rnf.volume.stochastic.draw_probes(torch.zeros(4, 2), 1, "gaussian")
    torch.manual_seed(0)
    assert torch.equal(first, torch.randn(4, 1, 2))


if __name__ == "__main__":
    torch.set_num_threads(1)
    program(Path(sys.argv[1]), Path(sys.argv[2]))
