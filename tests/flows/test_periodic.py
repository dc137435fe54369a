"""Angles as coordinates and as columns: seams that nobody sees, ranges, windings."""

import math

import pytest
import torch

from rectangular_flows import flows
from rectangular_flows.flows.factors import wrap
from rectangular_flows.flows.periodic import angle_of, check_places, order_on, stereographic
from rectangular_flows.flows.spaces import Space

TURN = 2 * math.pi


def columns(dtype=torch.float64):
    """Hours, something else, and degrees from −180."""
    layer = flows.Periodic(3, [2, 0], [360.0, 24.0], [-180.0, 0.0])
    random = torch.Generator().manual_seed(0)
    x = torch.rand(200, 3, generator=random, dtype=dtype) * torch.tensor([24.0, 5.0, 360.0], dtype=dtype)
    return layer, x - torch.tensor([0.0, 0.0, 180.0], dtype=dtype)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 3e-6)])
def test_columns_are_pairs_and_come_back_in_their_range(dtype, tolerance):
    layer, x = columns(dtype)
    y = layer.inverse(x)
    expected = [torch.deg2rad(x[:, 2]), x[:, 0] * TURN / 24]
    pairs = torch.stack([part for angle in expected for part in (angle.cos(), angle.sin())], dim=1)
    torch.testing.assert_close(y, torch.cat((pairs, x[:, 1:2]), dim=1), rtol=0, atol=tolerance)
    torch.testing.assert_close(layer(y), x, rtol=0, atol=500 * tolerance)
    scaled = torch.cat((y[:, :4] * 0.3, y[:, 4:]), dim=1)  # beside the circles: onto them
    torch.testing.assert_close(layer(scaled), x, rtol=0, atol=500 * tolerance)
    for turns in (-2, 1, 3):
        moved = x + turns * torch.tensor([24.0, 0.0, 360.0], dtype=dtype)
        torch.testing.assert_close(layer.inverse(moved), y, rtol=0, atol=10 * tolerance)
    assert layer.column_of == [2, 2, 0, 0, 1]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_no_value_is_beyond_the_range(dtype):
    """Angles next to every seam, of either sign and of every size."""
    layer = flows.Periodic(2, [0, 1], [360.0, TURN], [-180.0, 0.0])
    tiny = torch.cat([s * 10.0 ** -torch.arange(0, 40.0, dtype=torch.float64) for s in (-1, 1)])
    angle = torch.cat((tiny, math.pi + tiny, torch.zeros(1), -torch.zeros(1)))
    y = torch.stack((angle.cos(), angle.sin()) * 2, dim=1).to(dtype)
    y = torch.cat((y, torch.tensor([[-1.0, 0.0, 1.0, -0.0], [-1.0, -0.0, 1.0, 0.0]], dtype=dtype)))
    x = layer(y)
    assert bool((x[:, 0] >= -180).all() & (x[:, 0] < 180).all())
    assert bool((x[:, 1] >= 0).all() & (x[:, 1] < torch.tensor(TURN, dtype=dtype)).all())


def test_differences_go_the_short_way_round():
    layer, _ = columns()
    a, b = (
        torch.tensor([[23.0, 9.0, 179.0], [1.0, 1.0, -179.0]]),
        torch.tensor([[1.0, 2.0, -179.0], [23.0, 5.0, 100.0]]),
    )
    expected = torch.tensor([[-2.0, 7.0, -2.0], [2.0, -4.0, 81.0]])
    torch.testing.assert_close(layer.difference(a, b), expected)


def test_log_determinant_is_with_respect_to_the_angle():
    layer, x = columns()
    on = flows.OnCircles(2, 1)
    y, log_det = layer.inverse_with_log_det(x)
    rows = torch.func.vmap(torch.func.jacrev(lambda v: on.inverse(layer.inverse(v[None]))[0]))(x)
    torch.testing.assert_close(log_det, torch.linalg.slogdet(rows).logabsdet, rtol=0, atol=1e-10)
    torch.testing.assert_close(layer.forward_with_log_det(y)[1], -log_det)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((2, [0, 0], [1.0, 1.0], [0.0, 0.0]), "different columns"),
        ((2, [2], [1.0], [0.0]), "different columns from 0 to 1"),
        ((2, [0], [1.0, 2.0], [0.0]), "a period and a start"),
        ((2, [0], [0.0], [0.0]), "positive, finite periods"),
        ((2, [0], [1.0], [math.nan]), "finite starts"),
    ],
)
def test_impossible_columns(arguments, text):
    with pytest.raises(ValueError, match=text):
        flows.Periodic(*arguments)


# --- couplings


def test_couplings_do_not_see_turns():
    torch.manual_seed(0)
    flow = flows.RealNVP(5, 4, (7,), zero_init=False, mixing="free", angles=2).double()
    z = torch.randn(20, 5, dtype=torch.float64)
    turned = z + TURN * torch.tensor([1.0, -2.0, 0, 0, 0], dtype=torch.float64)
    for function in (flow.forward, flow.inverse):
        difference = function(turned) - function(z)
        torch.testing.assert_close(wrap(difference[:, :2]), torch.zeros(20, 2).double(), rtol=0, atol=1e-12)
        torch.testing.assert_close(difference[:, 2:], torch.zeros(20, 3).double(), rtol=0, atol=1e-12)
    assert float(wrap(flow(z)[:, :2] - z[:, :2]).detach().abs().mean()) > 0.05  # and they do turn


def test_angles_go_with_what_only_turns_them():
    with pytest.raises(ValueError, match="without actnorm"):
        flows.RealNVP(3, angles=1, actnorm=True)
    with pytest.raises(ValueError, match="expected 0 to 3 angles"):
        flows.RealNVP(3, angles=4)


# --- windings


def test_windings_are_found_and_exact():
    random = torch.Generator().manual_seed(3)
    free = TURN * torch.rand(400, 2, generator=random, dtype=torch.float64)
    noise = 0.05 * torch.randn(400, 3, generator=random, dtype=torch.float64)
    follows = torch.stack((free[:, 0], 2 - free[:, 0], free[:, 1], 2 * free[:, 1] + 1), dim=1)
    constant = torch.full((400, 1), 2.5, dtype=torch.float64)
    rows = torch.cat((follows, constant), dim=1)
    rows[:, [1, 3, 4]] += noise
    layer = flows.Winding(5, 5, circles=2, lines=0).double()
    y = wrap(layer.initialise(wrap(rows)))
    assert float(y[:, 2:].abs().max()) < 0.3  # what is left of dropped angles lies around 0
    assert float(y[:, :2].cos().mean(dim=0).abs().max()) < 0.2  # the others go all the way round
    assert torch.equal(layer.weight, layer.weight.round())
    assert abs(float(torch.linalg.det(layer.weight))) == pytest.approx(1)
    torch.testing.assert_close(wrap(layer(y) - rows), torch.zeros_like(rows), rtol=0, atol=1e-12)


def test_lines_are_laid_along_what_angles_leave():
    """The line of most variance follows the angle; of what is left, another direction has most."""
    random = torch.Generator().manual_seed(0)
    angle, free = TURN * torch.rand(300, generator=random), torch.randn(300, generator=random)
    lines = torch.stack((5 * angle.cos(), 3 * angle.sin() + 0.6 * free, 0.8 * free), dim=1)
    layer = flows.Winding(1, 4, circles=1, lines=1)
    layer.initialise(torch.cat((angle[:, None], lines), dim=1))
    direction = layer.weight[1:, 1].abs()
    torch.testing.assert_close(direction, torch.tensor([0.0, 0.6, 0.8]), rtol=0, atol=0.02)


@pytest.mark.parametrize(("circles", "lines"), [(3, 0), (1, 3)])
def test_windings_need_room(circles, lines):
    with pytest.raises(ValueError, match="at most 2 circles and 2 lines"):
        flows.Winding(2, 4, circles=circles, lines=lines)


# --- places


def test_padding_puts_circles_where_angles_are():
    assert order_on(Space.of("line*circle"), 2, 4) == [2, 0, 1, 3]
    assert order_on(Space.of("line:2"), 2, 4) == [2, 3, 0, 1]
    assert order_on(Space.of("line"), 0, 4) == "random"
    for space in ("torus:3", "line:3", "sphere"):
        with pytest.raises(ValueError, match="at most 2 circles, 2 lines and no sphere"):
            order_on(Space.of(space), 2, 4)
    with pytest.raises(ValueError, match="where angles are"):
        check_places(Space.of("circle"), flows.Pad(1, 3, order=[2, 0, 1]), 2)


def test_stereographic_coordinates():
    angle = torch.linspace(-3.1, 3.1, 50, dtype=torch.float64, requires_grad=True)
    t, slope = stereographic(angle)
    torch.testing.assert_close(angle_of(t), angle)
    (expected,) = torch.autograd.grad(t.sum(), angle)
    torch.testing.assert_close(slope.exp(), expected)
    assert bool(stereographic(torch.tensor([-math.pi]))[1].isfinite().all())


def test_one_angle_is_turned_by_a_constant():
    flow = flows.RealNVP(1, 2, angles=1).double()
    with torch.no_grad():
        for parameter in flow.parameters():
            parameter.fill_(0.4)
    z = torch.tensor([[3.0], [-1.0]], dtype=torch.float64)
    torch.testing.assert_close(wrap(flow(z) - z - 0.8), torch.zeros_like(z))
    torch.testing.assert_close(flow.inverse(flow(z)), z)
