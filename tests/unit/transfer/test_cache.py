"""The depot: each object is fetched once, whoever asks and whoever dies; never more than its cap."""

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

DATA = os.urandom(400_000)
PATIENCE_S = 30
# Another process that asks: DEPOT URL NAME TARGET SIZE
ASKS = """
import sys
from pathlib import Path
from packtrain.plan import Location, RemoteFile
from packtrain.transfer.cache import DownloadCache
depot, url, name, target, size = sys.argv[1:]
got = DownloadCache(Path(depot)).get(RemoteFile(name, (Location(url),), int(size)), Path(target), str,
                             retry_timeout_s=5, check_cancelled=lambda: None, on_progress=lambda d, t: None)
print(got.source)
"""


@pytest.fixture
def served(tmp_path):
    (tmp_path / "served").mkdir()
    return tmp_path / "served"


@pytest.fixture
def origin(served):
    with HttpServer(served) as origin:
        yield origin


@pytest.fixture
def depot(tmp_path):
    return DownloadCache(tmp_path / "depot")


@pytest.fixture
def serve(served, origin):
    def serve(name, data, **more):
        (served / name).write_bytes(data)
        return RemoteFile(name, (Location(f"{origin.url}/{name}"),), len(data), **more)

    return serve


def get(depot, item, target, **more):
    given = {"retry_timeout_s": 1.0, "check_cancelled": lambda: None, "on_progress": lambda d, t: None, **more}
    return depot.get(item, target, lambda text: str(text), **given)


def names(depot):
    return [entry.name for entry in depot.entries()]


def test_the_second_time_nothing_is_fetched(depot, serve, origin, tmp_path):
    item, told = serve("a", DATA), []
    first = get(depot, item, tmp_path / "one")
    sent = origin.sent_bytes
    second = get(depot, item, tmp_path / "two", on_progress=lambda done, total: told.append((done, total)))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes() == DATA
    assert origin.sent_bytes == sent
    assert first.source == f"{origin.url}/a"
    assert second.source == f"the download cache {tmp_path / 'depot'}"
    assert second.bytes == len(DATA)
    assert told[-1] == (len(DATA), len(DATA))


def test_what_a_job_does_to_its_input_does_not_reach_the_depot(depot, serve, tmp_path):
    item = serve("a", DATA)
    get(depot, item, tmp_path / "one")
    with open(tmp_path / "one", "r+b") as file:
        file.write(b"overwritten")
    get(depot, item, tmp_path / "two")
    assert (tmp_path / "two").read_bytes() == DATA


def test_one_digest_is_one_object_wherever_it_comes_from(depot, serve, origin, tmp_path):
    digest = Digest("sha256", hashlib.sha256(DATA).hexdigest())
    get(depot, serve("a", DATA, digest=digest), tmp_path / "one")
    sent = origin.sent_bytes
    get(depot, serve("b", DATA, digest=digest), tmp_path / "two")
    assert origin.sent_bytes == sent
    assert [entry.key for entry in depot.entries()] == [digest.value]


def test_an_object_that_changes_is_another_object(depot, serve, tmp_path):
    get(depot, serve("a", DATA), tmp_path / "one")
    time.sleep(0.01)
    get(depot, serve("a", DATA[::-1]), tmp_path / "two")
    assert (tmp_path / "two").read_bytes() == DATA[::-1]
    assert len(depot.entries()) == 2


def test_queries_that_hold_secrets_are_no_part_of_a_key(serve):
    item = serve("a", DATA)
    (ref,) = item.locations
    signed = RemoteFile("a", (Location(f"{ref.url}?signature=s3cret"),), item.size)
    again = RemoteFile("a", (Location(f"{ref.url}?signature=other"),), item.size)
    assert identify_object(signed, str) == identify_object(again, str) is not None


def test_a_weak_digest_does_not_make_two_objects_one(serve):
    """32 bits are soon the same by accident; what was compared with one digest is not what another demands."""
    crc, md5 = Digest("crc32c", "e3069283"), Digest("md5", "0" * 32)
    assert identify_object(serve("a", DATA, digest=md5), str) == identify_object(serve("b", DATA, digest=md5), str)
    keys = {
        identify_object(item, str)[0]
        for item in (serve("a", DATA, digest=crc), serve("b", DATA, digest=crc), serve("a", DATA))
    }
    assert len(keys) == 3


def test_what_nobody_can_know_again_passes_the_depot_by(depot, serve, origin, tmp_path, served):
    item = serve("a", DATA)
    origin.faults[:] = [ResponseFault(status=503)]
    assert get(depot, item, tmp_path / "one").bytes == len(DATA)
    assert depot.entries() == []


def test_a_wrong_digest_leaves_nothing_behind_that_counts_as_data(depot, serve, tmp_path):
    item = serve("a", DATA, digest=Digest("sha256", "0" * 64))
    with pytest.raises(FailedError) as caught:
        get(depot, item, tmp_path / "one")
    assert caught.value.kind == "digest_mismatch"
    assert not any(entry.is_complete for entry in depot.entries())


def test_a_depot_that_cannot_be_used_is_no_reason_to_fail(serve, tmp_path):
    (tmp_path / "depot").write_text("a file, not a folder")
    assert get(DownloadCache(tmp_path / "depot"), serve("a", DATA), tmp_path / "one").bytes == len(DATA)


def test_locks_suit_nfs(depot, serve, origin, tmp_path, monkeypatch):
    """Its client makes byte-range locks of them: a shared one wants a file that may be read, the other one to write."""
    really = fcntl.flock

    def as_nfs_has_it(file, how):
        access = fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE
        refused = os.O_WRONLY if how & fcntl.LOCK_SH else os.O_RDONLY
        if access == refused:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        really(file, how)

    monkeypatch.setattr(fcntl, "flock", as_nfs_has_it)
    item = serve("a", DATA)
    get(depot, item, tmp_path / "one")
    assert get(depot, item, tmp_path / "two").source == f"the download cache {tmp_path / 'depot'}"
    assert origin.sent_bytes == len(DATA)


def test_an_entry_named_by_an_etag_holds_what_that_source_has(depot, serve, served, tmp_path):
    """A mirror's object of the same size is another one: who asks for the first source alone must not get it."""
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror" / "a").write_bytes(DATA[::-1])
    item = serve("a", DATA)
    tired = [None, *[ResponseFault(status=503)] * 4]  # the HEAD is answered
    with HttpServer(served, faults=tired) as first, HttpServer(tmp_path / "mirror") as mirror:
        both = replace(item, locations=(Location(f"{first.url}/a"), Location(f"{mirror.url}/a")))
        get(depot, both, tmp_path / "one", retry_timeout_s=PATIENCE_S)
        first.faults.clear()
        get(depot, replace(both, locations=both.locations[:1]), tmp_path / "two")
    assert (tmp_path / "two").read_bytes() == DATA


def test_where_the_first_source_fails_the_mirror_is_asked_past_the_depot(depot, serve, tmp_path, monkeypatch):
    monkeypatch.setattr("packtrain.transfer.cache._FIRST_SOURCE_TIMEOUT_S", 0.0)
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror" / "a").write_bytes(DATA)
    item = serve("a", DATA)
    tired = [None, *[ResponseFault(status=503)] * 9]
    with HttpServer(tmp_path / "mirror", faults=tired) as first, HttpServer(tmp_path / "mirror") as mirror:
        both = replace(item, locations=(Location(f"{first.url}/a"), Location(f"{mirror.url}/a")))
        get(depot, both, tmp_path / "one", retry_timeout_s=PATIENCE_S)
    assert (tmp_path / "one").read_bytes() == DATA
    assert not any(entry.is_complete for entry in depot.entries())


def test_what_changes_between_the_question_and_the_answer_is_not_kept_under_the_old_name(
    depot, serve, served, tmp_path, monkeypatch
):
    item, really = serve("a", DATA), DownloadCache._reserve

    def then_it_changes(self, entry):
        serve("a", DATA[::-1])
        return really(self, entry)

    monkeypatch.setattr(DownloadCache, "_reserve", then_it_changes)
    get(depot, item, tmp_path / "one")
    assert not any(entry.is_complete for entry in depot.entries())


def test_an_object_is_on_the_disk_before_it_has_its_name(depot, serve, tmp_path, monkeypatch):
    """Else a machine that crashes leaves an entry full of zeros, which is trusted for ever."""
    digest = Digest("sha256", hashlib.sha256(DATA).hexdigest())
    path = tmp_path / "depot" / digest.value[:2] / digest.value
    really, synced = os.fdatasync, []

    def fdatasync(handle):
        really(handle)
        synced.append((os.fstat(handle).st_ino, path.exists()))

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    get(depot, serve("a", DATA, digest=digest), tmp_path / "one")
    assert (path.stat().st_ino, False) in synced


def test_the_least_recently_used_goes_first(serve, tmp_path):
    depot = DownloadCache(tmp_path / "depot", 1000)
    items = {name: serve(name, name.encode() * 400) for name in "abc"}
    get(depot, items["a"], tmp_path / "x")
    get(depot, items["b"], tmp_path / "x")
    os.utime(next((tmp_path / "depot").glob(f"*/{key_of(depot, 'b')}.lock")), (1, 1))
    get(depot, items["a"], tmp_path / "x")
    get(depot, items["c"], tmp_path / "x")
    assert sorted(names(depot)) == ["a", "c"]


def key_of(depot, name):
    return next(entry.key for entry in depot.entries() if entry.name == name)


def size_of(folder: Path) -> int:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file() and p.suffix not in (".json", ".lock"))


def test_the_cap_holds_whatever_comes(serve, tmp_path):
    depot = DownloadCache(tmp_path / "depot", 100_000)
    for n in range(12):
        get(depot, serve(f"f{n}", os.urandom(30_000)), tmp_path / "x")
        assert size_of(tmp_path / "depot") <= 100_000
    assert names(depot) == ["f9", "f10", "f11"]


def test_what_is_larger_than_the_depot_passes_it_by(serve, tmp_path):
    depot = DownloadCache(tmp_path / "depot", 1000)
    get(depot, serve("small", b"s"), tmp_path / "x")
    assert get(depot, serve("a", DATA), tmp_path / "one").bytes == len(DATA)
    assert "a" not in names(depot)


def test_what_is_in_use_stays(serve, tmp_path):
    depot = DownloadCache(tmp_path / "depot", 500_000)
    get(depot, serve("a", DATA), tmp_path / "x")
    key = key_of(depot, "a")
    path = tmp_path / "depot" / key[:2] / key
    with depot._try_lock(path, 1):  # LOCK_SH, as who copies it has
        with pytest.raises(UnavailableError):
            depot.remove(key)
        assert depot.clear() == []
        get(depot, serve("b", DATA[::-1]), tmp_path / "y")
    assert path.read_bytes() == DATA
    assert (tmp_path / "y").read_bytes() == DATA[::-1]


def test_entries_are_removed_by_key_or_all(depot, serve, tmp_path):
    for name in "abc":
        get(depot, serve(name, name.encode()), tmp_path / "x")
    assert depot.remove(key_of(depot, "b")).name == "b"
    assert sorted(names(depot)) == ["a", "c"]
    with pytest.raises(NotFoundError):
        depot.remove("0" * 64)
    assert len(depot.clear()) == 2
    assert [p for p in (tmp_path / "depot").rglob("*") if p.is_file()] == [tmp_path / "depot" / "lock"]


def ask(tmp_path, origin, name, size, target):
    given = [tmp_path / "depot", f"{origin.url}/{name}", name, target, str(size)]
    return subprocess.Popen([sys.executable, "-c", ASKS, *map(str, given)], stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_eight_processes_that_ask_at_once_fetch_it_once(serve, origin, tmp_path):
    data = os.urandom(5_000_000)
    serve("a", data)
    asking = [ask(tmp_path, origin, "a", len(data), tmp_path / f"t{n}") for n in range(8)]
    sources = [process.communicate(timeout=PATIENCE_S)[0] for process in asking]
    assert all((tmp_path / f"t{n}").read_bytes() == data for n in range(8))
    assert sum(source.startswith("http") for source in sources) == 1
    assert origin.sent_bytes <= len(data) * 1.1


@pytest.mark.slow
def test_a_process_that_is_killed_in_the_middle_holds_nothing(serve, served, tmp_path):
    data = os.urandom(20_000_000)
    (served / "a").write_bytes(data)
    with HttpServer(served, bytes_per_s=4_000_000) as slow:
        first = ask(tmp_path, slow, "a", len(data), tmp_path / "one")
        deadline = time.monotonic() + PATIENCE_S
        while slow.sent_bytes < 3_000_000 and time.monotonic() < deadline:
            time.sleep(0.01)
        first.send_signal(signal.SIGKILL)
        first.communicate()
        assert not any(entry.is_complete for entry in DownloadCache(tmp_path / "depot").entries())
        slow.bytes_per_s = None
        second = ask(tmp_path, slow, "a", len(data), tmp_path / "two")
        assert second.communicate(timeout=PATIENCE_S)[0].startswith("http")
    assert (tmp_path / "two").read_bytes() == data
    assert not (tmp_path / "one").exists()
    assert [entry.is_complete for entry in DownloadCache(tmp_path / "depot").entries()] == [True]


# Folders of datasets that are streamed


def test_a_shelf_counts_as_if_it_were_full(tmp_path, serve):
    depot = DownloadCache(tmp_path / "depot", 1_000_000)
    with depot.dataset_dir("a" * 64, "train.tar", 700_000, "https://h/train.tar") as (folder, most):
        assert folder.is_dir() and most == 700_000
        assert get(depot, serve("x", DATA), tmp_path / "x").source != f"the download cache {tmp_path / 'depot'}"
        assert [entry.name for entry in depot.entries()] == ["train.tar"], "there was no room for another"
        with pytest.raises(UnavailableError, match="in use"):
            depot.remove("a" * 64)
    get(depot, serve("x", DATA), tmp_path / "x")
    assert [entry.name for entry in depot.entries()] == ["x"], "what nobody uses makes room"
    assert not folder.exists()


def test_of_what_is_larger_than_the_depot_half_of_it_is_kept(tmp_path):
    with DownloadCache(tmp_path / "depot", 1000).dataset_dir("a" * 64, "train.tar", 5000, "") as (_, most):
        assert most == 500


def test_those_who_share_a_shelf_have_the_same(tmp_path):
    depot = DownloadCache(tmp_path / "depot", 1000)
    with depot.dataset_dir("a" * 64, "t", 300, "") as first, depot.dataset_dir("a" * 64, "t", 300, "") as second:
        assert first == second
    assert len(depot.entries()) == 1


def test_where_there_is_no_room_or_no_depot_there_is_no_shelf(tmp_path):
    depot = DownloadCache(tmp_path / "depot", 1000)
    with depot.dataset_dir("a" * 64, "t", 900, ""), depot.dataset_dir("b" * 64, "u", 900, "") as found:
        assert found is None
    (tmp_path / "file").touch()
    with DownloadCache(tmp_path / "file" / "depot").dataset_dir("a" * 64, "t", 1, "") as found:
        assert found is None
