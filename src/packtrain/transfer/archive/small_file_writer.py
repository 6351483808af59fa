"""A thread that writes small files while the caller reads the archive.

Files are written in the order in which they are queued. One thread took the least CPU time on two busy cores. On idle
cores three threads were faster in the few measurements; measure again before you change this.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import NamedTuple

_MIN_BATCH_BYTES = 1 << 20
_MAX_PENDING_BYTES = 16 << 20
_CLUSTER_BYTES = 4096  # minimum size that a file counts with


class SmallFile(NamedTuple):
    """A file whose content is in memory."""

    path: str
    mode: int
    views: list[memoryview]
    size: int
    member_name: str  # for messages
    archive_name: str


class SmallFileWriter:
    """A context manager; when its block ends, all files are written or the error of the thread is raised."""

    def __init__(self, write: Callable[[SmallFile], None]) -> None:
        self._write = write
        self._batches: queue.SimpleQueue[list[SmallFile]] = queue.SimpleQueue()
        self._batch: list[SmallFile] = []
        self._batch_bytes = 0
        self._pending_bytes = 0  # of batches that the thread has not written yet
        self._condition = threading.Condition()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="unpack")

    def __enter__(self) -> SmallFileWriter:
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                self.flush()
            else:
                self._error = self._error or error  # the thread skips pending files
        finally:
            self._batches.put([])
            self._thread.join()

    def put(self, small_file: SmallFile) -> None:
        """Queue a file, and wait if too many bytes are pending. Raises the error of the thread."""
        self._batch.append(small_file)
        self._batch_bytes += small_file.size + _CLUSTER_BYTES
        if self._batch_bytes >= _MIN_BATCH_BYTES:
            self._send_batch()
            self._wait_for_pending(_MAX_PENDING_BYTES)

    def flush(self) -> None:
        """Wait until all files are written. Raises the error of the thread."""
        if self._batch:
            self._send_batch()
        self._wait_for_pending(0)

    def unwritten_bytes(self) -> int:
        """Return the number of bytes that are queued but not written."""
        return self._pending_bytes + self._batch_bytes

    def _send_batch(self) -> None:
        with self._condition:
            self._pending_bytes += self._batch_bytes
        self._batches.put(self._batch)
        self._batch, self._batch_bytes = [], 0

    def _wait_for_pending(self, max_bytes: int) -> None:
        with self._condition:
            self._condition.wait_for(lambda: self._pending_bytes <= max_bytes or self._error is not None)
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        for batch in iter(self._batches.get, []):
            try:
                if self._error is None:
                    self._write_batch(batch)
            except BaseException as error:
                self._error = error
            with self._condition:
                self._pending_bytes -= sum(small_file.size + _CLUSTER_BYTES for small_file in batch)
                self._condition.notify_all()

    def _write_batch(self, batch: list[SmallFile]) -> None:
        for small_file in batch:
            self._write(small_file)
