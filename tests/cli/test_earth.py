"""Latitudes and longitudes, from a file to a report."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from rectangular_flows.cli import main
from rectangular_flows.data.rows import take
from rectangular_flows.data.sphere import to_degrees
from rectangular_flows.data.tables import DataError, read_table
from rectangular_flows.densities import KernelDensity
from rectangular_flows.evaluation.scored import open_scoring, write_scores
from rectangular_flows.plots.earth import draw_earth
from rectangular_flows.plots.samples import OffSphereWarning, write_samples
from rectangular_flows.runs.saved import SavedRun
from tests.cli.command import refused, run


@pytest.fixture(scope="module")
def earth(tmp_path_factory):
    folder = tmp_path_factory.mktemp("earth")
    rows = np.random.default_rng(0).normal([1.0, 0.5, 0.3], 0.4, (400, 3))
    places = to_degrees(rows)
    lines = [f"{longitude!r},{latitude!r}" for latitude, longitude in places.tolist()]
    (folder / "places.csv").write_text("\n".join(["# made up", "LONGITUDE,LATITUDE", *lines]))
    bare = [f"{latitude!r},{longitude!r}" for latitude, longitude in places[:50].tolist()]
    (folder / "bare.csv").write_text("\n".join(bare))
    one_chart = ["--latent-space", "none", "--latent", "spline", "--method", "ml", "--monitor", "objective"]
    small = [
        *one_chart,
        "--epochs",
        3,
        "--layers",
        2,
        "--hidden",
        "16,16",
        "--latent-layers",
        1,
        "--learning-rate",
        3e-3,
    ]
    done = run("fit", "places.csv", "--preset", "earth", *small, "--out", "run", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_what_is_recorded(earth):
    config = (earth / "run" / "config.toml").read_text()
    assert "sphere = true" in config
    assert "latent_dim = 2" in config
    assert "standardise" not in config


@pytest.mark.slow
def test_the_preset_as_it_is(earth, tmp_path):
    done = run("fit", "places.csv", "--preset", "earth", "--out", tmp_path / "run", cwd=earth)
    assert done.returncode == 0, done.stderr
    saved = SavedRun(tmp_path / "run")
    assert isinstance(saved.flow.latent, KernelDensity)
    assert int(saved.flow.latent.count) == len(saved.data.train) == 320
    test = take(saved.data.test, slice(None), dtype=saved.flow.dtype)
    with torch.no_grad():
        assert float(saved.flow.reconstruction_error(test).max()) < 1e-9  # the sphere itself
        assert float(saved.flow.log_prob(test).mean()) > -np.log(4 * np.pi) + 1
        z = saved.flow.encode(take(saved.data.train, slice(None), dtype=saved.flow.dtype))
    centres = saved.flow.latent.centres[:320]
    assert (
        float(torch.cdist(z.double(), centres.double()).min(dim=1).values.max()) < 1e-4
    )  # kernels lie where the manifold ended
    write_samples(saved, tmp_path / "samples.csv", 30, 0)  # without a warning
    assert main(["evaluate", str(tmp_path / "run")]) == 0
    numbers = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert numbers["sphere_mass"] == pytest.approx(1, abs=0.01)
    assert numbers["sphere_sample_distance"] < 1e-4
    refusal = refused(
        "fit", "places.csv", "--preset", "earth", "--method", "ml", "--out", tmp_path / "other", cwd=earth
    )
    assert "latent = kernels is for method = two-step" in refusal


def test_scores_of_other_files(earth, tmp_path):
    for name in ("bare", "places"):
        scoring = open_scoring(SavedRun(earth / "run"), str(earth / f"{name}.csv"))
        write_scores(scoring, tmp_path / f"{name}.csv")
    bare, places = (read_table(tmp_path / f"{name}.csv").values for name in ("bare", "places"))
    np.testing.assert_allclose(bare, places[:50], rtol=1e-4, atol=1e-6)
    (tmp_path / "xyz.csv").write_text("x,y,z\n1,0,0\n0,1,0\n")
    with pytest.raises(DataError, match="'LATITUDE'"):
        open_scoring(SavedRun(earth / "run"), str(tmp_path / "xyz.csv"))


def test_samples_are_places(earth, tmp_path):
    with pytest.warns(OffSphereWarning, match="from the unit sphere on average"):  # after three epochs
        write_samples(SavedRun(earth / "run"), tmp_path / "samples.csv", 30, 0)
    samples = read_table(tmp_path / "samples.csv")
    assert samples.columns == ("latitude", "longitude")
    assert samples.values.shape == (30, 2)
    assert (np.abs(samples.values) <= [90, 180]).all()


def test_numbers_maps_and_report(earth, monkeypatch):
    drawn = []

    def coarse(flow, rows, *, title):
        drawn.append((rows, title))
        return draw_earth(flow, rows, title=title, resolution=10.0)

    monkeypatch.setattr("rectangular_flows.plots.run.draw_earth", coarse)
    assert main(["report", str(earth / "run")]) == 0
    numbers = json.loads((earth / "run" / "evaluation.json").read_text())
    assert numbers["sphere_uniform_log_density"] == pytest.approx(-np.log(4 * np.pi))
    page = (earth / "run" / "report.html").read_text()
    for name in ("log_density", "kernel_log_density", "sample_distance"):
        assert np.isfinite(numbers[f"sphere_{name}"])
        assert f"{numbers[f'sphere_{name}']:.3g}" in page
    assert main(["plot", str(earth / "run")]) == 0
    saved = SavedRun(earth / "run")
    for rows, title in drawn:  # in the report and as a file: the rows trained on
        assert title == "places"
        np.testing.assert_allclose(rows, take(saved.data.train, slice(None), dtype=rows.dtype))
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-5)
    assert len(drawn) == 2
    with Image.open(earth / "run" / "figures" / "earth.png") as picture:
        assert picture.size == (1800, 615)


@pytest.mark.slow
def test_wrong_columns_are_refused(tmp_path):
    (tmp_path / "three.csv").write_text("lat,lon,depth\n" + "1,2,3\n" * 30)
    message = refused("fit", "three.csv", "--sphere", cwd=tmp_path)
    assert "Expected 2 columns, latitude and longitude" in message
    assert "--columns" in message
    assert not (tmp_path / "runs").exists()
