"""The peers run, the fast server serves over http and https, the bad line is long. Slow: they are installed first."""

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
def test_a_peer_runs(name):
    seen = subprocess.run([competitors.program_path(name), "--version"], capture_output=True, text=True)
    assert seen.returncode == 0
    assert re.search(r"\d+\.\d+", seen.stdout)


@pytest.mark.slow
def test_fsspec_reads_what_nginx_serves(folder):
    fetch = "import fsspec, sys; sys.stdout.buffer.write(fsspec.filesystem('http').cat_file(sys.argv[1], 10, 20))"
    with competitors.Nginx(folder) as nginx:
        command = [sys.executable, "-c", fetch, f"{nginx.http_url}/object"]
        seen = subprocess.check_output(command, env={**os.environ, "PYTHONPATH": str(competitors.wheels_dir())})
    assert seen == DATA[10:20]


@pytest.mark.slow
def test_nginx_serves_over_both_with_a_ca_of_its_own(folder):
    curl = [competitors.program_path("curl"), "-sS"]
    with competitors.Nginx(folder) as nginx:
        assert subprocess.check_output([*curl, f"{nginx.http_url}/object"]) == DATA
        assert subprocess.check_output([*curl, "--cacert", nginx.ca_file, f"{nginx.https_url}/object"]) == DATA
        untrusting = subprocess.run([*curl, f"{nginx.https_url}/object"], capture_output=True)
    assert untrusting.returncode == 60


@needs_namespaces
@pytest.mark.slow
@pytest.mark.parametrize("congestion", ["reno", "bbr"])
def test_the_bad_line_is_long_and_loses_packets(folder, congestion):
    with WanEmulator(congestion_control=congestion, loss_percent=1) as line:
        with competitors.Nginx(folder, host=line.server_address, command_prefix=line.server_prefix) as nginx:
            out = folder / "out"
            words = ["-sS", "-o", out, "-w", "%{time_connect}", f"{nginx.http_url}/object"]
            connect_s = float(subprocess.check_output([*line.client_prefix, competitors.program_path("curl"), *words]))
            assert out.read_bytes() == DATA
        used = [*line.client_prefix, "sysctl", "-n", "net.ipv4.tcp_congestion_control"]
        assert subprocess.check_output(used, text=True).strip() == congestion
    assert 0.05 <= connect_s < 0.5
    taken, lost = re.match(r"(\d+) packets to the client, (\d+) lost", line.summary).groups()
    assert 0 < int(lost) < int(taken) / 10
    assert not list(Path("/var/run/netns").glob(f"wan-emulator-{os.getpid()}-*"))
