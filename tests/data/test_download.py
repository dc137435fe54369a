import gzip
import hashlib
import http.server
import io
import json
import os
import re
import tarfile
import threading
import zipfile
from pathlib import Path

import pytest

from rectangular_flows.data import download
from rectangular_flows.data.datasets import DATASETS, Dataset, RemoteFile, dataset
from rectangular_flows.data.download import FirstUseWarning, data_root, fetch
from rectangular_flows.data.tables import DataError

CONTENT = bytes(range(256)) * 4000  # a megabyte
SHA = "sha256:" + hashlib.sha256(CONTENT).hexdigest()


class _Server(http.server.ThreadingHTTPServer):
    files: dict
    cut_after: list  # bytes after which to hang up, one entry for each request to come
    status: list  # answers to give before the file, likewise
    ranges = True
    lengths = True
    requests: list


class _Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_GET(self):
        server = self.server
        asked = self.headers.get("Range")
        server.requests.append(asked)
        if server.status:
            self.send_error(server.status.pop(0))
            return
        content = server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1]) if asked and server.ranges else 0
        if start and start >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        if server.lengths:
            self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        limit = server.cut_after.pop(0) if server.cut_after else None
        self.wfile.write(content[start:] if limit is None else content[start : start + limit])


@pytest.fixture
def server():
    server = _Server(("127.0.0.1", 0), _Handler)
    server.files, server.cut_after, server.status, server.requests = {"/a.bin": CONTENT}, [], [], []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(download, "BACKOFF", 0.0)
    monkeypatch.setattr(download, "TIMEOUT", 5.0)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def one(server, name="a.bin", checksum=SHA, members=(), path=None):
    url = f"http://127.0.0.1:{server.server_address[1]}/{name}"
    file = RemoteFile(url, path or f"set/{name}", checksum, tuple(members))
    return Dataset("set", "table", "", (file,), (1,), (1, 0, 0), "", "")


def test_whole(server, tmp_path):
    seen = []
    (path,) = fetch(one(server), tmp_path, progress=lambda done, total: seen.append((done, total)))
    assert path == tmp_path / "set" / "a.bin"
    assert path.read_bytes() == CONTENT
    assert seen[0] == (0, len(CONTENT))
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert os.listdir(tmp_path / "set") == ["a.bin"]
    assert fetch(one(server), tmp_path) == [path]
    assert len(server.requests) == 1  # what is there is not asked for again


def test_cut_connection_is_resumed(server, tmp_path):
    server.cut_after = [300_000, 200_000]
    seen = []
    (path,) = fetch(one(server), tmp_path, progress=lambda done, total: seen.append((done, total)))
    assert path.read_bytes() == CONTENT
    assert server.requests == [None, "bytes=300000-", "bytes=500000-"]
    assert {total for _, total in seen} == {len(CONTENT)}


def test_next_call_resumes(server, tmp_path):
    server.cut_after = [100_000] * 3
    with pytest.raises(DataError, match=r"after 3 attempts: .*cut after 300,000.*300,000 bytes are kept"):
        fetch(one(server), tmp_path)
    assert not (tmp_path / "set" / "a.bin").exists()
    (path,) = fetch(one(server), tmp_path)
    assert server.requests[-1] == "bytes=300000-"
    assert path.read_bytes() == CONTENT


def test_server_without_ranges(server, tmp_path):
    server.ranges = False
    server.cut_after = [300_000]
    (path,) = fetch(one(server), tmp_path)
    assert path.read_bytes() == CONTENT


def test_server_without_lengths(server, tmp_path):
    server.lengths = False
    seen = []
    (path,) = fetch(one(server), tmp_path, progress=lambda done, total: seen.append(total))
    assert path.read_bytes() == CONTENT
    assert set(seen) == {None}


def test_whole_part_needs_no_more(server, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a.bin.part").write_bytes(CONTENT)
    (path,) = fetch(one(server), tmp_path)
    assert path.read_bytes() == CONTENT


def test_part_that_is_too_long_is_thrown_away(server, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a.bin.part").write_bytes(CONTENT + b"more")
    (path,) = fetch(one(server), tmp_path)
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize("checksum", ["sha256:" + "0" * 64, "md5:" + "0" * 32])
def test_wrong_checksum(server, tmp_path, checksum):
    with pytest.raises(DataError, match=r"expected (sha256|md5) 0+ \(published\); got [0-9a-f]+\. It was removed"):
        fetch(one(server, checksum=checksum), tmp_path)
    assert os.listdir(tmp_path / "set") == []


def test_md5(server, tmp_path):
    assert fetch(one(server, checksum="md5:" + hashlib.md5(CONTENT).hexdigest()), tmp_path)[0].exists()


def test_first_use_is_trusted_and_remembered(server, tmp_path):
    with pytest.warns(FirstUseWarning, match="no published checksum"):
        (path,) = fetch(one(server, checksum=None), tmp_path)
    record = json.loads((tmp_path / "set" / "checksums.json").read_text())
    assert record == {"a.bin": SHA.removeprefix("sha256:")}
    path.unlink()
    fetch(one(server, checksum=None), tmp_path)  # the same again: no warning
    path.unlink()
    server.files["/a.bin"] = CONTENT[::-1]
    with pytest.raises(DataError, match="recorded in"):
        fetch(one(server, checksum=None), tmp_path)
    assert not path.exists()


def test_without_a_checksum_an_old_part_is_not_trusted(server, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a.bin.part").write_bytes(b"another file")
    with pytest.warns(FirstUseWarning):
        (path,) = fetch(one(server, checksum=None), tmp_path)
    assert path.read_bytes() == CONTENT


def test_not_found(server, tmp_path):
    with pytest.raises(DataError, match=r"404.*put it at '.*b\.bin'"):
        fetch(one(server, "b.bin"), tmp_path)
    assert len(server.requests) == 1


def test_busy_server_is_asked_again(server, tmp_path):
    server.status = [503, 500]
    assert fetch(one(server), tmp_path)[0].read_bytes() == CONTENT
    server.status = [503] * 3
    with pytest.raises(DataError, match="503"):
        fetch(one(server, path="other/a.bin"), tmp_path)


def test_offline(server, tmp_path):
    port = server.server_address[1]
    server.shutdown()
    server.server_close()
    file = RemoteFile(f"http://127.0.0.1:{port}/a.bin", "set/a.bin", SHA)
    entry = Dataset("set", "table", "", (file,), (1,), (1, 0, 0), "", "")
    with pytest.raises(DataError, match=r"after 3 attempts: .*refused.*connection to the internet"):
        fetch(entry, tmp_path)


def test_other_schemes_are_refused(tmp_path):
    file = RemoteFile(Path(__file__).as_uri(), "set/a.bin", SHA)
    with pytest.raises(DataError, match="begins with http"):
        fetch(Dataset("set", "table", "", (file,), (1,), (1, 0, 0), "", ""), tmp_path)


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


def zipped(*entries):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return out.getvalue()


MEMBERS = [("power/data.npy", "power/data.npy"), ("x.csv", "other/y.csv")]


def archive_set(server, content):
    server.files["/data.tar.gz"] = content
    checksum = "sha256:" + hashlib.sha256(content).hexdigest()
    return one(server, "data.tar.gz", checksum, MEMBERS, path="downloads/data.tar.gz")


@pytest.mark.parametrize("make", [tar, zipped, lambda *entries: tar(*entries, compress=False)])
def test_only_named_members_are_unpacked(server, tmp_path, make):
    content = make(("data/README", b"no"), ("data/power/data.npy", b"1"), ("data/gas/z", b"no"), ("data/x.csv", b"2"))
    paths = fetch(archive_set(server, content), tmp_path)
    assert [path.read_bytes() for path in paths] == [b"1", b"2"]
    files = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert files == ["downloads/data.tar.gz", "other/y.csv", "power/data.npy"]
    paths[0].unlink()
    fetch(archive_set(server, content), tmp_path)  # from the archive that is there
    assert paths[0].read_bytes() == b"1"
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (tar(("../power/data.npy", b"evil"), ("x.csv", b"2")), "points outside"),
        (tar(("/power/data.npy", b"evil"), ("x.csv", b"2")), "points outside"),
        (tar(("a/../../power/data.npy", b"evil"), ("x.csv", b"2")), "points outside"),
        (zipped(("../power/data.npy", b"evil"), ("x.csv", b"2")), "points outside"),
        (tar(("power/data.npy", (tarfile.SYMTYPE, "/etc/passwd")), ("x.csv", b"2")), "link or device"),
        (tar(("power/data.npy", (tarfile.LNKTYPE, "x.csv")), ("x.csv", b"2")), "link or device"),
        (tar(("power/data.npy", (tarfile.FIFOTYPE, "")), ("x.csv", b"2")), "link or device"),
        (tar(("other", b"1")), r"Expected power/data\.npy, x\.csv"),
        (tar(("evilx.csv", b"1"), ("power/data.npy", b"1")), r"Expected x\.csv"),
        (b"no archive at all", "cannot be read"),
        (gzip.compress(b"no tar"), "cannot be read"),
        (tar(("power/data.npy", b"1" * 100_000), ("x.csv", os.urandom(100_000)))[:-50_000], "cannot be read"),
    ],
    ids=range(12),  # gzip puts the time into an archive, which would differ between processes
)
def test_hostile_and_broken_archives(server, tmp_path, content, message):
    root = tmp_path / "deep" / "root"
    with pytest.raises(DataError, match=message):
        fetch(archive_set(server, content), root)
    outside = [path for path in tmp_path.rglob("*") if path.is_file() and root not in path.parents]
    assert outside == []
    assert all(path.read_bytes() != b"evil" for path in tmp_path.rglob("*") if path.is_file())
    assert not list(tmp_path.rglob("*.part"))


def test_members_beside_the_named_ones_are_never_written(server, tmp_path):
    content = tar(("../../evil", b"evil"), ("/evil", b"evil"), ("power/data.npy", b"1"), ("x.csv", b"2"))
    fetch(archive_set(server, content), tmp_path / "root")
    assert not list(tmp_path.rglob("evil"))


@pytest.mark.parametrize("path", ["../a.bin", "/a.bin", "a/../../b", "c:\\a"])
def test_paths_of_the_registry_stay_inside(server, tmp_path, path):
    with pytest.raises(DataError, match="below the data folder"):
        fetch(one(server, path=path), tmp_path / "root")


def test_data_root(monkeypatch, tmp_path):
    monkeypatch.setenv("RNF_DATA", str(tmp_path / "a"))
    assert data_root() == tmp_path / "a"
    monkeypatch.delenv("RNF_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "b"))
    assert data_root() == tmp_path / "b" / "rectangular-flows"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "c")
    assert data_root() == tmp_path / "c" / ".cache" / "rectangular-flows"


def test_synthetic_data_need_no_download(tmp_path):
    assert fetch(dataset("circle"), tmp_path) == []


def test_registry_is_sound(tmp_path):
    for name, entry in DATASETS.items():
        assert dataset(name.upper()) is entry
        assert entry.kind in ("table", "image", "synthetic")
        assert bool(entry.files) == (entry.kind != "synthetic")
        for file in entry.files:
            assert file.url.startswith(("http://", "https://"))
            assert re.fullmatch("md5:[0-9a-f]{32}|sha256:[0-9a-f]{64}", file.checksum or "")
            for target in file.targets:
                assert download._inside(tmp_path, target).is_relative_to(tmp_path)
    with pytest.raises(DataError, match="Did you mean 'cifar10'"):
        dataset("cifar-10")
