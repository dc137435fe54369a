"""What every solver must do, over the registry of all of them; then each on its own."""

import inspect
import warnings
from dataclasses import dataclass

import pytest
import torch

from rectangular_flows import RectangularFlow, flows
from rectangular_flows.errors import NonFiniteError, NotConvergedWarning
from rectangular_flows.flows.injection import linearize_through
from rectangular_flows.volume import (
    CG,
    PCG,
    Corrected,
    Direct,
    Exact,
    RouletteCG,
    Stochastic,
    conjugate_gradient,
    draw_probes,
    register_solver,
)
from rectangular_flows.volume.solvers import SOLVERS, solver_name

from .helpers import gradient, make_flow, reference, with_condition


def tight(name, dtype=torch.float64):
    """The solver of that name, as exact as the precision allows where it has a tolerance."""
    settings = {"tol": 1e-13 if dtype == torch.float64 else 1e-6, "max_iter": 100, "keep": 1.0}
    made = SOLVERS[name]
    return made(**{key: value for key, value in settings.items() if key in inspect.signature(made).parameters})


def solved(solver, flow, z, count=2):
    """(Wε, how the solver fared, W, ε), W from a Jacobian by reverse mode and a pseudo-inverse in double precision."""
    links = flow.layers()
    probes = draw_probes(z, count, "gaussian", torch.Generator().manual_seed(0))
    J = torch.func.vmap(torch.func.jacrev(lambda v: flow.decode(v.unsqueeze(0)).squeeze(0)))(z).double()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)  # such tolerances are at the edge of the precision
        x, tangent_map = linearize_through(links, z)
        weighted, solution = solver(links, z, x, tangent_map, probes)
    return weighted, solution, torch.linalg.pinv(J).mT, probes


@pytest.mark.parametrize("batch", [1, 7])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-3)])
@pytest.mark.parametrize(("D", "d"), [(5, 3), (7, 2), (4, 4), (3, 1), (9, 8)])
@pytest.mark.parametrize("name", SOLVERS)
def test_weighted_probes_against_a_pseudo_inverse(name, D, d, dtype, tolerance, batch):
    flow = make_flow(D, d, dtype=dtype)
    weighted, _, W, probes = solved(tight(name, dtype), flow, torch.randn(batch, d, dtype=dtype))
    assert weighted.dtype == dtype
    assert weighted.shape == (batch, 2, D)
    expected = torch.einsum("bij,bkj->bki", W, probes.double())
    torch.testing.assert_close(weighted.double(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("more", [0, 2])
@pytest.mark.parametrize(("D", "d"), [(5, 3), (7, 2), (4, 4), (3, 1)])
@pytest.mark.parametrize("name", SOLVERS)
def test_orthonormal_probes_are_exact_at_full_count(name, D, d, more):
    flow = make_flow(D, d)
    z = torch.randn(5, d, dtype=torch.float64, requires_grad=True)
    expected = gradient(reference(flow, z).sum(), flow, z)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        x_hat, L = Stochastic(d + more, "orthonormal", tight(name))(flow, z)
    torch.testing.assert_close(gradient(L.sum(), flow, z), expected, rtol=0, atol=1e-9)
    torch.testing.assert_close(x_hat, flow.decode(z), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", SOLVERS)
def test_image_flows(name):
    """Events of more than one dimension: the same weights as for the flow laid flat."""
    flow = RectangularFlow(flows.MultiscaleRealNVP((1, 4, 4), 3, 1), flows.Identity(3)).double()
    z = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        L = Stochastic(3, solver=tight(name))(flow, z)[1]
    expected = gradient(reference(flow, z).sum(), flow, z)
    torch.testing.assert_close(gradient(L.sum(), flow, z), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", SOLVERS)
def test_overflow_is_named(name):
    flow = RectangularFlow(flows.RealNVP(3, layers=2, scale="exp"), flows.Identity(2))
    with torch.no_grad():
        flow.ambient.layers[0].network.layers[-1].bias.fill_(800.0)
    with pytest.raises(NonFiniteError, match="Jacobian"):
        Stochastic(solver=name)(flow, torch.randn(3, 2))


@pytest.mark.parametrize(("D", "d"), [(6, 5), (9, 8), (8, 3), (5, 5), (10, 7)])
def test_preconditioner_needs_few_iterations(D, d):
    flow = make_flow(D, d, amount=0.15, mixing="free")
    _, found, _, _ = solved(PCG(tol=1e-7), flow, torch.randn(20, d, dtype=torch.float64))
    assert int(found.iterations.max()) <= min(d, D - d) + 1
    assert float(found.residual.max()) <= 1e-6


def test_preconditioner_pays_where_conditioning_is_bad():
    flow = make_flow(12, 10, amount=0.22, mixing="free")
    z = torch.randn(10, 10, dtype=torch.float64)
    plain, helped = (solved(kind(tol=1e-6, max_iter=400), flow, z)[1].iterations.double() for kind in (CG, PCG))
    assert float(helped.mean()) < 0.5 * float(plain.mean())


def test_unconverged_conjugate_gradients_warn_once_until_worse():
    flow = make_flow(8, 6, amount=0.6)
    z = torch.randn(4, 6, dtype=torch.float64)
    method = Stochastic(1, solver=CG(tol=1e-12, max_iter=1))
    with pytest.warns(NotConvergedWarning, match=r"in 4 of 4 problems \(worst .* after 1 iterations\)"):
        method(flow, z)
    method(flow, z)  # warnings are errors here: it must not repeat itself


def test_names_stand_for_objects():
    assert Stochastic().solver == Direct()
    assert Stochastic(2, "gaussian", "cg", 1e-3, 7) == Stochastic(2, "gaussian", CG(1e-3, 7))
    assert Stochastic(solver="pcg", tol=1e-3).solver == PCG(1e-3)
    assert CG() != PCG()
    assert [solver_name(tight(name)) for name in SOLVERS] == list(SOLVERS)


@dataclass(frozen=True)
class Halved:
    """Wrong by a factor of two, so that its use is seen."""

    factor: float = 0.5

    def __call__(self, *arguments):
        weighted, solution = Direct()(*arguments)
        return self.factor * weighted, solution


def test_a_solver_of_ones_own(monkeypatch):
    flow, z = make_flow(5, 3), torch.randn(4, 3, dtype=torch.float64)
    (whole, half) = (Stochastic(3, solver=solver)(flow, z)[1] for solver in (Direct(), Halved()))
    torch.testing.assert_close(half, whole / 2)
    monkeypatch.setitem(SOLVERS, "halved", None)  # forgotten again after this test
    register_solver("halved", Halved)
    torch.testing.assert_close(Stochastic(3, solver="halved")(flow, z)[1], whole / 2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Stochastic(solver="gmres"), "solver among direct, cg, pcg, roulette, corrected; got 'gmres'"),
        (lambda: Stochastic(tol=1e-3), "tol is for cg, pcg, roulette and corrected; got solver 'direct'"),
        (lambda: Stochastic(max_iter=3), "max_iter is for cg, pcg, roulette and corrected"),
        (lambda: Stochastic(solver=CG(), tol=1e-3), r"tol is for a solver given by name"),
        (lambda: Stochastic(solver="cg", tol=-1.0), "expected tol ≥ 0 and max_iter ≥ 1; got -1.0"),
        (lambda: PCG(max_iter=0), "max_iter ≥ 1"),
    ],
)
def test_mistakes_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# --- stopping at random


@pytest.mark.parametrize("condition", [3.0, 300.0])
@pytest.mark.parametrize(("least", "keep"), [(1, 0.5), (3, 0.8), (2, 0.0)])
def test_roulette_loses_nothing_on_average(condition, least, keep):
    """Over all numbers of iterations, each with its probability: no draws, no noise."""
    n = 12
    J = with_condition(20, n, condition, torch.float64, batch=3)
    A, b = J.mT @ J, torch.randn(3, n, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def product(u):
        return (A @ u.unsqueeze(-1)).squeeze(-1)

    solver = RouletteCG(tol=1e-14, max_iter=60, least=least, keep=keep)
    survival = solver.survival(n)
    assert len(survival) == 60
    assert survival[: least + 1] == [1.0] * least + [keep]
    mean = torch.zeros_like(b)
    for steps in range(1, 61):
        chance = survival[steps - 1] - (survival[steps] if steps < 60 else 0.0)
        if chance:
            weights = [1 / share for share in survival[:steps]]
            mean += chance * conjugate_gradient(product, b, tol=1e-14, weights=weights).solution
    last = 60 if keep else least  # without a chance to go on, it is conjugate gradients of so many steps
    expected = conjugate_gradient(product, b, tol=1e-14, max_iter=last).solution
    torch.testing.assert_close(mean, expected, rtol=1e-9, atol=1e-9)
    if keep:
        torch.testing.assert_close(mean, torch.linalg.solve(A, b), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("stretched", [1.0, 30.0])
def test_roulette_is_unbiased_over_draws(stretched):
    """The gradient's mean over draws against the exact one, in standard errors; at bad conditioning too."""
    d, draws = 6, 50
    stretch = flows.Standardise(torch.zeros(9), torch.logspace(0, torch.tensor(stretched).log10().item(), 9))
    flow = RectangularFlow(make_flow(9, d, layers=2, hidden=(6,)).ambient, flows.Identity(d), outer=stretch).double()
    z = torch.randn(64, d, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    solver = RouletteCG(tol=1e-12, max_iter=40, least=3, keep=0.7, generator=torch.Generator().manual_seed(1))
    method = Stochastic(1, "orthonormal", solver, generator=torch.Generator().manual_seed(2))
    exact = gradient(Exact()(flow, z)[1].mean(), flow)
    found = torch.stack([gradient(method(flow, z)[1].mean(), flow) for _ in range(draws)])
    error = found.std(dim=0) / draws**0.5
    moving = error > 1e-9 * error.max()
    scores = ((found.mean(dim=0) - exact) / error)[moving]
    assert len(scores) > 100
    assert float(scores.square().mean()) < 2.5
    if stretched > 1:  # as many iterations and no more are not enough, and this test would notice
        short = RouletteCG(tol=1e-12, least=3, keep=0.0)
        fixed = Stochastic(1, "orthonormal", short, generator=torch.Generator().manual_seed(2))
        biased = torch.stack([gradient(fixed(flow, z)[1].mean(), flow) for _ in range(draws)])
        off = ((biased.mean(dim=0) - exact) / (biased.std(dim=0) / draws**0.5))[moving]
        assert float(off.square().mean()) > 4


def test_roulette_takes_fewer_iterations():
    flow, z = make_flow(40, 32), torch.randn(4, 32, dtype=torch.float64)
    solver = RouletteCG(tol=1e-10, least=4, keep=0.5, generator=torch.Generator().manual_seed(0))
    taken = [int(solved(solver, flow, z)[1].iterations.max()) for _ in range(30)]
    assert min(taken) == 4
    assert 4 < sum(taken) / 30 < 6.5  # 5 on average
    assert round(sum(solver.survival(32)), 3) == 5.0
    again = RouletteCG(tol=1e-10, least=4, keep=0.5, generator=torch.Generator().manual_seed(0))
    assert [int(solved(again, flow, z)[1].iterations.max()) for _ in range(5)] == taken[:5]


@pytest.mark.parametrize("settings", [{"least": 0}, {"keep": 1.5}, {"keep": -0.1}])
def test_impossible_roulette(settings):
    with pytest.raises(ValueError, match="least ≥ 1 and 0 ≤ keep ≤ 1"):
        RouletteCG(**settings)


# --- stopping early, with corrections


def test_corrections_make_it_unbiased():
    """The gradient's mean over draws against the exact one, in standard errors; what is stopped early alone is biased."""
    d, draws = 6, 60
    stretch = flows.Standardise(torch.zeros(9), torch.logspace(0, 1.5, 9))
    flow = RectangularFlow(make_flow(9, d, layers=2, hidden=(6,)).ambient, flows.Identity(d), outer=stretch).double()
    z = torch.randn(64, d, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    exact = gradient(Exact()(flow, z)[1].mean(), flow)

    def off(solver):
        method = Stochastic(2, "rademacher", solver, generator=torch.Generator().manual_seed(2))
        found = torch.stack([gradient(method(flow, z)[1].mean(), flow) for _ in range(draws)])
        error = found.std(dim=0) / draws**0.5
        moving = error > 1e-9 * error.max()
        return float(((found.mean(dim=0) - exact) / error)[moving].square().mean())

    corrected = Corrected(tol=0.8, share=0.25, exact_tol=1e-12, generator=torch.Generator().manual_seed(1))
    assert off(corrected) < 2.5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        assert off(PCG(tol=0.8)) > 4


def test_corrections_are_made_on_a_share_of_the_points_and_weighed_by_it():
    flow, z = make_flow(9, 6), torch.randn(400, 6, dtype=torch.float64)
    early, _, W, probes = solved(PCG(tol=0.5), flow, z)
    found, _, _, _ = solved(Corrected(0.5, share=0.2, exact_tol=1e-12), flow, z)
    true = torch.einsum("bij,bkj->bki", W, probes)
    moved = (found - early).flatten(1).abs().amax(dim=1) > 0
    assert 0.13 < float(moved.double().mean()) < 0.27
    torch.testing.assert_close((found - early)[moved], 5 * (true - early)[moved], rtol=1e-7, atol=1e-9)
    assert torch.equal(found[~moved], early[~moved])


@pytest.mark.parametrize("settings", [{"share": 0.0}, {"share": 1.5}, {"exact_tol": -1.0}])
def test_impossible_corrections(settings):
    with pytest.raises(ValueError, match="share ≤ 1 and exact_tol ≥ 0"):
        Corrected(**settings)


def test_points_that_conjugate_gradients_leave_to_another_solver_are_counted_in_both():
    flow, z = make_flow(8, 6, amount=0.6), torch.randn(4, 6, dtype=torch.float64)
    solver = Corrected(tol=1e-12, max_iter=1, fallback=Direct(), share=1.0, exact_tol=1e-13)
    weighted, _, W, probes = solved(solver, flow, z)
    torch.testing.assert_close(weighted, torch.einsum("bij,bkj->bki", W, probes), rtol=1e-9, atol=1e-9)
    assert solver.fallen_back == 8.0
