import math

import numpy as np
import pytest

from rectangular_flows import TrainingConfig
from rectangular_flows.kinds import Table, make
from rectangular_flows.training.volumes import build_volume, describe_volume
from rectangular_flows.volume import CG, PCG, Corrected, Direct, Exact, RouletteCG, Stochastic


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "em"}, "method: expected one of ml, two-step; got em"),
        ({"schedule": "stairs"}, "schedule: expected one of constant, cosine, one-cycle; got stairs"),
        ({"optimiser": "sgd"}, "optimiser: expected one of adam, adamw, muon; got sgd"),
        ({"volume": "rough"}, "volume: expected one of exact, stochastic, auto; got rough"),
        ({"volume": Exact}, r"expected volume to be Auto\(\), Exact\(\) or Stochastic"),
        ({"beta": -1}, "positive beta; got -1"),
        ({"beta": math.nan}, "positive beta; got nan"),
        ({"epochs": 2.5}, "epochs: expected a whole number or auto; got 2.5"),
        ({"epochs": 0}, "positive epochs; got 0"),
        ({"patience": 0}, "positive patience; got 0"),
        ({"warm_up": -1.0}, "warm_up ≥ 0; got -1"),
        ({"seed": -1}, "seed from 0 to 2⁶³ − 1; got -1"),
        ({"anneal": (5, 2)}, "start ≤ end"),
        ({"volume_fraction": 0}, "0 < volume_fraction ≤ 1; got 0"),
        ({"ema": 1.0}, "0 < ema < 1; got 1.0"),
        ({"weight_decay": 0.1}, "weight_decay is for optimiser = adamw; this run has optimiser = adam"),
        (
            {"method": "two-step", "target_error": 0.1},
            "target_error is for method = ml; this run has method = two-step",
        ),
        ({"method": "two-step", "volume_fraction": 0.5}, "volume is for method = ml"),
        ({"method": "two-step", "volume": Stochastic()}, "volume is for method = ml"),
        ({"dual_rate": 0.1}, "dual_rate is for a run with target_error"),
        ({"anneal_in": "steps"}, "anneal_in is for a run with anneal"),
        ({"restart_latent": True}, "restart_latent is for latent_epochs of a latent that starts from data"),
        ({"latent_epochs": 1, "monitor": "reconstruction"}, "cannot judge latent_epochs"),
    ],
)
def test_mistakes(settings, message):
    with pytest.raises(ValueError, match=message):
        TrainingConfig(**settings)


@pytest.mark.parametrize(
    "volume", [Exact(), Exact(bundle_size=3, codimension="never"), Stochastic(4, "gaussian", "cg", 1e-3, 7)]
)
def test_settings_round_trip(volume):
    config = TrainingConfig(volume=volume, epochs=7, clip=2.0, anneal=(1, 2))
    assert make(TrainingConfig, Table(TrainingConfig).sift(config.settings())) == config


@pytest.mark.parametrize(
    "solver",
    [
        Direct(),
        CG(1e-3, 7),
        PCG(1e-4),
        RouletteCG(1e-6, 9, least=3, keep=0.6),
        Corrected(0.1, 8, share=0.25, exact_tol=1e-3),
    ],
    ids=lambda solver: type(solver).__name__,
)
def test_settings_of_every_solver_come_back(solver):
    volume = Stochastic(2, "rademacher", solver)
    chosen = describe_volume(volume)
    assert build_volume(chosen) == volume
    assert describe_volume(build_volume(chosen)) == chosen


def test_settings_are_those_that_apply():
    settings = TrainingConfig().settings()
    assert settings["volume"] == "exact"
    assert {"probes", "solver", "dual_rate", "weight_decay", "anneal_in", "restart_latent"}.isdisjoint(settings)
    settings = TrainingConfig(method="two-step", anneal=(1, 2)).settings()
    assert {"volume", "codimension", "target_error", "volume_fraction"}.isdisjoint(settings)
    assert settings["anneal_in"] == "epochs"


def test_a_volume_of_ones_own_is_recorded_by_its_name():
    class Mine:
        def __call__(self, flow, z):
            raise AssertionError

    assert TrainingConfig(volume=Mine()).settings()["volume"] == "Mine"


def test_whole_numbers_may_be_floats_and_arrays_scalars():
    assert TrainingConfig(epochs=3.0, seed=np.int64(4)).settings()["epochs"] == 3
