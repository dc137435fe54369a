"""What the settings make, and where a flow starts."""

import numpy as np
import pytest
import torch

from rectangular_flows.data.periodic import PeriodicColumn
from rectangular_flows.densities import MixtureDensity, ZukoDensity
from rectangular_flows.flows import Coupling, Standardise, Winding
from rectangular_flows.runs import build
from rectangular_flows.runs.build import _check_precision, _standardise, build_flow
from rectangular_flows.settings import FitSettings
from tests.conftest import shaken

ROWS = torch.randn(300, 4, generator=torch.Generator().manual_seed(3)) @ torch.tensor(
    [[1.0, 2.0, 0.0, 1.0], [0.0, 1.0, 3.0, 0.0], [0.0, 0.0, 0.5, 1.0], [0.0, 0.0, 0.0, 0.2]]
)


def model(**values):
    return FitSettings.from_flat(values).model


def test_a_mixture_chosen_by_the_rows_has_no_more_components_than_they_allow():
    for rows, charts, expected in ((90, 1, 6), (300, 1, 8), (10, 1, 1), (300, 4, 2)):
        flow = build_flow(model(latent_dim=2, hidden=(8,), latent="auto", charts=charts), ROWS[:rows], seed=0)
        assert [chart.latent.components for chart in flow.charts] == [expected] * charts


@pytest.mark.parametrize("mixing", ["none", "permutation", "lu", "free"])
def test_the_start_is_the_best_linear_subspace(mixing):
    chosen = model(latent_dim=2, hidden=(8,), layers=5, mixing=mixing, pca=True, standardise=False)
    flow = build_flow(chosen, ROWS, seed=0)
    values = torch.linalg.svdvals(ROWS.double() - ROWS.double().mean(dim=0))
    best = values[2:].square().sum() / len(ROWS)
    torch.testing.assert_close(flow.reconstruction_error(ROWS).mean().double(), best, rtol=1e-4, atol=1e-6)


def test_h_may_have_another_activation():
    chosen = model(latent_dim=2, hidden=(8,), activation="tanh", latent_hidden=(8,), latent_activation="relu")
    same = model(latent_dim=2, hidden=(8,), activation="tanh", latent_hidden=(8,))
    flow, plain = build_flow(chosen, ROWS, seed=0), build_flow(same, ROWS, seed=0)
    flow, plain = shaken(flow, amount=0.3), shaken(plain, amount=0.3)
    z = torch.randn(5, 2, dtype=torch.float64)
    torch.testing.assert_close(flow.decode(z), plain.decode(z))
    assert not torch.allclose(flow.latent.log_prob(z), plain.latent.log_prob(z))


@pytest.mark.parametrize(
    ("shift", "scale", "message"),
    [
        (1e5, 1.0, r"column 'a' varies by 1\.\d* around 99999\..*float32 cannot tell.*float64.*subtract 100000"),
        (0.0, 1e-40, "column 'a' varies by .*e-40 .*has no room for its squares.*other units"),
        (0.0, 1e35, "has no room"),
    ],
)
def test_columns_beyond_a_dtype(shift, scale, message):
    """Rows in single precision are refused; those in double are standardised before they are rounded."""
    rows = ROWS.double()
    rows[:, 0] = rows[:, 0] * scale + shift
    chosen = model(latent_dim=2, hidden=(8,))
    with pytest.raises(ValueError, match=message):
        build_flow(chosen, rows.float(), 0, columns=("a", "b", "c", "d"))
    for dtype in (torch.float32, torch.float64):
        flow = build_flow(chosen, rows, 0, dtype=dtype)
        samples = flow.sample(2000, generator=torch.Generator().manual_seed(0))[:, 0]
        assert (flow.dtype, samples.dtype) == (dtype, torch.float64)
        assert samples.mean().item() == pytest.approx(rows[:, 0].mean().item(), abs=0.3 * scale)
        assert samples.std().item() == pytest.approx(rows[:, 0].std().item(), rel=0.5)  # PCA of 2 of 4 dimensions
        assert len(samples.unique()) == 2000
        error, plain = (
            flow.reconstruction_error(rows),
            flow.in_model_units.reconstruction_error(flow.to_model_units(rows)),
        )
        assert ((error > 0) & (plain > 0)).all()


@pytest.mark.parametrize(
    ("values", "started"),
    [
        ({"pca": False, "latent": "realnvp"}, False),
        ({"pca": False, "latent": "affine"}, False),  # which starts as the identity, as published
        ({"pca": True, "latent": "affine"}, True),
        ({"pca": False, "latent": "mixture", "latent_components": 1}, True),
    ],
)
def test_what_starts_from_data(values, started):
    """A latent density that has started from data is as wide as their coordinates."""
    chosen = model(latent_dim=2, hidden=(8,), standardise=False, **values)
    with torch.no_grad():
        flow = build_flow(chosen, 3 * ROWS, seed=0)
        z, samples = flow.encode(3 * ROWS), flow.latent.sample(20_000, torch.Generator().manual_seed(0))
    assert torch.allclose(samples.std(0), z.std(0), rtol=0.1) == started


@pytest.mark.parametrize(
    ("values", "expected"), [({"bound": 0.1}, 0.1), ({"bound": 7.0}, 7.0), ({"scale": "exp"}, 100.0)]
)
def test_the_scale_is_that_of_the_couplings(values, expected):
    """The log-scale of a coupling that its network would make 100."""
    flow = build_flow(model(latent_dim=2, hidden=(8,), layers=1, mixing="none", **values), ROWS, seed=0)
    coupling = next(layer for layer in flow.ambient.modules() if isinstance(layer, Coupling))
    assert coupling.transformer.log_scale(torch.tensor(100.0)).item() == pytest.approx(expected)


def standard(mean, scale):
    return Standardise(torch.tensor(mean, dtype=torch.float64), torch.tensor(scale, dtype=torch.float64))


@pytest.mark.parametrize(
    ("dtype", "mean", "scale", "fine"),
    [
        # a thousand steps of eps in a standard deviation: scale / (eps (|mean| + scale)), eps = 2⁻²³ or 2⁻⁵²
        *((torch.float32, sign * mean, 1.0, fine) for sign in (1, -1) for mean, fine in ((8387, True), (8388, False))),
        *((torch.float32, 83870, 10.0, True), (torch.float32, 83890, 10.0, False)),
        *((torch.float64, 4.503e12, 1.0, True), (torch.float64, 4.504e12, 1.0, False)),
        # squares of squares within the range: 2⁻¹²⁶·⁰·⁷⁵ to 2¹²⁸·⁰·⁷⁵
        *((torch.float32, 0.0, 1.01 * 2**-94.5, True), (torch.float32, 0.0, 0.99 * 2**-94.5, False)),
        *((torch.float32, 0.0, 0.99 * 2**96.0, True), (torch.float32, 0.0, 1.01 * 2**96.0, False)),
        (torch.float32, -0.6 * 2**96.0, 0.6 * 2**96.0, False),
    ],
)
def test_where_a_dtype_is_too_coarse(dtype, mean, scale, fine):
    layer = standard([0.0, float(mean)], [1.0, scale])
    if fine:
        _check_precision(layer, dtype, ())
        return
    with pytest.raises(ValueError, match="column 2 varies by"):
        _check_precision(layer, dtype, ())
    with pytest.raises(ValueError, match="column 'b' varies by"):
        _check_precision(layer, dtype, ("a", "b"))


def test_what_is_said_of_a_coarse_dtype():
    text = "column 1 varies by 1 around 12345678: float32 cannot tell such values apart. Please "
    with pytest.raises(ValueError, match="cannot tell") as said:
        _check_precision(standard([12345678.0], [1.0]), torch.float32, ())
    assert (
        str(said.value)
        == f"{text}give it in double precision (float64) from the start, or subtract 1.23457e+07 from it"
    )
    with pytest.raises(ValueError, match="no room") as said:
        _check_precision(standard([0.0], [1e300]), torch.float64, ())
    text = "column 1 varies by 1e+300 around 0: float64 has no room for its squares. Please give it in other units"
    assert str(said.value) == text


def test_columns_are_standardised_in_parts():
    """A hundred thousand rows at a time, without cancellation around a large mean."""
    rows = np.random.default_rng(0).normal(size=(200_003, 2)) * [1e-3, 5.0] + [1e6, -3.0]
    layer = _standardise(rows)
    np.testing.assert_allclose(layer.mean, rows.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(layer.scale, rows.std(axis=0), rtol=1e-9)


def test_the_start_in_few_directions_is_that_of_pca():
    """All but the leading four of six columns' components is dropped; of these the manifold takes two."""
    rows = torch.randn(400, 6, generator=torch.Generator().manual_seed(0)) * torch.tensor([3.0, 1, 2, 0.5, 0.1, 1.5])
    chosen = model(latent_dim=2, ambient="principal", directions=4, hidden=(8,), layers=2, standardise=False)
    flow = build_flow(chosen, rows, seed=0)
    values = torch.linalg.svdvals(rows.double() - rows.double().mean(dim=0))
    best = values[2:].square().sum() / len(rows)
    torch.testing.assert_close(flow.reconstruction_error(rows).mean().double(), best, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(flow.encode(rows).std(dim=0), torch.ones(2), rtol=1e-2, atol=0)  # white
    assert flow.pad.in_shape == (2,)
    for dim, size in ((4, 4), (5, 4)):
        with pytest.raises(ValueError, match=rf"below the number of directions, {size} .*; got {dim}"):
            build_flow(model(latent_dim=dim, ambient="principal", directions=4), rows, seed=0)
    with pytest.raises(ValueError, match=r"the number of directions, 2 .*; got 2"):  # one less than there are rows
        build_flow(model(latent_dim=2, ambient="principal", directions=4), rows[:3], seed=0)


def test_a_random_subspace_without_pca():
    chosen = model(latent_dim=2, hidden=(8,), layers=1, mixing="none", pca=False, standardise=False)
    pads = [build_flow(chosen, ROWS, seed).pad for seed in range(6)]
    assert len({tuple(pad(torch.ones(1, 2)).flatten().tolist()) for pad in pads}) > 1


@pytest.mark.parametrize(("rows", "kind"), [(299, MixtureDensity), (300, ZukoDensity)])
def test_the_latent_density_goes_by_the_number_of_rows(rows, kind, monkeypatch):
    monkeypatch.setattr(build, "FEW_ROWS", 300)
    flow = build_flow(model(latent_dim=2, hidden=(8,), latent="auto"), ROWS[:rows], seed=0)
    assert isinstance(flow.latent, kind)


@pytest.mark.parametrize(
    ("rows", "charts", "few", "kind", "width"),
    [
        (80, 2, 1000, ZukoDensity, 32),  # small splines: 20 rows for each chart, the parts being uneven
        (79, 2, 1000, MixtureDensity, None),
        (80, 1, 1000, MixtureDensity, None),
        (80, 2, 80, ZukoDensity, 48),  # enough rows for splines of the size asked for
    ],
)
def test_charts_with_enough_rows_have_small_splines(rows, charts, few, kind, width, monkeypatch):
    monkeypatch.setattr(build, "FEW_ROWS", few)
    monkeypatch.setattr(build, "_FEW_ROWS_CHART", 20)
    chosen = model(latent_dim=2, hidden=(8,), latent="auto", latent_hidden=(48, 48), latent_layers=3, charts=charts)
    found = build_flow(chosen, ROWS[:rows], seed=0, start_latent=False).charts
    assert [type(chart.latent) for chart in found] == [kind] * charts
    if width:
        sizes = [len(p) for p in found[0].latent.parameters() if p.dim() == 2]
        assert width in sizes
        assert {32: 48, 48: 32}[width] not in sizes


@pytest.mark.parametrize(
    ("settings", "angles", "kind"),
    [
        ({"latent_dim": 2}, 0, "Zuko"),
        ({"latent_space": "circle"}, 0, "ClosedMixture"),
        ({"latent_space": "torus:3"}, 0, "ClosedMixture"),
        ({"latent_dim": 1}, 1, "ClosedMixture"),
        ({"latent_dim": 2}, 2, "ClosedMixture"),
        ({"latent_dim": 3}, 2, "ClosedSplines"),
    ],
)
def test_how_many_rows_splines_want_goes_by_the_space(settings, angles, kind, monkeypatch):
    """More where it closes up, but for more than two dimensions beside angles."""
    monkeypatch.setattr(build, "FEW_ROWS", 10)
    monkeypatch.setattr(build, "FEW_ROWS_CLOSED", 1000)
    rows = torch.randn(60, 6, generator=torch.Generator().manual_seed(0))
    periodic = [PeriodicColumn(i, f"x{i}", 7.0, -3.5, 3.0) for i in range(angles)]
    chosen = model(hidden=(8,), layers=1, latent="auto", **settings)
    flow = build_flow(chosen, rows, seed=0, start_latent=False, periodic=periodic)
    assert type(flow.latent).__name__.startswith(kind)


def test_a_model_may_take_an_eighth_of_the_memory(monkeypatch):
    chosen = model(latent_dim=2, hidden=(64, 64), layers=5, latent="identity")
    size = sum(p.numel() * p.element_size() for p in build_flow(chosen, ROWS, seed=0).parameters())
    monkeypatch.setattr(build, "machine_memory", lambda: 8 * 2 * size)
    build_flow(chosen, ROWS, seed=0)
    monkeypatch.setattr(build, "machine_memory", lambda: 8 * 0.9 * size)
    with pytest.raises(ValueError, match=r"expected a model that fits this machine; got one of .* fewer --layers"):
        build_flow(chosen, ROWS, seed=0)


@pytest.mark.parametrize(
    ("values", "images", "message"),
    [
        ({"ambient": "realnvp", "latent_dim": 2}, True, "images need --ambient principal or multiscale"),
        ({"ambient": "multiscale", "latent_dim": 2}, False, "--ambient multiscale is for images"),
        ({}, False, "no latent dimension: give --latent-dim"),
        ({"latent_dim": "auto"}, False, "no latent dimension: give --latent-dim"),
        ({"latent_dim": 0}, False, "expected --latent-dim of at least 1; got 0"),
    ],
)
def test_what_does_not_go_together(values, images, message):
    rows = torch.rand(20, 1, 4, 4) if images else ROWS
    with pytest.raises(ValueError, match=message):
        build_flow(model(**values), rows, seed=0)


def test_weights_by_seed_and_the_global_generator_left_alone():
    chosen = model(latent_dim=2, hidden=(8,), latent="identity")
    before = torch.get_rng_state()
    first, again, other = (build_flow(chosen, ROWS, seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_angles_that_a_dtype_cannot_tell_apart(dtype):
    """Steps of eps times the largest value have to be at most 1e-5 of a period."""
    largest = 1e-5 * 24 / torch.finfo(dtype).eps
    build._check_turns([PeriodicColumn(0, "hour", 24.0, 0.0, 0.999 * largest)], dtype)
    build._check_turns([], dtype)
    with pytest.raises(ValueError, match="cannot tell angles") as said:
        build._check_turns([PeriodicColumn(0, "hour", 24.0, 0.0, 1.001 * largest)], dtype)
    kind, wider = str(dtype).removeprefix("torch."), "give it in double precision (float64) from the start, or "
    assert str(said.value) == (
        f"column 'hour' has values up to {1.001 * largest:.3g}: {kind} cannot tell angles of period 24 apart there. "
        f"Please {wider if dtype == torch.float32 else ''}take off whole periods"
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"latent_dim": 2, "charts": 2}, "periodic columns have one chart: leave out --charts"),
        ({"latent_dim": 2, "charts": "auto"}, "no number of charts: give --charts"),
        ({"latent_dim": 2, "ambient": "principal"}, "periodic columns need --ambient realnvp; got principal"),
        ({"latent_dim": 2, "actnorm": True}, "without pca_tail and actnorm"),
        ({"latent_dim": 5}, "a latent dimension of at most 4, the number of columns; got 5"),
    ],
)
def test_what_does_not_go_with_angles(values, message):
    angle = PeriodicColumn(0, "a", 24.0, -12.0, 12.0)
    with pytest.raises(ValueError, match=message):
        build_flow(model(hidden=(8,), layers=1, **values), ROWS, seed=0, periodic=[angle])


@pytest.mark.parametrize(("dim", "angles"), [(1, 1), (3, 1), (2, 3), (3, 2), (4, 1)])
def test_angles_make_circles_first(dim, angles):
    found = build._space(model(latent_dim=dim), dim, 4, angles)
    assert found.factors == ("circle",) * min(dim, angles) + ("line",) * max(0, dim - angles)
    assert build._space(model(latent_dim=dim), dim, 4, 0).factors == ("line",) * dim


@pytest.mark.parametrize("pca", [True, False])
def test_angles_start_by_how_they_wind_unless_told_otherwise(pca):
    angle = PeriodicColumn(0, "a", 24.0, -12.0, 12.0)
    chosen = model(latent_dim=2, hidden=(8,), layers=1, pca=pca, latent="mixture")
    flow = build_flow(chosen, ROWS, seed=0, periodic=[angle], start_latent=False)
    assert any(isinstance(layer, Winding) for layer in flow.modules()) == pca


def test_units_of_columns_beside_angles():
    """Pairs of an angle keep their unit; the others are standardised, in the order that the layer gives them."""
    angle = PeriodicColumn(1, "b", 24.0, -12.0, 12.0)
    layer, last = build._units(model(latent_dim=1), ROWS, [angle])
    others = ROWS.double()[:, [0, 2, 3]]
    np.testing.assert_allclose(layer.mean, [0, 0, *others.mean(dim=0)], rtol=1e-12)
    np.testing.assert_allclose(layer.scale, [1, 1, *others.std(dim=0, correction=0)], rtol=1e-9)
    assert list(last.column_of) == [1, 1, 0, 2, 3]
    assert build._units(model(latent_dim=1, standardise=False), ROWS, []) == []
    (only,) = build._units(model(latent_dim=1, standardise=False), ROWS, [angle])
    assert list(only.column_of) == [1, 1, 0, 2, 3]


def test_the_column_of_a_message_is_that_of_the_file():
    rows, angle = ROWS.double(), PeriodicColumn(0, "a", 24.0, -12.0, 12.0)
    rows[:, 2] += 1e16
    chosen = model(latent_dim=2, hidden=(8,), latent="mixture")
    with pytest.raises(ValueError, match="column 'c' varies by"):
        build_flow(chosen, rows, 0, columns=("a", "b", "c", "d"), periodic=[angle])


def test_pixels_have_a_logit_or_nothing():
    images = torch.rand(9, 1, 4, 4)
    (layer,) = build._units(model(latent_dim=1, ambient="principal", margin=0.1), images, [])
    assert (type(layer).__name__, layer.in_shape) == ("Logit", (1, 4, 4))
    assert build._units(model(latent_dim=1, ambient="principal", pixels="plain"), images, []) == []


def test_a_density_on_a_sphere_is_a_mixture(monkeypatch):
    monkeypatch.setattr(build, "FEW_ROWS_CLOSED", 10)
    for space, kind in (("sphere", "ClosedMixture"), ("circle", "ClosedSplines")):
        chosen = model(latent_space=space, hidden=(8,), layers=1, latent="auto")
        flow = build_flow(chosen, ROWS, seed=0, start_latent=False)
        assert type(flow.latent).__name__.startswith(kind)
