"""``rnf reproduce tabular`` on small files in the layout of the real ones."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from rectangular_flows.cli import main
from rectangular_flows.metrics.frechet import fid_like
from rectangular_flows.metrics.two_sample import real_floor
from rectangular_flows.paper import experiment, tabular
from rectangular_flows.paper.experiment import Cell, Group
from rectangular_flows.paper.options import EXPERIMENTS, Request
from rectangular_flows.paper.tabular import METHODS, PUBLISHED, Result, Tabular, bars
from rectangular_flows.runs.jobs import Job
from rectangular_flows.settings import FitSettings, preset_files, read_preset
from rectangular_flows.storage.models import load_model
from tests.pictures import train_here


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A data folder with POWER in miniature, and a folder to work in."""
    random = np.random.default_rng(0)
    (tmp_path / "data" / "power").mkdir(parents=True)
    np.save(tmp_path / "data" / "power" / "data.npy", random.gamma(2.0, size=(2_000, 8)))
    monkeypatch.setenv("RNF_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(experiment, "run_jobs", train_here)
    monkeypatch.setattr(tabular, "SAMPLES", 1_000)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_it_trains_judges_and_keeps_the_numbers(root, capsys):
    command = ["reproduce", "tabular", "--sets", "power,gas", "--methods", "exact,two-step", "--seeds", "1"]
    assert main([*command, "--epochs", "1"]) == 0
    said = capsys.readouterr().out
    assert "gas: data not at hand" in said
    assert "data not at hand" in said.split("FID-like scores")[1]
    assert "power: These files are not the published ones" in said
    folder = root / "runs/reproduce/tabular"
    numbers = json.loads((folder / "results.json").read_text())
    assert [(g["data"], g["method"], len(g["results"])) for g in numbers["groups"]] == [
        ("power", "exact", 1),
        ("power", "two-step", 1),
    ]
    # the scores are those of the samples and test rows of each run
    splits = tabular.load_benchmark("power")
    for group, run in zip(numbers["groups"], ("power/exact", "power-two-step/two-step"), strict=True):
        flow, (found,) = load_model(folder / run / "seed-0"), group["results"]
        test = torch.from_numpy(splits.test)
        with torch.no_grad():
            distances = (test - flow.project(test)).square().sum(dim=1)
            samples = flow.sample(1_000, generator=torch.Generator().manual_seed(0)).double().numpy()
        assert found["reconstruction"] == pytest.approx(float(distances.mean()), rel=1e-4)
        assert found["largest_error"] == pytest.approx(float(distances.max()), rel=1e-4)
        assert found["fid_like"] == pytest.approx(fid_like(samples, splits.test), rel=1e-6)
    floor = real_floor(fid_like, splits.train, splits.test, size=len(splits.test))
    assert numbers["floors"]["power"]["fid_like"] == pytest.approx(floor)
    page = (folder / "report.html").read_text()
    assert f"{numbers['groups'][1]['results'][0]['fid_like']:.4f}" in page
    # a second time nothing is trained or judged again
    kept = {
        path: path.stat().st_mtime_ns for name in ("model.safetensors", "tabular.json") for path in root.rglob(name)
    }
    assert len(kept) == 4
    assert main([*command, "--epochs", "1"]) == 0
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert json.loads((folder / "results.json").read_text())["groups"] == numbers["groups"]


def test_without_any_data_the_table_is_the_published_one(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("RNF_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "tabular"]) == 0
    said = capsys.readouterr().out
    assert said.count("data not at hand") == 4 + 16
    assert "0.067 ± 0.016" in said


def cells(*methods, data="miniboone", more=()):
    return Tabular(Request(Path("out"), (data,), methods, more=dict.fromkeys(more, True))).cells(data)


def test_enough_probes_are_the_exact_runs():
    assert read_preset("gas")["latent_dim"] < 10 < read_preset("miniboone")["latent_dim"]
    exact, many = cells("exact", "k10", data="gas")
    assert (many.method, many.job) == ("K = 10", exact.job)
    exact, many = cells("exact", "k10")
    assert many.job.folder == Path("out/tabular/miniboone/k10/seed-0")
    assert (many.job.settings["volume"], many.job.settings["probes"]) == ("stochastic", 10)


def test_published_settings_come_beside_ours():
    ours, _, published, two_step = cells("k10", "two-step", data="gas", more=("published",))
    assert [cell.settings for cell in (ours, published)] == ["ours", "published"]
    assert published.job.folder == Path("out/tabular/gas-published/k10/seed-0")
    assert (published.job.settings["probes"], published.job.settings["distribution"]) == (10, "gaussian")
    assert two_step.job.folder == Path("out/tabular/gas-published-two-step/two-step/seed-0")


def test_every_set_has_its_presets_and_they_are_valid():
    for name, scores in PUBLISHED.items():
        assert set(scores) == {method.name for method in METHODS.values()} - {"auto"}
        assert {*METHODS} == {*EXPERIMENTS["tabular"].methods, *EXPERIMENTS["tabular"].if_asked}
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


def group(method, *fid, data="power", trained_as=None, **other):
    facts = {"sliced_wasserstein": 0.001, "reconstruction": 0.1, "largest_error": 1.0, "seconds": 60.0, **other}
    key = next(key for key, known in METHODS.items() if known.name == (trained_as or method))
    runs = [
        (Cell(data, method, seed, Job("", {}, Path(key) / f"seed-{seed}")), Result(seed, value, **facts))
        for seed, value in enumerate(fid)
    ]
    return Group(data, method, runs=runs)


def verdicts(*groups):
    return Tabular(Request(Path("out"), ("power",))).verdicts(groups)


def test_verdicts_go_both_ways():
    good = verdicts(group("exact", 0.01, 0.012), group("two-step", 0.2, 0.3))
    assert [passed for _, passed in good] == [True] * 4
    assert good[0][0] == "power, exact, mean FID-like 0.0110 ≤ 0.013"
    bad = verdicts(group("exact", 0.4, 0.5, sliced_wasserstein=0.1, seconds=700.0), group("two-step", 0.2, 0.3))
    assert [passed for _, passed in bad] == [False] * 4
    outlier = verdicts(group("K = 1", 0.7, data="miniboone", largest_error=101.0))
    assert [passed for _, passed in outlier] == [True, True, False]
    assert verdicts(group("exact", 0.1, data="gas"), group("K = 10", 0.1), group("two-step", 0.1)) == []


def test_rows_of_the_table():
    todo = Tabular(Request(Path("out"), ("power", "gas")))
    todo.floors = {"power": (0.1, 0.2)}
    groups = [
        group("exact", 0.5, 0.7),
        group("K = 10", 0.5, trained_as="exact"),
        Group("power", "two-step", failed=2),
        Group("gas", "K = 1", at_hand=False),
    ]
    (table,) = todo.tables(groups)
    floors = ["0.1000", "0.0010 ± 0.0000", "0.2000"]
    assert table.rows == [
        ["power", "exact", "ours", "0.067 ± 0.016", "0.6000 ± 0.1000", *floors, "0.1000", "1 min"],
        [
            "power",
            "K = 10 ≥ d, as exact",
            "ours",
            "0.113 ± 0.037",
            "0.5000",
            "0.1000",
            "0.0010",
            "0.2000",
            "0.1000",
            "1 min",
        ],
        ["power", "two-step", "ours", "0.178 ± 0.024", "failed"],
        ["gas", "K = 1", "", "0.110 ± 0.021", "data not at hand"],
    ]


def test_the_figure_shows_every_seed_of_its_group():
    exact, two_step = bars([group("exact", 0.5, 0.7), group("two-step", 0.9, sliced_wasserstein=3.0)])
    assert (exact.data, exact.method, exact.settings, exact.fid_like) == ("power", "exact", "ours", [0.5, 0.7])
    assert (two_step.method, two_step.fid_like, two_step.sliced_wasserstein) == ("two-step", [0.9], [3.0])
