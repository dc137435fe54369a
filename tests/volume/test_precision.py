"""Tangents in bfloat16: how near their gradients come, and what is computed again."""

import copy
import warnings
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch

from rectangular_flows import RectangularFlow, TrainingConfig, fit, flows
from rectangular_flows.errors import PrecisionWarning
from rectangular_flows.flows import tangents
from rectangular_flows.flows.tangents import tangents_in
from rectangular_flows.volume import CG, PCG, Auto, Direct, Exact, Stochastic, precision
from rectangular_flows.volume.auto import Choice
from rectangular_flows.volume.precision import _condition, guarded_factors

D, d, ROWS = 20, 10, 128


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """On any processor."""
    monkeypatch.setattr(precision, "_slow_here", lambda: False)


def make_flow(scale=1.0, seed=0, columns=D, **options):
    torch.manual_seed(seed)
    options = {"activation": "tanh", "scale": "exp", "zero_init": False, **options}
    flow = RectangularFlow(flows.RealNVP(columns, 6, (128, 128), **options), flows.Identity(d))
    with torch.no_grad():
        for parameter in flow.parameters():
            parameter.mul_(scale)
    return flow


def gradient(flow, method, z):
    found = torch.autograd.grad(
        method(flow, z)[1].sum(), list(flow.parameters()), allow_unused=True, materialize_grads=True
    )
    return torch.cat([part.flatten() for part in found])


def off(flow, method, other, z):
    a, b = gradient(flow, method, z), gradient(flow, other, z)
    return float((a - b).norm() / b.norm())


def low(**options):
    return Exact(codimension="never", tangent_dtype="bfloat16", **options)


@pytest.mark.parametrize("seed", range(3))
def test_gradients_are_near_those_of_float32(seed):
    flow, z = make_flow(seed=seed), torch.randn(ROWS, d)
    error = off(flow, low(), Exact(codimension="never"), z)
    assert 1e-6 < error < 5e-3  # rounded, but little
    whole = low()(flow, z)
    assert torch.equal(whole[0], Exact(codimension="never")(flow, z)[0])  # the primal is not
    assert whole[1].dtype == torch.float32


def test_in_groups_of_tangents_as_well():
    flow, z = make_flow(), torch.randn(1_000, d)  # so many that groups are large, too
    assert 1e-6 < off(flow, low(bundle_size=3), Exact(codimension="never"), z) < 5e-3


@pytest.mark.parametrize("solver", [Direct(), CG(tol=1e-5), PCG(tol=1e-5)])
def test_gradients_of_probes(solver):
    flow, z = make_flow(), torch.randn(1_000, d)
    found = []
    for dtype in (None, "bfloat16"):
        draw = torch.Generator().manual_seed(0)
        found.append(gradient(flow, Stochastic(1, solver=solver, generator=draw, tangent_dtype=dtype), z))
    assert 1e-6 < float((found[0] - found[1]).norm() / found[0].norm()) < 1e-2


def test_networks_of_residual_blocks_and_of_convolutions():
    torch.manual_seed(0)
    for network, x in (
        (flows.ResidualMLP(8, 6, width=128, blocks=2), torch.randn(100, 8)),
        (flows.ResidualConvNet(2, 4, size=(6, 6), width=16, blocks=2), torch.randn(40, 2, 6, 6)),
        (flows.MLP(8, 6, hidden=(128, 128)), torch.randn(100, 8)),
    ):
        _, tangent_map = network.linearize(x)
        t = torch.randn(len(x), 8, *x.shape[1:])
        exact = tangent_map(t).detach()
        with tangents_in(torch.bfloat16):
            rounded = tangent_map(t).detach()
        assert rounded.dtype == exact.dtype
        assert 1e-4 < float((rounded - exact).norm() / exact.norm()) < 2e-2
        assert tangent_map(t).equal(exact)  # outside, nothing is rounded


def test_few_tangents_are_not_rounded(monkeypatch):
    """There it would save nothing."""
    monkeypatch.setattr(tangents, "_SMALL", 4 * d * 128 + 1)
    flow, z = make_flow(), torch.randn(4, d)
    assert off(flow, low(), Exact(codimension="never"), z) < 1e-5  # bfloat16 would be off by more than 1e-4


def test_gradients_of_weights_add_up_over_blocks(monkeypatch):
    """In float32, whatever the precision of the products: sums over many blocks would lose digits in bfloat16."""
    torch.manual_seed(0)
    network = flows.MLP(8, 6, hidden=(64, 64))
    x, t = torch.randn(2_000, 8), torch.randn(2_000, 8, 8)
    found = []
    for block in (2**19, 2**12):
        monkeypatch.setattr(tangents, "_BLOCK_SCALARS", block)
        _, tangent_map = network.linearize(x)
        with tangents_in(torch.bfloat16):
            loss = tangent_map(t).square().sum()
        weights = [layer.weight for layer in network.layers]
        found.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, weights)]))
    assert float((found[0] - found[1]).norm() / found[0].norm()) < 3e-3


def test_rows_that_are_badly_conditioned_are_computed_again():
    flow, z = make_flow(scale=2.0), torch.randn(ROWS, d)
    with pytest.warns(PrecisionWarning, match=r"\d+ of 128 rows .* badly conditioned for tangents in bfloat16"):
        again = gradient(flow, low(), z)
    exact = gradient(flow, Exact(codimension="never"), z)
    assert float((again - exact).norm() / exact.norm()) < 1e-2  # without it, 0.05 and more
    method = low()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        values = [method(flow, z)[1] for _ in range(3)]
    assert len(seen) == 1  # for all of them together
    assert "saves no time" in str(seen[0].message)
    torch.testing.assert_close(values[0], Exact(codimension="never")(flow, z)[1], atol=0.1, rtol=0)


@pytest.mark.parametrize("solver", [Direct(), PCG(tol=1e-6, max_iter=200)])
def test_probes_of_badly_conditioned_rows_are_pushed_again(solver):
    """With all probes the gradient is exact, whatever the conditioning; rounded, it was off by more than itself."""
    flow, z = make_flow(scale=2.3), torch.randn(ROWS, d)
    J = Exact(codimension="never")._tangents(flow.layers(), z)[1]
    values = torch.linalg.svdvals(J.detach())
    assert float((values[:, 0] / values[:, -1]).median()) > 100
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = gradient(flow, Stochastic(d, solver=solver, tangent_dtype="bfloat16"), z)
        plain = gradient(flow, Stochastic(d, solver=solver), z)
    exact = gradient(flow, Exact(codimension="never"), z)
    assert float((plain - exact).norm() / exact.norm()) < 0.02
    assert float((found - exact).norm() / exact.norm()) < 0.02


def test_groups_of_tangents_stay_groups_where_rows_are_computed_again():
    """Memory is that of a group: the graph of all tangents at once would be several times larger."""
    kept = []
    for method in (Exact(codimension="never", bundle_size=2), low(bundle_size=2)):
        flow, z, sizes = make_flow(scale=2.3), torch.randn(ROWS, d), {}

        def count(tensor, sizes=sizes):
            sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with (
            torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor),
            warnings.catch_warnings(record=True) as seen,
        ):
            warnings.simplefilter("always")
            method(flow, z)
        kept.append(sum(sizes.values()))
    assert "saves no time" in str(seen[0].message)  # half of the rows and more
    assert kept[1] < 2.5 * kept[0]


def test_only_the_bad_rows_are():
    """The others keep their rounded tangents, and gradients reach the weights from both."""
    flow, z = make_flow(), torch.randn(ROWS, d)
    core = flow.layers()
    J = Exact(codimension="never")._tangents(core, z)[1]
    rounded = (J + 0.01 * torch.randn_like(J)).detach().requires_grad_()
    with torch.no_grad():
        rounded[5] *= torch.logspace(0, -3, d)[:, None]
    with pytest.warns(PrecisionWarning, match="^1 of 128 rows .*cost more"):
        kept, (L, _, _) = guarded_factors(rounded, lambda rows: J[rows], "bfloat16", {})
    torch.testing.assert_close(kept[5], J[5])
    assert kept[:5].equal(rounded[:5])
    (back,) = torch.autograd.grad(L.sum(), rounded)
    assert not back[5].any()
    assert back[6].any()


def test_the_condition_is_that_of_the_singular_values():
    J = torch.randn(7, 20, 10, dtype=torch.float64)
    s = torch.linalg.svdvals(J)
    expected = (s.square().sum(dim=1) * s.pow(-2).sum(dim=1)).sqrt() / 10
    torch.testing.assert_close(_condition(torch.linalg.qr(J).R), expected)
    torch.testing.assert_close(_condition(torch.eye(3).expand(2, 3, 3)), torch.ones(2))


def test_densities_are_not_rounded():
    flow, z = make_flow(), torch.randn(ROWS, d)
    x = flow.decode(z).detach()
    with torch.no_grad():
        expected = flow.log_prob(x)
        reference = flow.double().log_prob(x.double())
        flow.float()
        assert not low()(flow, z)[1].equal(Exact(codimension="never")(flow, z)[1])  # which are, here
        assert flow.log_prob(x).equal(expected)
    torch.testing.assert_close(expected.double(), reference, atol=1e-3, rtol=0)


@pytest.mark.parametrize("volume", ["exact", "stochastic", "auto"])
def test_training_with_it(volume):
    rows = torch.randn(300, 3) @ torch.randn(3, 12)
    config = TrainingConfig(volume=volume, epochs=2, batch_size=100, scatter=False, dtype="float32")
    plain = {**config.settings(), "tangent_dtype": "bfloat16"}
    assert config.settings()["tangent_dtype"] is None
    low_config = TrainingConfig(
        volume={"exact": Exact, "stochastic": Stochastic, "auto": Auto}[volume](tangent_dtype="bfloat16"),
        epochs=2,
        batch_size=100,
        scatter=False,
        dtype="float32",
    )
    assert low_config.settings() == plain
    flow = RectangularFlow(flows.RealNVP(12, 4, (128,)), flows.RealNVP(3, 1))
    same = copy.deepcopy(flow)
    run, exact = fit(flow, rows, low_config), fit(same, rows, replace(low_config, volume=type(low_config.volume)()))
    pairs = list(zip(run.flow.parameters(), exact.flow.parameters(), strict=True))
    assert all(torch.allclose(a, b, atol=0.01) for a, b in pairs)
    assert not all(torch.equal(a, b) for a, b in pairs) or volume == "auto"  # which takes few rows, too few to round


@pytest.mark.parametrize(
    ("architecture", "instructions", "slow"),
    [
        ("x86_64", {}, True),
        ("x86_64", {"avx512_bf16": True}, False),
        ("x86_64", {"amx_bf16": True}, False),
        ("arm", {}, False),
    ],
)
def test_processors_without_instructions_for_it_do_without(monkeypatch, architecture, instructions, slow):
    monkeypatch.undo()
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"architecture": architecture, **instructions})
    precision._slow_here.cache_clear()
    flow, z = make_flow(), torch.randn(ROWS, d)
    expected = pytest.warns(PrecisionWarning, match="no instructions for bfloat16") if slow else nullcontext()
    with expected:
        error = off(flow, low(), Exact(codimension="never"), z)
    assert (error < 1e-5) == slow
    precision._slow_here.cache_clear()


def test_what_it_is_not():
    with pytest.raises(ValueError, match="compile and tangent_dtype do not go together"):
        TrainingConfig(volume=Exact(tangent_dtype="bfloat16"), compile=True)
    for method in (Exact, Stochastic, Auto, Direct):
        with pytest.raises(ValueError, match="expected tangent_dtype 'bfloat16' or None; got 'int8'"):
            method(tangent_dtype="int8")
    assert Stochastic(1, solver="direct", tangent_dtype="bfloat16").solver == Direct("bfloat16")
    for choice in (Choice(), Choice(probes=2), Choice(probes=2, solver="pcg")):
        assert choice.method("auto", "bfloat16").tangent_dtype == "bfloat16"
        assert choice.method().tangent_dtype is None
