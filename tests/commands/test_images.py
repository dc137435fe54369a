"""``rnf reproduce images``, and the samples of a run on images in ``rnf evaluate``."""

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rectangular_flows.paper.image_runs import HEADLINES, KEYS, LONGER, METHODS, ImageResult, ImageRun
from rectangular_flows.paper.images_report import PUBLISHED, fid_rows, judge, other_rows
from safetensors import safe_open
from scipy.linalg import sqrtm

from rectangular_flows import load
from rectangular_flows.cli import main
from rectangular_flows.evaluation import images as image_samples
from rectangular_flows.evaluation.images import RealImages, draw_bytes
from rectangular_flows.metrics.image_quality import Compared, ImageQuality
from rectangular_flows.runs import jobs
from rectangular_flows.runs.kept import kept
from rectangular_flows.runs.prepared import prepare
from rectangular_flows.settings import FitSettings, read_preset
from rectangular_flows.storage.files import load_tensors, save_tensors
from rectangular_flows.training.folder import read_history

from .conftest import SMALL, TRAIN, Pooled, images


def pooled(bytes_, scale):
    """Features of images, by the definition of the protocol: ``scale`` is what the network is fed."""
    x = torch.from_numpy(bytes_.astype(np.float64)).reshape(-1, 1, 28, 28)
    x = torch.nn.functional.interpolate(x, (299, 299), mode="bilinear")
    return Pooled()(scale(x).expand(-1, 3, -1, -1)).numpy()


def frechet(a, b):
    root = sqrtm(np.cov(a.T) @ np.cov(b.T)).real
    return np.square(a.mean(0) - b.mean(0)).sum() + np.trace(np.cov(a.T) + np.cov(b.T) - 2 * root)


def numbers(pictures):
    found = json.loads((pictures.out / "images" / "results.json").read_text())["runs"]
    return {(run["data"], run["method"]): run for run in found}


def test_it_trains_compares_draws_and_says_what_is_missing(pictures):
    assert "cifar10: data not at hand" in pictures.said
    assert "Shortened: at most 1 epoch a run" in pictures.said
    assert "36.09" in pictures.said  # published
    for name in ("images.png", "report.html", "results.json"):
        assert (pictures.out / "images" / name).stat().st_size > 1000
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
    ("what", "flags", "text"),
    [
        ("images", ["--sets", "mnits"], "Did you mean 'mnist'"),
        ("images", ["--methods", "k10"], "no method 'k10'"),
        ("images", ["--seeds", "0"], "at least one seed"),
        ("images", ["--grid"], "--grid is for the circle"),
        ("images", ["-n", "9"], "at least 10 images to compare; got -n 9"),
        ("images", ["--published-samples", "-1"], "got --published-samples -1"),
        ("images", ["--network", "none.pt"], "There is no network at 'none.pt'"),
        ("ood", ["--sets", "mnist"], "--sets is for tabular and images"),
        ("ood", ["--published-samples", "10"], "--published-samples is for images"),
        ("circle", ["-n", "10"], "--samples is for images and ood"),
    ],
)
def test_mistakes_are_told(here, capsys, what, flags, text):
    assert main(["reproduce", what, *flags]) == 2
    assert text in capsys.readouterr().err


def test_evaluate(pictures, capsys):
    run = str(pictures.run())
    kept_file = pictures.run() / "evaluation.json"
    assert main(["evaluate", run, "-n", "30", *pictures.own]) == 0
    said, found = capsys.readouterr().out, json.loads(kept_file.read_text())
    assert "30 samples against the first test images" in said
    assert found["samples"] == 30
    for name in ("fid", "kid", "precision", "recall"):
        assert f"{found[name]:.4g}" in said
        assert f"{found[name + '_floor']:.4g}" in said
    assert f"± {found['kid_standard_error']:.2g}" in said
    samples = draw_bytes(load(run), 5000, 0)[:30]
    generated, real = (pooled(part, lambda x: x / 128 - 1) for part in (samples, images("mnist")[TRAIN:][:30]))
    assert found["fid"] == pytest.approx(frechet(generated, real), rel=2e-3)
    # more than there are: all that there are
    assert main(["evaluate", run, *pictures.own]) == 0
    found = json.loads(kept_file.read_text())
    assert found["samples"] == 60
    # a report shows what was found, and keeps it
    assert main(["report", run]) == 0
    assert json.loads(kept_file.read_text())["fid"] == found["fid"]
    assert f"{found['fid']:.3g}" in (pictures.run() / "report.html").read_text()
    # without the network, or without wanting it
    for flags, notes in (([], 1), (["--skip-fid"], 0)):
        capsys.readouterr()
        assert main(["evaluate", run, *flags]) == 0
        assert capsys.readouterr().out.count("pip download") == notes
        found = json.loads(kept_file.read_text())
        assert "fid" not in found
        assert found["negative_log_likelihood"] != found["model_negative_log_likelihood"]


def test_a_network_with_another_checksum_is_refused_before_anything_is_computed(pictures, capsys):
    (pictures.run() / "evaluation.json").unlink(missing_ok=True)
    assert main(["evaluate", str(pictures.run()), "--network", str(pictures.network)]) == 2
    assert pictures.sha256 in capsys.readouterr().err
    assert not (pictures.run() / "evaluation.json").exists()


def test_a_run_that_was_stopped_goes_on(here, tmp_path, capsys):
    job = jobs.preset_job("short", "image-fast", tmp_path / "run", 0, 2, {"data": "mnist"})
    jobs._run(job, fresh=False)
    assert jobs._complete(job)
    assert len(read_history(job.folder)) == 2 + 1
    file = job.folder / "checkpoint" / "state.safetensors"
    with safe_open(file, "pt") as state:
        progress = json.loads(state.metadata()["progress"])
    save_tensors(file, load_tensors(file), {"progress": json.dumps({**progress, "finished": "", "epoch": 2})})
    assert not jobs._complete(job)
    jobs._run(job, fresh=False)
    assert jobs._complete(job)


def test_the_floor_has_no_test_images_where_the_file_sets_none_apart(tmp_path):
    marked = np.random.default_rng(0).integers(0, 256, (100, 8, 8), dtype=np.uint8)
    marked[:, 0, 0] = np.arange(100)
    np.save(tmp_path / "marked.npy", marked)
    settings = FitSettings.from_flat({**read_preset("image-fast"), **SMALL, "data": str(tmp_path / "marked.npy")})
    run = SimpleNamespace(settings=settings, data=prepare(settings.data, 4, 0))
    real = RealImages.of(run)
    numbers_of = [set(part[:, 0, 0, 0].tolist()) for part in (real.test, real.train)]
    assert [len(part) for part in numbers_of] == [10, 80]
    assert not numbers_of[0] & numbers_of[1]
    assert len(real.reference(50).floor) == len(real.reference(50).images) == 10


def test_the_published_protocol_compares_with_training_images_drawn_from_all():
    train = np.arange(101, dtype=np.uint8).reshape(-1, 1, 1, 1)
    real = RealImages(train[:10] + 150, train)
    some = real.reference(20, "published")
    numbers_of = [part[:, 0, 0, 0].tolist() for part in (some.images, some.floor)]
    assert [len(set(part)) for part in numbers_of] == [20, 20]
    assert not set(numbers_of[0]) & set(numbers_of[1])
    assert max(numbers_of[0]) > 80  # not the first ones
    assert real.reference(10, "published").images.tolist() == some.images[:10].tolist()  # features are found again
    assert len(real.reference(1000, "published").images) == 50
    assert (some.name, some.floor_name) == ("training images", "other training images")


def test_kept_numbers_belong_to_one_model_and_one_key(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"one")
    calls = []

    def ask(key):
        return kept(tmp_path, "file.json", key, lambda: calls.append(key) or {"value": len(calls)})

    assert [ask("a"), ask("b"), ask("a")] == [{"value": 1}, {"value": 2}, {"value": 1}]
    (tmp_path / "model.safetensors").write_bytes(b"two")
    assert ask("b") == {"value": 3}
    assert ask("a") == {"value": 4}
    (tmp_path / "file.json").write_text("{ damaged")
    assert ask("a") == {"value": 5}


def test_every_method_has_its_preset():
    assert all(method in METHODS for scores in PUBLISHED.values() for method in scores)
    assert list(KEYS) == ["exact", "k1", "two-step", "best"]
    for name, method in METHODS.items():
        settings = FitSettings.from_flat({**read_preset(method.preset), **method.change, "data": "mnist"})
        assert settings.training.method == ("two-step" if name == "two-step" else "ml")
        assert settings.model.latent_dim == 20
    assert set(HEADLINES) < set(METHODS)


def quality(fid, n=5000):
    pair = Compared(0.5, 0.6)
    return ImageQuality(n, Compared(fid, 4.5), Compared(0.02, 0.0), 0.001, 0.0002, pair, pair)


def result(method, fid, matched=None, published=None, seconds=600.0, data="mnist"):
    run = ImageRun(data, method, 0, None, seconds)
    others = None if matched is None else quality(matched, 2000)
    return ImageResult(run, 9.87, quality(fid), others, None if published is None else quality(published, 2000))


def test_verdicts_can_go_both_ways():
    good = judge([result("exact", 29.0, 31.0, 33.9), result("two-step", 30.0, 32.0)])
    assert [passed for _, passed in good] == [True] * 4
    bad = judge([result("exact", 31.0, 33.0, 34.0, seconds=721.0), result("two-step", 20.0, 32.0)])
    assert [passed for _, passed in bad] == [False] * 4
    assert [passed for _, passed in judge([result("exact", 59.0, published=288.0, data="fashion-mnist")])] == [True] * 3
    assert judge([result("exact", 1.0, data="cifar10"), result("two-step", 1.0)]) == []
    # the longer runs have an hour, and are not compared with two-step ones of a sixth of their effort
    longer = judge([result(LONGER, 29.0, 31.0, 33.9, seconds=3500.0), result("two-step", 30.0, 20.0)])
    assert [passed for _, passed in longer] == [True] * 3
    assert not judge([result(LONGER, 29.0, seconds=3601.0)])[-1][1]


def test_rows_of_the_tables():
    rows = fid_rows(["mnist", "cifar10"], [result("exact", 29.123, 31.0, 33.9), result("exact", 31.123, 31.0, 33.9)])
    cells = ["33.90 ± 0.00", "4.50", "2,000", "30.12 ± 1.00", "4.50", "5,000", "10 min"]
    assert rows[0] == ["mnist", "exact", "36.09", *cells]
    assert [row[3] for row in rows[1:]] == ["data not at hand"] * 3
    other = other_rows([result("exact", 29.0)])
    assert other == [
        ["mnist", "exact", "5,000", "0.0200 ± 0.0010", "0.0000", "0.500", "0.600", "0.500", "0.600", "9.87"]
    ]
