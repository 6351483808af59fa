"""A thread that writes small files while another reads the archive.

One, not several: on two busy cores it took the least CPU time. (On idle ones three were faster in the few rounds
that were measured; measure anew before changing it.) Files are written in the order they are given.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import NamedTuple

_BATCH_BYTES = 1 << 20
_PENDING_BYTES = 16 << 20
_CLUSTER = 4096  # what even an empty file counts


class Small(NamedTuple):
    """A file that is written in one go."""

    path: str
    mode: int
    views: list[memoryview]
    size: int
    name: str  # of the member
    archive: str


class Writer:
    """`with Writer(write) as writer`: at the end of the block all is written, or the error is raised."""

    def __init__(self, write: Callable[[Small], None]) -> None:
        self._write = write
        self._batches: queue.SimpleQueue[list[Small]] = queue.SimpleQueue()
        self._batch: list[Small] = []
        self._size = 0  # of the batch
        self._pending = 0  # bytes of the batches that were sent
        self._changed = threading.Condition()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="unpack")

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                self.settle()
            else:
                self._error = self._error or error  # what waits need not be written
        finally:
            self._batches.put([])
            self._thread.join()

    def put(self, small: Small) -> None:
        """Raises what the thread raised."""
        self._batch.append(small)
        self._size += small.size + _CLUSTER
        if self._size >= _BATCH_BYTES:
            self._send()
            self._await(_PENDING_BYTES)

    def settle(self) -> None:
        """Wait until all is written. Raises what the thread raised."""
        if self._batch:
            self._send()
        self._await(0)

    def unwritten(self) -> int:
        """Bytes."""
        return self._pending + self._size

    def _send(self) -> None:
        with self._changed:
            self._pending += self._size
        self._batches.put(self._batch)
        self._batch, self._size = [], 0

    def _await(self, most: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._pending <= most or self._error is not None)
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        for batch in iter(self._batches.get, []):
            try:
                if self._error is None:
                    self._write_all(batch)
            except BaseException as error:
                self._error = error
            with self._changed:
                self._pending -= sum(small.size + _CLUSTER for small in batch)
                self._changed.notify_all()

    def _write_all(self, batch: list[Small]) -> None:
        for small in batch:
            self._write(small)
