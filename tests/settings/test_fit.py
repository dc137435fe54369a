"""Settings by kind: what applies is kept, what does not is refused."""

import re
from dataclasses import replace

import numpy as np
import pytest

from rectangular_flows.densities import LATENTS
from rectangular_flows.settings import FitSettings, preset_files, read_preset, settings_table
from rectangular_flows.volume import Exact, Stochastic

# of every setting that is not for all runs: a run that it is not for, a value, and what the message says
REFUSED = {
    "columns": ({"data": "circle"}, ["x"], "a table of your own; this run has data = circle. Leave it out"),
    "exclude": ({"data": "mnist"}, ["x"], "a table of your own; this run has data = mnist. Leave it out"),
    "periodic": ({"data": "circle"}, ["x:360"], "a table of your own; this run has data = circle"),
    "drop_invalid": ({"data": "power"}, True, "a table of your own; this run has data = power"),
    "validation_data": ({"data": "power"}, "a.csv", "data of your own, or images; this run has data = power"),
    "test_data": ({"data": "circle"}, "a.csv", "data of your own, or images"),
    "validation_fraction": ({"data": "power"}, 0.2, "data that have no validation part"),
    "test_fraction": ({"data": "mnist"}, 0.2, "data of your own; this run has data = mnist"),
    "radius_noise": ({"data": "power"}, 0.1, "the circle; this run has data = power"),
    "sphere": ({"data": "circle"}, True, "a table of your own; this run has data = circle"),
    "image_size": ({"data": "mnist"}, [8], "a folder of pictures; this run has data = mnist"),
    "standardise": ({"data": "mnist"}, True, "tables other than the sphere; this run has data = mnist"),
    "pixels": ({"data": "circle"}, "plain", "images; this run has data = circle"),
    "margin": (
        {"pixels": "plain"},
        0.1,
        "pixels = logit; this run has pixels = plain. Leave it out, or add --pixels logit",
    ),
    "layers": ({"ambient": "multiscale"}, 3, "ambient = realnvp or principal; this run has ambient = multiscale"),
    "hidden": ({"ambient": "multiscale"}, [8], "ambient = realnvp or principal"),
    "network": ({"ambient": "multiscale"}, "residual", "ambient = realnvp or principal"),
    "activation": (
        {"ambient": "multiscale", "latent": "spline"},
        "tanh",
        "ambient = realnvp or principal, or latent = realnvp; this run has ambient = multiscale and latent = spline. "
        "Leave it out, or add --ambient realnvp",
    ),
    "mixing": ({"ambient": "multiscale"}, "lu", "ambient = realnvp or principal"),
    "mixing_start": ({}, "random", "mixing = permutation, lu or free; this run has mixing = none"),
    "actnorm": ({"ambient": "multiscale"}, True, "ambient = realnvp or principal"),
    "pca": ({"ambient": "principal"}, True, "ambient = realnvp; this run has ambient = principal"),
    "pca_tail": (
        {"pca": False},
        1.0,
        "a run with pca, or ambient = principal; this run has pca = False and ambient = realnvp",
    ),
    "directions": ({}, 9, "ambient = principal; this run has ambient = realnvp"),
    "channels": ({}, 9, "ambient = multiscale; this run has ambient = realnvp"),
    "blocks": ({"ambient": "principal"}, 9, "ambient = multiscale; this run has ambient = principal"),
    "bound": ({"scale": "exp"}, 0.1, "scale = tanh; this run has scale = exp. Leave it out, or add --scale tanh"),
    "latent_layers": (
        {"latent": "mixture"},
        3,
        "latent = realnvp, spline, autoregressive or auto; this run has latent = mixture",
    ),
    "latent_hidden": ({"latent": "identity"}, [3], "latent = realnvp, spline, autoregressive or auto"),
    "latent_activation": ({"latent": "spline"}, "tanh", "latent = realnvp; this run has latent = spline"),
    "latent_components": ({"latent": "spline"}, 50, "latent = mixture or auto; this run has latent = spline"),
    "charts": ({"data": "mnist"}, 2, "tables; this run has data = mnist"),
    "volume": (
        {"method": "two-step"},
        "exact",
        "method = ml; this run has method = two-step. Leave it out, or add --method ml",
    ),
    "volume_fraction": (
        {"method": "two-step"},
        0.5,
        "volume = exact or stochastic; volume is for method = ml; this run has method = two-step",
    ),
    "volume_variance": ({"volume": "exact"}, 1.5, "volume = auto; this run has volume = exact"),
    "bundle_size": ({"volume": "stochastic"}, 2, "volume = exact; this run has volume = stochastic"),
    "codimension": (
        {"method": "two-step"},
        "never",
        "volume = exact or auto; volume is for method = ml; this run has method = two-step. Leave it out, or add "
        "--method ml --volume exact",
    ),
    "tangent_dtype": (
        {"method": "two-step"},
        "bfloat16",
        "volume = exact, stochastic or auto; volume is for method = ml; this run has method = two-step",
    ),
    "probes": (
        {"volume": "exact"},
        7,
        "volume = stochastic; this run has volume = exact. Leave it out, or add --volume stochastic",
    ),
    "distribution": ({}, "gaussian", "volume = stochastic; this run has volume = exact"),
    "solver": ({}, "direct", "volume = stochastic; this run has volume = exact"),
    "tolerance": (
        {"volume": "stochastic"},
        0.1,
        "solver = cg, pcg, roulette or corrected; this run has solver = direct. Leave it out, or add --solver cg",
    ),
    "max_iterations": (
        {},
        3,
        "solver = cg, pcg, roulette or corrected; solver is for volume = stochastic; this run has volume = exact. "
        "Leave it out, or add --volume stochastic --solver cg",
    ),
    "least_iterations": ({"volume": "stochastic", "solver": "cg"}, 3, "solver = roulette; this run has solver = cg"),
    "continuation": ({"volume": "stochastic", "solver": "pcg"}, 0.5, "solver = roulette; this run has solver = pcg"),
    "corrected_share": (
        {"volume": "stochastic", "solver": "pcg"},
        0.5,
        "solver = corrected; this run has solver = pcg",
    ),
    "corrected_tolerance": ({"volume": "stochastic"}, 1e-6, "solver = corrected; this run has solver = direct"),
    "target_error": ({"method": "two-step"}, 0.1, "method = ml; this run has method = two-step"),
    "dual_rate": ({}, 0.1, "a run with target_error; this run has target_error = None. Leave it out"),
    "latent_epochs": ({"latent": "identity"}, 2, "a latent density with weights; this run has latent = identity"),
    "start_latent": ({"latent": "realnvp"}, True, "a latent that starts from data; this run has latent = realnvp"),
    "restart_latent": (
        {"latent": "mixture"},
        True,
        "latent_epochs of a latent that starts from data; this run has latent = mixture and latent_epochs = 0",
    ),
    "latent_kernels": ({"latent": "mixture"}, 9, "latent = kernels; this run has latent = mixture"),
    "latent_width": ({"latent": "spline"}, 0.1, "latent = kernels; this run has latent = spline"),
    "weight_decay": (
        {},
        0.1,
        "optimiser = adamw; this run has optimiser = adam. Leave it out, or add --optimiser adamw",
    ),
    "anneal_in": ({}, "steps", "a run with anneal; this run has anneal = (0.0, 0.0)"),
}


def test_every_setting_that_is_not_for_all_runs_is_among_them():
    table = settings_table()
    assert set(REFUSED) == {name for name in table.settings() if table.scope(name)}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_apply_is_refused(name):
    run, value, message = REFUSED[name]
    with pytest.raises(ValueError, match=re.escape(f"{name} is for {message}")):
        FitSettings.from_flat({**run, name: value})


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_apply_is_dropped_from_a_preset(name):
    run, value, _ = REFUSED[name]
    dropped = FitSettings.from_flat(run, {name: value})
    assert name not in dropped.flat()
    assert dropped == FitSettings.from_flat(run)


@pytest.mark.parametrize(
    "values",
    [
        {"data": "mnist", "standardise": False, "columns": None, "drop_invalid": False, "radius_noise": 0},
        {"method": "two-step", "target_error": None},
        {"optimiser": "adam", "weight_decay": 0.0},
        {"latent": "identity", "latent_epochs": 0, "restart_latent": False},
    ],
)
def test_what_is_switched_off_need_not_apply(values):
    chosen = {name: value for name, value in values.items() if isinstance(value, str)}
    assert FitSettings.from_flat(values) == FitSettings.from_flat(chosen)


def test_nothing_of_what_is_not_there_is_refused_too():
    with pytest.raises(ValueError, match="directions is for ambient = principal"):
        FitSettings.from_flat({"directions": 0})


def test_a_setting_that_was_dropped_decides_nothing():
    settings = FitSettings.from_flat({"data": "circle"}, {"sphere": True, "standardise": False})
    assert settings.model.standardise is False
    assert {"standardise"} <= set(settings.flat())


def test_a_latent_restarts_after_a_number_of_epochs_that_is_still_to_be_chosen():
    flat = {"latent": "mixture", "epochs": "auto", "restart_latent": True}
    assert FitSettings.from_flat(flat).training.for_rows(500).restart_latent


def test_what_applies_is_where_it_belongs():
    values = {"ambient": "principal", "directions": 9, "bound": 0.5, "latent": "mixture", "latent_components": 3}
    model = FitSettings.from_flat(values).model
    assert (model.ambient.name, model.ambient.settings.directions) == ("principal", 9)
    assert (model.scale.name, model.scale.settings.bound) == ("tanh", 0.5)
    assert (model.latent.name, model.latent.settings.latent_components) == ("mixture", 3)
    training = {"volume": "stochastic", "probes": 2, "solver": "cg", "tolerance": 0.1, "max_iterations": 5}
    assert FitSettings.from_flat(training).training.volume == Stochastic(2, "orthonormal", "cg", 0.1, 5)
    assert FitSettings.from_flat({"bundle_size": 3}).training.volume == Exact(3)


def test_a_setting_may_be_shared_by_two_choices():
    flat = {"ambient": "multiscale", "latent": "realnvp", "activation": "tanh", "scale": "exp", "zero_init": False}
    settings = FitSettings.from_flat(flat)
    latent = settings.model.latent.settings
    assert (latent.activation, latent.scale, latent.zero_init) == ("tanh", "exp", False)
    assert settings.model.scale.name == "exp"
    assert flat.items() <= settings.flat().items()


@pytest.mark.parametrize("name", preset_files())
def test_presets_apply_and_come_back(name):
    settings = FitSettings.from_flat(read_preset(name))
    flat = settings.flat()
    assert FitSettings.from_flat(flat) == settings
    assert {key: tuple(v) if isinstance(v, list) else v for key, v in read_preset(name).items()}.items() <= flat.items()
    if name != "table":  # a user's own data and dimension
        assert settings.data.data or settings.data.sphere or settings.model.ambient.name == "principal"
        assert settings.model.latent_dim


@pytest.mark.parametrize("kind", LATENTS)
def test_every_latent_comes_back(kind):
    settings = FitSettings.from_flat({"latent": kind, "method": "two-step"})
    assert FitSettings.from_flat(settings.flat()) == settings
    assert settings.flat()["latent"] == kind


def test_kernels_are_for_the_two_step_method():
    message = (
        "latent = kernels is for method = two-step, since rows would be likeliest on top of each other; got method = ml"
    )
    with pytest.raises(ValueError, match=message):
        FitSettings.from_flat({"latent": "kernels"})
    for wrong in ({"latent_kernels": 0}, {"latent_width": 0.0}, {"latent_width": float("inf")}):
        with pytest.raises(ValueError, match="latent_kernels of at least 1 and a positive latent_width"):
            FitSettings.from_flat({"latent": "kernels", "method": "two-step", **wrong})


def test_the_kind_of_data_is_that_of_the_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    np.save(tmp_path / "images.npy", np.zeros((3, 4, 4), np.uint8))
    np.save(tmp_path / "table.npy", np.zeros((3, 4)))
    (tmp_path / "pictures").mkdir()
    table, image = {"columns": ["1"], "standardise": True}, {"margin": 0.1}
    for data, fine, wrong in (
        ("table.csv", table, image),
        ("table.npy", table, image),
        ("images.npy", image, table),
        ("pictures", {**image, "image_size": [4]}, table),
        ("nowhere.npy", table | image, {}),  # nothing is known of it yet
    ):
        fractions = {"validation_fraction": 0.2, "test_fraction": 0.2, "test_data": "b"}
        flat = FitSettings.from_flat({"data": data, **fine, **fractions}).flat()
        assert {*fine, *fractions} <= set(flat)
        for name, value in wrong.items():
            with pytest.raises(ValueError, match=f"{name} is for"):
                FitSettings.from_flat({"data": data, name: value})


def test_the_sphere_is_never_standardised():
    settings = FitSettings.from_flat({"sphere": True})
    assert (settings.model.latent_dim, settings.model.standardise) == (2, False)
    assert FitSettings.from_flat({"sphere": True, "latent_dim": 1}).model.latent_dim == 1
    with pytest.raises(ValueError, match="standardise is for tables other than the sphere"):
        FitSettings.from_flat({"sphere": True, "standardise": True})
    assert replace(settings, model=FitSettings().model).model.standardise is False


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"latent": "foo"}, "latent: expected one of realnvp, spline, .*; got foo"),
        ({"latent_activation": "wild"}, "latent_activation: expected one of silu, tanh, relu, none; got wild"),
        ({"ambient": "square"}, "ambient: expected one of"),
        ({"latent_layers": 0}, "latent_layers and latent_hidden of at least 1; got 0"),
        ({"latent_hidden": [3, 0]}, r"at least 1; got 4 and \[3, 0\]"),
        ({"latent": "mixture", "latent_components": 0}, "latent_components of at least 1; got 0"),
        ({"hidden": [64, -5]}, r"hidden of at least 1; got \(64, -5\)"),
        ({"layers": 0}, "layers of at least 1; got 0"),
        ({"ambient": "multiscale", "blocks": 0}, "blocks of at least 1"),
        ({"ambient": "principal", "directions": 0}, "directions of at least 1"),
        ({"pca_tail": -1.0}, "pca_tail of at least 0; got -1"),
        ({"pca_tail": float("nan")}, "pca_tail of at least 0; got nan"),
        ({"ambient": "principal", "pca_tail": float("inf")}, "pca_tail of at least 0; got inf"),
        ({"image_size": [1, 2, 3]}, "image_size as height and width, such as 32,48, or one number for both; got 1,2,3"),
        ({"epohcs": 3}, r"unknown setting 'epohcs'\. Did you mean 'epochs'\?"),
        ({"epochs": True}, "epochs: expected a whole number or auto; got True"),
    ],
)
def test_impossible_values(change, message):
    with pytest.raises(ValueError, match=message):
        FitSettings.from_flat(change)
