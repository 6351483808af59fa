"""A thread that writes small files while the caller reads the archive.

Files are written in the order in which they are queued. One thread took the least CPU time on two busy cores. On idle
cores three threads were faster in the few measurements; measure again before you change this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from packtrain.transfer.tasks.background import BackgroundWorker

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
        self._batch: list[SmallFile] = []
        self._batch_bytes = 0

    def __enter__(self) -> SmallFileWriter:
        self._worker: BackgroundWorker[list[SmallFile]] = BackgroundWorker(
            self._write_batch, "unpack", _MAX_PENDING_BYTES, _batch_size
        )
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                self.flush()
        finally:
            self._worker.cancel()

    def put(self, small_file: SmallFile) -> None:
        """Queue a file, and wait if too many bytes are pending. Raises the error of the thread."""
        self._batch.append(small_file)
        self._batch_bytes += small_file.size + _CLUSTER_BYTES
        if self._batch_bytes >= _MIN_BATCH_BYTES:
            self._send_batch()

    def flush(self) -> None:
        """Wait until all files are written. Raises the error of the thread."""
        if self._batch:
            self._send_batch()
        self._worker.wait()

    def unwritten_bytes(self) -> int:
        """Return the number of bytes that are queued but not written."""
        return self._worker.pending + self._batch_bytes

    def _send_batch(self) -> None:
        batch, self._batch, self._batch_bytes = self._batch, [], 0
        self._worker.put(batch)

    def _write_batch(self, batch: list[SmallFile]) -> None:
        for small_file in batch:
            self._write(small_file)


def _batch_size(batch: list[SmallFile]) -> int:
    return sum(small_file.size + _CLUSTER_BYTES for small_file in batch)
