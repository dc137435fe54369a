"""Images from a file to samples: the models, their units, training, and the commands."""

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

import rectangular_flows as rnf
from rectangular_flows import flows
from rectangular_flows.cli import main
from rectangular_flows.data import ImageRows
from rectangular_flows.data.images import ImagesWarning, holds_images, images_like, picture_names
from rectangular_flows.data.rows import Picked, check, pick, split, take
from rectangular_flows.evaluation.scored import open_scoring, write_scores
from rectangular_flows.plots.samples import write_samples
from rectangular_flows.runs.build import build_flow
from rectangular_flows.runs.launch import run_settings
from rectangular_flows.runs.prepared import prepare
from rectangular_flows.runs.saved import ChangedDataWarning, SavedRun
from rectangular_flows.settings import DataSettings, FitSettings, read_preset
from rectangular_flows.training import Objective
from rectangular_flows.volume import Exact, Stochastic
from rectangular_flows.volume.bundle import core_and_tail
from tests.cli.command import run
from tests.conftest import shaken

SAMPLES = Path(__file__).parent / "data" / "samples"
MNIST = SAMPLES / "mnist-300.npz"
SMALL = {
    "latent_dim": 6,
    "directions": 24,
    "layers": 4,
    "hidden": [32, 32],
    "latent_components": 1,
}
FEW = {"epochs": 4, "latent_epochs": 2, "batch_size": 60, "anneal": [1, 2]}
TINY = {"directions": 20, "batch_size": 20, "epochs": 1, "latent_epochs": 1, "anneal": [0, 0]}


def settings(**changes):
    return FitSettings.from_flat(changes, {**read_preset("image-fast"), "data": str(MNIST), **SMALL, **FEW})


def model(latent_dim, ambient, **values):
    return FitSettings.from_flat({"latent_dim": latent_dim, "ambient": ambient, **values}).model


def tiny(pixels="logit", dtype=torch.float64):
    """A model of images 1×3×4 with all of its parts away from their start."""
    images = ImageRows(np.random.default_rng(0).integers(0, 256, (200, 1, 3, 4), dtype=np.uint8))
    chosen = model(2, "principal", pixels=pixels, directions=7, hidden=(8, 8), network="residual", latent_layers=1)
    return shaken(build_flow(chosen, images, seed=0), amount=0.1, dtype=dtype), torch.from_numpy(images[:6]).to(dtype)


# --- the fast model


@pytest.mark.parametrize("pixels", ["logit", "plain"])
@pytest.mark.parametrize("model_units", [False, True])
def test_density_against_autograd_and_singular_values(pixels, model_units):
    flow, x = tiny(pixels)
    x = flow.to_model_units(x) if model_units else x
    view = flow.in_model_units if model_units else flow
    z = view.encode(x)
    decode = torch.func.vmap(torch.func.jacrev(lambda v: view.decode(v[None])[0].flatten()))
    J = decode(z)
    assert J.shape == (6, 12, 2)
    expected = flow.latent.log_prob(z) - torch.linalg.svdvals(J).log().sum(dim=1)
    torch.testing.assert_close(view.log_prob(x), expected, rtol=0, atol=1e-10)


def test_training_skips_the_embedding_and_densities_of_pixels_do_not():
    flow, x = tiny()
    z = flow.encode(x)
    core, tail = core_and_tail(flow.in_model_units, z)
    assert [type(link).__name__ for link in tail] == ["OrthonormalEmbedding"]
    assert core[-1].out_shape == (7,)
    core, tail = core_and_tail(flow, z)
    assert not tail
    assert isinstance(core[-1], flows.Logit)


def test_the_start_is_pca():
    data = prepare(settings().data, 6, 0)
    flow = build_flow(settings().model, data.train, 0)
    y = flow.to_model_units(take(data.train, slice(None))).flatten(1)
    centred = (y - y.mean(dim=0)).double()
    U = torch.linalg.svd(centred, full_matrices=False).Vh[:6].T
    expected = (centred @ U @ U.T).square().sum() / len(y)
    error = flow.in_model_units.reconstruction_error(y.unflatten(1, (1, 28, 28))).mean()
    assert error.item() == pytest.approx(float(centred.square().sum() / len(y) - expected), rel=1e-3)
    z = flow.encode(take(data.train, slice(None)))
    torch.testing.assert_close(torch.cov(z.T), torch.eye(6), rtol=0, atol=0.02)


def test_directions_are_limited_by_the_data():
    images = ImageRows(np.random.default_rng(0).integers(0, 256, (9, 1, 4, 4), dtype=np.uint8))
    flow = build_flow(model(2, "principal", hidden=(4,)), images, seed=0)
    assert flow.ambient.in_shape == (8,)
    with pytest.raises(ValueError, match="latent dimension below the number of directions, 8 "):
        build_flow(model(8, "principal"), images, seed=0)


def test_wide_tables_too():
    table = torch.randn(300, 5, generator=torch.Generator().manual_seed(0)) @ torch.randn(5, 30)
    flow = build_flow(model(2, "principal", directions=5, hidden=(8,)), table, seed=0)
    assert isinstance(flow.layers()[-1], flows.Standardise)
    assert flow.project(table).shape == (300, 30)
    with pytest.raises(ValueError, match="multiscale is for images"):
        build_flow(model(2, "multiscale"), table, seed=0)


@pytest.mark.slow
def test_a_short_training_lowers_both_terms():
    splines = {
        "latent": "spline",
        "latent_layers": 2,
        "latent_hidden": [16, 16],
        "restart_latent": False,
        "margin": 0.05,
    }
    rates = {"anneal": [0, 0], "beta": 0.1, "learning_rate": 3e-3, "ema": 0.9, "batch_size": 40}
    chosen = settings(epochs=15, latent_epochs=6, **splines, **rates)
    data = prepare(chosen.data, 6, 0)
    flow = build_flow(chosen.model, data.train, 0)
    with torch.no_grad():
        before = Objective(flow, Exact(), 0.1)(take(data.validation, slice(None)))
    run = rnf.fit(flow, data.train, chosen.training, validation=data.validation)
    best = next(line for line in run.history if line.epoch == run.best_epoch)
    assert best.reconstruction < 0.95 * float(before.reconstruction)
    assert best.negative_log_likelihood < float(before.negative_log_likelihood)
    alone = [line.train_loss for line in run.history[15:]]  # of h only
    assert len(alone) == 6
    assert alone[-1] < alone[0]


def test_settings_of_other_models_are_refused():
    data = prepare(settings().data, 6, 0)
    with pytest.raises(ValueError, match=r"images need --ambient principal or multiscale.*--preset image-fast"):
        build_flow(model(6, "realnvp"), data.train, 0)
    with pytest.raises(ValueError, match="--columns is for tables"):
        prepare(DataSettings(str(MNIST), columns=("1",)), 6, 0)


# --- data


def test_images_stay_bytes():
    rows = ImageRows(np.zeros((50, 1, 8, 8), np.uint8))
    some = pick(rows, np.array([4, 7, 9]))
    assert isinstance(some, Picked)
    assert some.values is rows
    assert (some[:2] == rows[np.array([4, 7])]).all()
    again = pick(some, np.array([2, 0]))
    assert (again[:] == rows[np.array([9, 4])]).all()
    kept, held_out = split(rows, None, (1, 8, 8), seed=0)
    assert (len(kept), len(held_out)) == (45, 5)
    assert take(kept, torch.tensor([3])).dtype == torch.float32


def test_checks_read_a_part_at_a_time(monkeypatch):
    from rectangular_flows.storage import files as storage

    rows = ImageRows(np.random.default_rng(0).integers(0, 256, (50, 1, 8, 8), dtype=np.uint8))
    whole = storage.fingerprint(rows)
    monkeypatch.setattr(storage, "CHUNK_BYTES", 7 * 256)
    sizes = []
    read = ImageRows.__getitem__
    monkeypatch.setattr(ImageRows, "__getitem__", lambda self, key: sizes.append(key) or read(self, key))
    check(rows, "data", (1, 8, 8))
    assert storage.fingerprint(rows) == whole
    assert {key.stop - key.start for key in sizes} == {7}


@pytest.fixture
def folder(tmp_path):
    """Pictures of two classes, the second after the first, of different sizes."""
    images = np.load(MNIST)["images"].reshape(-1, 28, 28)
    for i, image in enumerate(images[:60]):
        path = tmp_path / "pictures" / "ab"[i >= 30] / f"{i:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).resize((20 + i % 2, 24)).save(path)
    return tmp_path / "pictures"


def test_where_images_come_from(tmp_path, folder):
    images = np.load(MNIST)["images"].reshape(-1, 28, 28)
    np.save(tmp_path / "images.npy", images[:40])
    np.save(tmp_path / "four.npy", images[:40, None] / 255.0)
    np.save(tmp_path / "three.npy", images[:40] / 255.0)
    np.savez(tmp_path / "table.npz", data=images[:40].reshape(40, -1))
    np.savez(tmp_path / "more.npz", data=images[:40].reshape(40, -1), of_no_use=np.zeros((2, 2, 2)))
    (tmp_path / "damaged.npz").write_bytes(b"PK\x03\x04")
    (tmp_path / "table.csv").write_text("1,2\n")
    arrays = (tmp_path / f"{name}.npy" for name in ("images", "four", "three"))
    yes = ("mnist", "FMNIST", "svhn", folder, MNIST, *arrays, folder / "a" / "00.png")
    tables = (tmp_path / name for name in ("table.npz", "more.npz", "damaged.npz", "table.csv"))
    no = ("power", "circle", "nowhere", *tables)
    assert [holds_images(str(source)) for source in yes] == [True] * len(yes)
    assert [holds_images(str(source)) for source in no] == [False] * len(no)
    assert images_like(tmp_path / "images.npy", (1, 28, 28)).shape == (40, 1, 28, 28)
    with pytest.warns(ImagesWarning, match=r"Pictures of 24×20, 24×21 were cropped and scaled to 10×12"):
        assert images_like(folder, (1, 10, 12)).shape == (60, 1, 10, 12)
    assert picture_names(folder)[::59] == ["a/00.png", "b/59.png"]
    assert picture_names(tmp_path / "images.npy") is None
    with pytest.raises(ValueError, match=r"Expected images of 3×32×32; those of .* are 1×28×28"):
        images_like(tmp_path / "images.npy", (3, 32, 32))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("three.npy", r"Expected images of uint8, 0 to 255.*Save them as \(255 \* array\)"),
        ("pictures/a/00.png", "Give the folder that holds it"),
        ("mnits", "There is no file, folder or data set 'mnits'. Did you mean 'mnist'?"),
        ("nothere", "There is no file, folder or data set 'nothere'"),
    ],
)
def test_what_is_no_set_of_images(tmp_path, folder, monkeypatch, source, message):
    monkeypatch.chdir(tmp_path)
    np.save("three.npy", np.zeros((40, 8, 8)))
    with pytest.raises(ValueError, match=message):
        prepare(DataSettings(source), 2, 0)


@pytest.mark.parametrize("size", [(8, 8, 3), (0,), (4, -1), ()])
def test_sizes_are_two_numbers_or_one(size):
    with pytest.raises(ValueError, match="height and width, such as 32,48"):
        DataSettings("pictures", image_size=size)


def test_pictures_added_to_the_folder_of_a_run_are_told(tmp_path, folder, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    few = {**SMALL, **TINY}
    wanted = {**read_preset("image-fast"), **few, "data": str(folder), "image_size": [8]}
    run_settings(FitSettings.from_flat(wanted), tmp_path / "run", console=Console(quiet=True), quiet=True)
    assert len(SavedRun(tmp_path / "run").data.train) == 48
    # six test images are too few to show: training images are, and are called so
    assert main(["plot", "run"]) == main(["report", "run"]) == 0
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Training images, and what the manifold has in their place" in page
    assert "the coordinates of two training images" in page
    shutil.copy(folder / "a" / "00.png", folder / "a" / "new.png")
    with pytest.warns(ChangedDataWarning, match=r"pictures' has changed since .* was trained on it"):
        assert SavedRun(tmp_path / "run").data
    options = ["--preset", "image-fast", "--image-size", "8", *flags({**few, "epochs": 2})]
    assert main(["fit", str(folder), *options]) == 0
    assert "note: only 9 steps, since there are few rows" in capsys.readouterr().out
    assert (tmp_path / "runs" / "pictures-image-fast" / "model.safetensors").exists()
    assert main(["sample", "run", "-o", "deep/samples.csv"]) == 2
    assert not Path("deep").exists()
    assert main(["sample", "run", "-n", "4", "-o", "samples.png"]) == 0
    with Image.open("samples.png") as picture:  # of 8×8, seven dots a pixel, a gap between two
        assert picture.size == (7 * 17, 7 * 17)


def test_the_test_images_are_scored_where_some_are_set_apart(tmp_path):
    parts = {name: np.full((count, 4, 4), count, np.uint8) for name, count in (("train", 9), ("test", 5))}
    np.savez(tmp_path / "parts.npz", **parts)
    assert (images_like(tmp_path / "parts.npz", (1, 4, 4)) == 5).all()


def test_other_files_for_validation_and_test(tmp_path, folder):
    images = np.load(MNIST)["images"].reshape(-1, 28, 28)
    np.save(tmp_path / "more.npy", images[:11, :8, :12])
    options = {"validation_data": str(tmp_path / "more.npy"), "image_size": (8, 12)}
    data = prepare(DataSettings(str(folder), **options), 2, 0)
    assert [len(rows) for rows in (data.train, data.validation, data.test)] == [54, 11, 6]
    assert data.image_shape == (1, 8, 12)


# --- the command line


def flags(values):
    texts = {name: ",".join(map(str, v)) if isinstance(v, list) else v for name, v in values.items()}
    return [f"--{name.replace('_', '-')}={text}" for name, text in texts.items()]


@pytest.mark.slow
def test_fit_sample_score_evaluate_report(tmp_path, folder):
    few = flags({**SMALL, **FEW, "epochs": 2, "latent_epochs": 1, "anneal": [0, 1]})
    done = run("fit", MNIST, "--preset", "image-fast", *few, "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "-o samples.png" in done.stdout
    facts = json.loads((tmp_path / "run" / "model.json").read_text())["facts"]
    assert facts["image"] == [1, 28, 28]
    assert facts["columns"] == []
    done = run("sample", "run", "-n", 5, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("5 images in samples.npy\n", "")
    samples = np.load(tmp_path / "samples.npy")
    assert (samples.shape, samples.dtype) == ((5, 1, 28, 28), np.uint8)
    for name in ("samples.npz", "deep/samples.png"):
        write_samples(SavedRun(tmp_path / "run"), tmp_path / name, 5, 0)
    assert (np.load(tmp_path / "samples.npz")["images"] == samples).all()
    with Image.open(tmp_path / "deep" / "samples.png") as picture:
        assert picture.size[0] > 3 * 28
    with pytest.raises(ValueError, match=r"Use -o samples\.png"):
        write_samples(SavedRun(tmp_path / "run"), tmp_path / "samples.csv", 5, 0)
    done = run("score", "run", SAMPLES / "fashion-mnist-300.npz", "--coordinates", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "scores.csv").read_text().splitlines()
    assert len(lines) == 301
    assert lines[0] == "row,log_density,reconstruction_error,log_density_ambient,outlier_score,p_value," + ",".join(
        f"z{i + 1}" for i in range(6)
    )
    done = run("evaluate", "run", "--rows", 20, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    figures = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert figures["test_rows"] == 20
    assert 0 < figures["reconstruction_error"] < figures["model_reconstruction_error"]
    main(["plot", str(tmp_path / "run")])
    drawn = {path.stem for path in (tmp_path / "run" / "figures").iterdir()}
    assert drawn >= {"samples", "reconstructions", "manifold"}
    main(["report", str(tmp_path / "run")])
    assert "784 pixels" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.slow
def test_fit_a_folder_and_go_on(tmp_path, folder):
    few = flags({**SMALL, **TINY})
    options = ["--preset", "image-fast-two-step", "--image-size=10,12", "--out", "run"]
    done = run("fit", folder, *few, *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert rnf.load(tmp_path / "run").data_shape == (1, 10, 12)
    done = run("fit", "--resume", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    with pytest.warns(ImagesWarning, match=r"were cropped and scaled to 10×12"):
        write_scores(open_scoring(SavedRun(tmp_path / "run"), str(folder)), tmp_path / "scores.csv")
    lines = (tmp_path / "scores.csv").read_text().splitlines()
    assert lines[0] == "file,row,log_density,reconstruction_error,log_density_ambient,outlier_score,p_value"
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.png"))
    assert [line.split(",")[0] for line in lines[1:]] == names
    with pytest.raises(ValueError, match="Expected images of 1×10×12"):
        open_scoring(SavedRun(tmp_path / "run"), str(MNIST))


# --- the paper's model

PUBLISHED = [  # h has 10 couplings, or 5
    ("mnist-published", (1, 28, 28), 1e-6, 5_962_350),
    ("fashion-mnist-published-k1", (1, 28, 28), 1e-6, 5_962_350 - 5 * 4_180),
    ("cifar10-published-two-step", (3, 32, 32), 0.05, 5_986_490 - 5 * 4_180),
    ("svhn-published", (3, 32, 32), 0.05, 5_986_490),
]


@pytest.mark.parametrize(("preset", "shape", "margin", "parameters"), PUBLISHED)
def test_published_presets(preset, shape, margin, parameters):
    chosen = FitSettings.from_flat(read_preset(preset))
    flow = build_flow(chosen.model, ImageRows(np.zeros((2, *shape), np.uint8)), 0)
    assert sum(p.numel() for p in flow.parameters()) == parameters
    assert flow.latent_dim == 20
    assert flow.layers()[-1].margin == margin
    assert math.prod(flow.ambient.in_shape) == math.prod(shape) // 2
    assert chosen.training.monitor == "objective"


@pytest.mark.slow
@pytest.mark.parametrize("volume", [Exact(), Stochastic(1, "gaussian", "cg", 1e-3)], ids=["exact", "stochastic"])
@pytest.mark.parametrize("preset", ["mnist-published", "cifar10-published"])
def test_a_step_of_the_published_model(preset, volume):
    chosen = FitSettings.from_flat(read_preset(preset))
    shape = {"mnist": (1, 28, 28), "cifar10": (3, 32, 32)}[preset.split("-")[0]]
    images = np.random.default_rng(0).integers(0, 256, (2, *shape), dtype=np.uint8)
    rows = ImageRows(images)
    flow = build_flow(chosen.model, rows, 0)
    start = {name: value.clone() for name, value in flow.state_dict().items()}
    config = rnf.TrainingConfig(
        volume=volume, beta=5.0, epochs=1, batch_size=2, learning_rate=1e-4, validation_rows=1, memory=4096.0
    )
    run_ = rnf.fit(flow, rows, config, validation=rows)
    assert run_.progress.step == 1
    assert math.isfinite(run_.history[-1].objective)
    changed = [name for name, value in run_.flow.state_dict().items() if not torch.equal(value, start[name])]
    assert any(name.startswith("ambient") for name in changed)
    assert any(name.startswith("latent") for name in changed)
