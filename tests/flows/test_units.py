import pytest
import torch

from rectangular_flows import RectangularFlow, flows
from rectangular_flows.errors import NonFiniteError
from rectangular_flows.runs.build import _standardise


def test_pixels_outside_the_unit_interval_are_an_error():
    with pytest.raises(NonFiniteError, match=r"Pixels must lie in \[0, 1\]"):
        flows.Logit(2).inverse(torch.tensor([[0.5, 255.0]]))


# --- rows of any unit


@pytest.mark.parametrize("convert", [lambda m: m.float(), lambda m: m.double(), lambda m: m.to(torch.float32).half()])
def test_mean_and_scale_stay_in_double_precision(convert):
    mean, scale = torch.tensor([0.1, 1e9], dtype=torch.float64), torch.tensor([1e-7, 0.3], dtype=torch.float64)
    layer = convert(flows.Standardise(mean, scale))
    assert torch.equal(layer.mean, mean)
    assert torch.equal(layer.scale, scale)
    again = flows.Standardise(torch.zeros(2), torch.ones(2)).float()
    again.load_state_dict(layer.state_dict())
    assert torch.equal(again.mean, mean)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_are_standardised_before_they_are_rounded(dtype):
    """The flow sees the same numbers, bit by bit, whatever the unit, and the user double precision."""
    torch.manual_seed(0)
    x = torch.randn(1000, 3, dtype=torch.float64)
    mean, scale = x.mean(dim=0) + 2, x.std(dim=0)
    factor, shift = torch.tensor([1e6, 3.7e-9, 1.0], dtype=torch.float64), torch.tensor([1e5, 0.0, -7.0]).double()
    seen = []
    for times, plus in ((torch.ones(3), torch.zeros(3)), (factor, shift)):
        units = flows.Standardise(mean * times + plus, scale * times)
        flow = RectangularFlow(flows.RealNVP(3, 1), flows.Identity(2), units).to(dtype)
        seen.append(flow.to_model_units(x * times + plus))
        assert flow.row_dtype == flow.decode(torch.zeros(1, 2, dtype=dtype)).dtype == torch.float64
        assert flow.encode(x).dtype == flow.dtype == dtype
    assert seen[0].dtype == dtype
    tolerance = {"rtol": 0, "atol": 0} if dtype == torch.float32 else {"rtol": 1e-12, "atol": 1e-12}
    torch.testing.assert_close(seen[1], seen[0], **tolerance)
    torch.testing.assert_close(seen[0], ((x - mean) / scale).to(dtype), rtol=0, atol=0)


def test_rows_in_the_type_of_the_flow_are_taken_too():
    units = flows.Standardise(torch.ones(3), torch.full((3,), 2.0))
    flow = RectangularFlow(flows.RealNVP(3, 1, zero_init=False), flows.RealNVP(2, 1), units)
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(flow.log_prob(x), flow.log_prob(x.double()))
    assert flow.log_prob(x.double()).dtype == torch.float32
    with pytest.raises(
        ValueError, match=r"expected torch\.float32, as the flow has, or torch\.float64; got torch\.float16"
    ):
        flow.log_prob(x.half())
    plain = RectangularFlow(flows.RealNVP(3, 1), flows.RealNVP(2, 1))
    with pytest.raises(ValueError, match=r"expected torch\.float32, as the flow has; got torch\.float64"):
        plain.log_prob(x.double())


@pytest.mark.parametrize("offset", [2.0**20, 1e9, 1.7e9 + 0.5, -(2.0**33)])
def test_the_flow_sees_the_same_numbers_wherever_zero_is(offset):
    """Bit by bit, where the rows hold the offset exactly: a mean in double precision alone loses digits beside it."""
    rows = torch.randn(500, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rows = (rows * 2**16).round() / 2**16
    seen = []
    for some in (rows, rows + offset):
        units = _standardise(some)
        flow = RectangularFlow(flows.RealNVP(3, 1), flows.Identity(2), units)
        seen.append(flow.to_model_units(some))
        torch.testing.assert_close(flow.to_data_units(seen[-1]), some, rtol=0, atol=1e-6)
        restored = flows.Standardise(torch.zeros(3), torch.ones(3))
        restored.load_state_dict(units.state_dict())
        assert torch.equal(restored.inverse(some), units.inverse(some))
    assert torch.equal(*seen)


def test_layers_of_older_files_have_no_rest():
    layer = flows.Standardise(torch.ones(2), torch.full((2,), 3.0), rest=torch.full((2,), 1e-20))
    older = {"mean": layer.mean, "scale": layer.scale}
    layer.load_state_dict(older)
    assert torch.equal(layer.rest, torch.zeros(2, dtype=torch.float64))


def test_a_layer_on_no_device_becomes_one_on_a_device():
    layer = flows.Standardise(torch.ones(2), torch.full((2,), 3.0)).to("meta").to_empty(device="cpu")
    assert layer.mean.dtype == torch.float64
    layer.load_state_dict(flows.Standardise(torch.ones(2), torch.full((2,), 3.0)).state_dict())
    assert layer(torch.ones(1, 2)).tolist() == [[4.0, 4.0]]
