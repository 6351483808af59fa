"""An emulated wide-area link between two network namespaces: 50 ms RTT, 0.1% loss, 1 Gbit/s. Needs root.

    with WanEmulator(congestion_control="reno") as wan:
        Nginx(folder, host=wan.server_address, command_prefix=wan.server_prefix)
        subprocess.run([*wan.client_prefix, "curl", …])

The link itself is wan_emulator.c, since not every kernel has netem. It is compiled on first use.
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
    """The link and its namespaces. `queue_ms` is the size of the queue at the given rate."""

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
        self._client_netns, self._server_netns = (f"wan-emulator-{os.getpid()}-{end}" for end in ("client", "server"))
        self._process: subprocess.Popen[str] | None = None
        self.summary = ""  # after the end: packets sent, lost, dropped by the full queue

    @property
    def client_prefix(self) -> list[str]:
        """Command prefix that runs at the client."""
        return ["ip", "netns", "exec", self._client_netns]

    @property
    def server_prefix(self) -> list[str]:
        """Command prefix that runs at the server."""
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
            raise RuntimeError("the WAN emulator did not start; it needs root and /dev/net/tun")
        for namespace, address, peer in (
            (self._client_netns, self.client_address, self.server_address),
            (self._server_netns, self.server_address, self.client_address),
        ):
            _ip("-n", namespace, "link", "set", "lo", "up")
            _ip("-n", namespace, "addr", "add", address, "peer", peer, "dev", "wan0")
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
    """Return the program, compiled from the current source."""
    program = debian.cache_dir() / f"wan-emulator-{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]}"
    with debian.file_lock(program.with_name("wan-emulator.lock")):
        if not program.exists():
            new = program.with_name(program.name + ".new")
            _run(["gcc", "-O2", "-Wall", "-Wextra", "-o", str(new), str(SOURCE)])
            new.rename(program)
    return program


def _ip(*arguments: str) -> None:
    _run(["ip", *arguments])


def _run(command: Sequence[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {result.stderr.strip()}")
