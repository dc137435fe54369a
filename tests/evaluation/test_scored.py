"""What rnf score writes: identifiers, reasons, and the rows they belong to."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import rectangular_flows as rnf
from rectangular_flows.data.discrete import Levels
from rectangular_flows.data.tables import read_table
from rectangular_flows.errors import OverflowWarning
from rectangular_flows.evaluation import scored as scored_module
from rectangular_flows.evaluation.explain import explain
from rectangular_flows.evaluation.scored import open_scoring, write_scores
from rectangular_flows.plots import samples
from rectangular_flows.plots.samples import write_samples
from tests.cli.command import run as run_command
from tests.scored import score_file

SETTINGS = {"latent_dim": 1, "epochs": 1, "layers": 1, "hidden": (4,), "latent": "affine", "random_state": 0}


def helix(rows, seed=0):
    random = np.random.default_rng(seed)
    angle = random.normal(size=rows)
    return np.stack([np.cos(angle), np.sin(angle), 100 * angle], axis=1) + [0.05, 0.05, 5] * random.normal(
        size=(rows, 3)
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    fitted = rnf.RectangularFlowOutlierDetector(**SETTINGS).fit(helix(300))
    fitted.save(folder / "model")
    X = helix(12, 1)
    X[4, 2], X[9, 0] = 3000, np.nan
    lines = [f"s{i},{','.join(map(str, row))}" for i, row in enumerate(X)]
    (folder / "new.csv").write_text("\n".join(["name,x1,x2,x3", *lines]))
    return fitted, X, folder


def test_reasons_and_identifiers_go_with_their_rows(saved, tmp_path):
    fitted, X, folder = saved
    run = rnf.SavedRun(folder / "model")
    options = {"drop_invalid": True, "ids": ["name"], "reasons": True}
    scored = score_file(run, str(folder / "new.csv"), **options)
    kept = np.delete(np.arange(12), 9)
    assert scored.columns["row"].tolist() == (kept + 1).tolist()
    assert scored.texts == {"name": [f"s{i}" for i in kept]}
    found = fitted.explain(X[kept])
    for i, name in enumerate(("x1", "x2", "x3")):
        np.testing.assert_allclose(scored.columns[f"why_{name}"], found.contributions[:, i], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(scored.columns[f"nearest_{name}"], found.nearest[:, i], rtol=1e-3, atol=1e-3)
    total = sum(scored.columns[f"why_x{i}"] for i in (1, 2, 3))
    np.testing.assert_allclose(total, scored.columns["outlier_score"], rtol=1e-9)
    first, *_ = scored.most_unusual()
    assert (first.name, first.reasons[0].column, first.reasons[0].value) == ("row 5 (name s4)", "x3", 3000)
    write_scores(open_scoring(run, str(folder / "new.csv"), **options), tmp_path / "scores.npz")
    with np.load(tmp_path / "scores.npz") as file:
        assert file["text"].tolist() == [f"s{i}" for i in kept]
        assert file["columns"].tolist() == list(scored.columns)


def test_the_command_lists_the_most_unusual_rows(saved, tmp_path):
    _, _, folder = saved
    words = ["--explain", "--drop-invalid", "--id", "name", "-o", tmp_path / "scores.csv"]
    done = run_command("score", folder / "model", folder / "new.csv", *words)
    assert done.returncode == 0
    said = done.stdout.splitlines()
    place = said.index("the most unusual:")
    assert said[place + 1].startswith("row 5 (name s4): outlier score ")
    assert "x3 = 3000, typical " in said[place + 1]
    assert len(said) == place + 6


def test_samples_scatter_unless_asked_not_to(saved, tmp_path):
    fitted, _, folder = saved
    run = rnf.SavedRun(folder / "model")

    def distance(scatter):
        write_samples(run, tmp_path / "samples.npy", 200, 0, scatter=scatter)
        return float(fitted.reconstruction_error(np.load(tmp_path / "samples.npy")).mean())

    usual = fitted.reconstruction_error(helix(200, 2)).mean()
    assert distance(False) < 1e-3 * usual
    assert 0.3 * usual < distance(None) < 3 * usual
    assert distance(True) == distance(None)
    for words, scatter in (((), True), (("--scatter",), True), (("--no-scatter",), False)):
        assert run_command("sample", folder / "model", "-n", 9, "-o", tmp_path / "a.csv", *words).returncode == 0
        write_samples(run, tmp_path / "b.csv", 9, 0, scatter=scatter)
        np.testing.assert_array_equal(read_table(tmp_path / "a.csv").values, read_table(tmp_path / "b.csv").values)
    assert fitted.reconstruction_error(fitted.sample(200, 0, scatter=False)).mean() < 1e-3 * usual
    assert 0.3 * usual < fitted.reconstruction_error(fitted.sample(200, 0)).mean() < 3 * usual


def test_a_frame_gives_frames(saved, tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(helix(300), columns=["east", "north", "up"])
    fitted = rnf.RectangularFlowEstimator(**SETTINGS).fit(frame)
    fitted.save(tmp_path / "model")
    new = pandas.DataFrame(helix(6, 1), columns=frame.columns, index=list("uvwxyz"))
    for estimator in (fitted, rnf.RectangularFlowEstimator.load(tmp_path / "model")):
        assert list(estimator.sample(3).columns) == ["east", "north", "up"]
        rows = torch.from_numpy(new.to_numpy().copy())
        found, plain = estimator.explain(new), explain(estimator.flow_, estimator.calibration_, rows, new.columns)
        assert list(found.index) == list("uvwxyz")
        assert list(found.columns)[:2] == ["outlier_score", "why_east"]
        assert list(found.columns)[-1] == "difference_up"
        np.testing.assert_array_equal(found["why_north"], plain.contributions[:, 1])
        np.testing.assert_allclose(found["nearest_up"] + found["difference_up"], new["up"])
        z = pandas.DataFrame(estimator.transform(new), index=new.index)
        back = estimator.inverse_transform(z)
        assert (list(back.index), list(back.columns)) == (list("uvwxyz"), ["east", "north", "up"])
        np.testing.assert_array_equal(back, estimator.inverse_transform(z.to_numpy()))
    assert isinstance(saved[0].sample(3), np.ndarray)
    assert isinstance(saved[0].inverse_transform([[0.0]]), np.ndarray)


@pytest.mark.parametrize("name", ["new.csv", "link.csv"])
def test_scores_do_not_replace_the_rows_that_they_are_of(saved, tmp_path, name):
    _, _, folder = saved
    rows = tmp_path / "new.csv"
    rows.write_bytes((folder / "new.csv").read_bytes())
    if name == "link.csv":
        (tmp_path / name).symlink_to(rows)
    command = run_command("score", folder / "model", rows, "-o", tmp_path / name, "--drop-invalid")
    assert command.returncode == 2
    assert "would replace the rows that they are of" in command.stderr
    assert rows.read_bytes() == (folder / "new.csv").read_bytes()


def test_scores_are_the_same_however_many_are_in_memory(saved, tmp_path, monkeypatch):
    _, _, folder = saved
    run, options = rnf.SavedRun(folder / "model"), {"drop_invalid": True, "ids": ["name"], "reasons": True}
    whole = score_file(run, str(folder / "new.csv"), **options)
    monkeypatch.setattr(scored_module, "AT_ONCE", 4)
    ticks = []
    written = write_scores(open_scoring(run, str(folder / "new.csv"), **options), tmp_path / "a.npz", ticks.append)
    assert (written.rows, sum(ticks)) == (11, 11)
    with np.load(tmp_path / "a.npz") as file:
        assert file["columns"].tolist() == list(whole.columns)
        assert file["text"].tolist() == whole.texts["name"]
        np.testing.assert_allclose(file["data"], np.stack(list(whole.columns.values()), 1), rtol=1e-4, atol=1e-5)
    assert [row.name for row in written.most_unusual] == [row.name for row in whole.most_unusual()]
    assert written.means["log_density"] == pytest.approx(whole.columns["log_density"].mean(), rel=1e-5)
    parts = score_file(run, str(folder / "new.csv"), **options)
    np.testing.assert_allclose(parts.explanation.contributions, whole.explanation.contributions, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("mean", "scale", "double"),
    [(0.0, 1.0, False), (1e9, 1.0, True), (0.0, 1e40, True), (0.0, 1e-44, True), (0.0, 1e25, False)],
)
def test_samples_are_written_in_a_type_that_holds_them(mean, scale, double, tmp_path):
    torch.manual_seed(0)
    units = rnf.flows.Standardise(
        *(torch.tensor([a, b, a], dtype=torch.float64) for a, b in ((0.0, mean), (1.0, scale)))
    )
    flow = rnf.RectangularFlow(rnf.flows.RealNVP(3, 1), rnf.flows.RealNVP(2, 1), units)
    run = SimpleNamespace(
        flow=flow, sphere=None, whole=None, columns=("a", "b", "c"), levels=Levels(), periodic=(), folder=tmp_path
    )
    write_samples(run, tmp_path / "samples.npy", 50, 0, scatter=False)
    found = np.load(tmp_path / "samples.npy")
    assert found.dtype == (np.float64 if double else np.float32)
    expected = flow.sample(50, generator=torch.Generator().manual_seed(0)).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=0)


def test_samples_are_drawn_part_by_part(saved, tmp_path, monkeypatch):
    _, _, folder = saved
    run = rnf.SavedRun(folder / "model")
    monkeypatch.setattr(samples, "_AT_ONCE", 7)
    ticks = []
    write_samples(run, tmp_path / "a.npy", 20, 3, tick=ticks.append)
    assert ticks == [7, 7, 6]
    values = np.load(tmp_path / "a.npy")
    assert values.dtype == np.float32
    draw = torch.Generator().manual_seed(3)
    expected = torch.cat([run.flow.sample(n, generator=draw, scatter=True) for n in (7, 7, 6)])
    np.testing.assert_array_equal(values, expected.float())
    assert len(np.unique(values, axis=0)) == 20


@pytest.mark.parametrize("value", [1e8, -1e19, 1e30, -1e38, 1e200])
def test_the_most_extreme_row_gets_the_most_extreme_answer(saved, tmp_path, value):
    fitted, X, folder = saved
    Y = np.delete(X, 9, axis=0)
    usual = {name: fitted.scores(Y)[name] for name in ("outlier_score", "p_value", "log_density")}
    Y[6, 1] = value
    found = fitted.scores(Y)  # warnings are errors here
    others = np.delete(np.arange(11), 6)
    for name, values in usual.items():
        np.testing.assert_allclose(found[name][others], values[others], rtol=1e-4, atol=1e-5)
        assert not np.isnan(found[name]).any()
    assert found["outlier_score"][6] == found["outlier_score"].max() > usual["outlier_score"].max()
    assert found["p_value"][6] == found["p_value"].min() > 0
    assert found["log_density"][6] == found["log_density"].min()
    assert fitted.predict(Y)[6] == -1
    assert fitted.reconstruction_error(Y)[6] == fitted.reconstruction_error(Y).max()
    np.savetxt(tmp_path / "x.csv", Y, delimiter=",", header="x1,x2,x3", comments="")
    done = run_command(
        "score", folder / "model", tmp_path / "x.csv", "-o", tmp_path / "s.csv", "--coordinates", "--explain"
    )
    assert done.returncode == 0
    assert ("note: no finite log-density under the model: 1 row," in done.stdout) == bool(
        np.isinf(found["log_density"][6])
    )
    assert "mean log-density -inf" not in done.stdout
    assert "nan" not in (tmp_path / "s.csv").read_text()


def test_rows_without_coordinates_are_counted(saved):
    fitted, X, _ = saved
    Y = X[:3].copy()
    Y[1, 0] = 1e39
    with pytest.warns(OverflowWarning, match="1 of 3 rows are so far"):
        z = fitted.transform(Y)
    assert np.isnan(z).any(axis=1).tolist() == [False, True, False]


def test_what_is_missing_is_refused(saved):
    fitted, X, _ = saved
    for Z in ([[np.nan]], [[np.inf]]):
        with pytest.raises(ValueError, match="Z contains"):
            fitted.inverse_transform(Z)
    with pytest.raises(ValueError, match="expected Z of 1 columns, the coordinates; got 2"):
        fitted.inverse_transform([[1.0, 2.0]])
    masked = np.ma.masked_invalid(X)
    with pytest.raises(ValueError, match="X is a masked array with 1 masked entries"):
        fitted.score_samples(masked)
    with pytest.raises(ValueError, match="X is a masked array"):
        rnf.RectangularFlowEstimator(**SETTINGS).fit(masked)
    assert len(fitted.score_samples(np.ma.array(X[:3]))) == 3  # nothing is masked
    with pytest.raises(ValueError, match=r"got splin\. Did you mean 'spline'\?"):
        rnf.RectangularFlowEstimator(**{**SETTINGS, "latent": "splin"}).fit(X[:9])
    with pytest.raises(ValueError, match=r"varies by .*e\+2.*other units"):
        rnf.RectangularFlowEstimator(**SETTINGS).fit(X[:9] * [1, 1e250, 1])
