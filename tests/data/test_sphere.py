import numpy as np
import pytest

from rectangular_flows.data.sphere import degree_columns, read_more, read_sphere, to_degrees, to_xyz
from rectangular_flows.data.tables import DataError, MissingFileError, Table
from rectangular_flows.runs.prepared import prepare
from rectangular_flows.settings import DataSettings


@pytest.fixture
def put(tmp_path):
    def put(content, name="t.csv"):
        path = tmp_path / name
        path.write_text(content)
        return path

    return put


def test_known_places():
    places = np.array([[0, 0], [0, 90], [90, 123], [-90, 5], [0, 180], [45, -90], [0, 270]])
    half = np.sqrt(0.5)
    vectors = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, -1], [-1, 0, 0], [0, -half, half], [0, -1, 0]]
    np.testing.assert_allclose(to_xyz(places), vectors, atol=1e-15)


def test_round_trip_and_radial_projection():
    rng = np.random.default_rng(0)
    degrees = np.stack([rng.uniform(-90, 90, 500), rng.uniform(-180, 180, 500)], 1)
    radii = rng.uniform(0.5, 2, (500, 1))
    np.testing.assert_allclose(to_degrees(radii * to_xyz(degrees)), degrees, atol=1e-10)
    np.testing.assert_allclose(np.linalg.norm(to_xyz(degrees), axis=1), 1, rtol=1e-14)


def test_angles_by_the_haversine_formula():
    a, b = np.radians(np.random.default_rng(1).uniform([-90, -360], [90, 360], (2, 300, 2)))
    hav = np.sin((a - b)[:, 0] / 2) ** 2 + np.cos(a[:, 0]) * np.cos(b[:, 0]) * np.sin((a - b)[:, 1] / 2) ** 2
    cosine = (to_xyz(np.degrees(a)) * to_xyz(np.degrees(b))).sum(axis=1)
    np.testing.assert_allclose(cosine, 1 - 2 * hav, atol=1e-12)


@pytest.mark.parametrize(
    ("names", "order"),
    [
        (("lat", "long"), (0, 1)),
        (("LATITUDE", "LONGITUDE"), (0, 1)),
        (("lng", "Lat"), (1, 0)),
        (("Lon.", "anything"), (1, 0)),
        (("anything", "latitude"), (1, 0)),
        (("x1", "x2"), (0, 1)),
    ],
)
def test_columns_by_name_or_order(names, order):
    assert degree_columns(Table(np.zeros((1, 2)), names, "t.csv")) == order


def test_two_of_a_kind_are_refused():
    with pytest.raises(DataError, match="one latitude and one longitude"):
        degree_columns(Table(np.zeros((1, 2)), ("lat_start", "lat_end"), "t.csv"))


@pytest.mark.parametrize("text", ["# from afar\n10,20\n", "lat,long\n10,20\n", "LONGITUDE,LATITUDE\n20,10\n"])
def test_files(put, text):
    table = read_sphere(put(text))
    np.testing.assert_array_equal(table.values, to_xyz(np.array([[10.0, 20.0]])))
    assert table.columns == ("x", "y", "z")
    assert bool(table.note) == ("#" in text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lat,lon,depth\n1,2,3\n", ("Expected 2 columns", "has 3", "'depth'", "--columns")),
        ("lat\n1\n", ("Expected 2 columns", "has 1")),
        ("lat,lon\n1,2\n95,3\n", ("a latitude from −90 to 90", "'lat'", "95 in row 2", "swapped")),
        ("lon,lat\n1,2\n-400,3\n", ("a longitude from −360 to 360", "'lon'", "-400 in row 2", "degrees")),
    ],
)
def test_refusals(put, text, words):
    with pytest.raises(DataError) as error:
        read_sphere(put(text))
    for word in words:
        assert word in str(error.value)


def test_chosen_columns_and_edges(put):
    path = put("depth,lon,lat\n1,360,90\n2,-360,-90\n")
    table = read_sphere(path, exclude=["depth"])
    np.testing.assert_allclose(table.values, [[0, 0, 1], [0, 0, -1]], atol=1e-15)
    assert table.degrees == ("lat", "lon")
    np.testing.assert_array_equal(read_sphere(path, columns=["3", "2"]).values, table.values)


def test_another_file_by_name_or_as_a_whole(put):
    wanted = to_xyz(np.array([[10.0, 20.0]]))
    for text in ("when,LON,LAT\n7,20,10\n", "longitude,latitude\n20,10\n", "10,20\n"):
        np.testing.assert_array_equal(read_more(put(text), ("LAT", "LON")).values, wanted)
    np.testing.assert_array_equal(read_more(put("10,20\n"), ()).values, wanted)
    with pytest.raises(DataError, match="no column 'LAT'"):
        read_more(put("a,b,c\n1,2,3\n"), ("LAT", "LON"))
    with pytest.raises(MissingFileError):
        read_more("nowhere.csv", ("LAT", "LON"))


def test_prepared_with_files_for_validation_and_test(put):
    rng = np.random.default_rng(0)
    places = np.stack([rng.uniform(-80, 80, 60), rng.uniform(-180, 180, 60)], 1)
    train = put("Latitude,Longitude\n" + "\n".join(f"{a!r},{b!r}" for a, b in places.tolist()), "train.csv")
    swapped = put("x,Longitude,Latitude\n" + "\n".join(f"0,{b!r},{a!r}" for a, b in places[:9].tolist()), "other.csv")
    bare = put("\n".join(f"{a!r},{b!r}" for a, b in places[9:15].tolist()), "bare.csv")
    settings = DataSettings(str(train), sphere=True, validation_data=str(swapped), test_data=str(bare))
    data = prepare(settings, 2, 0)
    assert data.columns == ("x", "y", "z")
    assert data.degrees == ("Latitude", "Longitude")
    assert len(data.train) == 60
    np.testing.assert_array_equal(data.validation, to_xyz(places[:9]))
    np.testing.assert_array_equal(data.test, to_xyz(places[9:15]))


def test_a_known_data_set_is_not_on_the_sphere():
    with pytest.raises(ValueError, match="circle"):
        prepare(DataSettings("circle", sphere=True), 2, 0)
