"""download: files for a user, from URLs to verified or unpacked files."""

from __future__ import annotations

import hashlib
import random

import pytest

from packtrain.data.download import download
from packtrain.errors import FailedError, NotFoundError, UsageError
from packtrain.plan import Digest, Location
from testbed.http_server import HttpServer, ResponseFault
from tests.support.agent_runs import make_tar

DATA = random.Random(18).randbytes(200_000)
SHA256 = Digest("sha256", hashlib.sha256(DATA).hexdigest())


class PlainCredentials:
    """Locations without secrets."""

    def make_location(self, url, token_url):
        return Location(url)

    def resolve_secret(self, value):
        return value


class Recorder:
    """Records what a progress display is told."""

    def __init__(self):
        self.started, self.done_bytes = [], []

    def start(self, verb, name, total_bytes=None):
        self.started.append((verb, name))

    def on_progress(self, done_bytes, total_bytes):
        self.done_bytes.append(done_bytes)

    def on_snapshot(self, snapshot):
        self.done_bytes.append(snapshot.done_bytes)


@pytest.fixture
def served(tmp_path):
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "data.bin").write_bytes(DATA)
    return folder


@pytest.fixture
def server(served):
    with HttpServer(served) as server:
        yield server


@pytest.fixture
def get(tmp_path, server):
    def get(*names, target="out", **options):
        urls = [f"{server.url}/{name}" for name in names]
        options = {"retry_timeout_s": 0.3, **options}
        return download(urls, f"{tmp_path}/{target}", PlainCredentials(), **options)

    return get


def test_file_is_downloaded_once(get, tmp_path):
    (first,) = get("data.bin", digest=SHA256)
    assert (first.path.read_bytes(), first.verified_by) == (DATA, "sha256")
    assert first.path == tmp_path / "out"
    (second,) = get("data.bin", digest=SHA256)
    assert (second.fetch_result, second.verified_by) == (None, "sha256")
    assert second.to_data()["already_exists"] is True


def test_different_file_is_replaced_by_force_only(get, tmp_path):
    (tmp_path / "out").write_bytes(b"mine")
    with pytest.raises(UsageError, match="exists, but its sha256 is not"):
        get("data.bin", digest=SHA256)
    assert (tmp_path / "out").read_bytes() == b"mine"
    get("data.bin", digest=SHA256, force=True)
    assert (tmp_path / "out").read_bytes() == DATA


def test_several_files_into_a_folder(get, served, tmp_path):
    (served / "more.bin").write_bytes(b"more")
    results = get("data.bin", "more.bin", target="folder/")
    assert [result.path for result in results] == [tmp_path / "folder/data.bin", tmp_path / "folder/more.bin"]


@pytest.mark.parametrize(
    "options",
    [{"digest": SHA256}, {"mirrors": ["http://127.0.0.1:9/x"]}, {"checksums": "sums.json"}],
    ids=lambda options: next(iter(options)),
)
def test_options_of_one_file(get, server, options):
    with pytest.raises(UsageError, match="apply to one file"):
        get("data.bin", "more.bin", target="folder/", **options)
    assert not server.requests


def test_missing_checksums_file(get, tmp_path):
    with pytest.raises(NotFoundError, match="cannot read the checksums file"):
        get("data.bin", checksums=str(tmp_path / "none.json"))


def test_unpack_shows_its_progress(get, served, tmp_path):
    make_tar(served / "set.tar.gz", {"a": b"1", "d/b": b"2"})
    recorder = Recorder()
    (result,) = get("set.tar.gz", unpack=True, progress=recorder)
    assert (result.path, result.unpack_result.files) == (tmp_path / "out", 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "served"]
    assert recorder.started == [("unpack", "set.tar.gz")]
    assert recorder.done_bytes[-1] == (served / "set.tar.gz").stat().st_size


def test_only_the_damaged_archive_is_downloaded_again(get, server, served, tmp_path):
    make_tar(served / "a.tar.gz", {"a": DATA})
    make_tar(served / "b.tar.gz", {"b": DATA})
    damaged = (served / "b.tar.gz").read_bytes()
    (served / "b.tar.gz").write_bytes(damaged[:-100])
    recorder = Recorder()
    with pytest.raises(FailedError) as caught:
        get("a.tar.gz", "b.tar.gz", unpack=True, progress=recorder)
    assert caught.value.kind == "truncated"
    assert recorder.started == [
        ("unpack", "a.tar.gz"),
        ("unpack", "b.tar.gz"),
        ("fetch", "b.tar.gz"),
        ("unpack", "b.tar.gz"),
    ]
    assert not (tmp_path / "out").exists()


def test_leftovers_of_a_killed_process_are_removed(get, served, tmp_path):
    make_tar(served / "set.tar", {"a": b"1"})
    for name in ("unpacked", "stream"):
        (tmp_path / ".out.packtrain-get" / name).mkdir(parents=True)
        (tmp_path / ".out.packtrain-get" / name / "stale").touch()
    get("set.tar", unpack=True)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a"]


def test_cancelled_download_is_kept(get, server, tmp_path):
    server.faults = [ResponseFault(stall_after_bytes=1000)] * 20

    def check_cancelled():
        if server.stall_started.is_set():
            raise FailedError("cancelled", "stopped by the user")

    with pytest.raises(FailedError) as caught:
        get("data.bin", check_cancelled=check_cancelled, retry_timeout_s=60)
    assert caught.value.kind == "cancelled"
    assert not (tmp_path / "out").exists()
