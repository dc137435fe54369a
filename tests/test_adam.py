"""Adam without torch's compiler: the numbers of torch's own, and no import of the compiler."""

import copy
import subprocess
import sys

import pytest
import torch
from torch.optim import Adam, AdamW

from rectangular_flows.adam import EagerAdam, EagerAdamW

PAIRS = {
    "adam": (lambda p: EagerAdam(p, 1e-2), lambda p: Adam(p, lr=1e-2, fused=True)),
    "adamw": (lambda p: EagerAdamW(p, 1e-2, 0.1), lambda p: AdamW(p, lr=1e-2, weight_decay=0.1, fused=True)),
}


def _steps(optimiser, parameters, start, count):
    for step in range(start, start + count):
        for i, parameter in enumerate(parameters):
            generator = torch.Generator().manual_seed(100 * step + i)
            parameter.grad = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
        for group in optimiser.param_groups:
            group["lr"] = 1e-2 / (1 + step)
        optimiser.step()


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_has_the_numbers_of_torch(kind, dtype):
    ours = [torch.nn.Parameter(torch.ones(3, 2, dtype=dtype)), torch.nn.Parameter(torch.full((1,), 2.0, dtype=dtype))]
    theirs = copy.deepcopy(ours)
    first, second = (make(p) for make, p in zip(PAIRS[kind], (ours, theirs), strict=True))
    _steps(first, ours, 0, 4)
    _steps(second, theirs, 0, 4)
    again = copy.deepcopy(ours)
    resumed = PAIRS[kind][0](again)
    resumed.load_state_dict(copy.deepcopy(second.state_dict()))  # of torch's own
    _steps(resumed, again, 4, 3)
    _steps(second, theirs, 4, 3)
    assert all(torch.equal(a, b) for a, b in zip(again, theirs, strict=True))
    assert not torch.equal(again[0], ours[0])


def test_does_not_load_the_compiler():
    code = (
        "import sys, torch\n"
        "from rectangular_flows.adam import EagerAdam\n"
        "w = torch.nn.Parameter(torch.ones(2)); o = EagerAdam([w], 0.1)\n"
        "w.grad = torch.ones(2); o.step(); o.load_state_dict(o.state_dict())\n"
        "assert float(w[0].detach()) < 1\n"
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
