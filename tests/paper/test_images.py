"""``rnf reproduce images``: runs, tables, verdicts."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from rectangular_flows import load
from rectangular_flows.cli import main
from rectangular_flows.evaluation import images as image_samples
from rectangular_flows.metrics.image_quality import Compared, ImageQuality
from rectangular_flows.paper.experiment import Cell, Group
from rectangular_flows.paper.images import (
    HEADLINES,
    LONGER,
    METHODS,
    PUBLISHED,
    ImageResult,
    Images,
    fid_row,
    galleries,
    other_row,
)
from rectangular_flows.paper.options import EXPERIMENTS, Request
from rectangular_flows.runs import jobs
from rectangular_flows.runs.jobs import Job
from rectangular_flows.runs.prepared import prepare
from rectangular_flows.settings import FitSettings, read_preset
from tests.pictures import TRAIN, frechet, images, pooled


def numbers(pictures):
    found = json.loads((pictures.out / "images" / "results.json").read_text())["runs"]
    return {(run["data"], run["method"]): run for run in found}


def test_it_trains_compares_draws_and_says_what_is_missing(pictures):
    assert "cifar10: data not at hand" in pictures.said
    assert "Shortened: at most 1 epoch a run" in pictures.said
    assert "36.09" in pictures.said  # published
    found = numbers(pictures)
    assert list(found) == [(data, m) for data in ("mnist", "fashion-mnist") for m in ("exact", "two-step")]
    for (_, method), run in found.items():
        assert run["quality"]["n"] == run["matched"]["n"] == 40
        assert (run["published"] is not None) == (method == "exact")
    page = (pictures.out / "images" / "report.html").read_text()
    assert page.count("data:image/png") == 1


def test_figures_are_those_of_samples_and_files(pictures):
    run = pictures.run("fashion-mnist")
    samples = load(run).sample(5000, generator=torch.Generator().manual_seed(0)).clamp(0, 1)[:40]
    samples = np.minimum(np.floor(256 * samples.double().numpy()), 255)
    every, test = images("fashion-mnist")[:TRAIN], images("fashion-mnist")[TRAIN:]
    train, drawn = every[:40], every[np.random.default_rng(0).permutation(TRAIN)]
    found = numbers(pictures)["fashion-mnist", "exact"]
    for key, n, scale in (("quality", 40, lambda x: x / 128 - 1), ("published", 20, lambda x: 2 * x - 1)):
        # the published protocol compares with training images, drawn from all of them
        sets = (samples, test, train) if key == "quality" else (samples, drawn[:n], drawn[n:])
        generated, real, other = (pooled(part[:n], scale) for part in sets)
        assert found[key]["n"] == n
        # 27 features, of which 9 differ: the roots of singular covariances are good to a few digits only
        assert found[key]["fid"] == pytest.approx(frechet(generated, real), rel=2e-3)
        assert found[key]["fid_floor"] == pytest.approx(frechet(other, real), rel=2e-3)
    with torch.no_grad():
        rows = prepare(FitSettings.from_flat({**read_preset("image-fast"), "data": "fashion-mnist"}).data, 4, 0).test
        x = torch.from_numpy(rows[:])
        distance = (x - load(run).project(x)).square().flatten(1).sum(1).mean()
    assert found["distance"] == pytest.approx(float(distance), rel=1e-4)


def test_nothing_is_done_twice(pictures, monkeypatch, capsys):
    before = {path: path.stat().st_mtime_ns for path in pictures.out.rglob("*.safetensors")}
    assert len(before) >= 4
    first = numbers(pictures)
    monkeypatch.setattr(image_samples, "features", lambda *_, **__: pytest.fail("computed again"))
    monkeypatch.setattr(jobs, "run_settings", lambda *_, **__: pytest.fail("trained again"))
    assert main([*pictures.command, *pictures.own]) == 0
    assert numbers(pictures) == first
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_without_the_network_the_rest_is_there(pictures, tmp_path, capsys):
    out = tmp_path / "out"
    shutil.copytree(pictures.out, out)
    command = [*pictures.command[:-1], str(out), "--sets", "mnist"]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert said.count("pip download --no-deps") == 1
    assert "mnist, exact, longest training" in said
    assert "mnist, exact, FID" not in said
    runs = json.loads((out / "images" / "results.json").read_text())["runs"]
    assert all(run["quality"] is None and run["distance"] > 0 for run in runs)
    assert main([*command, "--methods", "exact", "--skip-fid"]) == 0
    said = capsys.readouterr().out
    assert "pip download" not in said
    assert all(heading not in said for heading in ("floor", "KID", "ours, same"))  # empty columns are left out
    assert "published" in said
    assert "distance" in said
    assert "Two protocols" not in (out / "images" / "report.html").read_text()
    assert "Two protocols" in (pictures.out / "images" / "report.html").read_text()


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["-n", "9"], "at least 10 images to compare; got -n 9"),
        (["--published-samples", "-1"], "got --published-samples -1"),
        (["--network", "none.pt"], "There is no network at 'none.pt'"),
    ],
)
def test_mistakes_are_named_before_anything_is_trained(here, tmp_path, capsys, flags, text):
    assert main(["reproduce", "images", *flags, "-o", str(tmp_path / "out")]) == 2
    assert text in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_figure_shows_samples_of_each_method_under_its_name(pictures):
    def group(method):
        cell = Cell("mnist", METHODS[method].name, 0, Job("", {}, pictures.run(method=method)))
        return Group("mnist", cell.method, runs=[(cell, None)])

    (gallery,) = galleries([group("two-step"), group("exact")])
    assert gallery.projected_by == "two-step"
    assert list(gallery.samples) == ["two-step", "exact"]
    for method, samples in gallery.samples.items():
        expected = load(pictures.run(method=method)).sample(36, generator=torch.Generator().manual_seed(0)).clamp(0, 1)
        np.testing.assert_array_equal(samples, np.minimum(np.floor(256 * expected.double().numpy()), 255))
    shown = np.floor(256 * gallery.real)[:, 0]
    np.testing.assert_array_equal(shown, images("mnist")[TRAIN:][:36])
    with torch.no_grad():
        projected = load(pictures.run(method="two-step")).project(torch.from_numpy(gallery.real[:18]))
    np.testing.assert_allclose(gallery.projections, projected.numpy(), atol=1e-6)


def test_every_method_has_its_preset():
    names = {method.name for method in METHODS.values()}
    assert all(method in names for scores in PUBLISHED.values() for method in scores)
    options = EXPERIMENTS["images"]
    assert tuple(METHODS) == (*options.methods, *options.if_asked)
    assert options.sets == tuple(PUBLISHED)
    for method in METHODS.values():
        settings = FitSettings.from_flat({**read_preset(method.preset), **method.change, "data": "mnist"})
        assert settings.training.method == ("two-step" if method.name == "two-step" else "ml")
        assert settings.model.latent_dim == 20
    assert set(HEADLINES) < names


def quality(fid, n=5000):
    pair = Compared(0.5, 0.6)
    return ImageQuality(n, Compared(fid, 4.5), Compared(0.02, 0.0), 0.001, 0.0002, pair, pair)


def group(method, *fids, matched=None, published=None, seconds=600.0, data="mnist"):
    others = None if matched is None else quality(matched, 2000)
    theirs = None if published is None else quality(published, 2000)
    runs = [
        (Cell(data, method, i, None), ImageResult(seconds, 9.87, quality(f), others, theirs))
        for i, f in enumerate(fids)
    ]
    return Group(data, method, runs=runs)


def verdicts(*groups):
    return [passed for _, passed in Images(Request(Path("out"), ("mnist",))).verdicts(groups)]


def test_verdicts_go_both_ways():
    good = group("exact", 29.0, matched=31.0, published=33.9), group("two-step", 30.0, matched=32.0)
    assert verdicts(*good) == [True] * 4
    bad = group("exact", 31.0, matched=33.0, published=34.0, seconds=721.0), group("two-step", 20.0, matched=32.0)
    assert verdicts(*bad) == [False] * 4
    assert verdicts(group("exact", 59.0, published=288.0, data="fashion-mnist")) == [True] * 3
    assert verdicts(group("exact", 1.0, data="cifar10"), group("two-step", 1.0)) == []
    # the longer runs have an hour, and are not compared with two-step ones of a sixth of their effort
    longer = group(LONGER, 29.0, matched=31.0, published=33.9, seconds=3500.0), group("two-step", 30.0, matched=20.0)
    assert verdicts(*longer) == [True] * 3
    assert verdicts(group(LONGER, 29.0, seconds=3601.0)) == [True, False]


def test_rows_of_the_tables():
    cells = ["33.90 ± 0.00", "4.50", "2,000", "30.12 ± 1.00", "4.50", "5,000", "10 min"]
    assert fid_row(group("exact", 29.123, 31.123, published=33.9)) == ["mnist", "exact", "36.09", *cells]
    assert fid_row(group(LONGER, 29.123))[2:7] == ["", "", "", "", "29.12"]
    assert fid_row(Group("cifar10", "exact", at_hand=False)) == ["cifar10", "exact", "643.31", "data not at hand"]
    assert fid_row(Group("mnist", "K = 1", failed=1)) == ["mnist", "K = 1", "33.98", "failed"]
    shares = ["0.500", "0.600", "0.500", "0.600"]
    assert other_row(group("exact", 29.0)) == ["mnist", "exact", "5,000", "0.0200 ± 0.0010", "0.0000", *shares, "9.87"]
