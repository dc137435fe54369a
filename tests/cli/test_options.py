"""The flags of ``rnf fit``, over a file, over a preset."""

import re
import tomllib
from pathlib import Path

import pytest

from rectangular_flows.cli import command_line
from rectangular_flows.cli.options import refuse_changes, settings_in
from rectangular_flows.densities import LATENTS
from rectangular_flows.settings import FitSettings, help_of, preset_files, read_preset, settings_table
from rectangular_flows.volume import Exact, Stochastic
from tests.cli.command import complaint, run


def parse(*words):
    return command_line(["fit"]).parse_args(["fit", *map(str, words)])


def settings(*words):
    return settings_in(parse(*words))


def test_help_has_every_setting_with_what_it_is_for():
    text = " ".join(run("fit", "--help").stdout.split())
    for name, setting in settings_table().settings().items():
        assert help_of(setting), name
        assert name == "data" or re.search(rf"--{name.replace('_', '-')}[ ,]", text), name
    assert "--latent-activation {silu,tanh,relu,none}" in text
    assert "random tangents for each row (for volume = stochastic; default: 1)" in text
    assert "of each coupling (for ambient = realnvp or principal; default: 64,64)" in text
    assert "if a schedule changes it." in text
    assert "a larger one would break (default: auto)" in text  # as in 'table'
    for kind in LATENTS.values():
        assert f'"{kind.name}", {kind.help}' in text
    for symbol in ("f̃", " h ", "h:"):
        assert symbol not in text


def test_few_presets_are_in_the_help_and_all_in_a_list():
    text = " ".join(run("fit", "--help").stdout.replace("image-\n", "image-").split())
    assert "instead of 'table': circle, earth, image-best, image-fast, table, or one of --list-presets" in text
    done = run("fit", "--list-presets")
    assert (done.returncode, done.stderr) == (0, "")
    listed = done.stdout.splitlines()
    assert [line.split()[0] for line in listed] == list(preset_files())
    assert f"{'power':<33}POWER, our settings, maximum likelihood" in listed


def test_flags_over_files_over_presets_over_defaults(tmp_path):
    file = tmp_path / "a.toml"
    file.write_text('epochs = 7\nbeta = 3\nhidden = [5, 6]\nvolume = "stochastic"\n')
    found = settings("--preset", "circle-ml", "--config", file, "--beta=4", "--probes", "3")
    assert (found.data.data, found.model.latent_dim, found.model.ambient.settings.hidden) == ("circle", 1, (5, 6))
    training = found.training
    assert (training.epochs, training.beta, training.patience, training.warm_up) == (7, 4.0, 50, 0.0)
    assert training.volume == Stochastic(3)


def test_the_default_preset_is_under_a_users_file_but_not_under_that_of_a_run(tmp_path):
    file = tmp_path / "a.toml"
    file.write_text("epochs = 7\n")
    assert settings("a.csv", "--config", file).training.clip == read_preset("table")["clip"]
    file.write_text("epochs = 7\n# clip = none\n[record]\nstarted = 'x'\n")
    assert settings("a.csv", "--config", file).training.clip is None


@pytest.mark.parametrize(
    ("flags", "name", "value"),
    [
        (["--hidden", "8,9"], "hidden", (8, 9)),
        (["--hidden=[8,9]"], "hidden", (8, 9)),
        (["--columns", "a b,c"], "columns", ("a b", "c")),
        (["--columns", '1,"q"'], "columns", ("1", '"q"')),
        (["--columns", '["a,b", "c"]'], "columns", ("a,b", "c")),
        (["--clip", "none"], "clip", None),
        (["--no-standardise"], "standardise", False),
        (["--drop-invalid"], "drop_invalid", True),
        (["--anneal", "25,50"], "anneal", (25.0, 50.0)),
        (["--epochs", "auto"], "epochs", "auto"),
        (["--latent-dim", "3"], "latent_dim", 3),
        (["--beta", "-3"], "beta", "expected a positive beta; got -3.0"),
    ],
)
def test_spellings(flags, name, value):
    if isinstance(value, str) and value != "auto":
        with pytest.raises(ValueError, match=value):
            settings("x.csv", *flags)
    else:
        assert settings("x.csv", *flags).flat()[name] == value


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--epohcs", "3"], "unknown option --epohcs. Did you mean '--epochs'?"),
        (["--epochs", "many"], "epochs: expected a whole number or auto; got many"),
        (["--epochs", "2.5"], "epochs: expected a whole number or auto; got 2.5"),
        (["--method", "em"], "--method: expected one of ml, two-step; got em"),
        (["--hidden", "8,x"], "hidden: expected whole numbers such as 64,64; got 8,x"),
        (["--anneal", "1,2,3"], "anneal: expected two numbers such as 25,50; got 1,2,3"),
        (["--clip", "tight"], "clip: expected a number or none; got tight"),
        (["--preset", "circel"], "Did you mean 'circle'?"),
        (["--config", "nowhere.toml"], "no configuration file nowhere.toml"),
        (["b.csv"], "'b.csv' is one too many"),
    ],
)
def test_mistakes(flags, message):
    assert message in complaint("fit", "a.csv", *flags)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epohcs = 3", r"unknown setting 'epohcs'\. Did you mean 'epochs'\? \(in .*a\.toml\)"),
        ("epochs = 'many'", "epochs: expected a whole number or auto; got many"),
        ("drop_invalid = 1", "drop_invalid: expected true or false; got 1"),
        ("epochs = ", "is not valid TOML"),
        ("[training]\nepochs = 3", "unknown setting 'training'"),
        ("probes = 7", "probes is for volume = stochastic"),
    ],
)
def test_mistakes_in_files(tmp_path, text, message):
    file = tmp_path / "a.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=message):
        settings("a.csv", "--config", file)


def test_none_in_a_file_undoes_a_preset(tmp_path):
    file = tmp_path / "a.toml"
    file.write_text('clip = "none"\nema = "none"\n')
    training = settings("--preset", "miniboone", "--config", file).training
    assert (training.clip, training.ema, training.patience) == (None, None, 60)


def test_a_flag_that_does_not_apply_is_refused():
    text = (
        "rnf: probes is for volume = stochastic; this run has volume = auto. Leave it out, or add --volume stochastic"
    )
    assert complaint("fit", "a.csv", "--latent-dim", "1", "--probes", "7") == text


def test_what_a_preset_says_of_another_choice_is_dropped():
    found = settings("a.csv", "--latent-dim", "2", "--latent", "mixture", "--ambient", "principal")
    assert "latent_layers" in read_preset("table")
    assert "latent_layers" not in found.flat()
    assert found.model.latent.settings.latent_components == 8
    preset = settings("--preset", "image-fast", "--latent", "realnvp", "--method", "two-step")
    assert not {"restart_latent", "volume_fraction", "latent_components"} & set(preset.flat())


def test_the_file_of_a_run_of_the_version_before_has_all_keys_and_is_read(monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[1] / "fixtures" / "before-house")
    file = Path("table-run/config.toml")
    assert {"probes", "latent_components", "margin"} <= set(tomllib.loads(file.read_text()))
    found = settings("--config", file)
    assert {"probes", "latent_components", "margin"}.isdisjoint(found.flat())
    assert found.training.volume == Exact()
    changed = settings("--config", file, "--volume", "stochastic", "--probes", "2")
    assert changed.training.volume == Stochastic(2)
    assert FitSettings.from_flat(changed.flat()) == changed


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--epochs", "9"], "--epochs"),
        (["--preset", "circle", "--overwrite"], "--overwrite, --preset"),
        (["a.csv", "--no-pca"], "DATA, --pca"),
        (["-o", "there"], "--out"),
    ],
)
def test_a_run_is_continued_as_it_is(flags, named):
    with pytest.raises(
        ValueError, match=f"leave out {named}. To train with others, start a new run: --config RUN/config"
    ):
        refuse_changes(parse("--resume", "run", *flags))
    refuse_changes(parse("--resume", "run", "-q", "--tensorboard"))


def test_a_time_and_epochs_that_are_fixed_do_not_go_together():
    """Given by a flag, by a preset, or by the plan of a run."""
    assert settings("x.csv", "--time", 9).training.time == 9
    assert settings("x.csv", "--time", "none", "--epochs", 5).training.time is None
    assert settings("x.csv", "--preset", "circle", "--time", 9, "--epochs", "auto").training.epochs == "auto"
    for words in (("x.csv", "--epochs", 5), ("circle", "--preset", "circle")):
        with pytest.raises(ValueError, match=r"--time plans the epochs, which are \d+ here, .*: give --epochs auto"):
            settings(*words, "--time", 9)
