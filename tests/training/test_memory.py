import gc
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import rectangular_flows as rnf
from rectangular_flows import TrainingConfig
from rectangular_flows.data import von_mises_circle
from rectangular_flows.training import Objective
from rectangular_flows.training.distributed import World
from rectangular_flows.training.memory import RowsAtOnce, backward_in_parts, in_parts, rows_within, saved_bytes
from rectangular_flows.training.objective import Place
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


def test_few_parts_may_take_up_to_twice_the_budget():
    objective, x = Objective(make_flow(), Exact(), 50.0), von_mises_circle(64, seed=0)
    plain = rows_within(objective, x, budget_mib=1.0)
    found = {batch: rows_within(objective, x, 1.0, batch=batch) for batch in (0, 8 * plain, 12 * plain, 100 * plain)}
    assert list(found.values())[:3] == [plain, plain, math.ceil(1.5 * plain)]
    assert found[100 * plain] in (2 * plain, 2 * plain + 1)
    auto, limit = TrainingConfig(batch_size=500), TrainingConfig(batch_size=500, memory=33.0)
    assert [auto.stretching("cpu", 900), auto.stretching("cpu", 90), auto.stretching("cuda", 900)] == [500, 90, 0]
    assert limit.stretching("cpu", 900) == 0


def test_measuring_keeps_nothing():
    objective, x = Objective(make_flow(), Exact(), 50.0), von_mises_circle(8, seed=0)
    before = tensors()
    saved_bytes(objective, x)
    assert tensors() == before


def tensors():
    gc.collect()
    return sum(type(one) in (torch.Tensor, torch.nn.Parameter) for one in gc.get_objects())


def test_automatic_memory_is_that_of_the_device_and_the_charts():
    auto, given = TrainingConfig(), TrainingConfig(memory=33.0)
    assert auto.memory_on("cpu") < auto.memory_on("cpu", charts=3) < auto.memory_on("cuda")
    assert auto.memory_on("cpu", charts=3) == 3 * auto.memory_on("cpu")
    assert auto.memory_on("cpu", charts=1000) == auto.memory_on("cpu", 10**9) == auto.memory_on("cuda")
    assert auto.memory_on("cpu", 2 * 10**6) == auto.memory_on("cpu") < auto.memory_on("cpu", 3 * 10**6)
    assert {given.memory_on(device, 10**9, 2) for device in ("cpu", "cuda")} == {33.0}
    with pytest.raises(ValueError, match="memory"):
        TrainingConfig(memory="much")


def test_each_kind_of_step_has_rows_of_its_own():
    """A step without the likelihood keeps less, and so does one with the volume of few rows."""
    objective = Objective(make_flow(), Exact(), 50.0)
    at_once = RowsAtOnce(objective, von_mises_circle(500, seed=0), torch.zeros(1), 1.0, World())
    known = {}
    all_rows, alone = at_once("all", 1.0, known), at_once("all", 0.0, known)
    assert all_rows < alone
    assert at_once("reconstruction", 1.0, known) == alone
    objective.volume_fraction = 0.05
    assert at_once("all", 0.5, known) == all_rows  # as measured before
    known.clear()
    assert all_rows < at_once("all", 1.0, known) < alone


def test_a_resumed_run_takes_the_parts_of_before(monkeypatch, tmp_path):
    """Measured on its weights of now they might be others, and sums rounded otherwise."""
    measured = []

    def rows_within(*arguments, **options):
        measured.append(1)
        return 30 + len(measured)

    monkeypatch.setattr("rectangular_flows.training.memory.rows_within", rows_within)
    options = {"batch_size": 100, "scatter": False, "learning_rate": 1e-3}
    x = von_mises_circle(200, seed=0)
    whole = rnf.fit(make_flow(), x, TrainingConfig(epochs=4, **options))
    assert measured == [1]
    measured.clear()
    rnf.fit(make_flow(), x, TrainingConfig(epochs=2, **options), out=tmp_path)
    resumed = rnf.fit(make_flow(), x, TrainingConfig(epochs=4, **options), out=tmp_path, resume=True)
    assert measured == [1]
    weights = zip(whole.flow.state_dict().values(), resumed.flow.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in weights)


def test_lower_precision_is_measured_as_if_rows_were_computed_again(monkeypatch):
    """Whether they are hangs on weights, which change."""
    monkeypatch.setattr("rectangular_flows.volume.precision._slow_here", lambda: False)
    x = torch.randn(64, 12)
    torch.manual_seed(0)
    flow = rnf.RectangularFlow(rnf.flows.RealNVP(12, 4, (128,)), rnf.flows.RealNVP(6, 1))
    plain, low = (Objective(flow, Exact(tangent_dtype=name), 50.0) for name in (None, "bfloat16"))
    assert saved_bytes(low, x) == saved_bytes(plain, x)
    assert rows_within(low, x, 8.0) == pytest.approx(rows_within(plain, x, 8.0) / 1.5, abs=1)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 500), st.integers(1, 600), st.floats(0, 1))
def test_parts_are_few_and_even_and_share_the_volumes(rows, most, share):
    volumes = round(share * rows)
    parts = in_parts(torch.arange(rows), most, volumes)
    sizes = [len(part) for part, _ in parts]
    assert max(sizes) <= most
    assert len(sizes) == -(-rows // most)
    assert torch.equal(torch.cat([part for part, _ in parts]).sort().values, torch.arange(rows))
    counted = [place.counted for _, place in parts]
    assert sum(counted) == volumes
    assert counted == sorted(counted, reverse=True)
    for (part, place), count in zip(parts, counted, strict=True):
        assert place.rows == len(part)
        assert (part[:count] < volumes).all()
        assert (part[count:] >= volumes).all()
    if volumes:  # of all volumes, each counts alike
        total = sum(place.volume_weight * place.rows / rows for _, place in parts)
        assert total == pytest.approx(1)
        each = {round(p.volume_weight * p.rows / p.counted, 9) for _, p in parts if p.counted}
        assert len(each) == 1


@pytest.mark.parametrize("volumes", [1, 3, 16, 40])
@pytest.mark.parametrize("most", [1, 7, 16])
def test_gradients_of_parts_add_up_to_that_of_the_batch(volumes, most):
    """Whatever the parts, the same rows have a volume: a part without any has none, and the others count for it."""
    flow, x = make_flow().double(), von_mises_circle(40, seed=0).double()
    objective = Objective(flow, Exact(), 50.0, volumes / 40)
    found = []
    for parts in ([(x, Place(40))], [(x[rows], place) for rows, place in in_parts(torch.arange(40), most, volumes)]):
        flow.zero_grad()
        terms = backward_in_parts(objective, parts, 0.7, "all", World())
        values = [terms.loss, terms.negative_log_likelihood, terms.reconstruction]
        found.append(torch.cat([torch.stack(values), *(p.grad.flatten() for p in flow.parameters())]))
    torch.testing.assert_close(found[0], found[1], rtol=1e-10, atol=1e-12)


def test_a_run_takes_its_batches_in_parts(monkeypatch):
    monkeypatch.setattr("rectangular_flows.training.config._CPU_MEMORY", 0.2)
    seen = []
    real = Objective.forward
    monkeypatch.setattr(Objective, "forward", lambda self, x, *more: seen.append(len(x)) or real(self, x, *more))
    config = {"epochs": 1, "batch_size": 100, "scatter": False}
    rnf.fit(
        make_flow(), von_mises_circle(200, seed=0), TrainingConfig(**config), validation=von_mises_circle(9, seed=1)
    )
    steps = [rows for rows in seen if rows != 9]
    assert max(steps[2:]) < 100  # after two measurements
    assert sum(steps[2:]) == 200
