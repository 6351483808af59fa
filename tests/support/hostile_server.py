"""A server that is broken on purpose: it sends given bytes, whatever it is asked."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterable, Iterator

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
DRIP_INTERVAL_S = 0.01


class HostileServer:
    """Sends each connection the given pieces after its first request, and then closes it."""

    def __init__(self, make_pieces: Callable[[], Iterable[bytes]], interval_s: float = 0.0) -> None:
        self._make_pieces, self._interval_s = make_pieces, interval_s
        self._stopped, self._server = threading.Event(), socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}/data.bin"
        self.n_connections = 0

    def __enter__(self) -> HostileServer:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopped.set()
        self._server.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                self.n_connections += 1
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            client.recv(1 << 16)
            for piece in self._make_pieces():
                client.sendall(piece)
                if self._stopped.wait(self._interval_s):
                    return


def dripped(data: Iterable[int]) -> Iterator[bytes]:
    return (bytes([byte]) for byte in data)
