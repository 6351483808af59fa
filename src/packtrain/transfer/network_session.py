"""Network resources that are shared by all connections of one download.

The download engine does not know which protocol its replicas speak. It opens a session, and the session controls what
the HTTP client holds for the process: the pool of open connections and the TLS process.
"""

from __future__ import annotations

import contextlib
import time

from packtrain.transfer.http.pool import connection_pool
from packtrain.transfer.http.tls_process import TLS_PROCESS


class NetworkSession:
    """Keeps connections open between the requests of a download; a context manager."""

    def __init__(self) -> None:
        self._exit_stack = contextlib.ExitStack()

    def __enter__(self) -> NetworkSession:
        self._exit_stack.callback(TLS_PROCESS.release, self)
        self._exit_stack.enter_context(connection_pool())
        return self

    def __exit__(self, *exc: object) -> None:
        self._exit_stack.close()

    def expect_bytes(self, size: int) -> None:
        """Move TLS to a process of its own if an object of `size` bytes is large enough to profit."""
        TLS_PROCESS.enable_for(self, size)


def cpu_s() -> float:
    """Return the CPU time in seconds that this process and its TLS process have used."""
    return time.process_time() + TLS_PROCESS.cpu_s()
