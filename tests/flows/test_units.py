import pytest
import torch

from rectangular_flows import flows
from rectangular_flows.errors import NonFiniteError


def test_pixels_outside_the_unit_interval_are_an_error():
    with pytest.raises(NonFiniteError, match=r"Pixels must lie in \[0, 1\]"):
        flows.Logit(2).inverse(torch.tensor([[0.5, 255.0]]))
