"""fetch from real servers with scripted faults: the file is right, or the error is."""

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
from packtrain.transfer.engine import fetch_request, source_stats
from packtrain.transfer.engine.part_file import PartFile
from packtrain.transfer.engine.resume_log import ObjectIdentity
from packtrain.transfer.http import socket_stream
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


def test_download(folder, target):
    reports = []
    with HttpServer(folder) as server:
        result = fetch_file(
            make_remote_file(f"{server.url}/{FILENAME}", size=len(DATA)),
            target,
            on_progress=lambda d, t: reports.append((d, t)),
        )
    assert target.read_bytes() == DATA
    assert (result.bytes, result.retries, result.sha256) == (len(DATA), 0, SHA256.value)
    assert result.source == f"{server.url}/{FILENAME}"
    assert reports[-1] == (len(DATA), len(DATA))
    assert os.listdir(target.parent) == [FILENAME]


def test_empty_file(folder, target):
    (folder / FILENAME).write_bytes(b"")
    with HttpServer(folder) as server:
        assert fetch_file(make_remote_file(f"{server.url}/{FILENAME}"), target).bytes == 0
    assert target.read_bytes() == b""


def test_empty_archive_is_rejected(folder, target):
    (folder / "x.tar.gz").write_bytes(b"")
    with HttpServer(folder) as server:
        assert (
            fetch_error(RemoteFile("x.tar.gz", (Location(f"{server.url}/x.tar.gz"),)), target).kind
            == "unexpected_content"
        )


def test_file_url(folder, target):
    assert fetch_file(make_remote_file((folder / FILENAME).as_uri(), digest=SHA256), target).bytes == len(DATA)
    assert target.read_bytes() == DATA


def test_broken_response_is_continued(folder, target):
    with HttpServer(
        folder, faults=[ResponseFault(close_after_bytes=300_000), ResponseFault(close_after_bytes=100)]
    ) as server:
        result = fetch_file(make_remote_file(f"{server.url}/{FILENAME}"), target)
    assert target.read_bytes() == DATA
    assert result.retries == 2
    assert requested_ranges(server) == ["bytes=0-4194303", "bytes=300000-700000", "bytes=300100-700000"]


def test_server_without_ranges(folder, target):
    cut, complete = ResponseFault(close_after_bytes=300_000, ignore_range=True), ResponseFault(ignore_range=True)
    with HttpServer(folder, faults=[cut, complete]) as server:
        fetch_file(make_remote_file(f"{server.url}/{FILENAME}"), target)
    assert target.read_bytes() == DATA


@pytest.mark.parametrize(
    "fault", [ResponseFault(chunked=True, close_after_bytes=5000), ResponseFault(omit_length=True)]
)
def test_unknown_size_starts_over(folder, target, fault):
    with HttpServer(folder, faults=[fault, ResponseFault(chunked=True)]) as server:
        fetch_file(make_remote_file(f"{server.url}/{FILENAME}", size=len(DATA)), target)
    assert target.read_bytes() == DATA


def test_truncation_is_detected_by_planned_size(folder, target):
    with HttpServer(folder, faults=[ResponseFault(omit_length=True, close_after_bytes=5000), None]) as server:
        fetch_file(make_remote_file(f"{server.url}/{FILENAME}", size=len(DATA)), target)
    assert target.read_bytes() == DATA


def test_second_source_continues(folder, target):
    # The file is the same, so the ETag is too, and the second source continues where the first ended.
    with HttpServer(folder, faults=[ResponseFault(close_after_bytes=400_000)]) as first, HttpServer(folder) as second:
        result = fetch_file(make_remote_file(f"{first.url}/{FILENAME}", f"{second.url}/{FILENAME}"), target)
    assert target.read_bytes() == DATA
    assert result.source.startswith(second.url)
    assert requested_ranges(second) == ["bytes=400000-700000"]


def test_stalled_source_is_abandoned(folder, target, monkeypatch):
    monkeypatch.setattr(
        fetch_request, "_NEXT_REPLICA_AFTER_S", 60.0
    )  # on a slow machine both would receive the first request
    with HttpServer(folder, faults=[ResponseFault(stall_after_bytes=400_000)]) as first, HttpServer(folder) as second:
        fetch_file(make_remote_file(f"{first.url}/{FILENAME}", f"{second.url}/{FILENAME}"), target)
    assert target.read_bytes() == DATA
    assert first_requested_byte(second) > 0, "received bytes were requested again"


def test_late_first_byte(folder, target, monkeypatch):
    """The timeout of the engine applies, not that of a single read."""
    monkeypatch.setattr(socket_stream, "READ_TIMEOUT_S", 0.1)
    monkeypatch.setattr(source_stats, "_FIRST_BYTE_TIMEOUT_S", 60.0)
    calls = []

    def on_progress(done: int, total: int | None) -> None:
        calls.append(done)
        if server.stall_started.is_set() and len(calls) > 20:
            server.release_stalls()

    with HttpServer(folder, faults=[ResponseFault(stall_after_bytes=0)] * 99) as server:
        fetch_file(make_remote_file(f"{server.url}/{FILENAME}"), target, on_progress=on_progress)
    assert (target.read_bytes(), len(server.requests)) == (DATA, 1)


def test_changed_etag_is_not_mixed(folder, target):
    changed = copy_with_other_etag(folder, "changed", bytes(len(DATA)))
    with HttpServer(folder, faults=[ResponseFault(close_after_bytes=400_000)]) as first, HttpServer(changed) as second:
        fetch_file(make_remote_file(f"{first.url}/{FILENAME}", f"{second.url}/{FILENAME}"), target)
    assert target.read_bytes() == DATA
    assert requested_ranges(first) == ["bytes=0-4194303", "bytes=400000-700000"]


def test_digest_allows_other_etag(folder, target):
    copy = copy_with_other_etag(folder, "copy", DATA)
    with HttpServer(folder, faults=[ResponseFault(close_after_bytes=400_000)]) as first, HttpServer(copy) as second:
        fetch_file(make_remote_file(f"{first.url}/{FILENAME}", f"{second.url}/{FILENAME}", digest=SHA256), target)
    assert target.read_bytes() == DATA
    assert requested_ranges(second) == ["bytes=400000-700000"]


def test_other_object_is_downloaded_completely(folder, target):
    changed = copy_with_other_etag(folder, "changed", bytes(len(DATA)))
    gone = [ResponseFault(close_after_bytes=400_000), *[ResponseFault(status=503)] * 50]
    with HttpServer(folder, faults=gone) as first, HttpServer(changed) as second:
        fetch_file(make_remote_file(f"{first.url}/{FILENAME}", f"{second.url}/{FILENAME}"), target)
    assert target.read_bytes() == bytes(len(DATA))


@pytest.fixture
def small_blocks(monkeypatch) -> int:
    monkeypatch.setattr(fetch_request, "DEFAULT_BLOCK_BYTES", 1 << 16)
    return 1 << 16


def start_download(folder: Path, target: Path, n_bytes: int) -> None:
    """Leave the partial file of a download that was killed after `n_bytes`."""
    with HttpServer(
        folder, faults=[ResponseFault(close_after_bytes=n_bytes), *[ResponseFault(status=503)] * 99]
    ) as server:
        fetch_error(make_remote_file(f"{server.url}/{FILENAME}"), target)
    assert sorted(os.listdir(target.parent)) == [f"{FILENAME}.part", f"{FILENAME}.part.resume"]


def first_requested_byte(server: HttpServer) -> int:
    return min(int(byte_range.split("=")[1].split("-")[0]) for byte_range in requested_ranges(server))


def test_resume(folder, target, small_blocks):
    start_download(folder, target, 2 * small_blocks + 1)
    with HttpServer(folder) as server:
        result = fetch_file(make_remote_file(f"{server.url}/{FILENAME}", digest=SHA256), target)
    assert target.read_bytes() == DATA
    assert result.sha256 == SHA256.value
    assert first_requested_byte(server) == 2 * small_blocks


def test_lost_block_is_downloaded_again(folder, target, small_blocks):
    start_download(folder, target, 3 * small_blocks + 1)
    with open(target.parent / f"{FILENAME}.part", "r+b") as part:
        part.seek(small_blocks)
        part.write(bytes(small_blocks))
    with HttpServer(folder) as server:
        fetch_file(make_remote_file(f"{server.url}/{FILENAME}"), target)
    assert target.read_bytes() == DATA
    assert f"bytes={small_blocks}-{2 * small_blocks - 1}" in requested_ranges(server)
    assert "bytes=0-4194303" not in requested_ranges(server)


@pytest.mark.parametrize("boot", ['"boot_id": "another"', '"no": "boot"'])
@pytest.mark.parametrize("hole", [(8192, 12288), (4096 * 3 + 5, 4096 * 4), (1 << 16, 1 << 16)])
def test_page_lost_in_crash_is_downloaded_again(folder, target, small_blocks, boot, hole):
    """The checksum of the block matches, because it covers samples only. Blocks without zero pages are kept."""
    start_download(folder, target, 3 * small_blocks + 1)
    with open(target.parent / f"{FILENAME}.part", "r+b") as part:
        part.seek(small_blocks + hole[0])
        part.write(bytes(hole[1] - hole[0]))
    resume_log = target.parent / f"{FILENAME}.part.resume"
    resume_log.write_bytes(re.sub(b'"boot_id": "[^"]*"', boot.encode(), resume_log.read_bytes()))
    with HttpServer(folder) as server:
        fetch_file(make_remote_file(f"{server.url}/{FILENAME}"), target)
    assert target.read_bytes() == DATA
    assert first_requested_byte(server) == (small_blocks if hole[0] < hole[1] else 3 * small_blocks)


@pytest.mark.parametrize("retry_timeout_s", [0.0, 5.0])
def test_resume_starts_over_if_object_changed(folder, target, retry_timeout_s, small_blocks):
    start_download(folder, target, 123_457)
    (folder / FILENAME).write_bytes(DATA[::-1])
    os.utime(folder / FILENAME, ns=(1, 1))
    with HttpServer(folder) as server:
        fetch_file(make_remote_file(f"{server.url}/{FILENAME}"), target, retry_timeout_s)
    assert target.read_bytes() == DATA[::-1]


def test_damaged_resume_log(folder, target, small_blocks):
    start_download(folder, target, 123_457)
    (target.parent / f"{FILENAME}.part.resume").write_text("{")
    with HttpServer(folder) as server:
        fetch_file(make_remote_file(f"{server.url}/{FILENAME}"), target)
    assert first_requested_byte(server) == 0
    assert target.read_bytes() == DATA


def test_resume_complete_part(folder, target):
    part = PartFile(target)
    part.begin(ObjectIdentity(len(DATA), "etag", None))
    part.write_block(0, memoryview(DATA))
    part.close()
    with HttpServer(folder) as server:
        fetch_file(make_remote_file(f"{server.url}/{FILENAME}", digest=SHA256), target)
    assert (target.read_bytes(), server.requests) == (DATA, [])


def test_transient_404(folder, target):
    with HttpServer(folder, faults=[ResponseFault(status=404)] * 3) as server:
        assert fetch_file(make_remote_file(f"{server.url}/{FILENAME}"), target).retries == 3
    assert target.read_bytes() == DATA


def test_404_is_final_after_retry_timeout(folder, target):
    with HttpServer(folder) as first, HttpServer(folder) as second:
        started_at = time.monotonic()
        error = fetch_error(make_remote_file(f"{first.url}/missing", f"{second.url}/missing"), target, 0.6)
    assert error.kind == "object_missing"
    assert time.monotonic() - started_at >= 0.6
    assert first.requests and second.requests
    assert first.url in error.detail and second.url in error.detail


def test_404_and_503_are_service_unavailable(folder, target):
    with HttpServer(folder) as first, HttpServer(folder, faults=[ResponseFault(status=503)] * 99) as second:
        error = fetch_error(make_remote_file(f"{first.url}/missing", f"{second.url}/{FILENAME}"), target, 0.3)
    assert error.kind == "service_unavailable"


def test_refused_token_is_final(folder, target):
    with HttpServer(folder, token="t") as first, HttpServer(folder, token="t") as second:
        error = fetch_error(make_remote_file(f"{first.url}/{FILENAME}", f"{second.url}/{FILENAME}"), target, 60)
    assert error.kind == "access_denied"
    assert "no token was sent" in error.detail
    assert len(first.requests) == len(second.requests) == 1


def test_refused_source_is_skipped(folder, target):
    with HttpServer(folder, token="t") as first, HttpServer(folder, faults=[ResponseFault(status=500)]) as second:
        fetch_file(make_remote_file(f"{first.url}/{FILENAME}", f"{second.url}/{FILENAME}"), target)
    assert target.read_bytes() == DATA
    assert len(first.requests) == 1


def test_unknown_host(target):
    error = fetch_error(make_remote_file("http://nohost.invalid/data.bin"), target, 0.2)
    assert error.kind == "host_unknown"
    assert "nohost.invalid" in error.detail


def test_unknown_scheme(target):
    assert fetch_error(make_remote_file("gopher://x/data.bin"), target).kind == "unsupported"


def test_error_page_instead_of_archive(folder, target):
    page = b"<!DOCTYPE html>\n<html><head><title>Log in &amp; continue</title></head><body>...</body></html>"
    name = "cifar-10-python.tar.gz"
    with HttpServer(folder, faults=[ResponseFault(html_body=page)] * 2) as server:
        error = fetch_error(RemoteFile(name, (Location(f"{server.url}/{name}?signature=abc"),)), target)
    assert error.kind == "unexpected_content"
    assert 'instead of cifar-10-python.tar.gz: "Log in & continue"' in error.detail
    assert "abc" not in error.detail
    assert not list(target.parent.glob("*"))


@pytest.mark.parametrize("page", [b"<html>please wait</html>", b"404 page not found\n", bytes(2000)])
def test_transient_error_page(folder, target, page):
    data = gzip.compress(DATA, 0)
    (folder / "x.tar.gz").write_bytes(data)
    with HttpServer(folder, faults=[ResponseFault(html_body=page)]) as server:
        fetch_file(RemoteFile("x.tar.gz", (Location(f"{server.url}/x.tar.gz"),)), target)
    assert target.read_bytes() == data


def test_digest_allows_any_content(folder, target):
    with HttpServer(folder) as server:
        fetch_file(RemoteFile("x.zip", (Location(f"{server.url}/{FILENAME}"),), digest=SHA256), target)
    assert target.read_bytes() == DATA


@pytest.mark.parametrize(("planned", "kind"), [(len(DATA) + 5, "truncated"), (len(DATA) - 5, "unexpected_content")])
def test_size_differs_from_plan(folder, target, planned, kind):
    with HttpServer(folder) as server:
        error = fetch_error(make_remote_file(f"{server.url}/{FILENAME}", size=planned), target)
    assert error.kind == kind
    assert str(planned) in error.detail and str(len(DATA)) in error.detail


@pytest.mark.parametrize("location", ["http://h:99999/x", "http://[bad/x", "/loop"])
def test_bad_redirect_affects_one_source(folder, target, location):
    with (
        HttpServer(folder, faults=[ResponseFault(status=302, headers={"Location": location})] * 999) as first,
        HttpServer(folder) as second,
    ):
        fetch_file(make_remote_file(f"{first.url}/{FILENAME}", f"{second.url}/{FILENAME}"), target)
    assert target.read_bytes() == DATA


@pytest.mark.parametrize(("location", "times"), [("http://h:99999/x", 2), ("http://[bad/x", 2), (f"/{FILENAME}", 15)])
def test_transient_bad_redirect(folder, target, location, times):
    with HttpServer(folder, faults=[ResponseFault(status=302, headers={"Location": location})] * times) as server:
        fetch_file(make_remote_file(f"{server.url}/{FILENAME}"), target)
    assert target.read_bytes() == DATA


@pytest.mark.parametrize("url", ["http://h:99999/x", "http://[bad/x", "http://é..x/x"])
def test_invalid_url_affects_one_source(folder, target, url):
    with HttpServer(folder) as server:
        fetch_file(make_remote_file(url, f"{server.url}/{FILENAME}"), target)
    assert target.read_bytes() == DATA
    target.unlink()
    assert fetch_error(make_remote_file(url), target).kind == "unsupported"


class Cancelled(Exception):
    pass


def test_cancellation_while_server_is_silent(folder, target):
    with HttpServer(folder, faults=[ResponseFault(stall_after_bytes=200_000)]) as server:

        def check_cancelled() -> None:
            if server.stall_started.is_set():
                raise Cancelled

        with pytest.raises(Cancelled):
            fetch_file(make_remote_file(f"{server.url}/{FILENAME}"), target, check_cancelled=check_cancelled)
    assert len(server.requests) == 1


def test_cancellation_during_backoff(target):
    ends_at = time.monotonic() + 0.5

    def check_cancelled() -> None:
        if time.monotonic() > ends_at:
            raise Cancelled

    with pytest.raises(Cancelled):
        fetch_file(
            make_remote_file("file:///no/such/file"), target, retry_timeout_s=600, check_cancelled=check_cancelled
        )  # long before the retry timeout


def fetch_with_file_limit(limit: int, url: str, target: Path) -> dict:
    """The error of a fetch in a process whose files may not exceed a limit, which simulates a full disk."""
    program = (
        "import json, resource, sys; from pathlib import Path\n"
        "from packtrain.errors import FailedError; from packtrain.plan import Location, RemoteFile\n"
        "from packtrain.transfer.fetch import fetch\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)\n"
        "try: fetch(RemoteFile('data.bin', (Location(sys.argv[2]),)), Path(sys.argv[3]), str, retry_timeout_s=60,"
        " check_cancelled=lambda: None, on_progress=lambda d, t: None)\n"
        "except FailedError as error: print(json.dumps({'kind': error.kind, 'detail': error.detail}))\n"
    )
    argv = [sys.executable, "-c", program, str(limit), url, str(target)]
    return json.loads(subprocess.run(argv, capture_output=True, check=True, timeout=60).stdout)


def test_disk_fills_up(folder, target):
    with HttpServer(folder) as server:
        error = fetch_with_file_limit(300_000, f"{server.url}/{FILENAME}", target)
    assert error["kind"] == "disk_full"
    assert f"{len(DATA)} more bytes" in error["detail"]
    assert "are free" in error["detail"]


def test_disk_too_small(target):
    with HttpServer(Path("/nonexistent")) as server:
        size = 1 << 60
        server.faults.append(
            ResponseFault(status=206, headers={"Content-Range": f"bytes 0-9/{size}"}, html_body=b"0123456789")
        )
        error = fetch_error(make_remote_file(f"{server.url}/{FILENAME}"), target)
    assert error.kind == "disk_full"
    assert str(size) in error.detail


def test_debug_messages_have_no_secrets(folder, target, caplog):
    faults = [ResponseFault(status=503)]
    with HttpServer(folder, faults=faults) as server, caplog.at_level("DEBUG", "packtrain.transfer.engine"):
        fetch_file(make_remote_file(f"{server.url}/{FILENAME}?sig=s3cret"), target)
    text = "\n".join(record.getMessage() for record in caplog.records if record.name == "packtrain.transfer.engine")
    assert f"sources of {server.url}/{FILENAME}" in text
    assert "the source backs off for 0.25 s, failures in a row: 1" in text
    assert f"responded first; size: {len(DATA)} bytes" in text
    assert f"{FILENAME}: {len(DATA)} bytes are complete; retries: 1" in text
    assert "s3cret" not in text
