import os
import subprocess
import sys
from pathlib import Path

import torch

import rectangular_flows as rnf
from rectangular_flows.data import von_mises_circle

METHODS = ("ml", "two-step")


def train(method, out):
    torch.manual_seed(0)
    flow = rnf.RectangularFlow(rnf.flows.RealNVP(2, 4, (16,)), rnf.flows.RealNVP(1, 1)).double()
    rows, validation = von_mises_circle(350, seed=0), von_mises_circle(200, seed=1)
    settings = {"epochs": 3, "batch_size": 101, "anneal": (1, 2), "patience": 9, "scatter": method == "ml"}
    rnf.fit(flow, rows, rnf.TrainingConfig(method, **settings), validation=validation, out=out, overwrite=True)
    return rnf.load(out).state_dict()


def test_two_processes_do_as_one(tmp_path):
    """Two of them start this file; the one is here."""
    port = str(20_000 + os.getpid() % 20_000)
    shared = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    command = [sys.executable, "-W", "ignore", __file__, str(tmp_path)]
    world = [{**shared, "RANK": str(rank)} for rank in range(2)]
    processes = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) for environment in world]
    one = {method: train(method, tmp_path / f"one-{method}") for method in METHODS}
    errors = [process.communicate(timeout=240)[1].decode() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], errors
    for method in METHODS:
        two = rnf.load(tmp_path / f"two-{method}").state_dict()
        assert two.keys() == one[method].keys()
        for key, value in one[method].items():
            torch.testing.assert_close(two[key], value, rtol=1e-7, atol=1e-9)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in METHODS:
        train(name, Path(sys.argv[1]) / f"two-{name}")
        os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 1)  # the last one may not be free yet
