"""fetch against real servers with scripted faults: the file is right, or the failure is honest."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from packtrain.plan import Location, RemoteFile
from packtrain.transfer.engine import coordinator, fetch_request, source_stats
from packtrain.transfer.engine.part_file import PartFile
from packtrain.transfer.engine.resume_log import ObjectIdentity
from packtrain.transfer.http import connection
from testbed.http_server import HttpServer, ResponseFault
from tests.support.fetches import (
    DATA,
    FILENAME,
    SHA256,
    copy_with_other_etag,
    fetch_error,
    fetch_file,
    make_remote_file,
    requested_ranges,
)


def test_a_file_arrives_with_its_figures(folder, target):
    told = []
    with HttpServer(folder) as origin:
        done = fetch_file(
            make_remote_file(f"{origin.url}/{FILENAME}", size=len(DATA)),
            target,
            on_progress=lambda d, t: told.append((d, t)),
        )
    assert target.read_bytes() == DATA
    assert (done.bytes, done.retries, done.sha256) == (len(DATA), 0, SHA256.value)
    assert done.source == f"{origin.url}/{FILENAME}"
    assert told[-1] == (len(DATA), len(DATA))
    assert os.listdir(target.parent) == [FILENAME]


def test_an_empty_file_arrives(folder, target):
    (folder / FILENAME).write_bytes(b"")
    with HttpServer(folder) as origin:
        assert fetch_file(make_remote_file(f"{origin.url}/{FILENAME}"), target).bytes == 0
    assert target.read_bytes() == b""


def test_an_empty_archive_is_not_the_data(folder, target):
    (folder / "x.tar.gz").write_bytes(b"")
    with HttpServer(folder) as origin:
        assert (
            fetch_error(RemoteFile("x.tar.gz", (Location(f"{origin.url}/x.tar.gz"),)), target).kind
            == "unexpected_content"
        )


def test_a_file_address_is_a_source_like_any_other(folder, target):
    assert fetch_file(make_remote_file((folder / FILENAME).as_uri(), digest=SHA256), target).bytes == len(DATA)
    assert target.read_bytes() == DATA


def test_after_a_cut_it_goes_on_where_it_was(folder, target):
    with HttpServer(
        folder, faults=[ResponseFault(close_after_bytes=300_000), ResponseFault(close_after_bytes=100)]
    ) as origin:
        done = fetch_file(make_remote_file(f"{origin.url}/{FILENAME}"), target)
    assert target.read_bytes() == DATA
    assert done.retries == 2
    assert requested_ranges(origin) == ["bytes=0-4194303", "bytes=300000-700000", "bytes=300100-700000"]


def test_without_ranges_what_we_have_is_passed_over(folder, target):
    cut, whole = ResponseFault(close_after_bytes=300_000, ignore_range=True), ResponseFault(ignore_range=True)
    with HttpServer(folder, faults=[cut, whole]) as origin:
        fetch_file(make_remote_file(f"{origin.url}/{FILENAME}"), target)
    assert target.read_bytes() == DATA


@pytest.mark.parametrize(
    "fault", [ResponseFault(chunked=True, close_after_bytes=5000), ResponseFault(omit_length=True)]
)
def test_without_a_size_it_begins_anew_and_ends_right(folder, target, fault):
    with HttpServer(folder, faults=[fault, ResponseFault(chunked=True)]) as origin:
        fetch_file(make_remote_file(f"{origin.url}/{FILENAME}", size=len(DATA)), target)
    assert target.read_bytes() == DATA


def test_a_cut_that_only_the_planned_size_betrays(folder, target):
    with HttpServer(folder, faults=[ResponseFault(omit_length=True, close_after_bytes=5000), None]) as origin:
        fetch_file(make_remote_file(f"{origin.url}/{FILENAME}", size=len(DATA)), target)
    assert target.read_bytes() == DATA


def test_another_source_goes_on_when_the_first_is_cut(folder, target):
    # The same file, so the same ETag: the second source continues at the byte where the first ended.
    with HttpServer(folder, faults=[ResponseFault(close_after_bytes=400_000)]) as first, HttpServer(folder) as second:
        done = fetch_file(make_remote_file(f"{first.url}/{FILENAME}", f"{second.url}/{FILENAME}"), target)
    assert target.read_bytes() == DATA
    assert done.source.startswith(second.url)
    assert requested_ranges(second) == ["bytes=400000-700000"]


def test_a_stalled_source_is_left_for_another(folder, target, monkeypatch):
    monkeypatch.setattr(coordinator, "_NEXT_REPLICA_AFTER_S", 60.0)  # on a slow machine both would be asked at once
    with HttpServer(folder, faults=[ResponseFault(stall_after_bytes=400_000)]) as first, HttpServer(folder) as second:
        fetch_file(make_remote_file(f"{first.url}/{FILENAME}", f"{second.url}/{FILENAME}"), target)
    assert target.read_bytes() == DATA
    assert first_byte_asked_for(second) > 0, "what was here was fetched again"


def test_a_first_byte_that_comes_late_is_waited_for(folder, target, monkeypatch):
    """For as long as the engine thinks right, not for as long as a single read may take."""
    monkeypatch.setattr(connection, "READ_TIMEOUT_S", 0.1)
    monkeypatch.setattr(source_stats, "_FIRST_BYTE_TIMEOUT_S", 60.0)
    looks = []

    def progress(done: int, total: int | None) -> None:
        looks.append(done)
        if origin.stall_started.is_set() and len(looks) > 20:
            origin.release_stalls()

    with HttpServer(folder, faults=[ResponseFault(stall_after_bytes=0)] * 99) as origin:
        fetch_file(make_remote_file(f"{origin.url}/{FILENAME}"), target, on_progress=progress)
    assert (target.read_bytes(), len(origin.requests)) == (DATA, 1)


def test_a_source_with_another_etag_is_not_mixed_in(folder, target):
    changed = copy_with_other_etag(folder, "changed", bytes(len(DATA)))
    with HttpServer(folder, faults=[ResponseFault(close_after_bytes=400_000)]) as first, HttpServer(changed) as second:
        fetch_file(make_remote_file(f"{first.url}/{FILENAME}", f"{second.url}/{FILENAME}"), target)
    assert target.read_bytes() == DATA
    assert requested_ranges(first) == ["bytes=0-4194303", "bytes=400000-700000"]


def test_with_a_digest_another_etag_does_not_matter(folder, target):
    twin = copy_with_other_etag(folder, "twin", DATA)
    with HttpServer(folder, faults=[ResponseFault(close_after_bytes=400_000)]) as first, HttpServer(twin) as second:
        fetch_file(make_remote_file(f"{first.url}/{FILENAME}", f"{second.url}/{FILENAME}", digest=SHA256), target)
    assert target.read_bytes() == DATA
    assert requested_ranges(second) == ["bytes=400000-700000"]


def test_when_the_first_is_gone_another_object_is_taken_whole(folder, target):
    changed = copy_with_other_etag(folder, "changed", bytes(len(DATA)))
    gone = [ResponseFault(close_after_bytes=400_000), *[ResponseFault(status=503)] * 50]
    with HttpServer(folder, faults=gone) as first, HttpServer(changed) as second:
        fetch_file(make_remote_file(f"{first.url}/{FILENAME}", f"{second.url}/{FILENAME}"), target)
    assert target.read_bytes() == bytes(len(DATA))


@pytest.fixture
def small_blocks(monkeypatch) -> int:
    monkeypatch.setattr(fetch_request, "DEFAULT_BLOCK_BYTES", 1 << 16)
    return 1 << 16


def leave_part(folder: Path, target: Path, count: int) -> None:
    """What a killed process leaves."""
    with HttpServer(
        folder, faults=[ResponseFault(close_after_bytes=count), *[ResponseFault(status=503)] * 99]
    ) as origin:
        fetch_error(make_remote_file(f"{origin.url}/{FILENAME}"), target)
    assert sorted(os.listdir(target.parent)) == [f"{FILENAME}.part", f"{FILENAME}.part.resume"]


def first_byte_asked_for(origin: HttpServer) -> int:
    return min(int(asked.split("=")[1].split("-")[0]) for asked in requested_ranges(origin))


def test_a_new_process_goes_on(folder, target, small_blocks):
    leave_part(folder, target, 2 * small_blocks + 1)
    with HttpServer(folder) as origin:
        done = fetch_file(make_remote_file(f"{origin.url}/{FILENAME}", digest=SHA256), target)
    assert target.read_bytes() == DATA
    assert done.sha256 == SHA256.value
    assert first_byte_asked_for(origin) == 2 * small_blocks


def test_a_block_that_was_lost_behind_the_ledger_is_fetched_again(folder, target, small_blocks):
    leave_part(folder, target, 3 * small_blocks + 1)
    with open(target.parent / f"{FILENAME}.part", "r+b") as part:
        part.seek(small_blocks)
        part.write(bytes(small_blocks))
    with HttpServer(folder) as origin:
        fetch_file(make_remote_file(f"{origin.url}/{FILENAME}"), target)
    assert target.read_bytes() == DATA
    assert f"bytes={small_blocks}-{2 * small_blocks - 1}" in requested_ranges(origin)
    assert "bytes=0-4194303" not in requested_ranges(origin)


@pytest.mark.parametrize("boot", ['"boot_id": "another"', '"no": "boot"'])
@pytest.mark.parametrize("hole", [(8192, 12288), (4096 * 3 + 5, 4096 * 4), (1 << 16, 1 << 16)])
def test_a_page_that_a_crash_of_the_machine_lost_is_fetched_again(folder, target, small_blocks, boot, hole):
    """Its block's seal holds, since that is of samples. What has no hole is kept."""
    leave_part(folder, target, 3 * small_blocks + 1)
    with open(target.parent / f"{FILENAME}.part", "r+b") as part:
        part.seek(small_blocks + hole[0])
        part.write(bytes(hole[1] - hole[0]))
    ledger = target.parent / f"{FILENAME}.part.resume"
    ledger.write_bytes(re.sub(b'"boot_id": "[^"]*"', boot.encode(), ledger.read_bytes()))
    with HttpServer(folder) as origin:
        fetch_file(make_remote_file(f"{origin.url}/{FILENAME}"), target)
    assert target.read_bytes() == DATA
    assert first_byte_asked_for(origin) == (small_blocks if hole[0] < hole[1] else 3 * small_blocks)


@pytest.mark.parametrize("patience_s", [0.0, 5.0])
def test_a_new_process_begins_anew_if_the_object_changed(folder, target, patience_s, small_blocks):
    leave_part(folder, target, 123_457)
    (folder / FILENAME).write_bytes(DATA[::-1])
    os.utime(folder / FILENAME, ns=(1, 1))
    with HttpServer(folder) as origin:
        fetch_file(make_remote_file(f"{origin.url}/{FILENAME}"), target, patience_s)
    assert target.read_bytes() == DATA[::-1]


def test_a_broken_ledger_is_no_ledger(folder, target, small_blocks):
    leave_part(folder, target, 123_457)
    (target.parent / f"{FILENAME}.part.resume").write_text("{")
    with HttpServer(folder) as origin:
        fetch_file(make_remote_file(f"{origin.url}/{FILENAME}"), target)
    assert first_byte_asked_for(origin) == 0
    assert target.read_bytes() == DATA


def test_a_part_that_was_complete_needs_no_more_bytes(folder, target):
    part = PartFile(target)
    part.begin(ObjectIdentity(len(DATA), "etag", None))
    part.write_block(0, memoryview(DATA))
    part.close()
    with HttpServer(folder) as origin:
        fetch_file(make_remote_file(f"{origin.url}/{FILENAME}", digest=SHA256), target)
    assert (target.read_bytes(), origin.requests) == (DATA, [])


def test_a_404_is_waited_out(folder, target):
    with HttpServer(folder, faults=[ResponseFault(status=404)] * 3) as origin:
        assert fetch_file(make_remote_file(f"{origin.url}/{FILENAME}"), target).retries == 3
    assert target.read_bytes() == DATA


def test_a_404_is_believed_when_all_have_said_so_for_the_patience(folder, target):
    with HttpServer(folder) as first, HttpServer(folder) as second:
        began = time.monotonic()
        error = fetch_error(make_remote_file(f"{first.url}/missing", f"{second.url}/missing"), target, 0.6)
    assert error.kind == "object_missing"
    assert time.monotonic() - began >= 0.6
    assert first.requests and second.requests
    assert first.url in error.detail and second.url in error.detail


def test_a_404_and_a_503_are_no_missing_object(folder, target):
    with HttpServer(folder) as first, HttpServer(folder, faults=[ResponseFault(status=503)] * 99) as second:
        error = fetch_error(make_remote_file(f"{first.url}/missing", f"{second.url}/{FILENAME}"), target, 0.3)
    assert error.kind == "service_unavailable"


def test_a_refused_token_is_asked_for_once_and_told_at_once(folder, target):
    with HttpServer(folder, token="t") as first, HttpServer(folder, token="t") as second:
        began = time.monotonic()
        error = fetch_error(make_remote_file(f"{first.url}/{FILENAME}", f"{second.url}/{FILENAME}"), target, 60)
    assert error.kind == "access_denied"
    assert "no token was sent" in error.detail
    assert time.monotonic() - began < 60
    assert len(first.requests) == len(second.requests) == 1


def test_one_source_refuses_and_the_other_gives(folder, target):
    with HttpServer(folder, token="t") as first, HttpServer(folder, faults=[ResponseFault(status=500)]) as second:
        fetch_file(make_remote_file(f"{first.url}/{FILENAME}", f"{second.url}/{FILENAME}"), target)
    assert target.read_bytes() == DATA
    assert len(first.requests) == 1


def test_an_unknown_host_is_told_after_the_patience(target):
    error = fetch_error(make_remote_file("http://nohost.invalid/data.bin"), target, 0.2)
    assert error.kind == "host_unknown"
    assert "nohost.invalid" in error.detail


def test_an_unknown_scheme(target):
    assert fetch_error(make_remote_file("gopher://x/data.bin"), target).kind == "unsupported"


def test_a_page_that_poses_as_the_archive(folder, target):
    page = b"<!DOCTYPE html>\n<html><head><title>Log in &amp; go on</title></head><body>...</body></html>"
    name = "cifar-10-python.tar.gz"
    with HttpServer(folder, faults=[ResponseFault(html_body=page)] * 2) as origin:
        error = fetch_error(RemoteFile(name, (Location(f"{origin.url}/{name}?signature=abc"),)), target)
    assert error.kind == "unexpected_content"
    assert 'instead of cifar-10-python.tar.gz: "Log in & go on"' in error.detail
    assert "abc" not in error.detail
    assert not list(target.parent.glob("*"))


@pytest.mark.parametrize("page", [b"<html>please wait</html>", b"404 page not found\n", bytes(2000)])
def test_a_page_is_waited_out(folder, target, page):
    data = gzip.compress(DATA, 0)
    (folder / "x.tar.gz").write_bytes(data)
    with HttpServer(folder, faults=[ResponseFault(html_body=page)]) as origin:
        fetch_file(RemoteFile("x.tar.gz", (Location(f"{origin.url}/x.tar.gz"),)), target)
    assert target.read_bytes() == data


def test_what_its_digest_proves_may_begin_with_anything(folder, target):
    with HttpServer(folder) as origin:
        fetch_file(RemoteFile("x.zip", (Location(f"{origin.url}/{FILENAME}"),), digest=SHA256), target)
    assert target.read_bytes() == DATA


@pytest.mark.parametrize(("planned", "kind"), [(len(DATA) + 5, "truncated"), (len(DATA) - 5, "unexpected_content")])
def test_a_size_other_than_planned(folder, target, planned, kind):
    with HttpServer(folder) as origin:
        error = fetch_error(make_remote_file(f"{origin.url}/{FILENAME}", size=planned), target)
    assert error.kind == kind
    assert str(planned) in error.detail and str(len(DATA)) in error.detail


@pytest.mark.parametrize("location", ["http://h:99999/x", "http://[bad/x", "/loop"])
def test_a_source_that_redirects_to_nowhere_leaves_the_others(folder, target, location):
    with (
        HttpServer(folder, faults=[ResponseFault(status=302, headers={"Location": location})] * 999) as first,
        HttpServer(folder) as second,
    ):
        fetch_file(make_remote_file(f"{first.url}/{FILENAME}", f"{second.url}/{FILENAME}"), target)
    assert target.read_bytes() == DATA


@pytest.mark.parametrize(("location", "times"), [("http://h:99999/x", 2), ("http://[bad/x", 2), (f"/{FILENAME}", 15)])
def test_a_redirect_to_nowhere_is_waited_out(folder, target, location, times):
    with HttpServer(folder, faults=[ResponseFault(status=302, headers={"Location": location})] * times) as origin:
        fetch_file(make_remote_file(f"{origin.url}/{FILENAME}"), target)
    assert target.read_bytes() == DATA


@pytest.mark.parametrize("url", ["http://h:99999/x", "http://[bad/x", "http://é..x/x"])
def test_an_address_that_cannot_be_leaves_the_others(folder, target, url):
    with HttpServer(folder) as origin:
        fetch_file(make_remote_file(url, f"{origin.url}/{FILENAME}"), target)
    assert target.read_bytes() == DATA
    target.unlink()
    assert fetch_error(make_remote_file(url), target).kind == "unsupported"


class Leave(Exception):
    pass


def test_stop_is_heard_while_the_server_says_nothing(folder, target):
    with HttpServer(folder, faults=[ResponseFault(stall_after_bytes=200_000)]) as origin:

        def stop() -> None:
            if origin.stall_started.is_set():
                raise Leave

        began = time.monotonic()
        with pytest.raises(Leave):
            fetch_file(make_remote_file(f"{origin.url}/{FILENAME}"), target, check_cancelled=stop)
    assert time.monotonic() - began < 60


def test_stop_is_heard_while_waiting_for_a_source_to_come_back(target):
    ends = time.monotonic() + 0.5

    def stop() -> None:
        if time.monotonic() > ends:
            raise Leave

    with pytest.raises(Leave):
        fetch_file(make_remote_file("file:///no/such/file"), target, retry_timeout_s=600, check_cancelled=stop)
    assert time.monotonic() - ends < 60


def in_child(limit: int, url: str, target: Path) -> dict:
    """fetch in a process whose files may not grow past a limit: a full disk, without mounting one."""
    program = (
        "import json, resource, sys; from pathlib import Path\n"
        "from packtrain.errors import FailedError; from packtrain.plan import Location, RemoteFile\n"
        "from packtrain.transfer.fetch import fetch\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)\n"
        "try: fetch(RemoteFile('data.bin', (Location(sys.argv[2]),)), Path(sys.argv[3]), str, retry_timeout_s=60,"
        " check_cancelled=lambda: None, on_progress=lambda d, t: None)\n"
        "except FailedError as error: print(json.dumps({'kind': error.kind, 'detail': error.detail}))\n"
    )
    words = [sys.executable, "-c", program, str(limit), url, str(target)]
    return json.loads(subprocess.run(words, capture_output=True, check=True, timeout=60).stdout)


def test_a_disk_that_fills_up_is_told_with_figures(folder, target):
    with HttpServer(folder) as origin:
        told = in_child(300_000, f"{origin.url}/{FILENAME}", target)
    assert told["kind"] == "disk_full"
    assert f"{len(DATA)} more bytes" in told["detail"]
    assert "are free" in told["detail"]


def test_what_cannot_fit_is_told_before_it_is_fetched(target):
    with HttpServer(Path("/nonexistent")) as origin:
        size = 1 << 60
        origin.faults.append(
            ResponseFault(status=206, headers={"Content-Range": f"bytes 0-9/{size}"}, html_body=b"0123456789")
        )
        error = fetch_error(make_remote_file(f"{origin.url}/{FILENAME}"), target)
    assert error.kind == "disk_full"
    assert str(size) in error.detail
