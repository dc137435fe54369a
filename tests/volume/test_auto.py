"""The automatic choice: its formula of the variance, its unbiasedness for every choice, and what it takes."""

import math
from copy import deepcopy
from dataclasses import replace
from itertools import product

import pytest
import torch

from rectangular_flows import RectangularFlow, TrainingConfig, fit, flows
from rectangular_flows.training import Objective
from rectangular_flows.volume import PCG, Auto, Direct, Exact, Stochastic, draw_probes
from rectangular_flows.volume.auto import Choice, Sizes, Spread, _added, _cost, budgeted

from .helpers import gradient, make_flow

D, d, BETA = 6, 4, 2.0
CHOICES = [
    Choice(share=0.25),
    Choice(share=1.0, probes=1),
    Choice(share=0.5, probes=2),
    Choice(share=0.5, probes=1, solver="pcg"),
    Choice(share=0.5, probes=2, distribution="rademacher"),
    Choice(share=1.0, probes=2, solver="pcg", distribution="rademacher"),
]


def rows(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(count, d, generator=generator, dtype=torch.float64)
    mixed = torch.tanh(z @ torch.randn(d, D, generator=generator, dtype=torch.float64))
    return mixed + 0.1 * torch.randn(count, D, generator=generator, dtype=torch.float64)


@pytest.fixture(scope="module")
def flow_of():
    untrained = make_flow(D, d, hidden=(8,), layers=2)
    trained = RectangularFlow(flows.RealNVP(D, 2, (8,)), flows.Identity(d)).double()
    fit(trained, rows(300), TrainingConfig(epochs=3, batch_size=50, learning_rate=2e-2, scatter=False))
    return {"untrained": untrained, "trained": trained}


@pytest.mark.parametrize(
    "choice", CHOICES, ids=lambda choice: f"{choice.distribution}: {choice.text(8)}".rsplit(":", 1)[0]
)
@pytest.mark.parametrize("kind", ["untrained", "trained"])
def test_every_choice_is_unbiased_and_has_the_variance_of_the_formula(flow_of, kind, choice):
    flow, x, batch = deepcopy(flow_of[kind]), rows(24), 8
    draws = 60 if choice.solver == "pcg" else 200
    objective = Objective(flow, Exact(), BETA)
    of_rows, of_volumes = [], []
    for i in range(len(x)):  # by plain autograd, a row at a time
        rest, L = objective.apart(x[i : i + 1], Exact(codimension="never"))
        of_rows.append(gradient(rest + L, flow))
        of_volumes.append(gradient(objective.apart(x[i : i + 1], Exact())[1], flow))
    of_rows, of_volumes = torch.stack(of_rows), torch.stack(of_volumes)
    G, V = (values.var(dim=0, unbiased=False).sum() for values in (of_rows, of_volumes))
    torch.manual_seed(1)
    estimate = Objective(flow, choice.method("never"), BETA, choice.share)
    found = torch.stack([gradient(estimate(x[torch.randint(len(x), (batch,))]).loss, flow) for _ in range(draws)])
    error = found.std(dim=0) / draws**0.5
    moving = error > 1e-9 * error.max()
    scores = ((found.mean(dim=0) - of_rows.mean(dim=0)) / error)[moving]
    assert 0.05 <= float(scores.square().mean()) <= 2  # their coordinates are far from independent
    P = 0.0
    if choice.probes:  # of one probe at a row, then by the formula
        repeated = [gradient(objective.apart(x, Stochastic(1, choice.distribution))[1], flow) for _ in range(60)]
        noise = float(torch.stack(repeated).var(dim=0).sum() * len(x))
        P = _added(Spread(1.0, 0.0, noise, signs=noise), d, choice.probes, choice.distribution, choice.solver)
    expected = G / batch + V * (1 / (choice.share * batch) - 1 / batch) + P / (choice.share * batch)
    assert float(found.var(dim=0).sum()) == pytest.approx(float(expected), rel=0.35)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_noise_of_orthonormal_probes(count):
    """Var of the mean of εᵀMε over K orthonormal probes is Var_1 (d − K)/(K(d − 1))."""
    M = torch.randn(d, d, dtype=torch.float64)
    z = torch.zeros(60_000, d, dtype=torch.float64)

    def variance(K):
        probes = draw_probes(z, K, "orthonormal", torch.Generator().manual_seed(K))
        return float(torch.einsum("bki,ij,bkj->bk", probes, M, probes).mean(dim=1).var())

    expected = _added(Spread(1.0, 0.0, variance(1)), d, count)
    assert variance(count) == pytest.approx(expected, rel=0.05, abs=1e-9)


SPREADS = [
    Spread(1.0, 0.002),
    Spread(1.0, 0.002, 0.01, 2.0, 8.0),
    Spread(1.0, 1e-4, 1e-4, 2.0, 5.0),
    Spread(1.0, 0.5, 40.0, 300.0),
    Spread(3.0, 0.0, 1.0, 2.0, 4.0),
    Spread(1.0, 0.002, 0.1, 2.0, 4.0, signs=0.05),
    Spread(1.0, 0.002, 0.05, 2.0, 4.0, signs=0.1),
]


@pytest.mark.parametrize("sizes", [Sizes(250, 3, 3, 64), Sizes(400, 21, 21, 128), Sizes(64, 512, 512, 1024)])
@pytest.mark.parametrize("spread", SPREADS)
def test_it_takes_the_cheapest_that_is_good_enough(spread, sizes):
    chosen = Auto().choose(spread, sizes)
    best = _cost(sizes, sizes.rows, 0, "direct", math.inf)
    for n in range(1, sizes.rows + 1):
        for probes in (0, *(2**i for i in range(10) if 2**i < 2 * sizes.d / 3)):
            for solver, kind in product(("direct", "pcg"), ("orthonormal", "rademacher")):
                if kind == "rademacher" and math.isnan(spread.signs):
                    continue
                if probes and (sizes.d < 16 or math.isnan(spread.probes)):
                    continue
                if solver == "pcg" and (not probes or math.isinf(spread.iterations)):
                    continue
                share = n / sizes.rows
                added = spread.volume * (1 / share - 1) + _added(spread, sizes.d, probes, kind, solver) / share
                if 1 + added / spread.gradient <= 1.05 + 1e-12:
                    best = min(best, _cost(sizes, n, probes, solver, spread.iterations))
    assert chosen.cost == pytest.approx(best)
    assert chosen.ratio <= 1.05 + 1e-12
    assert chosen.counted(sizes.rows) == round(chosen.share * sizes.rows)


def test_what_it_takes():
    large, small = Sizes(64, 512, 512, 1024), Sizes(500, 1, 1, 32)
    assert Auto().choose(Spread(1.0, 1e-4, 0.01, 2.0, 6.0), large).solver == "pcg"
    assert Auto().choose(Spread(1.0, 1e-4, 0.01, 400.0, math.inf), large).solver == "direct"
    assert Auto().choose(Spread(1.0, 1e-4, 50.0, 400.0, math.inf), large).probes == 0  # probes are too noisy
    assert Auto().choose(Spread(1.0, 1e-9), small) == Choice(cost=1.5)  # a call of its own costs as much
    assert not Auto().needs_measuring(small)
    assert Auto().needs_measuring(large)
    assert Auto().choose(Spread(math.nan, math.nan), large).share == 1
    assert Auto(variance=1.5).choose(Spread(1.0, 0.1), Sizes(100, 3, 3, 6400)).share == 0.17
    some = Auto().choose(Spread(1.0, 0.08, 0.16, 2.0, 5.0, signs=0.08), large)
    assert (some.probes, some.distribution, some.solver) == (2, "rademacher", "pcg")
    assert Auto().choose(Spread(1.0, 0.08, 0.08, 2.0, 5.0, signs=0.16), large).distribution == "orthonormal"


def test_called_by_itself_it_is_exact():
    flow, z = make_flow(5, 3), torch.randn(4, 3, dtype=torch.float64)
    for mine, exact in zip(Auto()(flow, z), Exact()(flow, z), strict=True):
        assert torch.equal(mine, exact)


def test_what_conjugate_gradients_leave_is_solved_directly():
    flow = make_flow(8, 6, amount=0.5)
    z = torch.randn(5, 6, dtype=torch.float64)
    solver = PCG(1e-12, max_iter=1, fallback=Direct())
    results = []
    for each in (solver, Direct(), replace(budgeted(), tol=1e-4)):
        method = Stochastic(2, solver=each, generator=torch.Generator().manual_seed(0))
        results.append(gradient(method(flow, z)[1].sum(), flow))
    torch.testing.assert_close(results[0], results[1])
    torch.testing.assert_close(results[2], results[1], rtol=1e-2, atol=1e-3)
    assert solver.fallen_back == 5


def test_mistakes_are_named():
    with pytest.raises(ValueError, match=r"expected variance > 1; got 1\.0"):
        Auto(1.0)
    with pytest.raises(ValueError, match="expected codimension"):
        Auto(codimension="sometimes")
