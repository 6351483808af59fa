"""Competitor programs, nginx and the WAN emulator. Slow: they are installed first."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from testbed import competitors
from testbed.wan_emulator import WanEmulator

DATA = os.urandom(2_000_000)
needs_namespaces = pytest.mark.skipif(
    os.geteuid() != 0 or not os.access("/dev/net/tun", os.R_OK | os.W_OK), reason="needs root and /dev/net/tun"
)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "object").write_bytes(DATA)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("name", ["curl", "wget", "aria2c", "rclone"])
def test_program_runs(name):
    result = subprocess.run([competitors.program_path(name), "--version"], capture_output=True, text=True)
    assert result.returncode == 0
    assert re.search(r"\d+\.\d+", result.stdout)


@pytest.mark.slow
def test_fsspec_reads_from_nginx(folder):
    fetch = "import fsspec, sys; sys.stdout.buffer.write(fsspec.filesystem('http').cat_file(sys.argv[1], 10, 20))"
    with competitors.Nginx(folder) as nginx:
        command = [sys.executable, "-c", fetch, f"{nginx.http_url}/object"]
        data = subprocess.check_output(command, env={**os.environ, "PYTHONPATH": str(competitors.wheels_dir())})
    assert data == DATA[10:20]


@pytest.mark.slow
def test_nginx_http_and_https(folder):
    curl = [competitors.program_path("curl"), "-sS"]
    with competitors.Nginx(folder) as nginx:
        assert subprocess.check_output([*curl, f"{nginx.http_url}/object"]) == DATA
        assert subprocess.check_output([*curl, "--cacert", nginx.ca_file, f"{nginx.https_url}/object"]) == DATA
        without_ca = subprocess.run([*curl, f"{nginx.https_url}/object"], capture_output=True)
    assert without_ca.returncode == 60


@needs_namespaces
@pytest.mark.slow
@pytest.mark.parametrize("congestion", ["reno", "bbr"])
def test_wan_has_delay_and_loss(folder, congestion):
    with WanEmulator(congestion_control=congestion, loss_percent=1) as wan:
        with competitors.Nginx(folder, host=wan.server_address, command_prefix=wan.server_prefix) as nginx:
            out = folder / "out"
            options = ["-sS", "-o", out, "-w", "%{time_connect}", f"{nginx.http_url}/object"]
            connect_s = float(subprocess.check_output([*wan.client_prefix, competitors.program_path("curl"), *options]))
            assert out.read_bytes() == DATA
        command = [*wan.client_prefix, "sysctl", "-n", "net.ipv4.tcp_congestion_control"]
        assert subprocess.check_output(command, text=True).strip() == congestion
    assert connect_s >= 0.05
    received, lost = re.match(r"(\d+) packets to the client, (\d+) lost", wan.summary).groups()
    assert 0 < int(lost) < int(received) / 10
    assert not list(Path("/var/run/netns").glob(f"wan-emulator-{os.getpid()}-*"))
