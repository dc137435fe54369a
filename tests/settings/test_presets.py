import importlib.resources

import pytest

from rectangular_flows.settings import PRESET_FOLDERS, preset_files, preset_summary, read_preset, read_toml

FOR_USERS = ["circle", "earth", "image-best", "image-fast", "table"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr("rectangular_flows.settings.presets.PRESET_FOLDERS", [*PRESET_FOLDERS, tmp_path])
    return tmp_path


def test_those_of_the_paper_stand_apart():
    assert list(preset_files(PRESET_FOLDERS[:1])) == FOR_USERS
    paper = importlib.resources.files("rectangular_flows.paper") / "presets"
    assert {file.name for file in paper.iterdir()} == {
        f"{name}.toml" for name in preset_files() if name not in FOR_USERS
    }
    assert len(preset_files()) == 41


def test_a_preset_extends_another_and_takes_values_out(folder):
    (folder / "mine.toml").write_text('extends = "table"\nlayers = 2\nclip = "none"\nmixing = "none"\n')
    (folder / "more.toml").write_text('# More: of mine.\nextends = "mine"\nema = 0.5\nbeta = "none"\n')
    table = read_preset("table")
    mine = {**table, "layers": 2, "mixing": "none"}  # which is a value of mixing
    del mine["clip"]
    assert read_preset("mine") == mine
    del mine["beta"]
    assert read_preset("more") == {**mine, "ema": 0.5}
    assert preset_summary("more") == "More"


@pytest.mark.parametrize(
    ("name", "base", "changes"),
    [
        (
            "image-best",
            "image-fast",
            {"directions", "hidden", "latent_components", "epochs", "learning_rate", "anneal"},
        ),
        ("gas-published-two-step", "power-published", {"data", "latent_dim", "batch_size", "method"}),
        ("power-two-step", "power", {"method", "volume", "epochs", "anneal", "clip", "monitor"}),
    ],
)
def test_what_presets_change(name, base, changes):
    one, other = read_preset(name), read_preset(base)
    assert {key for key in {*one, *other} if one.get(key) != other.get(key)} == changes


def test_unknown_presets():
    with pytest.raises(ValueError, match=r"no preset 'circel'\. Did you mean 'circle'\? .*--list-presets"):
        read_preset("circel")


@pytest.mark.parametrize("name", preset_files())
def test_every_preset_says_what_it_is(name):
    assert 8 < len(preset_summary(name)) < 90


def test_files(tmp_path):
    file = tmp_path / "a.toml"
    file.write_text("epochs = 3\n")
    assert read_toml(file) == ({"epochs": 3}, False)
    file.write_text("epochs = 3\n[record]\nstarted = 'x'\n")
    assert read_toml(file) == ({"epochs": 3}, True)
