"""A fetch that is killed (SIGKILL) again and again: the file is right in the end, and little is fetched twice."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
import time

import pytest

from packtrain.transfer.engine.resume_log import BLOCK
from testbed.debian import PROJECT
from testbed.faults import FaultProxy, Line

KILLS = 20
SIZE = 100 * BLOCK + 12_345
RATE = 40e6  # slow enough that no more than a block of each connection is under way
HEDGES = SIZE // 20  # what the engine may fetch twice of its own accord, when the line is slow
DEADLINE_S = 60.0
# As the agent does, in a process of its own.
FETCH = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from packtrain.plan import Digest, Item, Ref
from packtrain.transfer.fetch import fetch
item = Item("data.bin", (Ref(sys.argv[2]),), digest=Digest("sha256", sys.argv[4]))
fetch(item, Path(sys.argv[3]), str, patience_s=20, stop=lambda: None, progress=lambda done, total: None)
"""


def start(proxy, target, sha256):
    arguments = [str(PROJECT / "src"), f"{proxy.url}/data.bin", str(target), sha256]
    return subprocess.Popen([sys.executable, "-I", "-S", "-c", FETCH, *arguments])


def kill_after(process, proxy, count):
    """Kill it when the proxy has sent so many bytes more; the number of connections that it had then."""
    goal, deadline = proxy.sent + count, time.monotonic() + DEADLINE_S
    while proxy.sent < goal and process.poll() is None:
        assert time.monotonic() < deadline, f"nothing moves: {proxy.sent} of {goal} bytes"
        time.sleep(0.002)
    connections = proxy.open_connections
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
    with FaultProxy(tmp_path / "www", line=Line(RATE)) as proxy:
        for kill in range(KILLS):
            process = start(proxy, target, sha256)
            connections = kill_after(process, proxy, chance.randrange(1, 12 * BLOCK))
            assert process.returncode == -9 or kill, "it ended before the first kill"
            allowed += (
                2 * (connections + 1) * BLOCK
            )  # a busy machine sees some of them late, and asks for others meanwhile
            assert proxy.wait_until_left(DEADLINE_S)
        assert start(proxy, target, sha256).wait(DEADLINE_S) == 0
        assert target.read_bytes() == data
        assert proxy.wait_until_left(DEADLINE_S)
        again = proxy.sent - SIZE
    assert again <= allowed, f"{again / BLOCK:.1f} blocks were fetched twice, {allowed / BLOCK:.1f} allowed"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.bin", "www"]
