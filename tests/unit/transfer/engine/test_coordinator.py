"""Many connections against servers that fail in every way: the file is right, soon, and little is fetched twice."""

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
from packtrain.transfer.block_checksums import BlockChecksums
from packtrain.transfer.engine.coordinator import BlockSink, FetchCoordinator
from packtrain.transfer.engine.fetch_request import FetchRequest, RangeRequest, TransferStats
from packtrain.transfer.engine.resume_log import ObjectIdentity
from packtrain.transfer.engine.source_selector import SourceSelector
from packtrain.transfer.engine.source_stats import SourceStats
from packtrain.transfer.fetch import FetchResult, fetch
from testbed.http_server import HttpServer, ResponseFault

pytestmark = pytest.mark.slow

MIB = 1 << 20
DATA = os.urandom(40 * MIB + 77)
SHA256 = Digest("sha256", hashlib.sha256(DATA).hexdigest())
SUMS = BlockChecksums(
    MIB, len(DATA), tuple(hashlib.sha256(DATA[a : a + MIB]).hexdigest() for a in range(0, len(DATA), MIB))
)
GOOD = None
MUCH = len(DATA) // 4  # fetched twice, on a machine that has other things to do; left alone it is next to nothing


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    served = tmp_path_factory.mktemp("served")
    (served / "data.bin").write_bytes(DATA)
    return served


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "data.bin"


def run(target: Path, *origins: HttpServer, digest=None, patience_s=20.0, **more) -> FetchResult:
    item = RemoteFile("data.bin", tuple(Location(f"{origin.url}/data.bin") for origin in origins), digest=digest)
    done = fetch(
        item,
        target,
        str,
        retry_timeout_s=patience_s,
        check_cancelled=lambda: None,
        on_progress=lambda d, t: None,
        **more,
    )
    assert target.read_bytes() == DATA
    return done


def engine_of(size: int) -> FetchCoordinator:
    wish = FetchRequest(RemoteFile("data.bin", ()), str, 1.0, lambda: None, lambda done, total: None)
    engine = FetchCoordinator(wish, cast(BlockSink, None), SourceSelector(), TransferStats())
    engine.resume(ObjectIdentity(size, None, None, MIB), ())
    return engine


def standing_of(name: str) -> SourceStats:
    return SourceStats(Replica(cast(Source, None), Location(f"http://{name}/data.bin"), name), 0)


@pytest.mark.parametrize(
    ("came", "known"),
    [
        ((3 * MIB, 3 * MIB, 3 * MIB), 3 * MIB),
        ((3 * MIB, 3 * MIB, 2 * MIB), None),
        ((3 * MIB, 3 * MIB), None),
        ((14_480, 14_480, 14_480), None),
    ],
)
def test_answers_that_stop_alike_have_come_to_their_server_s_limit(came, known):
    """A network that fails stops them anywhere. One of another server counts for nothing."""
    engine, here, other = engine_of(len(DATA)), standing_of("a"), standing_of("b")
    engine.sources.source_stats += [here, other]
    for place, count in [*((here, count) for count in came), (other, 3 * MIB)]:
        engine.record_pause(engine._register_request(RangeRequest(place, None, 0.0, received_bytes=count)))
    assert (here.response_limit.max_bytes, other.response_limit.max_bytes) == (known, None)


def test_an_answer_that_went_on_after_a_pause_has_not_stopped():
    engine, here = engine_of(len(DATA)), standing_of("a")
    attempts = [engine._register_request(RangeRequest(here, None, 0.0, received_bytes=MIB)) for _ in range(3)]
    for attempt in attempts:
        engine.record_pause(attempt)
        attempt.received_bytes += MIB
    assert here.response_limit.max_bytes is None


def test_who_writes_last_completes_the_whole_be_it_of_a_block_that_another_brought_before():
    """Else the fetch waits for ever: seen once in fifty downloads over a long line."""
    engine, standing = engine_of(10), standing_of("a")
    attempt = RangeRequest(standing, engine.scheduler.assign(standing, 0.0, 1), 0.0)
    assert engine.begin_write("another")  # a copy of the same block, a part of which is being written
    assert engine.accept_block(attempt, 10)
    engine.record_stored(attempt, 10)
    assert not engine.is_complete
    engine.end_write("another")
    assert engine.is_complete


def test_a_block_that_stands_in_its_place_completes_the_whole_but_not_before_who_writes_beside_it():
    engine, standing = engine_of(10), standing_of("a")
    span = engine.scheduler.assign(standing, 0.0, 1)
    assert engine.begin_write("another")
    engine.record_direct_write(RangeRequest(standing, span, 0.0), 10)
    assert (engine.stats.done_bytes, engine.is_complete) == (10, False)
    engine.end_write("another")
    assert engine.is_complete


def test_nobody_writes_into_what_was_closed():
    engine = engine_of(10)
    engine.close()
    assert not engine.begin_write("late")
    engine.close()  # waits for whoever writes: nobody does


def test_many_connections_bring_each_byte_once(folder, target):
    with HttpServer(folder, bytes_per_s=10e6) as origin:
        done = run(target, origin, digest=SHA256)
    assert done.sha256 == SHA256.value
    assert done.wasted_bytes <= MUCH
    assert len(origin.requests) > 8


def test_all_sources_give_at_once(folder, target):
    with HttpServer(folder, bytes_per_s=20e6) as first, HttpServer(folder, bytes_per_s=20e6) as second:
        done = run(target, first, second)
    assert len(DATA) <= sum(done.bytes_by_source.values()) <= len(DATA) + MUCH
    assert all(given > 0 for given in done.bytes_by_source.values())


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
def test_one_bad_answer_among_many(folder, target, fault):
    with HttpServer(folder, faults=[GOOD, GOOD, fault]) as origin:
        done = run(target, origin, digest=SHA256)
    assert done.wasted_bytes <= MUCH


@pytest.mark.parametrize("stall_after", [0, 3 * MIB + 9])
def test_a_source_that_falls_silent_is_left(folder, target, stall_after):
    faults = [ResponseFault(stall_after_bytes=stall_after)] * 99
    with HttpServer(folder, faults=faults) as first, HttpServer(folder) as second:
        done = run(target, first, second)
    assert done.bytes_by_source[second.url.partition("//")[2]] > 0


def test_where_all_answers_fall_silent_less_is_asked_for(tmp_path):
    (tmp_path / "data.bin").touch()
    os.truncate(tmp_path / "data.bin", 160 * MIB)
    with HttpServer(tmp_path, faults=[ResponseFault(stall_after_bytes=3 * MIB + 5)] * 999) as origin:
        item = RemoteFile("data.bin", (Location(f"{origin.url}/data.bin"),))
        done = fetch(
            item, tmp_path / "out", str, retry_timeout_s=9, check_cancelled=lambda: None, on_progress=lambda d, t: None
        )
        asked = [re.fullmatch(r"bytes=(\d+)-(\d+)", seen.headers["range"]) for seen in origin.requests]
    sizes = [int(match[2]) - int(match[1]) + 1 for match in asked if match]
    assert max(sizes) > 3 * MIB >= max(sizes[len(sizes) // 2 :])
    assert done.bytes == 160 * MIB and done.wasted_bytes <= MUCH


def test_a_wrong_block_is_fetched_again_alone(folder, target):
    with HttpServer(
        folder, faults=[GOOD, ResponseFault(corrupt_offset=10), ResponseFault(corrupt_offset=20)]
    ) as origin:
        done = run(target, origin, checksums=SUMS)
    assert done.retries >= 2
    assert done.wasted_bytes <= MUCH


def test_sources_that_never_give_the_right_block_are_told(folder, target):
    from packtrain.errors import FailedError

    with (
        HttpServer(folder, faults=[ResponseFault(corrupt_offset=0)] * 999) as origin,
        pytest.raises(FailedError) as caught,
    ):
        run(target, origin, checksums=SUMS, patience_s=1.0)
    assert caught.value.kind == "digest_mismatch"


def test_retry_after_is_obeyed(folder, target):
    with HttpServer(folder, faults=[ResponseFault(status=503, headers={"Retry-After": "1"})]) as origin:
        began = time.monotonic()
        run(target, origin)
    assert time.monotonic() - began >= 1.0
    assert len(origin.requests) > 2


def test_a_slow_but_steady_line_is_not_given_up(folder, target, tmp_path):
    small = tmp_path / "served"
    small.mkdir()
    (small / "data.bin").write_bytes(DATA[: 3 * MIB])
    item_target = tmp_path / "out" / "data.bin"
    with HttpServer(small, bytes_per_s=700_000) as origin:
        item = RemoteFile("data.bin", (Location(f"{origin.url}/data.bin"),))
        done = fetch(
            item, item_target, str, retry_timeout_s=20, check_cancelled=lambda: None, on_progress=lambda d, t: None
        )
    assert done.wasted_bytes <= MIB
    assert item_target.read_bytes() == DATA[: 3 * MIB]


def test_it_is_told_how_it_stands(folder, target):
    seen = []
    with HttpServer(folder, bytes_per_s=3e6) as origin:
        run(target, origin, on_snapshot=seen.append)
    assert seen and seen[-1].total_bytes == len(DATA)
    label, rate, _, resting = seen[-1].sources[0]
    assert label in origin.url and rate > 0 and resting is False
    assert max(one.sources[0][2] for one in seen if one.sources) >= 1, "connections"


PROGRAM = """
import sys; from pathlib import Path; from packtrain.plan import Location, RemoteFile
from packtrain.transfer.fetch import fetch
item = RemoteFile('data.bin', (Location(sys.argv[1]),))
fetch(item, Path(sys.argv[2]), str, retry_timeout_s=9, check_cancelled=lambda: None, on_progress=lambda d, t: None)
"""


@pytest.mark.slow
def test_kill_9_again_and_again_costs_little(folder, target):
    chance, kills, sent = random.Random(4), 20, 0
    with HttpServer(folder, bytes_per_s=2e6) as origin:
        command = [sys.executable, "-c", PROGRAM, f"{origin.url}/data.bin", str(target)]
        for _ in range(kills):
            child = subprocess.Popen(command)
            time.sleep(0.25 + chance.random() * 0.5)
            child.kill()
            child.wait()
            if target.exists():
                break
        run(target, origin)
        sent = origin.sent_bytes
    assert sent <= len(DATA) + kills * 8 * (MIB + (4 << 20))
