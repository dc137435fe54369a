"""The nearest point of a manifold against independent computations: least squares, a minimiser, the stationary point."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

import rectangular_flows as rnf
from rectangular_flows import RectangularFlow, densities, flows
from rectangular_flows.storage.models import load_model, save_model


def curved(D=5, d=2, seed=0, dtype=torch.float64, units=True, **kw):
    torch.manual_seed(seed)
    ambient = flows.RealNVP(D, layers=3, hidden=(8,), mixing="free", mixing_start="random", zero_init=False)
    outer = [flows.Standardise(torch.arange(D).float(), 0.1 * 10.0 ** torch.arange(D))] if units else []
    return RectangularFlow(ambient, flows.RealNVP(d), outer, **kw).to(dtype)


def rows_near(flow, count, seed=1, noise=0.05):
    generator = torch.Generator().manual_seed(seed)
    view = flow.in_model_units
    y = view.decode(torch.randn(count, flow.latent.features, generator=generator, dtype=flow.dtype))
    y = y + noise * torch.randn(y.shape, generator=generator, dtype=y.dtype)
    return flow.to_data_units(y).detach()


@pytest.mark.parametrize(("D", "d"), [(5, 2), (3, 1), (4, 3)])
def test_it_is_where_a_minimiser_ends(D, d):
    flow = curved(D, d, nearest=40)
    x = rows_near(flow, 6)
    y, view = flow.to_model_units(x), flow.in_model_units
    z = flow.encode(x).detach()
    for i in range(len(x)):

        def distance(at, i=i):
            return float((y[i] - view.decode(torch.from_numpy(at)[None])[0].detach()).square().sum())

        start = view.left_inverse(y[i : i + 1])[0].detach().numpy()
        found = minimize(
            distance, start, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-14, "maxiter": 4000}
        )
        assert distance(z[i].numpy()) <= found.fun * (1 + 1e-6) + 1e-12


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@torch.no_grad()
def test_the_residual_is_orthogonal_to_the_manifold(dtype):
    flow = curved(dtype=dtype, nearest=30)
    x = rows_near(flow, 50)
    y, view = flow.to_model_units(x), flow.in_model_units
    z = flow.encode(x)
    J = view.jacobian(z)
    along = (J.mT @ (y - view.decode(z))[..., None])[..., 0] / J.norm(dim=1)
    assert float(along.abs().median()) < (1e-3 if dtype == torch.float32 else 1e-8)
    raw = view.left_inverse(y)
    before = (view.jacobian(raw).mT @ (y - view.decode(raw))[..., None])[..., 0] / view.jacobian(raw).norm(dim=1)
    assert float(before.abs().median()) > 1e-2  # so that there was something to do


@torch.no_grad()
def test_of_a_plane_it_is_least_squares_in_one_step():
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(4, 4, generator=generator, dtype=torch.float64)
    ambient = flows.FreeLinear(4)
    ambient.start_from(matrix)
    flow = RectangularFlow(ambient, flows.Identity(2), pad=flows.Pad(2, 4, order="first"), nearest=4).double()
    x = torch.randn(9, 4, generator=generator, dtype=torch.float64)
    J = flow.jacobian(torch.zeros(1, 2, dtype=torch.float64))[0].detach()
    expected = torch.linalg.lstsq(J, x.mT).solution.mT
    torch.testing.assert_close(flow.encode(x).detach(), expected, atol=1e-8, rtol=0)
    assert not torch.allclose(flow.left_inverse(x), expected, atol=1e-3)


@pytest.mark.parametrize("steps", [1, 2, 5])
@torch.no_grad()
def test_points_of_the_manifold_stay_and_no_row_gets_farther(steps):
    flow, plain = curved(nearest=steps), curved()
    x = rows_near(flow, 20, noise=0.0)
    torch.testing.assert_close(flow.encode(x), plain.encode(x), atol=1e-7, rtol=1e-7)
    far = rows_near(flow, 100, noise=1.0)
    view, other = flow.in_model_units, plain.in_model_units
    y = flow.to_model_units(far)
    assert bool((view.reconstruction_error(y) <= other.reconstruction_error(y) + 1e-12).all())
    assert float(view.reconstruction_error(y).mean()) < float(other.reconstruction_error(y).mean())


def test_distances_are_in_the_units_of_the_model():
    flow = curved(nearest=3)
    x = rows_near(flow, 10)
    torch.testing.assert_close(flow.encode(x), flow.in_model_units.encode(flow.to_model_units(x)))


@torch.no_grad()
def test_every_score_has_the_same_point():
    flow = curved(nearest=2)
    x = rows_near(flow, 30)
    flow.fit_scatter(x[:20], x[20:])
    scores = flow.score(x)
    torch.testing.assert_close(scores.z, flow.encode(x).detach())
    torch.testing.assert_close(scores.log_prob, flow.log_prob(x).detach())
    torch.testing.assert_close(scores.squared_distance, flow.reconstruction_error(x).detach())
    parts = torch.cat([flow.encode(row[None]) for row in x])  # batches of one
    torch.testing.assert_close(parts, flow.encode(x), atol=1e-9, rtol=1e-9)


def test_the_gradient_is_that_of_the_left_inverse():
    flow, plain = curved(nearest=2), curved()
    x = rows_near(flow, 4)
    found = torch.func.jacrev(lambda row: flow.encode(row[None])[0])(x[0])
    torch.testing.assert_close(found, torch.func.jacrev(lambda row: plain.encode(row[None])[0])(x[0]))


@pytest.mark.parametrize("space", ["circle", "sphere", "line*circle"])
@torch.no_grad()
def test_on_spaces_that_close_up(space):
    torch.manual_seed(0)
    size = {"circle": 3, "sphere": 4, "line*circle": 5}[space]
    ambient = flows.RealNVP(size, layers=2, hidden=(8,), mixing="free", zero_init=False)
    flow = RectangularFlow(ambient, densities.ClosedMixture(space), latent_space=space, nearest=30).double()
    x = flow.sample(40, generator=torch.Generator().manual_seed(1))
    x = x + 0.05 * torch.randn(x.shape, generator=torch.Generator().manual_seed(2), dtype=x.dtype)
    z = flow.encode(x)
    J = flow.jacobian(z)
    along = (J.mT @ (x - flow.decode(z))[..., None])[..., 0] / J.norm(dim=1)
    assert float(along.abs().median()) < 1e-7
    canonical = flow.embedding.inverse(flow.embedding(z))
    torch.testing.assert_close(canonical, z)


def test_a_row_beyond_reach_stays_where_it_was_and_leaves_the_others_alone():
    flow, plain = curved(dtype=torch.float32, nearest=2), curved(dtype=torch.float32)
    x = torch.cat([rows_near(flow, 2), torch.full((1, 5), torch.inf)])
    assert torch.equal(flow.encode(x)[2].nan_to_num(), plain.encode(x)[2].nan_to_num())
    torch.testing.assert_close(flow.encode(x)[:2], flow.encode(x[:2]))


def test_it_is_saved_and_training_does_without(tmp_path):
    flow = curved(nearest=2)
    x = rows_near(flow, 60).float()
    save_model(flow, tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert again.nearest == 2
    assert torch.equal(again.encode(x.double()), flow.encode(x.double()))
    weights = []
    for steps in (0, 2):
        trained = curved(dtype=torch.float32)
        config = rnf.TrainingConfig(epochs=2, batch_size=20, nearest=steps, scatter=False)
        rnf.fit(trained, x, config, out=tmp_path / f"run{steps}")
        assert trained.nearest == rnf.load(tmp_path / f"run{steps}").nearest == steps
        weights.append(torch.cat([p.detach().flatten() for p in trained.parameters()]))
    assert torch.equal(*weights)


def test_negative_steps_are_refused():
    with pytest.raises(ValueError, match="expected a number of steps ≥ 0; got -1"):
        curved(nearest=-1)
    with pytest.raises(ValueError, match="expected nearest ≥ 0; got -1"):
        rnf.TrainingConfig(nearest=-1)


def test_the_estimator_reports_the_distance_to_the_nearest_point():
    rng = np.random.default_rng(0)
    angle = rng.normal(size=300)
    X = np.stack([np.cos(angle), np.sin(angle), 0.3 * angle], axis=1) + 0.05 * rng.normal(size=(300, 3))
    est = rnf.RectangularFlowEstimator(latent_dim=1, epochs=3, random_state=0).fit(X)
    assert est.flow_.nearest == 2
    back = est.inverse_transform(est.transform(X))
    np.testing.assert_allclose(np.square(X - back).sum(axis=1), est.reconstruction_error(X), rtol=1e-4, atol=1e-8)
    view, y = est.flow_.in_model_units, est.flow_.to_model_units(torch.from_numpy(X).float())
    plain = (y - view.decode(view.left_inverse(y))).square().sum(dim=1)
    assert float(view.reconstruction_error(y).detach().mean()) < float(plain.detach().mean())
