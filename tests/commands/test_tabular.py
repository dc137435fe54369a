"""``rnf reproduce tabular`` on small files in the layout of the real ones."""

import json
import math

import numpy as np
import pytest
from rectangular_flows.paper.reproduction import mean_and_error

from rectangular_flows.cli import main
from rectangular_flows.paper.tabular import KEYS, METHODS, PUBLISHED, Group, Result, judge, table_rows
from rectangular_flows.settings import FitSettings, preset_files, read_preset


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A data folder with POWER in miniature, and a folder to work in."""
    random = np.random.default_rng(0)
    (tmp_path / "data" / "power").mkdir(parents=True)
    np.save(tmp_path / "data" / "power" / "data.npy", random.gamma(2.0, size=(2_000, 8)))
    monkeypatch.setenv("RNF_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_it_trains_evaluates_draws_and_says_what_is_missing(root, capsys):
    command = ["reproduce", "tabular", "--sets", "power,gas", "--methods", "exact,two-step", "--seeds", "1"]
    assert main([*command, "--epochs", "1", "--jobs", "2"]) == 0
    said = capsys.readouterr().out
    assert "gas: data not at hand" in said
    assert "data not at hand" in said.split("FID-like scores")[1]
    assert "Shortened: at most 1 epoch a run" in said
    folder = root / "runs/reproduce/tabular"
    for name in ("tabular.png", "report.html", "results.json"):
        assert (folder / name).stat().st_size > 100
    numbers = json.loads((folder / "results.json").read_text())
    assert [(g["method"], len(g["results"])) for g in numbers["groups"]] == [("exact", 1), ("two-step", 1)]
    assert all(math.isfinite(r["fid_like"]) for g in numbers["groups"] for r in g["results"])
    # a second time nothing is trained or evaluated again
    models = {path: path.stat().st_mtime_ns for path in folder.rglob("model.safetensors")}
    scores = {path: path.stat().st_mtime_ns for path in folder.rglob("tabular.json")}
    assert len(models) == len(scores) == 2
    assert main([*command, "--epochs", "1", "--jobs", "2"]) == 0
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("tabular.json")} == scores
    assert json.loads((folder / "results.json").read_text())["groups"] == numbers["groups"]


def test_without_any_data_the_table_is_the_published_one(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("RNF_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "tabular"]) == 0
    said = capsys.readouterr().out
    assert said.count("data not at hand") == 4 + 16
    assert "0.067 ± 0.016" in said


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--sets", "powr"], "Did you mean 'power'"),
        (["--methods", "exact,k2"], "no method 'k2'"),
        (["--seeds", "0"], "at least one seed"),
        (["--grid"], "--grid is for the circle"),
    ],
)
def test_mistakes_are_told(root, capsys, flags, text):
    assert main(["reproduce", "tabular", *flags]) == 2
    assert text in capsys.readouterr().err


def test_every_set_has_its_presets_and_they_are_valid():
    for name, scores in PUBLISHED.items():
        assert set(scores) == set(METHODS) == set(KEYS.values())
        for preset in (name, f"{name}-two-step", f"{name}-published", f"{name}-published-two-step"):
            assert preset in preset_files()
            settings = FitSettings.from_flat(read_preset(preset))
            assert settings.data.data == name
            assert settings.training.method == ("two-step" if preset.endswith("two-step") else "ml")
        ours, baseline = (read_preset(preset) for preset in (name, f"{name}-two-step"))
        same = ("layers", "hidden", "mixing", "latent", "latent_layers", "latent_hidden", "batch_size", "latent_dim")
        assert {key: ours.get(key) for key in same} == {key: baseline.get(key) for key in same}


def test_published_presets_have_the_published_number_of_parameters():
    from rectangular_flows.runs.build import build_flow

    for name, (columns, parameters) in {"power": (6, 514_378), "gas": (8, 518_010), "miniboone": (43, 590_198)}.items():
        settings = FitSettings.from_flat(read_preset(f"{name}-published"))
        flow = build_flow(settings.model, np.zeros((2, columns), dtype=np.float32), 0)
        assert sum(p.numel() for p in flow.parameters()) == parameters


def _group(method, *fid, data="power", **other):
    facts = {"sliced_wasserstein": 0.001, "reconstruction": 0.1, "largest_error": 1.0, "seconds": 60.0, **other}
    return Group(data, method, "ours", [Result(seed, value, **facts) for seed, value in enumerate(fid)])


def test_verdicts_can_go_both_ways():
    good = judge([_group("exact", 0.01, 0.012), _group("two-step", 0.2, 0.3)])
    assert [passed for _, passed in good] == [True] * 4
    bad = judge([_group("exact", 0.4, 0.5, sliced_wasserstein=0.1, seconds=700.0), _group("two-step", 0.2, 0.3)])
    assert [passed for _, passed in bad] == [False] * 4
    outlier = judge([_group("K = 1", 0.7, data="miniboone", largest_error=101.0)])
    assert [passed for _, passed in outlier] == [True, True, False]


def test_mean_and_standard_error():
    values = [0.3, 0.1, 0.7, 0.2]
    mean, error = mean_and_error(values)
    assert mean == pytest.approx(np.mean(values))
    assert error == pytest.approx(np.std(values, ddof=1) / 2)
    assert math.isnan(mean_and_error([1.0])[1])
    assert _group("exact", 0.5).cell("fid_like") == "0.5000"
    assert table_rows(["power"], [_group("exact", 0.5)], {"power": (0.1, 0.2)})[0][3:6] == [
        "0.067 ± 0.016",
        "0.5000",
        "0.1000",
    ]
