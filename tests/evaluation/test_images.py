"""Samples of a run on images beside real images: what is compared with what, and ``rnf evaluate``."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from rectangular_flows import load
from rectangular_flows.cli import main
from rectangular_flows.evaluation.images import choose_reference, draw_bytes, real_images
from rectangular_flows.runs.prepared import prepare
from rectangular_flows.settings import FitSettings, read_preset
from tests.pictures import SMALL, TRAIN, frechet, images, pooled


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


def test_the_floor_has_no_test_images_where_the_file_sets_none_apart(tmp_path):
    marked = np.random.default_rng(0).integers(0, 256, (100, 8, 8), dtype=np.uint8)
    marked[:, 0, 0] = np.arange(100)
    np.save(tmp_path / "marked.npy", marked)
    settings = FitSettings.from_flat({**read_preset("image-fast"), **SMALL, "data": str(tmp_path / "marked.npy")})
    real = real_images(SimpleNamespace(settings=settings, data=prepare(settings.data, 4, 0)))
    numbers_of = [set(part[:, 0, 0, 0].tolist()) for part in real]
    assert [len(part) for part in numbers_of] == [10, 80]
    assert not numbers_of[0] & numbers_of[1]
    assert [len(part) for part in choose_reference(*real, 50).values()] == [10, 10]


def test_the_published_protocol_compares_with_training_images_drawn_from_all():
    train = np.arange(101, dtype=np.uint8).reshape(-1, 1, 1, 1)
    real = train[:10] + 150, train
    some = choose_reference(*real, 20, "published")
    numbers_of = [part[:, 0, 0, 0].tolist() for part in some.values()]
    assert [len(set(part)) for part in numbers_of] == [20, 20]
    assert not set(numbers_of[0]) & set(numbers_of[1])
    assert max(numbers_of[0]) > 80  # not the first ones
    fewer = choose_reference(*real, 10, "published")["training images"]
    assert fewer.tolist() == some["training images"][:10].tolist()  # features are found again
    assert len(choose_reference(*real, 1000, "published")["training images"]) == 50
    assert list(some) == ["training images", "other training images"]
