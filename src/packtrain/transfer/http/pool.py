"""A pool of idle connections, kept while any thread is inside `connection_pool()`, then closed."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packtrain.transfer.http.connection import Http11Connection

_KEEPALIVE_EXPIRY_S = 5.0  # servers close connections that are idle for longer
_MAX_IDLE_CONNECTIONS = 64


class ConnectionPool:
    """Keeps idle connections by route; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._n_users = 0
        self._idle_connections: dict[Hashable, list[tuple[Http11Connection, float]]] = {}

    @contextlib.contextmanager
    def keep_open(self) -> Iterator[None]:
        """Keep idle connections during the block."""
        with self._lock:
            self._n_users += 1
        try:
            yield
        finally:
            with self._lock:
                self._n_users -= 1
                idle = [] if self._n_users else self._drain()
            for connection in idle:
                connection.close()

    def reset_after_fork(self) -> None:
        """Forget the connections and the lock, which belong to the parent process."""
        self._lock, self._idle_connections = threading.Lock(), {}

    def _drain(self) -> list[Http11Connection]:
        connections = [one for idle in self._idle_connections.values() for one, _ in idle]
        self._idle_connections.clear()
        return connections

    @property
    def is_enabled(self) -> bool:
        return self._n_users > 0

    def acquire(self, key: Hashable) -> Http11Connection | None:
        """Return a connection that has not expired and on which nothing arrived since its last response, or None."""
        while True:
            with self._lock:
                idle = self._idle_connections.get(key)
                if not idle:
                    return None
                connection, released_at = idle.pop()
            if time.monotonic() - released_at < _KEEPALIVE_EXPIRY_S and connection.is_idle():
                return connection
            connection.close()

    def release(self, key: Hashable, connection: Http11Connection) -> None:
        """Keep the connection for later requests, or close it if the pool is disabled or full."""
        with self._lock:
            idle = self._idle_connections.setdefault(key, [])
            is_kept = self._n_users > 0 and len(idle) < _MAX_IDLE_CONNECTIONS
            if is_kept:
                idle.append((connection, time.monotonic()))
        if not is_kept:
            connection.close()


POOL = ConnectionPool()
os.register_at_fork(after_in_child=POOL.reset_after_fork)
connection_pool = POOL.keep_open
