import copy
import math
from functools import partial

import numpy as np
import pytest
import torch

from rectangular_flows import RectangularFlow, TrainingConfig, fit, flows
from rectangular_flows.data import von_mises_circle
from rectangular_flows.data.rows import Picked, split
from rectangular_flows.errors import NonFiniteError
from rectangular_flows.training import Objective
from rectangular_flows.volume import Exact, Stochastic

plain = partial(
    TrainingConfig, scatter=False
)  # most of the time goes into that density, and few tests here are about it


def make_flow(seed=0, outer=()):
    torch.manual_seed(seed)
    return RectangularFlow(flows.RealNVP(2, 4, (16,)), flows.RealNVP(1, 1), outer)


def data():
    return von_mises_circle(600, seed=0), von_mises_circle(200, seed=1)


def same(first, second):
    return all(torch.equal(first[key], second[key]) for key in first) and first.keys() == second.keys()


@pytest.mark.parametrize(
    ("method", "volume"), [("ml", Exact()), ("ml", Stochastic()), ("ml", Exact(bundle_size=1)), ("two-step", Exact())]
)
def test_training_improves_the_validation_objective(method, volume):
    train, validation = data()
    config = plain(method, volume, epochs=8, batch_size=100, learning_rate=1e-2, schedule="cosine")
    lines = []
    run = fit(make_flow(), train, config, validation=validation, on_epoch=lambda run: lines.append(run.history[-1]))
    assert lines == run.history
    assert run.history[-1].objective < run.history[0].objective - 1
    assert run.finished == "all epochs done"
    best = min(run.history, key=lambda line: line.objective)
    assert run.best_epoch == best.epoch
    objective = Objective(run.flow, Exact(), 50)
    with torch.no_grad():
        two_step = objective(validation, part="likelihood").loss + objective(validation, part="reconstruction").loss
        expected = objective(validation).loss if method == "ml" else two_step
    assert float(expected) == pytest.approx(best.objective, rel=1e-5)


@pytest.mark.parametrize("volume", [Exact(), Stochastic()])
def test_same_seed_same_weights_and_the_global_generator_is_left_alone(volume):
    train, validation = data()
    config = TrainingConfig(epochs=2, batch_size=100, volume=volume, seed=3)
    states = []
    for _ in range(2):
        torch.manual_seed(len(states))
        before = torch.get_rng_state()
        flow = make_flow()
        torch.set_rng_state(before)
        states.append(fit(flow, train, config, validation=validation).flow.state_dict())
        assert torch.equal(torch.get_rng_state(), before)
    assert same(*states)
    other = fit(
        make_flow(), train, TrainingConfig(epochs=2, batch_size=100, volume=volume, seed=4), validation=validation
    )
    assert not same(states[0], other.flow.state_dict())


def test_numpy_and_tensors_give_the_same():
    train, validation = data()
    config = plain(epochs=1, batch_size=100)
    tensors = fit(make_flow(), train, config, validation=validation).flow.state_dict()
    arrays = fit(make_flow(), train.numpy(), config, validation=validation.numpy()).flow.state_dict()
    assert same(tensors, arrays)


def test_a_file_is_read_a_batch_at_a_time(tmp_path):
    train = data()[0].numpy()
    np.save(tmp_path / "x.npy", train)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    kept, held_out = split(mapped, None, (2,), seed=0)
    assert isinstance(kept, Picked)
    assert kept.values is mapped
    assert {len(kept), len(held_out)} == {540, 60}
    config = plain(epochs=1, batch_size=100)
    assert same(fit(make_flow(), train, config).flow.state_dict(), fit(make_flow(), mapped, config).flow.state_dict())


def test_a_tenth_is_held_out_by_seed():
    run = fit(make_flow(), data()[0], plain(epochs=1, batch_size=60))
    assert run.progress.steps == 9  # 540 rows


def test_early_stopping_counts_from_the_end_of_the_annealing():
    train, validation = data()
    config = plain(epochs=30, batch_size=300, learning_rate=1e-9, anneal=(1, 4), patience=3)
    run = fit(make_flow(), train, config, validation=validation)
    assert 7 <= run.history[-1].epoch < 30
    assert run.best_epoch >= 4
    assert "no better objective for 3 epochs" in run.finished
    assert [line.weight for line in run.history[:5]] == pytest.approx([0, 1 / 6, 0.5, 5 / 6, 1], abs=1e-9)


@pytest.mark.parametrize(
    "settings", [{}, {"method": "two-step"}, {"ema": 0.9}, {"target_error": 0.05}, {"patience": 1, "anneal": (0, 2)}]
)
def test_at_the_end_h_trains_alone(settings):
    train, validation = data()
    common = {"batch_size": 100, "learning_rate": 1e-2, "schedule": "cosine", "epochs": 3, **settings}
    flow = RectangularFlow(flows.RealNVP(2, 4, (16,)), flows.ZukoDensity("NSF", features=1, transforms=1))
    flow.initialise(train)
    before = fit(copy.deepcopy(flow), train, plain(**common), validation=validation)
    run = fit(flow, train, plain(**common, latent_epochs=4), validation=validation)
    alone = run.history[len(before.history) :]
    assert [line.epoch for line in alone] == [before.progress.epoch + i for i in range(1, len(alone) + 1)]
    assert 1 <= len(alone) <= 4
    assert all(line.weight == 1 for line in alone)
    assert alone[0].learning_rate > 0.8e-2  # the schedule starts anew
    assert same(run.flow.ambient.state_dict(), before.flow.ambient.state_dict())
    assert not same(run.flow.latent.state_dict(), before.flow.latent.state_dict())
    # one yardstick for both phases: reconstruction and volume are those of the best epoch, the density is better
    best = next(line for line in before.history if line.epoch == before.best_epoch)
    assert {line.reconstruction for line in alone} == {best.reconstruction}
    assert run.progress.best == min(line.objective for line in run.history if line.epoch >= before.best_epoch)
    assert run.best_epoch > before.best_epoch
    assert {line.beta for line in alone} == {alone[0].beta}


def test_h_alone_can_be_asked_for_later(tmp_path):
    train, validation = data()
    common = {"batch_size": 100, "learning_rate": 1e-2, "epochs": 2}
    straight = fit(make_flow(), train, plain(**common, latent_epochs=2), validation=validation)
    fit(make_flow(), train, plain(**common), validation=validation, out=tmp_path)
    config = plain(**common, latent_epochs=2)
    later = fit(make_flow(3), train, config, validation=validation, out=tmp_path, resume=True)
    assert same(straight.flow.state_dict(), later.flow.state_dict())
    with pytest.raises(ValueError, match="cannot judge latent_epochs"):
        TrainingConfig(latent_epochs=1, monitor="reconstruction")


def test_h_can_start_where_the_annealing_does():
    train, validation = data()
    settings = {"epochs": 3, "batch_size": 100, "learning_rate": 1e-2, "anneal": (2, 2)}
    torch.manual_seed(0)
    start = RectangularFlow(flows.RealNVP(2, 4, (16,)), flows.ActNorm(1))
    two = fit(copy.deepcopy(start), train, plain(**{**settings, "epochs": 2}), validation=validation)
    assert two.flow.latent.flow.bias.item() == 0  # reconstruction alone leaves h as it is
    z = two.flow.encode(train)
    for begins in (False, True):
        seen = []

        def look(run, seen=seen):
            seen.append((run.progress.step, run.flow.latent.flow.bias.item(), run.flow.latent.flow.log_scale.item()))

        fit(
            copy.deepcopy(start),
            train,
            plain(start_latent=begins, **settings),
            validation=validation,
            on_step=look,
        )
        expected = (z.mean().item(), z.std().log().item()) if begins else (0.0, 0.0)
        assert seen[12][1:] == pytest.approx(expected, abs=1.1e-2)  # and one step of Adam
        assert {values[1:] for values in seen[:12]} == {(0.0, 0.0)}
    assert abs(expected[1]) > 0.05


def test_h_can_start_anew_where_it_trains_alone():
    train, validation = data()
    settings = {"epochs": 2, "latent_epochs": 2, "batch_size": 100, "learning_rate": 1e-2, "monitor": "mine"}
    torch.manual_seed(0)
    start = RectangularFlow(flows.RealNVP(2, 4, (16,)), flows.ActNorm(1))
    for anew in (False, True):
        seen, judged = [], []

        def look(run, seen=seen):
            seen.append((run.flow.latent.flow.bias.item(), run.flow.latent.flow.log_scale.item()))

        def mine(flow, rows, judged=judged):
            judged.append(flow.encode(train))
            return float(len(judged))  # worse and worse: the first of a phase is its best

        config = plain(restart_latent=anew, **settings)
        run = fit(copy.deepcopy(start), train, config, validation=validation, metrics={"mine": mine}, on_step=look)
        z = judged[0]
        expected = z.mean().item(), z.std().log().item()
        assert (seen[12] == pytest.approx(expected, abs=1.1e-2)) == anew  # and one step of Adam
        assert run.best_epoch == (3 if anew else 1)  # what was judged before is of another h
    with pytest.raises(ValueError, match="restart_latent is for latent_epochs"):
        TrainingConfig(restart_latent=True)


def test_annealing_in_steps():
    train, validation = data()
    config = plain(epochs=3, batch_size=100, anneal=(6, 12), anneal_in="steps")
    run = fit(make_flow(), train, config, validation=validation)
    assert [line.weight for line in run.history] == pytest.approx([0, 5 / 6, 1], abs=1e-9)
    assert run.best_epoch >= 2


def test_annealing_that_outlasts_the_run_keeps_the_last_weights():
    train, validation = data()
    run = fit(make_flow(), train, plain(epochs=2, batch_size=300, anneal=(0, 9)), validation=validation)
    assert run.best_epoch == 0
    assert not same(run.flow.state_dict(), make_flow().state_dict())


@pytest.mark.parametrize("monitor", ["nll", "reconstruction", "fid-like", "mine"])
def test_the_best_weights_are_those_of_the_named_metric(monitor):
    train, validation = data()
    seen = []

    def mine(flow, rows):
        seen.append(len(rows))
        return abs(len(seen) - 2.0)  # least at the second validation

    config = plain(epochs=4, batch_size=100, learning_rate=1e-2, monitor=monitor)
    run = fit(make_flow(), train, config, validation=validation, metrics={"mine": mine})
    values = [line.value(monitor) for line in run.history]
    assert run.best_epoch == 1 + int(np.argmin(values))
    assert run.progress.best == min(values)
    if monitor == "mine":
        assert run.best_epoch == 2
        assert seen == [200] * 4


def test_an_unknown_metric_is_told_before_training():
    with pytest.raises(ValueError, match=r"monitor among objective, nll, reconstruction, fid-like; got 'auc'"):
        fit(make_flow(), data()[0], plain(monitor="auc"))


@pytest.mark.parametrize("rate", [1e30, 1e4])
def test_a_non_finite_loss_stops_and_keeps_the_last_good_weights(rate):
    train, validation = data()
    flow = make_flow()
    config = plain(epochs=50, batch_size=100, learning_rate=rate)
    with pytest.raises(NonFiniteError, match=r"(?s)stopped in epoch.*learning_rate"):
        fit(flow, train, config, validation=validation)
    assert all(bool(torch.isfinite(value).all()) for value in flow.state_dict().values())


def test_a_target_error_is_met():
    train, validation = data()
    settings = {"epochs": 25, "batch_size": 100, "learning_rate": 1e-2, "schedule": "cosine", "clip": 5.0}
    reached = {}
    for target in (0.2, 0.05):
        config = plain(beta=1.0, target_error=target, dual_rate=0.1, evaluate_every=5, **settings)
        run = fit(make_flow(), train, config, validation=validation)
        reached[target] = next(line for line in run.history if line.epoch == run.best_epoch)
        assert reached[target].reconstruction <= 1.1 * target
    assert reached[0.05].beta > reached[0.2].beta  # a smaller error needs a larger weight


def test_moving_average_is_what_is_kept():
    train, validation = data()
    config = plain(epochs=3, batch_size=100, learning_rate=1e-2, ema=0.5, clip=1.0)
    at_once = fit(make_flow(), train, plain(**{**vars(config), "ema": None}), validation=validation)
    averaged = fit(make_flow(), train, config, validation=validation)
    assert not same(at_once.flow.state_dict(), averaged.flow.state_dict())
    expected = Objective(averaged.flow, Exact(), 50)(validation).loss.item()
    assert averaged.progress.best == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("optimiser", ["adam", "adamw"])
@pytest.mark.parametrize("method", ["ml", "two-step"])
def test_parts_of_a_batch_add_up(optimiser, method):
    train, validation = data()
    decay = 0.1 if optimiser == "adamw" else 0.0
    settings = {"method": method, "epochs": 2, "batch_size": 100, "optimiser": optimiser, "weight_decay": decay}
    settings |= {"dtype": "float64", "clip": 3.0}
    whole = fit(make_flow(), train, plain(**settings), validation=validation)
    parts = fit(make_flow(), train, plain(**settings, memory=0.2), validation=validation)
    assert whole.flow.encode(train.double()).dtype == torch.float64
    for key, value in whole.flow.state_dict().items():
        torch.testing.assert_close(parts.flow.state_dict()[key], value, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("D", "d"), [(3, 2), (5, 4), (6, 4), (3, 3)])
def test_small_codimension(D, d):
    torch.manual_seed(0)
    flow = RectangularFlow(flows.RealNVP(D, 2, (8,)), flows.RealNVP(d, 1))
    run = fit(flow, torch.randn(40, D), plain(epochs=2, batch_size=20, memory=0.01))
    assert math.isfinite(run.history[-1].objective)


def test_the_spelling_of_files_for_the_volume():
    assert TrainingConfig(volume="stochastic").volume == Stochastic()
    for wrong in ("rough", Exact, 3):
        with pytest.raises(ValueError, match="volume"):
            TrainingConfig(volume=wrong)


def test_wrong_shapes_and_bad_rows_are_told():
    with pytest.raises(ValueError, match=r"data of shape \(N, 2\); got \(10, 3\)"):
        fit(make_flow(), torch.zeros(10, 3))
    bad = von_mises_circle(50, seed=0)
    bad[3, 1] = math.nan
    with pytest.raises(NonFiniteError, match="1 of 50 rows of data"):
        fit(make_flow(), bad)
    with pytest.raises(ValueError, match="'abacus' cannot be used"):
        fit(make_flow(), data()[0], TrainingConfig(device="abacus"))
    with pytest.raises(ValueError, match="no parameters"):
        fit(RectangularFlow(flows.Identity(2), flows.Identity(1)), data()[0])


def test_steps_of_the_density_of_the_columns_are_told():
    rows = torch.randn(600, 3, generator=torch.Generator().manual_seed(0))
    seen = []
    flow = RectangularFlow(flows.RealNVP(3, layers=1, hidden=(8,)), flows.RealNVP(2, layers=1, hidden=(8,)))
    config = TrainingConfig(epochs=3, batch_size=100)
    run = fit(flow, rows, config, on_scatter=lambda step, steps: seen.append((step, steps)))
    planned = round(1.2 * 3 * 6)  # of 540 rows
    assert run.column_steps == planned
    assert seen == [(step, planned) for step in range(1, planned + 1)]
    run = fit(flow, rows[:200], config, on_scatter=lambda *_: pytest.fail("no such density of so few rows"))
    assert run.column_steps == 0
