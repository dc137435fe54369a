"""One commit point, checksums, and what is in the way."""

import json

import pytest

from rectangular_flows.storage import manifest as module
from rectangular_flows.storage.files import DamagedFileError
from rectangular_flows.storage.manifest import Stored, commit, read_files, read_manifest, recover

from .faults import Disk, Killed


def flipped(path, at, bit=0):
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << bit
    path.write_bytes(content)


def test_files_come_back_as_they_were_saved(tmp_path):
    commit(tmp_path, {"a": b"one", "inner/b": b"two"}, facts={"x": 1})
    commit(tmp_path, {"a": b"three"}, facts={"y": 2})
    assert read_files(tmp_path, ("a", "inner/b", "c")) == {"a": b"three", "inner/b": b"two"}
    assert Stored(tmp_path).facts == {"x": 1, "y": 2}
    assert {path.name for path in tmp_path.rglob("*")} == {"a", "inner", "b", "manifest.json"}


@pytest.mark.parametrize("change", ["flip", "cut", "longer", "other", "gone"])
def test_a_damaged_file_is_named(tmp_path, change):
    commit(tmp_path, {"a": b"one two three", "b": b"fine"})
    path = tmp_path / "a"
    if change == "flip":
        flipped(path, 5)
    elif change == "gone":
        path.unlink()
    else:
        path.write_bytes({"cut": b"one two", "longer": b"one two three\n", "other": b"eno owt eerht"}[change])
    with pytest.raises(DamagedFileError, match=r"/a is (damaged, or not the file that was saved|missing)"):
        read_files(tmp_path, ("a",))
    assert read_files(tmp_path, ("b",)) == {"b": b"fine"}


def test_no_flip_of_a_bit_in_the_manifest_changes_what_is_read(tmp_path):
    commit(tmp_path, {"a": b"one", "b": b"two"}, made_from=("a",), facts={"finished": ""})
    path = tmp_path / "manifest.json"
    whole, expected = path.read_bytes(), read_manifest(tmp_path)
    silent = 0
    for at in range(0, len(whole), 3):
        flipped(path, at, at % 8)
        try:
            assert read_manifest(tmp_path) == expected, at
            silent += 1
        except ValueError as error:
            assert "damaged" in str(error) or "Upgrade" in str(error)  # noqa: PT017
        path.write_bytes(whole)
    assert silent < 0.1 * len(whole)  # spaces between words


def test_a_newer_format_is_refused(tmp_path):
    commit(tmp_path, {"a": b"one"})
    content = json.loads((tmp_path / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps({**content, "format": 99}))
    with pytest.raises(ValueError, match=r"format 99, .* Upgrade it"):
        read_files(tmp_path, ("a",))


def test_a_strangers_manifest_is_left_alone(tmp_path):
    stranger = '{"name": "my extension", "version": "1"}'
    (tmp_path / "manifest.json").write_text(stranger)
    with pytest.raises(FileExistsError, match="in the way, and not ours"):
        commit(tmp_path, {"a": b"one"})
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"manifest.json": stranger}


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a/../../outside", "c:evil", "a\\b", ""])
def test_a_manifest_names_nothing_outside_its_folder(tmp_path, name):
    here = tmp_path / "here"
    here.mkdir()
    (tmp_path / "outside").write_text("mine")
    for hostile in (module.Manifest({name: module.Entry.of(b"mine")}), module.Manifest(remove=(name,))):
        (here / "manifest.json").write_text(hostile.text())
        with pytest.raises(DamagedFileError, match="cannot be checked"):
            recover(here)
    assert (tmp_path / "outside").exists()


def test_nothing_is_removed_through_a_link(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "mine.png").write_text("mine")
    here = tmp_path / "here"
    here.mkdir()
    (here / "figures").symlink_to(tmp_path / "elsewhere")
    commit(here, {"a": b"one"}, remove=["figures/mine.png"])
    assert (tmp_path / "elsewhere" / "mine.png").exists()


def test_what_was_made_from_a_file_goes_with_it(tmp_path):
    commit(tmp_path, {"model": b"one"})
    commit(tmp_path, {"calibration": b"of one"}, made_from=("model",))
    commit(tmp_path, {"model": b"one"})
    assert "calibration" in Stored(tmp_path)  # the same model, saved again
    commit(tmp_path, {"model": b"two"})
    assert "calibration" not in Stored(tmp_path)
    assert not (tmp_path / "calibration").exists()


def test_lines_may_be_added_and_the_rest_is_still_checked(tmp_path):
    commit(tmp_path, {"log": b"one\n"}, growing=("log",))
    with (tmp_path / "log").open("ab") as file:
        file.write(b"two\n")
    assert read_files(tmp_path, ("log",)) == {"log": b"one\ntwo\n"}
    commit(tmp_path, {}, grown={"log": b"one\ntwo\n"})
    flipped(tmp_path / "log", 5)
    with pytest.raises(DamagedFileError, match="log is damaged"):
        read_files(tmp_path, ("log",))


def test_a_reader_is_not_disturbed_by_a_save(tmp_path):
    commit(tmp_path, {"a": b"a1", "b": b"b1"})
    saves = iter(range(2, 5))

    def read(stored):
        a = stored.read("a")
        if (number := next(saves, None)) is not None:
            commit(tmp_path, {"a": b"a%d" % number, "b": b"b%d" % number})
        return a, stored.read("b")

    assert module.consistently(tmp_path, read) == (b"a4", b"b4")


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
def test_a_folder_without_a_manifest_is_read_as_it_is(tmp_path, name):
    (tmp_path / name).write_bytes(b"anything")
    assert read_files(tmp_path, (name, "other")) == {name: b"anything"}


def test_files_that_were_saved_but_not_moved_are_read_and_then_moved(tmp_path):
    commit(tmp_path, {"a": b"one", "b": b"one"})
    disk = Disk(tmp_path, fault="killed")
    disk.after = lambda name, path: setattr(disk, "dead", path.name == "manifest.json" and name == "replace")
    with disk.watched(), pytest.raises(Killed):
        commit(tmp_path, {"a": b"two"})
    assert (tmp_path / "a").read_bytes() == b"one"
    assert read_files(tmp_path, ("a", "b")) == {"a": b"two", "b": b"one"}
    recover(tmp_path)
    assert (tmp_path / "a").read_bytes() == b"two"
    commit(tmp_path, {"b": b"two"})  # takes over the lock, too
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b", "manifest.json"}
