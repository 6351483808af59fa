"""A long bad line: 50 ms there and back, 0.1% loss, 1 Gbit/s, between two network namespaces of our own. Needs root.

    with BadLine(congestion="reno") as line:
        Nginx(folder, host=line.server, inside=line.at_server)     a server at the far end
        subprocess.run([*line.at_client, "curl", …])               a client at the near end

The line itself is wan_emulator.c (this kernel may have no netem), compiled at the first use.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from testbed import debian

SOURCE = Path(__file__).with_name("wan_emulator.c")


class WanEmulator:
    client_address, server_address = "10.209.0.1", "10.209.0.2"

    def __init__(
        self,
        *,
        congestion_control: str = "reno",
        rate_mbit: float = 1000,
        rtt_ms: float = 50,
        loss_percent: float = 0.1,
        queue_ms: float = 50,
    ) -> None:
        self._congestion_control = congestion_control
        self._program_arguments = [str(number) for number in (rate_mbit, rtt_ms / 2, loss_percent, queue_ms)]
        self._client_netns, self._server_netns = (f"wan-emulator-{os.getpid()}-{end}" for end in ("near", "far"))
        self._process: subprocess.Popen[str] | None = None
        self.summary = ""  # at the end: packets sent, lost, refused by the full queue

    @property
    def client_prefix(self) -> list[str]:
        return ["ip", "netns", "exec", self._client_netns]

    @property
    def server_prefix(self) -> list[str]:
        return ["ip", "netns", "exec", self._server_netns]

    def __enter__(self) -> WanEmulator:
        try:
            self._create_namespaces()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _create_namespaces(self) -> None:
        program = build_program()
        for namespace in (self._client_netns, self._server_netns):
            _ip("netns", "add", namespace)
        command = [str(program), self._client_netns, self._server_netns, *self._program_arguments]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "up\n":
            raise RuntimeError("the bad line did not come up: it needs root and /dev/net/tun")
        for namespace, mine, other in (
            (self._client_netns, self.client_address, self.server_address),
            (self._server_netns, self.server_address, self.client_address),
        ):
            _ip("-n", namespace, "link", "set", "lo", "up")
            _ip("-n", namespace, "addr", "add", mine, "peer", other, "dev", "wan0")
            _ip("-n", namespace, "link", "set", "wan0", "up", "txqueuelen", "10000")
            setting = f"net.ipv4.tcp_congestion_control={self._congestion_control}"
            _ip("netns", "exec", namespace, "sysctl", "-qw", setting)

    def __exit__(self, *exc: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self.summary = self._process.communicate()[0].strip()
        for namespace in (self._client_netns, self._server_netns):
            subprocess.run(["ip", "netns", "delete", namespace], capture_output=True)


def build_program() -> Path:
    """The program, made of the source as it is now."""
    program = debian.cache_dir() / f"wan-emulator-{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]}"
    with debian.file_lock(program.with_name("badline.lock")):
        if not program.exists():
            new = program.with_name(program.name + ".new")
            _run(["gcc", "-O2", "-Wall", "-Wextra", "-o", str(new), str(SOURCE)])
            new.rename(program)
    return program


def _ip(*arguments: str) -> None:
    _run(["ip", *arguments])


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr.strip()}")
