"""Downloads with many connections from faulty servers: the file is right, and little is received twice."""

from __future__ import annotations

import hashlib
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import cast

import pytest

from packtrain.plan import Digest, Location, RemoteFile
from packtrain.transfer.api import Replica, Source
from packtrain.transfer.engine.coordinator import BlockSink, FetchCoordinator
from packtrain.transfer.engine.fetch_request import FetchRequest, RangeRequest, TransferStats
from packtrain.transfer.engine.resume_log import ObjectIdentity
from packtrain.transfer.engine.source_stats import SourceSelector, SourceStats
from packtrain.transfer.fetch import FetchResult, fetch
from packtrain.transfer.integrity.block_checksums import BlockChecksums
from testbed.http_server import HttpServer, ResponseFault

pytestmark = pytest.mark.slow

MIB = 1 << 20
DATA = os.urandom(40 * MIB + 77)
SHA256 = Digest("sha256", hashlib.sha256(DATA).hexdigest())
CHECKSUMS = BlockChecksums(
    MIB, len(DATA), tuple(hashlib.sha256(DATA[i : i + MIB]).hexdigest() for i in range(0, len(DATA), MIB))
)
GOOD = None
MAX_WASTED_BYTES = len(DATA) // 4  # on a busy machine; on an idle one it is almost nothing


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    served = tmp_path_factory.mktemp("served")
    (served / "data.bin").write_bytes(DATA)
    return served


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "data.bin"


def download(target: Path, *servers: HttpServer, digest=None, retry_timeout_s=20.0, **options) -> FetchResult:
    locations = tuple(Location(f"{server.url}/data.bin") for server in servers)
    result = fetch(
        RemoteFile("data.bin", locations, digest=digest),
        target,
        str,
        retry_timeout_s=retry_timeout_s,
        check_cancelled=lambda: None,
        on_progress=lambda d, t: None,
        **options,
    )
    assert target.read_bytes() == DATA
    return result


def make_coordinator(size: int) -> FetchCoordinator:
    request = FetchRequest(RemoteFile("data.bin", ()), str, 1.0, lambda: None, lambda done, total: None)
    coordinator = FetchCoordinator(request, cast(BlockSink, None), SourceSelector(), TransferStats())
    coordinator.resume(ObjectIdentity(size, None, None, MIB), ())
    return coordinator


def make_source(name: str) -> SourceStats:
    return SourceStats(Replica(cast(Source, None), Location(f"http://{name}/data.bin"), name), 0)


@pytest.mark.parametrize(
    ("received_bytes", "limit"),
    [
        ((3 * MIB, 3 * MIB, 3 * MIB), 3 * MIB),
        ((3 * MIB, 3 * MIB, 2 * MIB), None),
        ((3 * MIB, 3 * MIB), None),
        ((14_480, 14_480, 14_480), None),
    ],
)
def test_identical_pauses_set_response_limit(received_bytes, limit):
    """Responses that a network outage stalls end at different bytes. Responses of other servers do not count."""
    coordinator, source, other = make_coordinator(len(DATA)), make_source("a"), make_source("b")
    coordinator.sources.source_stats += [source, other]
    for paused_source, n_bytes in [*((source, n_bytes) for n_bytes in received_bytes), (other, 3 * MIB)]:
        range_request = RangeRequest(paused_source, None, 0.0, received_bytes=n_bytes)
        coordinator.record_pause(coordinator.active_requests.add(range_request))
    assert (source.response_limit.max_bytes, other.response_limit.max_bytes) == (limit, None)


def test_continued_responses_set_no_limit():
    coordinator, source = make_coordinator(len(DATA)), make_source("a")
    requests = [coordinator.active_requests.add(RangeRequest(source, None, 0.0, received_bytes=MIB)) for _ in range(3)]
    for range_request in requests:
        coordinator.record_pause(range_request)
        range_request.received_bytes += MIB
    assert source.response_limit.max_bytes is None


def test_last_writer_completes_download():
    """Otherwise a download would never end; that happened once in fifty downloads over a slow line."""
    coordinator, source = make_coordinator(10), make_source("a")
    range_request = RangeRequest(source, coordinator.scheduler.assign(source, 0.0, 1), 0.0)
    assert coordinator.completion.begin_write("another")  # writes a part of another copy of the block
    assert coordinator.accept_block(range_request, 10)
    coordinator.record_stored(range_request, 10)
    assert not coordinator.completion.is_complete
    coordinator.completion.end_write("another")
    assert coordinator.completion.is_complete


def test_direct_write_waits_for_other_writers():
    coordinator, source = make_coordinator(10), make_source("a")
    span = coordinator.scheduler.assign(source, 0.0, 1)
    assert coordinator.completion.begin_write("another")
    coordinator.record_direct_write(RangeRequest(source, span, 0.0), 10)
    assert (coordinator.stats.done_bytes, coordinator.completion.is_complete) == (10, False)
    coordinator.completion.end_write("another")
    assert coordinator.completion.is_complete


def test_resumed_download_may_be_complete():
    request = FetchRequest(RemoteFile("data.bin", ()), str, 1.0, lambda: None, lambda done, total: None)
    coordinator = FetchCoordinator(request, cast(BlockSink, None), SourceSelector(), TransferStats())
    coordinator.resume(ObjectIdentity(10, None, None, MIB), [0])
    assert coordinator.completion.is_complete
    assert coordinator.poll() is None


def test_closed_coordinator_refuses_writes():
    coordinator = make_coordinator(10)
    coordinator.completion.close()
    assert not coordinator.completion.begin_write("late")
    coordinator.completion.close()  # returns at once, because there is no writer


def test_bytes_are_received_once(folder, target):
    with HttpServer(folder, bytes_per_s=10e6) as server:
        result = download(target, server, digest=SHA256)
    assert result.sha256 == SHA256.value
    assert result.wasted_bytes <= MAX_WASTED_BYTES
    assert len(server.requests) > 8


def test_all_sources_are_used(folder, target):
    with HttpServer(folder, bytes_per_s=20e6) as first, HttpServer(folder, bytes_per_s=20e6) as second:
        result = download(target, first, second)
    assert len(DATA) <= sum(result.bytes_by_source.values()) <= len(DATA) + MAX_WASTED_BYTES
    assert all(n_bytes > 0 for n_bytes in result.bytes_by_source.values())


@pytest.mark.parametrize(
    "fault",
    [
        ResponseFault(close_after_bytes=MIB + 5),
        ResponseFault(close_after_bytes=0),
        ResponseFault(stall_after_bytes=MIB + 5),
        ResponseFault(stall_after_bytes=0),
        ResponseFault(status=404),
        ResponseFault(status=503, headers={"Retry-After": "1"}),
        ResponseFault(status=429),
        ResponseFault(truncate_to_bytes=100_000),
        ResponseFault(html_body=b"<html>busy</html>"),
        ResponseFault(ignore_range=True),
    ],
)
def test_bad_response(folder, target, fault):
    with HttpServer(folder, faults=[GOOD, GOOD, fault]) as server:
        result = download(target, server, digest=SHA256)
    assert result.wasted_bytes <= MAX_WASTED_BYTES


@pytest.mark.parametrize("stall_after", [0, 3 * MIB + 9])
def test_silent_source_is_abandoned(folder, target, stall_after):
    faults = [ResponseFault(stall_after_bytes=stall_after)] * 99
    with HttpServer(folder, faults=faults) as first, HttpServer(folder) as second:
        result = download(target, first, second)
    assert result.bytes_by_source[second.url.partition("//")[2]] > 0


def test_stalling_server_gets_smaller_requests(tmp_path):
    (tmp_path / "data.bin").touch()
    os.truncate(tmp_path / "data.bin", 160 * MIB)
    with HttpServer(tmp_path, faults=[ResponseFault(stall_after_bytes=3 * MIB + 5)] * 999) as server:
        remote_file = RemoteFile("data.bin", (Location(f"{server.url}/data.bin"),))
        result = fetch(
            remote_file,
            tmp_path / "out",
            str,
            retry_timeout_s=9,
            check_cancelled=lambda: None,
            on_progress=lambda d, t: None,
        )
        ranges = [re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers["range"]) for request in server.requests]
    sizes = [int(match[2]) - int(match[1]) + 1 for match in ranges if match]
    assert max(sizes) > 3 * MIB >= max(sizes[len(sizes) // 2 :])
    assert result.bytes == 160 * MIB and result.wasted_bytes <= MAX_WASTED_BYTES


def test_only_wrong_block_is_downloaded_again(folder, target):
    with HttpServer(
        folder, faults=[GOOD, ResponseFault(corrupt_offset=10), ResponseFault(corrupt_offset=20)]
    ) as server:
        result = download(target, server, checksums=CHECKSUMS)
    assert result.retries >= 2
    assert result.wasted_bytes <= MAX_WASTED_BYTES


def test_block_is_always_wrong(folder, target):
    from packtrain.errors import FailedError

    with (
        HttpServer(folder, faults=[ResponseFault(corrupt_offset=0)] * 999) as server,
        pytest.raises(FailedError) as caught,
    ):
        download(target, server, checksums=CHECKSUMS, retry_timeout_s=1.0)
    assert caught.value.kind == "digest_mismatch"


def test_retry_after(folder, target):
    with HttpServer(folder, faults=[ResponseFault(status=503, headers={"Retry-After": "1"})]) as server:
        started_at = time.monotonic()
        download(target, server)
    assert time.monotonic() - started_at >= 1.0
    assert len(server.requests) > 2


def test_slow_steady_server_is_not_abandoned(folder, target, tmp_path):
    small_folder = tmp_path / "served"
    small_folder.mkdir()
    (small_folder / "data.bin").write_bytes(DATA[: 3 * MIB])
    small_target = tmp_path / "out" / "data.bin"
    with HttpServer(small_folder, bytes_per_s=700_000) as server:
        remote_file = RemoteFile("data.bin", (Location(f"{server.url}/data.bin"),))
        result = fetch(
            remote_file,
            small_target,
            str,
            retry_timeout_s=20,
            check_cancelled=lambda: None,
            on_progress=lambda d, t: None,
        )
    assert result.wasted_bytes <= MIB
    assert small_target.read_bytes() == DATA[: 3 * MIB]


def test_snapshots(folder, target):
    snapshots = []
    with HttpServer(folder, bytes_per_s=3e6) as server:
        download(target, server, on_snapshot=snapshots.append)
    assert snapshots and snapshots[-1].total_bytes == len(DATA)
    rate = snapshots[-1].sources[0]
    assert rate.label in server.url and rate.bytes_per_s > 0 and rate.is_backing_off is False
    assert max(snapshot.sources[0].connections for snapshot in snapshots if snapshot.sources) >= 1


PROGRAM = """
import sys; from pathlib import Path; from packtrain.plan import Location, RemoteFile
from packtrain.transfer.fetch import fetch
remote_file = RemoteFile('data.bin', (Location(sys.argv[1]),))
fetch(remote_file, Path(sys.argv[2]), str, retry_timeout_s=9, check_cancelled=lambda: None, on_progress=lambda *_: None)
"""


@pytest.mark.slow
def test_resume_after_many_kills(folder, target):
    rng, n_kills = random.Random(4), 20
    with HttpServer(folder, bytes_per_s=2e6) as server:
        command = [sys.executable, "-c", PROGRAM, f"{server.url}/data.bin", str(target)]
        for _ in range(n_kills):
            child = subprocess.Popen(command)
            time.sleep(0.25 + rng.random() * 0.5)
            child.kill()
            child.wait()
            if target.exists():
                break
        download(target, server)
        sent_bytes = server.sent_bytes
    assert sent_bytes <= len(DATA) + n_kills * 8 * (MIB + (4 << 20))
