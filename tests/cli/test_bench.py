"""``rnf bench``: what is measured, and where it is written; the measuring itself is tests/paper/test_bench.py's."""

import pytest

from rectangular_flows.cli import bench as command
from rectangular_flows.cli import main
from rectangular_flows.paper import bench as volume
from rectangular_flows.paper.bench import run as groups


@pytest.fixture
def asked(monkeypatch):
    seen = []
    monkeypatch.setattr(groups, "bench", lambda *given: seen.append(given))
    monkeypatch.setattr(groups, "page", lambda out: f"measured in {out.name}\n")
    monkeypatch.setattr(volume, "bench_volume", lambda cases, repeats, **more: seen.append((cases, repeats, more)))
    return seen


def test_a_group_with_a_folder(asked, tmp_path):
    assert main(["bench", "step", "--cases", "gas", "large", "--rounds", "2", "--out", str(tmp_path)]) == 0
    assert asked == [(["step"], ["gas", "large"], 2, tmp_path)]
    assert (tmp_path / "benchmarks.md").read_text() == f"measured in {tmp_path.name}\n"


def test_all_groups_without_a_folder(asked, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["bench", "all"]) == 0
    assert asked == [
        (["step", "density", "memory", "variance", "probes", "growth", "threads", "quality"], None, 5, None)
    ]
    assert not list(tmp_path.iterdir())


def test_the_volume_alone(asked, tmp_path):
    words = ["--repeats", "3", "--no-memory", "--cases", "circle", "mnist", "-o", str(tmp_path / "a.json")]
    assert main(["bench", "volume", *words]) == 0
    assert main(["bench", "volume"]) == 0
    assert asked == [
        (["circle", "mnist"], 3, {"memory": False, "output": tmp_path / "a.json"}),
        (["circle", "power", "gas", "hepmass", "miniboone"], 5, {"memory": True, "output": None}),
    ]


@pytest.mark.parametrize("words", [["volume", "--cases", "large"], ["step", "--cases", "roll"], ["speed"], []])
def test_what_there_is_not(asked, words, capsys):
    assert main(["bench", *words]) == 2
    assert asked == []
    assert capsys.readouterr().err.startswith("rnf: ")


def test_help_names_every_group_and_case(capsys):
    for words in (["--help"], ["volume", "--help"], ["step", "--help"]):
        with pytest.raises(SystemExit):
            main(["bench", *words])
    said = "".join(capsys.readouterr().out.split())  # names with a hyphen are broken across lines
    assert all(
        name in said for name in (*command._GROUPS, *command._TABLES, *command._IMAGES, "large", "image-fast", "CASE")
    )
