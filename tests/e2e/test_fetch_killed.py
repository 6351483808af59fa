"""A download that is killed (SIGKILL) many times: the file is right in the end, and little is received twice."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys

import pytest

from packtrain.transfer.engine.resume_log import DEFAULT_BLOCK_BYTES
from testbed.debian import PROJECT_ROOT
from testbed.faults import FaultProxy, RateLimiter
from tests.support.waiting import wait_until

N_KILLS = 20
SIZE = 100 * DEFAULT_BLOCK_BYTES + 12_345
BYTES_PER_S = 40e6  # slow enough that each connection has at most one block in flight
MAX_HEDGED_BYTES = SIZE // 20  # what the engine may request twice itself when the line is slow
DEADLINE_S = 60.0
FETCH_PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from packtrain.plan import Digest, Location, RemoteFile
from packtrain.transfer.fetch import fetch
remote_file = RemoteFile("data.bin", (Location(sys.argv[2]),), digest=Digest("sha256", sys.argv[4]))
fetch(remote_file, Path(sys.argv[3]), str, retry_timeout_s=20, check_cancelled=lambda: None,
      on_progress=lambda done, total: None)
"""


def start(proxy, target, sha256):
    arguments = [str(PROJECT_ROOT / "src"), f"{proxy.url}/data.bin", str(target), sha256]
    return subprocess.Popen([sys.executable, "-I", "-S", "-c", FETCH_PROGRAM, *arguments])


def kill_after(process, proxy, n_bytes):
    """Kill a process after the proxy sent `n_bytes` more, and return the number of its connections."""
    goal = proxy.sent_bytes + n_bytes
    wait_until(lambda: proxy.sent_bytes >= goal or process.poll() is not None, interval_s=0.002)
    connections = proxy.n_open_connections
    process.kill()
    process.wait()
    return connections


@pytest.mark.slow
def test_kills_cost_only_blocks_in_flight(tmp_path):
    (tmp_path / "www").mkdir()
    data, target = os.urandom(SIZE), tmp_path / "data.bin"
    (tmp_path / "www/data.bin").write_bytes(data)
    sha256, rng = hashlib.sha256(data).hexdigest(), random.Random(20)
    allowed = MAX_HEDGED_BYTES
    with FaultProxy(tmp_path / "www", rate_limiter=RateLimiter(BYTES_PER_S)) as proxy:
        for kill in range(N_KILLS):
            process = start(proxy, target, sha256)
            connections = kill_after(process, proxy, rng.randrange(1, 12 * DEFAULT_BLOCK_BYTES))
            assert process.returncode == -9 or kill, "it finished before the first kill"
            # A busy machine notices some kills late, and requests other blocks meanwhile.
            allowed += 2 * (connections + 1) * DEFAULT_BLOCK_BYTES
            assert proxy.wait_until_disconnected(DEADLINE_S)
        assert start(proxy, target, sha256).wait(DEADLINE_S) == 0
        assert target.read_bytes() == data
        assert proxy.wait_until_disconnected(DEADLINE_S)
        repeated_bytes = proxy.sent_bytes - SIZE
    assert repeated_bytes <= allowed, (
        f"{repeated_bytes / DEFAULT_BLOCK_BYTES:.1f} blocks received twice, {allowed / DEFAULT_BLOCK_BYTES:.1f} allowed"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.bin", "www"]
