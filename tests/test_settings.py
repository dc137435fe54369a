import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rectangular_flows import toml
from rectangular_flows.cli.options import parse_fit
from rectangular_flows.settings import (
    DEFAULT_PRESET,
    FitSettings,
    ModelSettings,
    all_settings,
    preset_names,
    read_preset,
)
from rectangular_flows.volume import Stochastic

PLAIN = st.one_of(
    st.booleans(), st.integers(-(2**60), 2**60), st.floats(allow_nan=False), st.text(), st.lists(st.text())
)


@given(st.dictionaries(st.text(min_size=1), st.one_of(PLAIN, st.dictionaries(st.text(min_size=1), PLAIN))))
def test_toml_round_trip(values):
    assert tomllib.loads(toml.dumps(values)) == values


def test_every_setting_has_a_flag_a_default_and_a_text():
    settings = all_settings()
    assert len(settings) > 45
    for setting in settings.values():
        assert setting.help, setting.name


@pytest.mark.parametrize("text", ["--latent-activation {silu,tanh,relu,none}", "--dtype {float32,float64,none}"])
def test_choices_are_shown(capsys, text):
    with pytest.raises(SystemExit):
        parse_fit(["--help"])
    assert text in capsys.readouterr().out


@pytest.mark.parametrize("name", preset_names())
def test_presets_are_complete_and_come_back(name):
    settings = FitSettings.from_flat(read_preset(name))
    assert FitSettings.from_flat(settings.flat()) == settings
    if name == DEFAULT_PRESET:  # a user's own data and dimension
        return
    assert settings.data.data or settings.data.sphere or settings.model.ambient == "principal"  # else the user's
    assert settings.model.latent_dim


def test_flags_over_files_over_presets_over_defaults(tmp_path):
    file = tmp_path / "a.toml"
    file.write_text('epochs = 7\nbeta = 3\nhidden = [5, 6]\nvolume = "stochastic"\n[record]\nstarted = "x"\n')
    request = parse_fit(["--preset", "circle-ml", "--config", str(file), "--beta=4", "--probes", "3", "-q"])
    values = request.settings
    assert (values["data"], values["epochs"], values["beta"], values["hidden"]) == ("circle", 7, 4.0, (5, 6))
    assert values["latent_dim"] == 1
    assert values["warm_up"] == 0.0
    assert request.quiet
    assert FitSettings.from_flat(values).training.volume == Stochastic(3)


@pytest.mark.parametrize(
    ("flags", "name", "value"),
    [
        (["--hidden", "8,9"], "hidden", (8, 9)),
        (["--hidden=[8,9]"], "hidden", (8, 9)),
        (["--columns", "a b,c"], "columns", ("a b", "c")),
        (["--columns", '1,"q"'], "columns", ("1", '"q"')),
        (["--clip", "none"], "clip", None),
        (["--no-standardise"], "standardise", False),
        (["--drop-invalid"], "drop_invalid", True),
        (["--anneal", "25,50"], "anneal", (25.0, 50.0)),
    ],
)
def test_spellings(flags, name, value):
    assert parse_fit(["x.csv", *flags]).settings[name] == value


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--epohcs", "3"], r"unknown option --epohcs\. Did you mean '--epochs'\?"),
        (["--epochs", "many"], "epochs: expected a whole number or auto; got many"),
        (["--epochs", "2.5"], r"epochs: expected a whole number or auto; got 2\.5"),
        (["--method", "em"], "method: expected one of ml, two-step; got em"),
        (["--hidden", "8,x"], "hidden: expected whole numbers such as 64,64"),
        (["--clip", "tight"], "clip: expected a number or none; got tight"),
        (["--preset", "circel"], "Did you mean 'circle'"),
        (["--config", "nowhere.toml"], "no configuration file nowhere.toml"),
        (["b.csv"], "one data set at a time"),
    ],
)
def test_mistakes_are_told(flags, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        parse_fit(["a.csv", *flags])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epohcs = 3", r"unknown setting 'epohcs'\. Did you mean 'epochs'\?"),
        ("epochs = 'many'", "epochs: expected a whole number or auto; got many"),
        ("epochs = ", "is not valid TOML"),
        ("[training]\nepochs = 3", "unknown setting 'training'"),
    ],
)
def test_mistakes_in_files_are_told(tmp_path, text, message):
    file = tmp_path / "a.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=message):
        parse_fit(["a.csv", "--config", str(file)])


def test_none_in_a_file_undoes_a_preset(tmp_path):
    file = tmp_path / "a.toml"
    file.write_text('latent_activation = "none"\nclip = "none"\n')
    settings = parse_fit(["--preset", "miniboone", "--config", str(file)]).settings
    assert settings["latent_activation"] is None
    assert settings["clip"] is None


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_weights_of_the_start_are_checked(value):
    with pytest.raises(ValueError, match="expected pca_tail of at least 0; got"):
        ModelSettings(2, pca_tail=value)
