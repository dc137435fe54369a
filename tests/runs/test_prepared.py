"""Data opened, matched and split."""

import numpy as np
import pytest

from rectangular_flows.data.tables import ByPositionWarning, DataError, MissingFileError
from rectangular_flows.runs.prepared import Known, prepare, read_matching, some_rows
from rectangular_flows.settings import DataSettings
from tests.cli.command import helix


def test_shares_of_the_rows(tmp_path):
    path = helix(tmp_path / "helix.csv", rows=100)
    data = prepare(DataSettings(str(path), validation_fraction=0.2, test_fraction=0.3), 1, seed=1)
    parts = [data.train, data.validation, data.test]
    assert [len(part) for part in parts] == [50, 20, 30]
    whole = np.loadtxt(path, delimiter=",", skiprows=1)
    together = np.concatenate([np.asarray(part) for part in parts])
    np.testing.assert_array_equal(np.sort(together, axis=0), np.sort(whole, axis=0))
    other = prepare(DataSettings(str(path)), 1, seed=2)
    assert not np.array_equal(other.train[:50], data.train)
    assert (data.columns, data.note, data.image_shape) == (("east", "north", "up"), "", None)


def test_files_of_their_own_for_validation_and_test(tmp_path):
    names = ("train", "validation", "test")
    paths = {name: helix(tmp_path / f"{name}.csv", rows=40 + i, seed=i) for i, name in enumerate(names)}
    settings = DataSettings(str(paths["train"]), validation_data=str(paths["validation"]), test_data=str(paths["test"]))
    data = prepare(settings, 1, 0)
    assert [len(getattr(data, name)) for name in names] == [40, 41, 42]
    np.testing.assert_array_equal(data.test, np.loadtxt(paths["test"], delimiter=",", skiprows=1))
    one = helix(tmp_path / "one.csv", rows=1)
    with pytest.raises(ValueError, match=r"at least two rows to validate with; '.*one\.csv' has 1"):
        prepare(DataSettings(str(paths["train"]), validation_data=str(one)), 1, 0)


def test_notes_say_what_was_assumed(tmp_path):
    lines = helix(tmp_path / "helix.csv", rows=50).read_text().splitlines()
    (tmp_path / "bare.csv").write_text("\n".join([*lines[1:], "nan,1,2"]))
    data = prepare(DataSettings(str(tmp_path / "bare.csv"), drop_invalid=True), 1, 0)
    assert data.note == (
        "no header was found: the columns are x1 to x3; 1 rows with missing or infinite values were dropped"
    )


def test_columns_that_tell_no_rows_apart_are_left_out(tmp_path):
    whole = np.loadtxt(helix(tmp_path / "helix.csv", rows=50), delimiter=",", skiprows=1)
    np.save(tmp_path / "more.npy", np.column_stack([whole, whole[:, 0], np.ones(50)]))
    data = prepare(DataSettings(str(tmp_path / "more.npy")), 1, 0)
    assert (data.columns, data.note) == (
        ("x1", "x2", "x3"),
        "columns left out of the model: 'x5' holds one value; 'x4' equals 'x1' in every row",
    )
    plain = prepare(DataSettings(str(tmp_path / "helix.csv")), 1, 0)
    np.testing.assert_array_equal(data.train, plain.train)
    again = prepare(DataSettings(str(tmp_path / "more.npy")), 1, 0, known=Known(data.columns))
    np.testing.assert_array_equal(again.test, plain.test)
    with pytest.raises(DataError, match="'x5' holds one value"):
        prepare(DataSettings(str(tmp_path / "more.npy"), periodic=("x1:radians",)), 1, 0)


def test_one_column_that_varies_is_too_few(tmp_path):
    (tmp_path / "one.csv").write_text("a,b,c\n" + "\n".join(f"{i},5,7" for i in range(50)))
    text = r"in '.*one\.csv' 'b', 'c' hold one value, and only 'a' is left"
    with pytest.raises(DataError, match=text):
        prepare(DataSettings(str(tmp_path / "one.csv")), 1, 0)


def test_columns_are_matched_by_name(tmp_path):
    path = helix(tmp_path / "helix.csv", rows=5)
    table = read_matching(path, Known(("up", "east")))
    np.testing.assert_array_equal(table.values, np.loadtxt(path, delimiter=",", skiprows=1)[:, [2, 0]])
    with pytest.raises(DataError, match="lacks 'down'"):
        read_matching(path, Known(("up", "down")))
    path.write_text("\n".join(path.read_text().splitlines()[1:]))
    with pytest.warns(ByPositionWarning):
        assert read_matching(path, Known(("a", "b", "c"))).columns == ("a", "b", "c")
    with pytest.raises(DataError, match="no header"):
        read_matching(path, Known(("a", "b")))


def test_some_rows():
    rows = np.arange(30.0).reshape(10, 3)
    found = some_rows(rows, seed=0, most=4)
    assert found.shape == (4, 3)
    assert np.isin(found[:, 0], rows[:, 0]).all()
    assert some_rows(np.zeros((5, 1, 2, 2), np.float32), seed=0).shape == (5, 4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (DataSettings(), "no data: give a file or the name of a data set"),
        (DataSettings("powr"), "no file, folder or data set 'powr'. Did you mean 'power'"),
        (DataSettings("circle", sphere=True), "sphere is for a file with latitudes and longitudes"),
        (DataSettings("nowhere.csv"), "nowhere.csv"),
        (DataSettings("nowhere/at/all"), "no file, folder or data set 'nowhere/at/all'"),
    ],
)
def test_mistakes(settings, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message.replace(".", r"\.")):
        prepare(settings, 1, 0)


# --- images


@pytest.fixture
def images(tmp_path):
    """Two files of images, by their shades."""
    for i, name in enumerate(("a", "b")):
        shades = np.arange(40, dtype=np.uint8)[:, None, None] + 100 * i
        np.save(tmp_path / f"{name}.npy", np.broadcast_to(shades, (40, 4, 6)))
    return str(tmp_path / "a.npy"), str(tmp_path / "b.npy")


def shades(rows):
    """Of every image, which one shade has after the noise is taken off."""
    return np.floor(256 * np.asarray(rows[:])).astype(int)[:, 0, 0, 0].tolist()


def test_images_are_split_by_seed(images):
    settings = DataSettings(images[0], validation_fraction=0.25, test_fraction=0.1)
    data, again, other = (prepare(settings, "auto", seed) for seed in (0, 0, 1))
    parts = [data.train, data.validation, data.test]
    assert [len(part) for part in parts] == [26, 10, 4]
    assert sorted(shade for part in parts for shade in shades(part)) == list(range(40))
    assert (data.image_shape, data.columns, data.train.dtype) == ((1, 4, 6), (), np.float32)
    np.testing.assert_array_equal(data.test[:], again.test[:])
    assert shades(other.test) != shades(data.test)
    assert (data.train[:] != again.train[:]).sum() == 0


def test_images_of_their_own_for_validation_and_test(images):
    one, both = (
        prepare(DataSettings(images[0], test_fraction=0.25, **given), None, 3)
        for given in ({"validation_data": images[1]}, {"validation_data": images[1], "test_data": images[1]})
    )
    assert [len(part) for part in (one.train, one.validation, one.test)] == [30, 40, 10]
    assert shades(one.validation) == list(range(100, 140))
    assert [len(part) for part in (both.train, both.validation, both.test)] == [40, 40, 40]
    assert shades(both.test) == shades(both.validation)
    assert (both.test[:] != both.validation[:]).mean() > 0.9  # unrelated noise
    assert (both.test.seed, both.validation.seed) == ((3, 4), (3, 3))


@pytest.mark.parametrize("given", [{"columns": ("a",)}, {"exclude": ("a",)}, {"sphere": True}])
def test_images_have_no_columns(images, given):
    (name,) = given
    with pytest.raises(ValueError, match=f"--{name} is for tables; .*a.npy holds images"):
        prepare(DataSettings(images[0], **given), 1, 0)


def test_a_known_data_set_gets_the_options_it_has():
    data, other = (prepare(DataSettings("circle", radius_noise=noise), 1, seed=4) for noise in (0.0, 0.5))
    radii = [np.linalg.norm(np.asarray(part.train), axis=1) for part in (data, other)]
    assert radii[0] == pytest.approx(1, abs=1e-6)
    assert radii[1].std() == pytest.approx(0.5, rel=0.2)
    assert len(data.columns) == 2
    assert not np.array_equal(data.train, prepare(DataSettings("circle"), 1, seed=5).train)


def test_columns_chosen_left_out_and_known(tmp_path):
    path = str(helix(tmp_path / "helix.csv", rows=30))
    whole = np.loadtxt(path, delimiter=",", skiprows=1)
    shares = {"validation_fraction": 0.1, "test_fraction": 0.1}
    for given, expected in (({"columns": ("up", "east")}, [2, 0]), ({"exclude": ("north",)}, [0, 2])):
        data = prepare(DataSettings(path, **given, **shares), 1, 0)
        assert data.columns == tuple(("east", "north", "up")[i] for i in expected)
        rows = np.concatenate([np.asarray(part) for part in (data.train, data.validation, data.test)])
        np.testing.assert_array_equal(rows[np.lexsort(rows.T)], whole[:, expected][np.lexsort(whole[:, expected].T)])
    known = prepare(DataSettings(path), 1, 0, known=Known(("up", "east")))
    assert known.columns == ("up", "east")
    first = prepare(DataSettings(path), 1, 0)
    np.testing.assert_array_equal(known.train, first.train[:, [2, 0]])


# --- angles, degrees, and what is passed on


def write(path, text):
    path.write_text(text)
    return str(path)


def test_two_rows_are_enough_to_validate_with(tmp_path):
    """Their file may have missing values, which are dropped if asked."""
    path = str(helix(tmp_path / "helix.csv", rows=40))
    rows = "east,north,up\n1,2,3\nnan,2,3\n4,5,6\n"
    settings = DataSettings(path, validation_data=write(tmp_path / "v.csv", rows), drop_invalid=True)
    assert prepare(settings, 1, 0).validation.tolist() == [[1, 2, 3], [4, 5, 6]]
    with pytest.raises(DataError, match="missing"):
        prepare(DataSettings(path, validation_data=settings.validation_data), 1, 0)


def test_the_latent_dimension_is_below_the_number_of_columns(tmp_path):
    """Unless some are angles, or it is still to be chosen."""
    path = str(helix(tmp_path / "helix.csv", rows=40))
    with pytest.raises(ValueError, match="latent dimension"):
        prepare(DataSettings(path), 3, 0)
    for dim, settings in (("auto", {}), (None, {}), (2, {}), (3, {"periodic": ("up:7",)})):
        assert len(prepare(DataSettings(path, **settings), dim, 0).train) == 32
    found = prepare(DataSettings(path, periodic=("up:7",)), 1, 0)
    assert [(column.column, column.name, column.period) for column in found.periodic] == [(2, "up", 7.0)]
    assert prepare(DataSettings(path), 1, 0).periodic == ()


def test_periods_that_were_guessed_are_noted(tmp_path):
    rows = "\n".join(f"{i % 360},{i * i % 97}" for i in range(0, 3600, 7))
    data = prepare(DataSettings(write(tmp_path / "x.csv", f"wind,b\n{rows}"), periodic=("wind",)), 1, 0)
    assert data.note == "degrees guessed from the values of 'wind'"


def test_an_array_without_names_needs_no_note(tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(50, 3)))
    data = prepare(DataSettings(str(tmp_path / "x.npy")), 1, 0)
    assert (data.note, data.columns) == ("", ("x1", "x2", "x3"))


def test_degrees_become_points_of_the_sphere(tmp_path):
    """By their names, also in a second file and in one whose columns were exchanged since."""
    random = np.random.default_rng(0)
    lines = [f"{random.uniform(-90, 90):.3f},{random.uniform(-180, 180):.3f}" for _ in range(50)]
    path = write(tmp_path / "x.csv", "\n".join(["lat,lon", *lines]))
    other = write(tmp_path / "t.csv", "lon,lat\n90,0\n0,0\n0,90\n")
    data = prepare(DataSettings(path, sphere=True, test_data=other), 2, 0)
    assert (data.degrees, data.columns, data.train.shape) == (("lat", "lon"), ("x", "y", "z"), (45, 3))
    np.testing.assert_allclose(data.test, [[0, 1, 0], [1, 0, 0], [0, 0, 1]], atol=1e-15)
    write(tmp_path / "x.csv", "\n".join(["lon,lat", *(",".join(reversed(line.split(","))) for line in lines)]))
    known = Known(data.columns, data.degrees)
    again = prepare(DataSettings(path, sphere=True, test_data=other), 2, 0, known=known)
    np.testing.assert_array_equal(again.train, data.train)


def test_a_missing_file_is_told_as_such(tmp_path):
    with pytest.raises(MissingFileError, match=r"gone\.csv"):
        read_matching(tmp_path / "gone.csv", Known(("a", "b")))


def test_some_rows_go_by_their_seed():
    rows = np.arange(20_010.0, dtype=np.float32)[:, None]
    first, again, other = (some_rows(rows, seed)[:, 0] for seed in (0, 0, 1))
    assert (first.dtype, len(first), len(set(first))) == (np.float64, 20_000, 20_000)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
