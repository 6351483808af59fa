"""TLS in a process of its own, for large downloads: a second processor decrypts while this process writes and hashes.

The process is given a connected socket and one end of a pair, agrees on TLS (verified as ever), and passes bytes on.
The other end of the pair is what the rest of `transfer` reads from and writes to: a plain socket. The process starts
at the first use, and ends when nobody wants it any more, or with us. Where it cannot be started (no room for another
process, an interpreter that is not what it was), connections are as they are without it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from packtrain.errors import TransferError
from packtrain.transfer.cancellation import CancelCheck
from packtrain.transfer.urls import redact_url

if TYPE_CHECKING:
    import ssl
    import subprocess

MIN_SIZE_BYTES = 256 << 20  # bytes; below, its start costs more than it brings
_POLL_INTERVAL_S = 0.25
_BUFFER_BYTES = 1 << 18
_PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv[1]); from packtrain.transfer.http import tls_process; tls_process.main()"
)
_HANDSHAKE_DONE = b"+"
_READY = b"ready"
_START_TIMEOUT_S = 30.0


class TlsProcess:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users: set[int] = set()
        self._child: subprocess.Popen[bytes] | None = None
        self._control_socket: socket.socket | None = None
        self._failed = False

    @property
    def is_enabled(self) -> bool:
        return bool(self._users) and not self._failed

    def enable_for(self, user: object, size_bytes: int) -> None:
        """From now on connections with TLS go through the process, if so many bytes are worth it."""
        if size_bytes >= MIN_SIZE_BYTES and len(os.sched_getaffinity(0)) > 1:
            with self._lock:
                self._users.add(id(user))

    def release(self, user: object) -> None:
        with self._lock:
            self._users.discard(id(user))
            if not self._users:
                self._stop()
                self._failed = False

    def start_tls(self, sock: socket.socket, host: str, url: str, check_cancelled: CancelCheck) -> socket.socket | None:
        """Start TLS in the process and return the plain end of the connection.

        The process then owns `sock`. Returns None if there is no process; then `sock` is unchanged.
        """
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                if not self._send_order([host, redact_url(url)], [sock.fileno(), theirs.fileno()]):
                    ours.close()
                    return None
            _await_handshake(ours, check_cancelled)
        except BaseException:
            ours.close()
            raise
        sock.close()
        return ours

    def _send_order(self, order: list[str], fds: list[int]) -> bool:
        with self._lock:
            try:
                socket.send_fds(self._ensure_started(), [json.dumps(order).encode()], fds)
            except OSError:
                self._failed = True
                self._stop()
        return not self._failed

    def cpu_s(self) -> float:
        """Processor time of the process (see clock_getcpuclockid(3))."""
        child = self._child
        with contextlib.suppress(OSError):
            return time.clock_gettime((~child.pid << 3) | 2) if child else 0.0
        return 0.0

    def _ensure_started(self) -> socket.socket:
        import subprocess

        if self._child is None or self._child.poll() is not None or self._control_socket is None:
            self._control_socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            python = sys.executable or "/proc/self/exe"  # sys.executable is empty without PATH
            program = [python, "-I", "-S", "-c", _PROGRAM, str(Path(__file__).parents[3]), str(theirs.fileno())]
            with theirs:
                self._child = subprocess.Popen(program, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
            _await_start(self._control_socket)
        return self._control_socket

    def _stop(self) -> None:
        if self._control_socket is not None:
            self._control_socket.close()
        if self._child is not None:
            self._child.kill()
            self._child.wait()
        self._control_socket = self._child = None


TLS_PROCESS = TlsProcess()


def _await_start(control: socket.socket) -> None:
    control.settimeout(_START_TIMEOUT_S)
    if control.recv(len(_READY)) != _READY:
        raise OSError("the TLS process did not start")
    control.settimeout(None)


def _await_handshake(ours: socket.socket, check_cancelled: CancelCheck) -> None:
    ours.settimeout(_POLL_INTERVAL_S)
    received = b""
    while received != _HANDSHAKE_DONE:
        try:
            more = ours.recv(1 << 16 if received else 1)
        except socket.timeout:
            check_cancelled()
            continue
        if not more and received:
            raise TransferError(*json.loads(received))
        if not more:
            raise ConnectionResetError("the TLS process died")
        received += more


# The process


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the parent
    control = socket.socket(fileno=int(sys.argv[2]))
    control.sendall(_READY)
    while True:
        order, handles, _, _ = socket.recv_fds(control, 1 << 16, 2)
        if not order:
            os._exit(0)  # the parent has exited or stopped the process
        outside, inside = (socket.socket(fileno=handle) for handle in handles)
        threading.Thread(target=_serve, args=(outside, inside, *json.loads(order)), daemon=True).start()


def _serve(outside: socket.socket, inside: socket.socket, host: str, url: str) -> None:
    from packtrain.transfer.http.connect import start_tls

    with inside, outside, contextlib.suppress(OSError):
        try:
            tls = start_tls(outside, host, url)
        except TransferError as error:
            inside.sendall(json.dumps([error.kind, error.detail, error.redacted_url]).encode())
            return
        with tls:
            inside.sendall(_HANDSHAKE_DONE)
            _forward(tls, inside)


def _forward(tls: ssl.SSLSocket, inside: socket.socket) -> None:
    buffer, poller = memoryview(bytearray(_BUFFER_BYTES)), select.poll()
    for end in (tls, inside):
        poller.register(end, select.POLLIN)
    while True:
        ready = {handle for handle, _ in poller.poll()} if not tls.pending() else {tls.fileno()}
        if inside.fileno() in ready:
            data = inside.recv(_BUFFER_BYTES)
            if not data:
                return
            tls.settimeout(None)
            tls.sendall(data)
        if tls.fileno() in ready:
            count, ended = _read_available(tls, buffer)
            inside.sendall(buffer[:count])
            if ended:
                return


def _read_available(tls: ssl.SSLSocket, buffer: memoryview) -> tuple[int, bool]:
    """Read the available records that fit; return the byte count and whether the peer has closed."""
    import ssl

    tls.settimeout(0)
    count = 0
    with contextlib.suppress(ssl.SSLWantReadError):
        while count < len(buffer):
            more = tls.recv_into(buffer[count:])
            if not more:
                return count, True
            count += more
    return count, False
