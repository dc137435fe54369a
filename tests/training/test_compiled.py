"""Compiled steps: the numbers of plain ones; and where the compiler cannot follow, a warning and plain steps."""

import warnings

import pytest
import torch

from rectangular_flows import RectangularFlow, flows
from rectangular_flows.atlas import Atlas
from rectangular_flows.training import TrainingConfig, fit
from rectangular_flows.training.compiled import Compiled, NotCompiledWarning
from rectangular_flows.training.objective import Objective
from rectangular_flows.volume import Exact, Stochastic

_REAL = torch.compile


@pytest.fixture
def traced(monkeypatch):
    """The compiler without the part that writes machine code, which takes half a minute."""
    monkeypatch.setattr(
        torch, "compile", lambda f, fullgraph, options: _REAL(f, fullgraph=fullgraph, backend="aot_eager")
    )
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def _flow(seed=0, dim=2):
    torch.manual_seed(seed)
    return RectangularFlow(flows.RealNVP(3, 1, (8,)), flows.RealNVP(dim, 1, (8,)))


def _gradient(objective, call, x, weight, part="all"):
    torch.manual_seed(5)
    objective.zero_grad()
    terms = call(x, weight, part)
    terms.loss.backward()
    return terms.loss.detach(), [p.grad.clone() for p in objective.parameters() if p.grad is not None]


@pytest.mark.parametrize("volume", [Exact(), Stochastic(1), Stochastic(2, distribution="gaussian")], ids=str)
def test_loss_and_gradient_are_those_of_plain_steps(traced, volume):
    objective = Objective(_flow(), volume, 50.0, 0.5)
    call = Compiled(objective)
    for rows, weight, beta, share in ((9, 1.0, 50.0, 0.5), (9, 0.3, 7.0, 0.9), (5, 0.0, 7.0, 0.5), (1, 1.0, 2.0, 0.5)):
        objective.beta, objective.volume_fraction = beta, share
        x = torch.randn(rows, 3, generator=torch.Generator().manual_seed(rows))
        loss, gradient = _gradient(objective, objective, x, weight)
        fast, compiled = _gradient(objective, call, x, weight)
        torch.testing.assert_close(fast, loss, rtol=1e-5, atol=1e-5)
        assert len(gradient) == len(compiled)
        for ours, other in zip(gradient, compiled, strict=True):
            torch.testing.assert_close(other, ours, rtol=1e-3, atol=1e-4)
    assert call._works


def test_many_kinds_of_steps_are_compiled(traced):
    """As ``volume = "auto"`` makes them, with other probes and parts of a batch; the compiler's own limit is 8."""
    objective = Objective(_flow(), Exact(), 50.0)
    call = Compiled(objective)
    with warnings.catch_warnings():
        warnings.simplefilter("error", NotCompiledWarning)
        for probes in range(1, 6):
            objective.volume = Stochastic(probes, distribution="gaussian")
            for rows in (9, 5):
                _gradient(objective, call, torch.randn(rows, 3), 1.0)
    assert call._works


def test_new_weights_of_beta_and_likelihood_compile_nothing_anew(traced):
    objective = Objective(_flow(), Exact(), 50.0)
    call, x = Compiled(objective), torch.randn(9, 3)
    call(x, 0.5)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for weight in (0.6, 0.7, 1.0):
            objective.beta *= 1.1
            call(x, weight)
    assert call._works


def test_conjugate_gradients_go_on_without_and_say_so(traced):
    objective = Objective(_flow(), Stochastic(1, solver="cg"), 50.0)
    call, x = Compiled(objective), torch.randn(9, 3)
    with pytest.warns(NotCompiledWarning, match=r"cannot do this objective, so training goes on without: \S"):
        fast, compiled = _gradient(objective, call, x, 1.0)
    loss, gradient = _gradient(objective, objective, x, 1.0)
    assert fast == loss
    assert all(torch.equal(a, b) for a, b in zip(compiled, gradient, strict=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call(x, 1.0)


def test_errors_of_the_objective_are_its_own(traced):
    objective = Objective(_flow(), Exact(), 50.0)
    with pytest.raises(ValueError, match="Expected input shape"):
        objective(torch.randn(9, 4))
    with pytest.raises(ValueError, match="Expected input shape"):
        Compiled(objective)(torch.randn(9, 4))


def test_an_atlas_trains_without_and_says_so():
    x = torch.randn(60, 3)
    results = []
    for compile_it, expected in (
        (False, warnings.catch_warnings()),
        (True, pytest.warns(NotCompiledWarning, match="atlas")),
    ):
        atlas = Atlas([_flow(seed) for seed in (0, 1)])
        with expected:
            fit(atlas, x, TrainingConfig(epochs=1, batch_size=20, scatter=False, compile=compile_it))
        results.append(atlas.log_prob(x))
    assert torch.equal(*results)


def _trained(compile_it, volume="exact"):
    x = torch.randn(64, 3, generator=torch.Generator().manual_seed(1))
    flow = _flow()
    fit(
        flow,
        x,
        TrainingConfig(epochs=2, batch_size=30, scatter=False, target_error=0.01, volume=volume, compile=compile_it),
    )
    return flow.log_prob(x)


def test_a_run_ends_where_a_plain_one_does(traced):
    torch.testing.assert_close(_trained(True), _trained(False), rtol=1e-3, atol=1e-3)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("volume", ["exact", "stochastic"])
def test_machine_code_ends_there_too(volume):
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("error", NotCompiledWarning)
        torch.testing.assert_close(_trained(True, volume), _trained(False, volume), rtol=1e-3, atol=1e-3)
