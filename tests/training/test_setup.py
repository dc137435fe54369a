import pytest
import torch

from rectangular_flows import RectangularFlow, flows
from rectangular_flows.training.setup import threads_for


@pytest.mark.parametrize(("batch_size", "inside"), [(10, 1), (2**16, 3)])
def test_small_steps_take_one_thread_and_large_ones_all(batch_size, inside):
    """A bundle of 10 · 2 · 8 numbers is small; one of 2¹⁶ · 2 · 8 is not."""
    flow = RectangularFlow(flows.RealNVP(4, layers=1, hidden=(8,)), flows.Identity(2))
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with threads_for(flow, batch_size):
            assert torch.get_num_threads() == inside
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
