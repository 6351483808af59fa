"""Ports of the testbed's servers: nobody else is given one between the choice and the server's start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from testbed.ports import reserve_ports

SEEDED = "import random; random.seed(1); from testbed.ports import free_ports; print(*free_ports(50)); input()"


def test_two_processes_that_draw_the_same_numbers_are_given_different_ports():
    with (
        subprocess.Popen([sys.executable, "-c", SEEDED], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as one,
        subprocess.Popen([sys.executable, "-c", SEEDED], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as two,
    ):
        ports = [*one.stdout.readline().split(), *two.stdout.readline().split()]
        one.communicate(b"\n")
        two.communicate(b"\n")
    assert len(set(ports)) == 100


def test_no_connection_of_this_machine_can_be_given_one():
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = reserve_ports(100, extra_offset=10_000)
    assert max(ports) + 10_000 < first
    assert len({*ports, *(port + 10_000 for port in ports)}) == 200
