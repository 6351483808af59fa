"""Connections kept open between the requests of one transfer.

They are kept while someone is inside `keeping()`, and closed when the last one leaves.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Hashable, Iterator

from packtrain.transfer.http.connection import Wire

_IDLE_S = 5.0  # servers close what is idle for longer, and then the first request on it is lost
_MOST = 64


class Kept:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = 0
        self._wires: dict[Hashable, list[tuple[Wire, float]]] = {}

    @contextlib.contextmanager
    def keeping(self) -> Iterator[None]:
        with self._lock:
            self._holders += 1
        try:
            yield
        finally:
            with self._lock:
                self._holders -= 1
                old = [] if self._holders else self._emptied()
            for wire in old:
                wire.close()

    def forget(self) -> None:
        """In a process just forked: the connections are its parent's, and so may be whoever held the lock."""
        self._lock, self._wires = threading.Lock(), {}

    def _emptied(self) -> list[Wire]:
        wires = [wire for row in self._wires.values() for wire, _ in row]
        self._wires.clear()
        return wires

    @property
    def wanted(self) -> bool:
        return self._holders > 0

    def take(self, key: Hashable) -> Wire | None:
        """One that was idle for a short time only."""
        while True:
            with self._lock:
                row = self._wires.get(key)
                if not row:
                    return None
                wire, since = row.pop()
            if time.monotonic() - since < _IDLE_S:
                return wire
            wire.close()

    def give(self, key: Hashable, wire: Wire) -> None:
        with self._lock:
            row = self._wires.setdefault(key, [])
            fits = self._holders > 0 and len(row) < _MOST
            if fits:
                row.append((wire, time.monotonic()))
        if not fits:
            wire.close()


KEPT = Kept()
os.register_at_fork(after_in_child=KEPT.forget)
keeping = KEPT.keeping
