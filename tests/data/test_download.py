import gc
import gzip
import hashlib
import http.server
import io
import logging
import os
import tarfile
import threading
import warnings
from pathlib import Path

import pooch
import pytest
from rich.progress import Progress

from rectangular_flows.cli import main
from rectangular_flows.cli.data import _Bar
from rectangular_flows.data import DATASETS, DataError, Dataset, RemoteFile, data_root, fetch, register_dataset

CONTENT = bytes(range(256)) * 4000  # a megabyte
SHA = "sha256:" + hashlib.sha256(CONTENT).hexdigest()


class _Server(http.server.ThreadingHTTPServer):
    files: dict
    cut_after: int | None = None  # bytes after which to hang up
    lengths = True
    requests: list


class _Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_GET(self):
        self.server.requests.append(self.headers)
        content = self.server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        if self.server.lengths:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: self.server.cut_after])


@pytest.fixture
def server(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    server = _Server(("127.0.0.1", 0), _Handler)
    server.files, server.requests = {"/a.bin": CONTENT}, []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()
    with warnings.catch_warnings():  # pooch leaves the connection of a failed download to the garbage collector
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def one(server, name="a.bin", checksum=SHA, members=(), path=None):
    url = f"http://127.0.0.1:{server.server_address[1]}/{name}"
    return of(RemoteFile(url, path or f"set/{name}", checksum, tuple(members)))


def of(file):
    return Dataset("set", "table", "a test", (1,), (1, 0, 0), lambda entry, root: None, files=(file,))


class Bar:
    def __init__(self):
        self.total, self.done = None, [0]

    def update(self, count):
        self.done.append(self.done[-1] + count)

    def reset(self):
        self.done.append(0)

    def close(self):
        self.done.append("closed")


def test_whole(server, tmp_path):
    bar = Bar()
    (path,) = fetch(one(server), tmp_path, progress=bar)
    assert path == tmp_path / "set" / "a.bin"
    assert path.read_bytes() == CONTENT
    assert bar.total == len(CONTENT)
    assert bar.done[-3:] == [0, len(CONTENT), "closed"]
    assert len(bar.done) > 5  # it moved on the way
    assert os.listdir(tmp_path / "set") == ["a.bin"]
    assert server.requests[0]["Accept-Encoding"] == "identity"
    assert fetch(one(server), tmp_path) == [path]
    assert len(server.requests) == 1  # what is there is not asked for again


def test_existing_files_are_used_as_they_are(server, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a.bin").write_bytes(b"put there by hand")
    assert fetch(one(server), tmp_path)[0].read_bytes() == b"put there by hand"
    assert server.requests == []


def test_server_without_lengths(server, tmp_path):
    server.lengths = False
    bar = Bar()
    assert fetch(one(server), tmp_path, progress=bar)[0].read_bytes() == CONTENT
    assert bar.total == 0


def test_cut_connection(server, tmp_path):
    server.cut_after = 300_000
    with pytest.raises(
        DataError, match=r"Cannot download 'http://127.*a\.bin': .*put it at '.*set.a\.bin'\.$"
    ) as error:
        fetch(one(server), tmp_path)
    assert "\n" not in str(error.value)
    assert os.listdir(tmp_path / "set") == []
    server.cut_after = None
    assert fetch(one(server), tmp_path)[0].read_bytes() == CONTENT


@pytest.mark.parametrize("checksum", ["sha256:" + "0" * 64, "md5:" + "0" * 32])
def test_wrong_checksum(server, tmp_path, checksum):
    with pytest.raises(DataError, match=rf"does not match.*expected {checksum} but got [0-9a-f]+.*put it at"):
        fetch(one(server, checksum=checksum), tmp_path)
    assert os.listdir(tmp_path / "set") == []


def test_md5(server, tmp_path):
    assert fetch(one(server, checksum="md5:" + hashlib.md5(CONTENT).hexdigest()), tmp_path)[0].exists()


def test_nothing_is_downloaded_without_a_checksum(server, tmp_path):
    with pytest.raises(DataError, match=r"a\.bin' has no published checksum.*put it at '.*set.a\.bin'"):
        fetch(one(server, checksum=None), tmp_path)
    assert server.requests == []
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a.bin").write_bytes(CONTENT)
    assert fetch(one(server, checksum=None), tmp_path)[0].read_bytes() == CONTENT


def test_not_found(server, tmp_path):
    with pytest.raises(DataError, match=r"404.*put it at '.*b\.bin'"):
        fetch(one(server, "b.bin"), tmp_path)


def test_offline(server, tmp_path):
    entry = one(server)
    server.shutdown()
    server.server_close()
    with pytest.raises(DataError, match=r"Cannot download '[^']*a\.bin': \[Errno \d+\] Connection refused\. Try again"):
        fetch(entry, tmp_path)


def test_other_schemes_are_refused(tmp_path):
    with pytest.raises(DataError, match="Cannot download 'file:"):
        fetch(of(RemoteFile(Path(__file__).as_uri(), "set/a.bin", SHA)), tmp_path)


def tar(*entries, compress=True):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz" if compress else "w") as archive:
        for name, content in entries:
            info = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
            else:
                info.type, info.linkname = content
                archive.addfile(info)
    return out.getvalue()


MEMBERS = [("power/data.npy", "power/data.npy"), ("x.csv", "other/y.csv")]


def archive_set(server, content):
    server.files["/data.tar.gz"] = content
    checksum = "sha256:" + hashlib.sha256(content).hexdigest()
    return one(server, "data.tar.gz", checksum, MEMBERS, path="downloads/data.tar.gz")


def files_below(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("compress", [True, False])
def test_only_named_members_are_unpacked(server, tmp_path, compress):
    content = tar(
        *(("data/README", b"no"), ("data/power/data.npy", b"1"), ("data/gas/z", b"no"), ("./data/x.csv", b"2")),
        compress=compress,
    )
    paths = fetch(archive_set(server, content), tmp_path)
    assert [path.read_bytes() for path in paths] == [b"1", b"2"]
    assert files_below(tmp_path) == ["downloads/data.tar.gz", "other/y.csv", "power/data.npy"]
    paths[0].unlink()
    fetch(archive_set(server, content), tmp_path)  # from the archive that is there
    assert paths[0].read_bytes() == b"1"
    assert len(server.requests) == 1


def test_names_in_an_archive_never_become_names_on_disk(server, tmp_path):
    content = tar(
        ("../../evil", b"no"),
        ("/evil", b"no"),
        ("../power/data.npy", b"1"),
        ("power/data.npy", b"a second one"),
        ("a/../../../x.csv", b"2"),
    )
    paths = fetch(archive_set(server, content), tmp_path / "deep" / "root")
    assert [path.read_bytes() for path in paths] == [b"1", b"2"]
    assert files_below(tmp_path) == [
        f"deep/root/{name}" for name in ("downloads/data.tar.gz", "other/y.csv", "power/data.npy")
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (tar(("power/data.npy", (tarfile.SYMTYPE, "/etc/passwd")), ("x.csv", b"2")), "link or device"),
        (tar(("power/data.npy", (tarfile.LNKTYPE, "x.csv")), ("x.csv", b"2")), "link or device"),
        (tar(("power/data.npy", (tarfile.FIFOTYPE, "")), ("x.csv", b"2")), "link or device"),
        (tar(("other", b"1")), r"Expected power/data\.npy, x\.csv"),
        (tar(("evilx.csv", b"1"), ("power/data.npy", b"1")), r"Expected x\.csv"),
        (b"no archive at all", "Cannot read the archive"),
        (gzip.compress(b"no tar"), "Cannot read the archive"),
        (tar(("power/data.npy", b"1" * 100_000), ("x.csv", os.urandom(100_000)))[:-50_000], "Cannot read the archive"),
    ],
    ids=range(8),  # gzip puts the time into an archive, which would differ between processes
)
def test_broken_archives(server, tmp_path, content, message):
    with pytest.raises(DataError, match=message):
        fetch(archive_set(server, content), tmp_path)
    assert set(files_below(tmp_path)) <= {"downloads/data.tar.gz", "power/data.npy"}  # nothing half written


@pytest.mark.parametrize("path", ["../a.bin", "/a.bin", "a/../../b", "c:\\a"])
def test_paths_of_an_entry_stay_below_the_data_folder(path):
    for arguments in ((path, SHA), ("a.tar", SHA, (("x", path),))):
        with pytest.raises(DataError, match="below the data folder"):
            RemoteFile("http://127.0.0.1/a.bin", *arguments)


def test_data_root(monkeypatch, tmp_path):
    monkeypatch.setenv("RNF_DATA", str(tmp_path / "a"))
    assert data_root() == tmp_path / "a"
    monkeypatch.delenv("RNF_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "b"))
    assert data_root() == tmp_path / "b" / "rectangular-flows"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "c")
    assert data_root() == tmp_path / "c" / ".cache" / "rectangular-flows"


def test_the_bar_of_the_command_counts_bytes():
    progress = Progress()
    bar = _Bar(progress, progress.add_task("a", total=None))
    bar.update(300)
    assert (progress.tasks[0].completed, progress.tasks[0].total) == (300, None)
    bar.total = 1000
    bar.update(500)
    assert (progress.tasks[0].completed, progress.tasks[0].total) == (800, 1000)
    bar.reset()
    bar.update(1000)
    assert progress.tasks[0].completed == 1000


def test_the_command_downloads_and_lists(server, tmp_path, monkeypatch, capsys, request):
    monkeypatch.setenv("RNF_DATA", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    register_dataset(one(server))
    request.addfinalizer(lambda: DATASETS.pop("set"))
    monkeypatch.setattr(pooch.get_logger(), "disabled", False)  # put back at the end
    logged = io.StringIO()
    handler = logging.StreamHandler(logged)
    pooch.get_logger().addHandler(handler)
    request.addfinalizer(lambda: pooch.get_logger().removeHandler(handler))

    def listed():
        assert main(["data", "list"]) == 0
        (line,) = (line for line in capsys.readouterr().out.splitlines() if line.split()[:1] == ["set"])
        return line.split()[4]

    assert listed() == "no"
    assert main(["data", "get", "SET"]) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / "set" / "a.bin")]
    assert logged.getvalue() == ""
    assert listed() == "yes"
    assert main(["data", "get", "circle"]) == 0
    assert "needs no download" in capsys.readouterr().out
