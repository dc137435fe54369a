import gc

import pytest
import torch

from rectangular_flows.data import von_mises_circle
from rectangular_flows.training import Objective
from rectangular_flows.training.memory import rows_within, saved_bytes
from rectangular_flows.volume import Exact

from .test_loop import make_flow


def test_rows_within_a_budget():
    objective = Objective(make_flow(), Exact(), 50.0)
    x = von_mises_circle(64, seed=0)
    assert saved_bytes(objective, x) == pytest.approx(8 * saved_bytes(objective, x[:8]), rel=0.05)
    rows = rows_within(objective, x, budget_mib=1.0)
    assert saved_bytes(objective, von_mises_circle(rows, seed=0)) < 2**20
    assert rows_within(objective, x, budget_mib=1e-9) == 1
    seen = []
    objective.register_forward_pre_hook(lambda _, arguments: seen.append(len(arguments[0])))
    rows_within(objective, x, budget_mib=1e-9)
    assert seen == [1]  # measuring keeps to the budget as well


def test_measuring_keeps_nothing():
    objective, x = Objective(make_flow(), Exact(), 50.0), von_mises_circle(8, seed=0)
    before = tensors()
    saved_bytes(objective, x)
    assert tensors() == before


def tensors():
    gc.collect()
    return sum(type(one) in (torch.Tensor, torch.nn.Parameter) for one in gc.get_objects())
