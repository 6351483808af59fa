"""A fetch that is killed (SIGKILL) again and again: the file is right in the end, and little is fetched twice."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
import time

import pytest

from packtrain.transfer.engine.resume_log import DEFAULT_BLOCK_BYTES
from testbed.debian import PROJECT_ROOT
from testbed.faults import FaultProxy, RateLimiter

KILLS = 20
SIZE = 100 * DEFAULT_BLOCK_BYTES + 12_345
RATE = 40e6  # slow enough that no more than a block of each connection is under way
HEDGES = SIZE // 20  # what the engine may fetch twice of its own accord, when the line is slow
DEADLINE_S = 60.0
# As the agent does, in a process of its own.
FETCH = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from packtrain.plan import Digest, Location, RemoteFile
from packtrain.transfer.fetch import fetch
item = RemoteFile("data.bin", (Location(sys.argv[2]),), digest=Digest("sha256", sys.argv[4]))
fetch(item, Path(sys.argv[3]), str, retry_timeout_s=20, check_cancelled=lambda: None, on_progress=lambda *_: None)
"""


def start(proxy, target, sha256):
    arguments = [str(PROJECT_ROOT / "src"), f"{proxy.url}/data.bin", str(target), sha256]
    return subprocess.Popen([sys.executable, "-I", "-S", "-c", FETCH, *arguments])


def kill_after(process, proxy, count):
    """Kill it when the proxy has sent so many bytes more; the number of connections that it had then."""
    goal, deadline = proxy.sent_bytes + count, time.monotonic() + DEADLINE_S
    while proxy.sent_bytes < goal and process.poll() is None:
        assert time.monotonic() < deadline, f"nothing moves: {proxy.sent_bytes} of {goal} bytes"
        time.sleep(0.002)
    connections = proxy.n_open_connections
    process.kill()
    process.wait()
    return connections


@pytest.mark.slow
def test_twenty_kills_cost_no_more_than_the_blocks_under_way(tmp_path):
    (tmp_path / "www").mkdir()
    data, target = os.urandom(SIZE), tmp_path / "data.bin"
    (tmp_path / "www/data.bin").write_bytes(data)
    sha256, chance = hashlib.sha256(data).hexdigest(), random.Random(20)
    allowed = HEDGES
    with FaultProxy(tmp_path / "www", rate_limiter=RateLimiter(RATE)) as proxy:
        for kill in range(KILLS):
            process = start(proxy, target, sha256)
            connections = kill_after(process, proxy, chance.randrange(1, 12 * DEFAULT_BLOCK_BYTES))
            assert process.returncode == -9 or kill, "it ended before the first kill"
            allowed += (
                2 * (connections + 1) * DEFAULT_BLOCK_BYTES
            )  # a busy machine sees some of them late, and asks for others meanwhile
            assert proxy.wait_until_disconnected(DEADLINE_S)
        assert start(proxy, target, sha256).wait(DEADLINE_S) == 0
        assert target.read_bytes() == data
        assert proxy.wait_until_disconnected(DEADLINE_S)
        again = proxy.sent_bytes - SIZE
    assert again <= allowed, (
        f"{again / DEFAULT_BLOCK_BYTES:.1f} blocks were fetched twice, {allowed / DEFAULT_BLOCK_BYTES:.1f} allowed"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.bin", "www"]
