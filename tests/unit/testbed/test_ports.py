"""Reserved ports are unique across processes and outside of the range of outgoing connections."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from testbed.ports import reserve_ports

RESERVE_PORTS = (
    "import random; random.seed(1); from testbed.ports import reserve_ports; print(*reserve_ports(50)); input()"
)


def test_processes_with_same_seed_get_different_ports():
    with (
        subprocess.Popen([sys.executable, "-c", RESERVE_PORTS], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first,
        subprocess.Popen(
            [sys.executable, "-c", RESERVE_PORTS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as second,
    ):
        ports = [*first.stdout.readline().split(), *second.stdout.readline().split()]
        first.communicate(b"\n")
        second.communicate(b"\n")
    assert len(set(ports)) == 100


def test_below_ephemeral_ports():
    min_ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = reserve_ports(100, extra_offset=10_000)
    assert max(ports) + 10_000 < min_ephemeral
    assert len({*ports, *(port + 10_000 for port in ports)}) == 200
