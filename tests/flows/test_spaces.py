"""Latent spaces that close up: their names, their embeddings, and the start of a manifold along data."""

import math

import pytest
import torch

from rectangular_flows.errors import NoNearestPointWarning
from rectangular_flows.flows import Alignment, Embedding, Pad, Space
from rectangular_flows.flows.factors import sphere_frame, wrap
from rectangular_flows.flows.local_chart import LocalChart, local_chart
from tests.conftest import points

EMBEDDINGS = {
    "circle": lambda: Embedding("circle"),
    "torus": lambda: Embedding("torus:2"),
    "ring": lambda: Embedding("torus:2", ring=True),
    "cylinder": lambda: Embedding("line*circle"),
    "sphere": lambda: Embedding("sphere"),
    "mixed": lambda: Embedding("circle*sphere"),
}


@pytest.mark.parametrize(
    ("text", "factors", "name", "dimension", "coordinates"),
    [
        ("circle", ("circle",), "circle", 1, 1),
        ("torus:2", ("circle", "circle"), "torus:2", 2, 2),
        ("circle*circle", ("circle", "circle"), "torus:2", 2, 2),
        (" line:2 * circle", ("line", "line", "circle"), "line:2*circle", 3, 3),
        ("sphere*line", ("sphere", "line"), "sphere*line", 3, 4),
    ],
)
def test_names(text, factors, name, dimension, coordinates):
    space = Space.of(text)
    assert (space.factors, str(space), space.dimension, space.coordinates) == (factors, name, dimension, coordinates)
    assert Space.of(str(space)) == space == Space.of(space)
    assert Space.of("line:3").flat
    assert not space.flat


@pytest.mark.parametrize("text", ["", "ring", "torus", "circle:0", "circle+line", "line*", "circle:-1", "torus:x"])
def test_names_that_are_none(text):
    with pytest.raises(ValueError, match="expected a latent space such as 'circle'"):
        Space.of(text)


def test_a_torus_asks_for_its_dimension():
    with pytest.raises(ValueError, match="torus needs its dimension: torus:2"):
        Space.of("torus")


def test_differences_and_midpoints_go_the_short_way_round():
    space = Space.of("line*circle*sphere")
    a = torch.tensor([[1.0, 3.0, 1.0, 0.0, 0.0]], dtype=torch.float64)
    b = torch.tensor([[5.0, -3.0, 0.0, 1.0, 0.0]], dtype=torch.float64)
    short = 2 * math.pi - 6
    assert space.difference(b, a)[0].tolist() == pytest.approx([4.0, short, -1.0, 1.0, 0.0])
    middle = space.between(a, b)[0].tolist()
    assert middle[0] == pytest.approx(3)
    assert abs(middle[1]) == pytest.approx(math.pi)
    assert middle[2:] == pytest.approx([0.5**0.5, 0.5**0.5, 0])


@pytest.mark.parametrize("name", EMBEDDINGS)
def test_the_left_inverse_is_the_nearest_point(name):
    """Against a search among many points of the space."""
    layer = EMBEDDINGS[name]()
    generator = torch.Generator().manual_seed(0)
    x = layer(points(layer, 6)) + 0.05 * torch.randn(6, *layer.out_shape, generator=generator, dtype=torch.float64)
    there = layer(layer.inverse(x))
    found = (x - there).norm(dim=1)
    z = points(layer, 20_000, seed=3) * (2.0 if name != "sphere" else 1.0)
    least = torch.cdist(x, layer(z)).amin(dim=1)
    assert bool((found <= least + 1e-9).all())
    assert bool((least - found < 0.2).all())


@pytest.mark.parametrize("name", EMBEDDINGS)
def test_coordinates_around_the_space(name):
    """They invert each other, offsets are zero on the space, and the log-determinant is that of autograd."""
    layer = EMBEDDINGS[name]()
    z = points(layer, 4)
    assert float(layer.offsets(layer(z))[0].abs().max()) < 1e-12
    x = layer(z) * 1.1 + 0.02
    offsets, log_det = layer.offsets(x)
    assert offsets.shape == (4, layer.out_shape[0] - layer.space.dimension)
    torch.testing.assert_close(layer.place(layer.inverse(x), offsets), x, rtol=0, atol=1e-12)

    def around(v):
        row = v.unsqueeze(0)
        return torch.cat((layer.inverse(row), layer.offsets(row)[0]), dim=1).squeeze(0)

    J = torch.func.vmap(torch.func.jacrev(around))(x)
    frame = layer.frame(layer.inverse(x))
    if frame is not None:  # coordinates of a sphere by the basis of its tangents
        n = layer.space.coordinates
        J = torch.cat((frame @ J[:, :n], J[:, n:]), dim=1)
    torch.testing.assert_close(log_det, torch.linalg.slogdet(J).logabsdet, rtol=0, atol=1e-9)


def test_the_ring_torus_has_its_area():
    layer = Embedding("torus:2", ring=True)
    line = torch.linspace(0, 2 * math.pi, 101, dtype=torch.float64)[1:]
    z = torch.cartesian_prod(line, line)
    _, tangents = layer.push(z, torch.eye(2, dtype=z.dtype).expand(len(z), 2, 2))
    area = torch.linalg.cross(tangents[:, 0], tangents[:, 1]).norm(dim=1).sum() * (2 * math.pi / 100) ** 2
    assert float(area) == pytest.approx(4 * math.pi**2 * 0.4, rel=1e-9)


def test_a_centre_has_no_nearest_point():
    for layer in (Embedding("circle"), Embedding("sphere"), Embedding("torus:2", ring=True)):
        x = torch.stack((torch.zeros(layer.out_shape), torch.ones(layer.out_shape))).requires_grad_()
        with pytest.warns(NoNearestPointWarning, match="1 of 2 points lie at the centre"):
            z = layer.inverse(x)
        assert bool(torch.isfinite(z).all())
        z.sum().backward()
        assert bool(torch.isfinite(x.grad).all())


def test_frames_are_orthonormal_tangents_everywhere():
    u = torch.nn.functional.normalize(torch.randn(200, 3, dtype=torch.float64), dim=1)
    u = torch.cat((u, torch.eye(3, dtype=u.dtype), -torch.eye(3, dtype=u.dtype)))
    frame = sphere_frame(u)
    eye = torch.eye(2, dtype=u.dtype).expand(len(u), 2, 2)
    torch.testing.assert_close(frame @ frame.mT, eye, rtol=0, atol=1e-12)
    assert float((frame @ u.unsqueeze(2)).abs().max()) < 1e-12


def test_a_local_chart_is_an_injection():
    layer = Embedding("line*sphere")
    z = points(layer, 5)
    (chart, _), s = local_chart([layer], z)
    assert isinstance(chart, LocalChart)
    torch.testing.assert_close(chart(s), z, rtol=0, atol=1e-12)
    torch.testing.assert_close(chart.inverse(chart(s + 0.1)), s + 0.1, rtol=0, atol=1e-12)
    x, push = chart.linearize(s)
    back, pull = chart.linearize_inverse(x)
    torch.testing.assert_close(back, s, rtol=0, atol=1e-12)
    t = torch.randn(5, 2, 3, dtype=z.dtype)
    torch.testing.assert_close(pull(push(t)), t, rtol=0, atol=1e-12)
    assert local_chart([Pad(2, 3)], z)[1] is z


def test_room():
    assert Embedding.within(Space.of("torus:2"), 4).out_shape == (4,)
    assert Embedding.within(Space.of("torus:2"), 3).ring
    assert Embedding.within(Space.of("line*torus:2"), 4).out_shape == (4,)
    with pytest.raises(ValueError, match="torus:3 needs at least 6 dimensions to lie in; the data have 5"):
        Embedding.within(Space.of("torus:3"), 5)
    with pytest.raises(ValueError, match="torus:2 needs at least 3"):
        Embedding.within(Space.of("torus:2"), 2)
    with pytest.raises(ValueError, match="two circles"):
        Embedding("circle", ring=True)
    with pytest.raises(ValueError, match="at least 2 dimensions"):
        Alignment("circle", 1)


def test_wrapping():
    angle = torch.tensor([0.1, math.pi + 0.1, -math.pi - 0.2, 7.0], dtype=torch.float64)
    assert wrap(angle).tolist() == pytest.approx([0.1, -math.pi + 0.1, math.pi - 0.2, 7 - 2 * math.pi])


@pytest.mark.parametrize("name", ["circle", "torus", "ring", "cylinder", "sphere"])
def test_alignment_finds_an_affine_image(name):
    """A space of known coordinates, turned, stretched and shifted, in one dimension more than it needs."""
    layer = EMBEDDINGS[name]()
    generator = torch.Generator().manual_seed(4)
    z = torch.randn(800, *layer.in_shape, generator=generator, dtype=torch.float64)
    z = layer.inverse(layer(z)) if name == "sphere" else z * 1.5
    size = layer.out_shape[0] + 1
    A = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64))[0]
    A = A * torch.linspace(1.3, 0.7, size, dtype=torch.float64)
    x = 3 + layer(z) @ A[:, : layer.out_shape[0]].mT
    found = Alignment(str(layer.space), size, layer.ring).double()
    y = found.initialise(x)
    torch.testing.assert_close(found(y), x, rtol=0, atol=1e-9)
    m = layer.out_shape[0]
    projected = torch.cat((layer(layer.inverse(y[:, :m])), torch.zeros(800, 1, dtype=x.dtype)), dim=1)
    error = (found(projected) - x).square().sum(dim=1).mean() / x.var(dim=0).sum()
    assert float(error) < 1e-3
