"""Connections kept open between the requests of one transfer.

They are kept while someone is inside `keeping()`, and closed when the last one leaves.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Hashable, Iterator

from packtrain.transfer.http.connection import Http11Connection

_KEEPALIVE_EXPIRY_S = 5.0  # servers close what is idle for longer, and then the first request on it is lost
_MAX_IDLE_CONNECTIONS = 64


class ConnectionPool:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._n_users = 0
        self._idle_connections: dict[Hashable, list[tuple[Http11Connection, float]]] = {}

    @contextlib.contextmanager
    def keep_open(self) -> Iterator[None]:
        with self._lock:
            self._n_users += 1
        try:
            yield
        finally:
            with self._lock:
                self._n_users -= 1
                old = [] if self._n_users else self._drain()
            for wire in old:
                wire.close()

    def reset_after_fork(self) -> None:
        """In a process just forked: the connections are its parent's, and so may be whoever held the lock."""
        self._lock, self._idle_connections = threading.Lock(), {}

    def _drain(self) -> list[Http11Connection]:
        wires = [wire for row in self._idle_connections.values() for wire, _ in row]
        self._idle_connections.clear()
        return wires

    @property
    def is_enabled(self) -> bool:
        return self._n_users > 0

    def acquire(self, key: Hashable) -> Http11Connection | None:
        """One that was idle for a short time only."""
        while True:
            with self._lock:
                row = self._idle_connections.get(key)
                if not row:
                    return None
                wire, since = row.pop()
            if time.monotonic() - since < _KEEPALIVE_EXPIRY_S:
                return wire
            wire.close()

    def release(self, key: Hashable, connection: Http11Connection) -> None:
        with self._lock:
            row = self._idle_connections.setdefault(key, [])
            fits = self._n_users > 0 and len(row) < _MAX_IDLE_CONNECTIONS
            if fits:
                row.append((connection, time.monotonic()))
        if not fits:
            connection.close()


POOL = ConnectionPool()
os.register_at_fork(after_in_child=POOL.reset_after_fork)
connection_pool = POOL.keep_open
