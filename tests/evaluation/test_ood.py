"""``rnf ood`` on a curve in a table and on the images of the samples."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from rectangular_flows.cli import main
from rectangular_flows.data.rows import take
from rectangular_flows.evaluation.ood import judge_run
from rectangular_flows.metrics.out_of_distribution import detect, stump_accuracy
from rectangular_flows.runs.saved import SavedRun

SAMPLES = Path(__file__).parents[1] / "data" / "samples"


def helix(path, rows, seed, noise=0.01, columns=("east", "north", "up")):
    random = np.random.default_rng(seed)
    angle = random.normal(size=rows)
    points = np.stack([np.cos(angle), np.sin(angle), 0.2 * angle], 1) + noise * random.normal(size=(rows, 3))
    with path.open("w") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(points[:, : len(columns)].tolist())
    return path


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    folder = tmp_path_factory.mktemp("table")
    data = helix(folder / "helix.csv", 600, seed=0)
    fit = ["--latent-dim", "1", "--epochs", "15", "--layers", "2", "--batch-size", "100", "--quiet"]
    assert main(["fit", str(data), *fit, "--out", str(folder / "run")]) == 0
    return folder


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    fit = ["--preset", "image-fast", "--latent-dim", "2", "--directions", "16", "--layers", "2", "--hidden", "16,16"]
    more = [
        "--latent-components",
        "3",
        "--epochs",
        "2",
        "--latent-epochs",
        "1",
        "--batch-size",
        "60",
        "--anneal",
        "0,0",
        "--quiet",
    ]
    assert main(["fit", str(SAMPLES / "fashion-mnist-300.npz"), *fit, *more, "--out", str(folder / "run")]) == 0
    return folder


def refused(capsys, *arguments):
    assert main(["ood", *map(str, arguments)]) == 2
    message = capsys.readouterr().err
    assert "Traceback" not in message
    return message


def test_a_table_end_to_end(table, capsys):
    noisy = helix(table / "noisy data.csv", 200, seed=1, noise=1.0)
    assert main(["ood", str(table / "run"), "--against", str(noisy)]) == 0
    said = capsys.readouterr().out
    assert "has no training part" in said
    assert "a PCA of the training rows with d = 1" in said
    folder = table / "run" / "ood-noisy-data"
    assert (folder / "ood.png").read_bytes()[1:4] == b"PNG"
    found = json.loads((folder / "ood.json").read_text())
    assert found["rows"] == {
        "inside_train": 480,
        "inside_held_out": 60,
        "inside_test": 60,
        "outside_train": 100,
        "outside_test": 100,
        "outside_judged": 200,
    }
    assert list(found["scores"]) == [
        "log_density",
        "log_density_model",
        "reconstruction_error",
        "reconstruction_error_model",
        "log_density_ambient",
        "outlier_score",
        "p_value",
        "typicality",
        "pca",
    ]
    error = found["scores"]["reconstruction_error"]
    assert error["auroc"] > 0.9
    assert error["accuracy"] > 0.8
    assert error["outside_caught"] > 0.5
    assert error["inside_kept"] > 0.8
    assert found["scores"]["outlier_score"]["auroc"] > 0.9


@pytest.mark.slow
def test_other_data_of_the_same_name_do_not_replace_what_was_found(table, monkeypatch):
    monkeypatch.chdir(table)
    for folder in ("a", "b"):
        Path(folder).mkdir()
        helix(Path(folder) / "same.v1.csv", 20, seed=3, noise=0.1 if folder == "a" else 1.0)
    for against in ("a/same.v1.csv", "b/same.v1.csv", "a/same.v1.csv"):
        assert main(["ood", "run", "--against", against]) == 0
    found = {path.name: json.loads((path / "ood.json").read_text()) for path in Path("run").glob("ood-same*")}
    assert sorted(found) == ["ood-same.v1", "ood-same.v1-2"]
    for name, folder in (("ood-same.v1", "a"), ("ood-same.v1-2", "b")):
        assert found[name]["against"] == str(table / folder / "same.v1.csv")
        assert found[name]["outside"] == "same.v1"


def test_the_baseline_has_more_rows_than_are_judged(table):
    other = helix(table / "few.csv", 90, seed=2, noise=0.1)
    few, all_of_them = (judge_run(SavedRun(table / "run"), str(other), count).scores["pca"] for count in (10, 10_000))
    assert len(few.test) == 10
    np.testing.assert_allclose(few.test, all_of_them.test[:10])  # by the same directions


def test_data_of_its_own_are_told(table, capsys):
    assert main(["ood", str(table / "run"), "--against", str(table / "helix.csv")]) == 0
    assert "the run was trained on these data" in capsys.readouterr().out


def test_figures_are_those_of_the_scores(table):
    other = helix(table / "other.csv", 90, seed=2, noise=0.1)
    judged = judge_run(SavedRun(table / "run"), str(other))
    flow, data = SavedRun(table / "run").flow, SavedRun(table / "run").data
    scale = take(data.train, slice(None), dtype=torch.float32).std(dim=0, unbiased=False)

    def error(rows):
        x = torch.as_tensor(np.asarray(rows), dtype=torch.float32)
        with torch.no_grad():
            return (((x - flow.project(x)) / scale) ** 2).sum(dim=1).numpy()

    score = judged.scores["reconstruction_error_model"]
    outside = np.loadtxt(other, delimiter=",", skiprows=1)
    np.testing.assert_allclose(np.sort(score.test), np.sort(error(data.test)), rtol=1e-3, atol=1e-7)
    assert score.found.auroc == pytest.approx(detect(-error(data.test), -error(outside)).auroc, abs=1e-3)
    held_out = np.sort(error(data.validation))
    assert score.threshold == pytest.approx(held_out[-3], rel=1e-3)  # 5 % of 60 rows lie above it at the most
    assert score.inside_kept == np.mean(score.test <= score.threshold)
    assert score.outside_caught == np.mean(score.outside > score.threshold)
    # the baseline, in standardised columns, by the singular value decomposition
    x = np.asarray(take(data.train, slice(None), dtype=torch.float64)) / scale.double().numpy()
    _, _, directions = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
    y = np.asarray(data.test) / scale.double().numpy() - x.mean(axis=0)
    residual = np.square(y[:, :] - np.outer(y @ directions[0], directions[0])).sum(axis=1)
    np.testing.assert_allclose(np.sort(judged.scores["pca"].test), np.sort(residual), rtol=1e-3, atol=1e-6)


def test_images_against_images(pictures, capsys):
    run, against = pictures / "run", SAMPLES / "mnist-300.npz"
    folder = pictures / "told-apart"
    assert main(["ood", str(run), "--against", str(against), "-n", "40", "-o", str(folder)]) == 0
    assert "fashion-mnist-300 (inside, 30 test rows) against mnist-300 (outside, 80 rows)" in capsys.readouterr().out
    found = json.loads((folder / "ood.json").read_text())
    assert found["rows"]["inside_train"] == found["rows"]["outside_test"] == 40
    assert found["scores"]["pca"]["auroc"] > 0.6  # clothes and digits differ for PCA already
    assert (folder / "ood.png").stat().st_size > 10_000


def test_published_parts_are_used_where_there_are_some(pictures, tmp_path):
    digits = np.load(SAMPLES / "mnist-300.npz")["images"]
    np.savez(tmp_path / "parts.npz", train=digits[:50], test=digits[50:80])
    judged = judge_run(SavedRun(pictures / "run"), str(tmp_path / "parts.npz"))
    assert judged.rows["outside_train"] == 50
    assert judged.rows["outside_test"] == judged.rows["outside_judged"] == 30
    assert judged.notes == []
    score = judged.scores["pca"]
    assert score.outside.shape == (30,)


def test_the_stump_sees_as_many_of_either_kind(table):
    few = helix(table / "few.csv", 20, seed=3, noise=0.5)
    judged = judge_run(SavedRun(table / "run"), str(few))
    score = judged.scores["reconstruction_error"]
    outside = score.outside[:10], score.outside[10:]  # the two halves, one after the other
    assert score.found.accuracy == stump_accuracy(-score.train[:10], -outside[0], -score.test[:10], -outside[1])


def test_mistakes_are_told(table, pictures, tmp_path, capsys):
    run = table / "run"
    assert "no file" in refused(capsys, run, "--against", tmp_path / "nothing.csv")
    two = helix(tmp_path / "two.csv", 50, seed=0, columns=("east", "north"))
    assert "lacks 'up'" in refused(capsys, run, "--against", two)
    assert "expected 3 columns" in refused(capsys, run, "--against", "circle")
    assert "holds images" in refused(capsys, run, "--against", SAMPLES / "mnist-300.npz")
    assert "at least two rows" in refused(capsys, run, "--against", table / "helix.csv", "-n", 1)
    assert str(tmp_path) in refused(capsys, tmp_path, "--against", table / "helix.csv")
    np.save(tmp_path / "small.npy", np.zeros((20, 8, 8), np.uint8))
    message = refused(capsys, pictures / "run", "--against", tmp_path / "small.npy")
    assert "1×28×28" in message
    assert "1×8×8" in message
    assert "Bring them to that shape" in message
    assert "Expected a folder of pictures, or a .npy or .npz file" in refused(
        capsys, pictures / "run", "--against", two
    )


def test_rows_where_the_model_overflows_are_outside(table, tmp_path):
    far = tmp_path / "far.csv"
    np.savetxt(far, np.full((30, 3), 1e30), delimiter=",", header="east,north,up", comments="")
    judged = judge_run(SavedRun(table / "run"), str(far))
    assert judged.scores["reconstruction_error"].found.auroc == 1.0
    json.dumps(judged.numbers(), allow_nan=False)


@pytest.mark.slow
def test_an_overwritten_run_keeps_no_figures_of_the_old_one(tmp_path):
    data = helix(tmp_path / "helix.csv", 100, seed=0)
    fit = [
        "fit",
        str(data),
        "--latent-dim",
        "1",
        "--epochs",
        "1",
        "--layers",
        "1",
        "--quiet",
        "--out",
        str(tmp_path / "run"),
    ]
    assert main(fit) == 0
    assert main(["ood", str(tmp_path / "run"), "--against", str(data)]) == 0
    assert main([*fit, "--overwrite"]) == 0
    assert list((tmp_path / "run").glob("ood-*/*")) == []


@pytest.mark.slow
def test_pictures_of_an_image_run(pictures, capsys):
    assert main(["plot", str(pictures / "run")]) == 0
    names = ["samples", "reconstructions", "lines", "plane", "manifold"]
    assert [Path(line).stem for line in capsys.readouterr().out.splitlines()] == names
    for name in names:
        assert (pictures / "run" / "figures" / f"{name}.png").stat().st_size > 1000
    assert main(["report", str(pictures / "run")]) == 0
    page = (pictures / "run" / "report.html").read_text()
    assert page.count("data:image/png") == len(names)
    assert "rnf ood" in page
