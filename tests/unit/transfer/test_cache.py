"""The download cache: each object is downloaded once, even if processes die, and the limit holds."""

import errno
import fcntl
import hashlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from packtrain.errors import FailedError, NotFoundError, UnavailableError
from packtrain.plan import Digest, Location, RemoteFile
from packtrain.transfer.cache import DownloadCache, identify_object
from testbed.http_server import HttpServer, ResponseFault
from tests.support.waiting import TIMEOUT_S, wait_until

DATA = os.urandom(400_000)
# A process that gets an object through the cache. Arguments: CACHE URL NAME TARGET SIZE
GET_PROGRAM = """
import sys
from pathlib import Path
from packtrain.plan import Location, RemoteFile
from packtrain.transfer.cache import DownloadCache
cache, url, name, target, size = sys.argv[1:]
result = DownloadCache(Path(cache)).get(RemoteFile(name, (Location(url),), int(size)), Path(target), str,
    retry_timeout_s=5, check_cancelled=lambda: None, on_progress=lambda d, t: None)
print(result.source)
"""


@pytest.fixture
def served(tmp_path):
    (tmp_path / "served").mkdir()
    return tmp_path / "served"


@pytest.fixture
def server(served):
    with HttpServer(served) as server:
        yield server


@pytest.fixture
def cache(tmp_path):
    return DownloadCache(tmp_path / "cache")


@pytest.fixture
def serve(served, server):
    def serve(name, data, **options):
        (served / name).write_bytes(data)
        return RemoteFile(name, (Location(f"{server.url}/{name}"),), len(data), **options)

    return serve


def get(cache, remote_file, target, **more_options):
    options = {
        "retry_timeout_s": 1.0,
        "check_cancelled": lambda: None,
        "on_progress": lambda d, t: None,
        **more_options,
    }
    return cache.get(remote_file, target, lambda text: str(text), **options)


def names(cache):
    return [entry.name for entry in cache.entries()]


def test_second_get_downloads_nothing(cache, serve, server, tmp_path):
    remote_file, reports = serve("a", DATA), []
    first = get(cache, remote_file, tmp_path / "one")
    sent_bytes = server.sent_bytes
    second = get(cache, remote_file, tmp_path / "two", on_progress=lambda done, total: reports.append((done, total)))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes() == DATA
    assert server.sent_bytes == sent_bytes
    assert first.source == f"{server.url}/a"
    assert second.source == f"the download cache {tmp_path / 'cache'}"
    assert second.bytes == len(DATA)
    assert reports[-1] == (len(DATA), len(DATA))


def test_changed_copy_does_not_change_cache(cache, serve, tmp_path):
    remote_file = serve("a", DATA)
    get(cache, remote_file, tmp_path / "one")
    with open(tmp_path / "one", "r+b") as file:
        file.write(b"overwritten")
    get(cache, remote_file, tmp_path / "two")
    assert (tmp_path / "two").read_bytes() == DATA


def test_same_digest_is_same_object(cache, serve, server, tmp_path):
    digest = Digest("sha256", hashlib.sha256(DATA).hexdigest())
    get(cache, serve("a", DATA, digest=digest), tmp_path / "one")
    sent_bytes = server.sent_bytes
    get(cache, serve("b", DATA, digest=digest), tmp_path / "two")
    assert server.sent_bytes == sent_bytes
    assert [entry.key for entry in cache.entries()] == [digest.value]


def test_changed_object_is_a_new_entry(cache, serve, tmp_path):
    get(cache, serve("a", DATA), tmp_path / "one")
    time.sleep(0.01)
    get(cache, serve("a", DATA[::-1]), tmp_path / "two")
    assert (tmp_path / "two").read_bytes() == DATA[::-1]
    assert len(cache.entries()) == 2


def test_query_is_not_part_of_key(serve):
    remote_file = serve("a", DATA)
    (location,) = remote_file.locations
    signed = RemoteFile("a", (Location(f"{location.url}?signature=s3cret"),), remote_file.size)
    again = RemoteFile("a", (Location(f"{location.url}?signature=other"),), remote_file.size)
    assert identify_object(signed, str) == identify_object(again, str) is not None


def test_weak_digest_does_not_identify_object(serve):
    """32 bits collide by accident, and a file verified by one algorithm is not verified by another."""
    crc, md5 = Digest("crc32c", "e3069283"), Digest("md5", "0" * 32)
    assert identify_object(serve("a", DATA, digest=md5), str) == identify_object(serve("b", DATA, digest=md5), str)
    keys = {
        identify_object(remote_file, str)[0]
        for remote_file in (serve("a", DATA, digest=crc), serve("b", DATA, digest=crc), serve("a", DATA))
    }
    assert len(keys) == 3


def test_unidentified_object_bypasses_cache(cache, serve, server, tmp_path, served):
    remote_file = serve("a", DATA)
    server.faults[:] = [ResponseFault(status=503)]
    assert get(cache, remote_file, tmp_path / "one").bytes == len(DATA)
    assert cache.entries() == []


def test_wrong_digest_is_not_cached(cache, serve, tmp_path):
    remote_file = serve("a", DATA, digest=Digest("sha256", "0" * 64))
    with pytest.raises(FailedError) as caught:
        get(cache, remote_file, tmp_path / "one")
    assert caught.value.kind == "digest_mismatch"
    assert not any(entry.is_complete for entry in cache.entries())


def test_unusable_cache_is_bypassed(serve, tmp_path):
    (tmp_path / "cache").write_text("a file, not a folder")
    assert get(DownloadCache(tmp_path / "cache"), serve("a", DATA), tmp_path / "one").bytes == len(DATA)


def test_locks_work_on_nfs(cache, serve, server, tmp_path, monkeypatch):
    """On NFS a shared lock needs a readable file, and an exclusive lock a writable file."""
    flock = fcntl.flock

    def nfs_flock(file, operation):
        access = fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE
        forbidden = os.O_WRONLY if operation & fcntl.LOCK_SH else os.O_RDONLY
        if access == forbidden:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", nfs_flock)
    remote_file = serve("a", DATA)
    get(cache, remote_file, tmp_path / "one")
    assert get(cache, remote_file, tmp_path / "two").source == f"the download cache {tmp_path / 'cache'}"
    assert server.sent_bytes == len(DATA)


def test_etag_entry_is_filled_by_its_source(cache, serve, served, tmp_path):
    """A mirror may have a different object of the same size, which must not be cached for the first source."""
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror" / "a").write_bytes(DATA[::-1])
    remote_file = serve("a", DATA)
    faults = [None, *[ResponseFault(status=503)] * 2]  # the HEAD request succeeds
    with HttpServer(served, faults=faults) as first, HttpServer(tmp_path / "mirror") as mirror:
        both = replace(remote_file, locations=(Location(f"{first.url}/a"), Location(f"{mirror.url}/a")))
        get(cache, both, tmp_path / "one", retry_timeout_s=TIMEOUT_S)
        first.faults.clear()
        get(cache, replace(both, locations=both.locations[:1]), tmp_path / "two")
    assert (tmp_path / "two").read_bytes() == DATA


def test_mirror_bypasses_cache_of_etag_entry(cache, serve, tmp_path, monkeypatch):
    monkeypatch.setattr("packtrain.transfer.cache._FIRST_SOURCE_TIMEOUT_S", 0.0)
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror" / "a").write_bytes(DATA)
    remote_file = serve("a", DATA)
    faults = [None, *[ResponseFault(status=503)] * 9]
    with HttpServer(tmp_path / "mirror", faults=faults) as first, HttpServer(tmp_path / "mirror") as mirror:
        both = replace(remote_file, locations=(Location(f"{first.url}/a"), Location(f"{mirror.url}/a")))
        get(cache, both, tmp_path / "one", retry_timeout_s=TIMEOUT_S)
    assert (tmp_path / "one").read_bytes() == DATA
    assert not any(entry.is_complete for entry in cache.entries())


def test_object_that_changes_during_get_is_not_cached(cache, serve, served, tmp_path, monkeypatch):
    remote_file, reserve = serve("a", DATA), DownloadCache._reserve

    def change_object(self, entry):
        serve("a", DATA[::-1])
        return reserve(self, entry)

    monkeypatch.setattr(DownloadCache, "_reserve", change_object)
    get(cache, remote_file, tmp_path / "one")
    assert not any(entry.is_complete for entry in cache.entries())


def test_object_is_synced_before_rename(cache, serve, tmp_path, monkeypatch):
    """Otherwise a crash of the machine could leave an entry of zeros, which would be trusted."""
    digest = Digest("sha256", hashlib.sha256(DATA).hexdigest())
    path = tmp_path / "cache" / digest.value[:2] / digest.value
    real_fsync, synced = os.fsync, []

    def fsync(fd):
        real_fsync(fd)
        synced.append((os.fstat(fd).st_ino, path.exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    get(cache, serve("a", DATA, digest=digest), tmp_path / "one")
    assert (path.stat().st_ino, False) in synced


def test_least_recently_used_is_removed_first(serve, tmp_path):
    cache = DownloadCache(tmp_path / "cache", 1000)
    remote_files = {name: serve(name, name.encode() * 400) for name in "abc"}
    get(cache, remote_files["a"], tmp_path / "x")
    get(cache, remote_files["b"], tmp_path / "x")
    os.utime(next((tmp_path / "cache").glob(f"*/{key_of(cache, 'b')}.lock")), (1, 1))
    get(cache, remote_files["a"], tmp_path / "x")
    get(cache, remote_files["c"], tmp_path / "x")
    assert sorted(names(cache)) == ["a", "c"]


def key_of(cache, name):
    return next(entry.key for entry in cache.entries() if entry.name == name)


def size_of(folder: Path) -> int:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file() and p.suffix not in (".json", ".lock"))


def test_limit_holds(serve, tmp_path):
    cache = DownloadCache(tmp_path / "cache", 100_000)
    for n in range(12):
        get(cache, serve(f"f{n}", os.urandom(30_000)), tmp_path / "x")
        assert size_of(tmp_path / "cache") <= 100_000
    assert names(cache) == ["f9", "f10", "f11"]


def test_object_larger_than_cache_bypasses_it(serve, tmp_path):
    cache = DownloadCache(tmp_path / "cache", 1000)
    get(cache, serve("small", b"s"), tmp_path / "x")
    assert get(cache, serve("a", DATA), tmp_path / "one").bytes == len(DATA)
    assert "a" not in names(cache)


def test_entry_in_use_is_not_removed(serve, tmp_path):
    cache = DownloadCache(tmp_path / "cache", 500_000)
    get(cache, serve("a", DATA), tmp_path / "x")
    key = key_of(cache, "a")
    path = tmp_path / "cache" / key[:2] / key
    with cache._try_lock(path, 1):  # LOCK_SH, like a process that copies the object
        with pytest.raises(UnavailableError):
            cache.remove(key)
        assert cache.clear() == []
        get(cache, serve("b", DATA[::-1]), tmp_path / "y")
    assert path.read_bytes() == DATA
    assert (tmp_path / "y").read_bytes() == DATA[::-1]


def test_remove_and_clear(cache, serve, tmp_path):
    for name in "abc":
        get(cache, serve(name, name.encode()), tmp_path / "x")
    assert cache.remove(key_of(cache, "b")).name == "b"
    assert sorted(names(cache)) == ["a", "c"]
    with pytest.raises(NotFoundError):
        cache.remove("0" * 64)
    assert len(cache.clear()) == 2
    assert [p for p in (tmp_path / "cache").rglob("*") if p.is_file()] == [tmp_path / "cache" / "lock"]


def start_get(tmp_path, server, name, size, target):
    arguments = [tmp_path / "cache", f"{server.url}/{name}", name, target, str(size)]
    return subprocess.Popen(
        [sys.executable, "-c", GET_PROGRAM, *map(str, arguments)], stdout=subprocess.PIPE, text=True
    )


@pytest.mark.slow
def test_concurrent_processes_download_once(serve, server, tmp_path):
    data = os.urandom(5_000_000)
    serve("a", data)
    processes = [start_get(tmp_path, server, "a", len(data), tmp_path / f"t{n}") for n in range(8)]
    sources = [process.communicate(timeout=TIMEOUT_S)[0] for process in processes]
    assert all((tmp_path / f"t{n}").read_bytes() == data for n in range(8))
    assert sum(source.startswith("http") for source in sources) == 1
    assert server.sent_bytes <= len(data) * 1.1


@pytest.mark.slow
def test_killed_process_holds_no_lock(serve, served, tmp_path):
    data = os.urandom(20_000_000)
    (served / "a").write_bytes(data)
    with HttpServer(served, bytes_per_s=4_000_000) as slow:
        first = start_get(tmp_path, slow, "a", len(data), tmp_path / "one")
        wait_until(lambda: slow.sent_bytes >= 3_000_000)
        first.send_signal(signal.SIGKILL)
        first.communicate()
        assert not any(entry.is_complete for entry in DownloadCache(tmp_path / "cache").entries())
        slow.bytes_per_s = None
        second = start_get(tmp_path, slow, "a", len(data), tmp_path / "two")
        assert second.communicate(timeout=TIMEOUT_S)[0].startswith("http")
    assert (tmp_path / "two").read_bytes() == data
    assert not (tmp_path / "one").exists()
    assert [entry.is_complete for entry in DownloadCache(tmp_path / "cache").entries()] == [True]


# Folders of streamed datasets


def test_dataset_dir_counts_with_full_size(tmp_path, serve):
    cache = DownloadCache(tmp_path / "cache", 1_000_000)
    with cache.dataset_dir("a" * 64, "train.tar", 700_000, "https://h/train.tar") as (folder, max_bytes):
        assert folder.is_dir() and max_bytes == 700_000
        assert get(cache, serve("x", DATA), tmp_path / "x").source != f"the download cache {tmp_path / 'cache'}"
        assert [entry.name for entry in cache.entries()] == ["train.tar"], "there is no space for another entry"
        with pytest.raises(UnavailableError, match="in use"):
            cache.remove("a" * 64)
    get(cache, serve("x", DATA), tmp_path / "x")
    assert [entry.name for entry in cache.entries()] == ["x"], "an unused entry is removed"
    assert not folder.exists()


def test_large_dataset_gets_half_of_the_cache(tmp_path):
    with DownloadCache(tmp_path / "cache", 1000).dataset_dir("a" * 64, "train.tar", 5000, "") as (_, max_bytes):
        assert max_bytes == 500


def test_dataset_dir_is_shared(tmp_path):
    cache = DownloadCache(tmp_path / "cache", 1000)
    with cache.dataset_dir("a" * 64, "t", 300, "") as first, cache.dataset_dir("a" * 64, "t", 300, "") as second:
        assert first == second
    assert len(cache.entries()) == 1


def test_dataset_dir_without_space_or_cache(tmp_path):
    cache = DownloadCache(tmp_path / "cache", 1000)
    with cache.dataset_dir("a" * 64, "t", 900, ""), cache.dataset_dir("b" * 64, "u", 900, "") as folder:
        assert folder is None
    (tmp_path / "file").touch()
    with DownloadCache(tmp_path / "file" / "cache").dataset_dir("a" * 64, "t", 1, "") as folder:
        assert folder is None
