import os
import subprocess
import sys

import torch

import rectangular_flows as rnf


def test_two_processes_do_as_one(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        """
import sys, torch, rectangular_flows as rnf
from rectangular_flows.data import von_mises_circle
torch.set_num_threads(1)
torch.manual_seed(0)
flow = rnf.RectangularFlow(rnf.flows.RealNVP(2, 4, (16,)), rnf.flows.RealNVP(1, 1)).double()
train, validation = von_mises_circle(350, seed=0), von_mises_circle(200, seed=1)
config = rnf.TrainingConfig(sys.argv[1], epochs=3, batch_size=101, anneal=(1, 2), patience=9)
rnf.fit(flow, train, config, validation=validation, out=sys.argv[2], overwrite=True)
"""
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    port = str(20_000 + os.getpid() % 20_000)
    for method in ("ml", "two-step"):
        arguments = [sys.executable, "-W", "ignore", str(script), method]
        subprocess.run([*arguments, str(tmp_path / f"one-{method}")], check=True, timeout=120)
        world = [{**environment, "MASTER_PORT": port, "WORLD_SIZE": "2", "RANK": str(rank)} for rank in range(2)]
        out = str(tmp_path / f"two-{method}")
        processes = [subprocess.Popen([*arguments, out], env=e, stderr=subprocess.PIPE) for e in world]
        errors = [process.communicate(timeout=120)[1].decode() for process in processes]
        assert [process.returncode for process in processes] == [0, 0], errors
        one, two = rnf.load(tmp_path / f"one-{method}").state_dict(), rnf.load(out).state_dict()
        for key, value in one.items():
            torch.testing.assert_close(two[key], value, rtol=1e-7, atol=1e-9)
