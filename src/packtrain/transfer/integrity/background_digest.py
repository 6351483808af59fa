"""Digests of a file while it is downloaded.

Blocks arrive in any order. A thread hashes the file from its start up to the frontier: the first byte that is missing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from packtrain.transfer.integrity.digests import Digests
from packtrain.transfer.tasks.background import BackgroundWorker
from packtrain.transfer.tasks.cancellation import CancelCheck

_READ_BYTES = 1 << 20
_MAX_CACHED_BLOCKS = 8
_OFFER_TIMEOUT_S = 1.0

ReadInto = Callable[[memoryview, int], int]
"""Reads from the file at a position into a buffer, and returns the number of bytes."""


class BackgroundDigest:
    """A thread that hashes a file behind its writers; blocks that were just written come from memory."""

    def __init__(self, digests: Digests, readinto: ReadInto) -> None:
        self._digests, self._readinto = digests, readinto
        self._position = 0
        self._cached_blocks: dict[int, memoryview] = {}  # by position in the file
        self._free_slots = threading.Semaphore(_MAX_CACHED_BLOCKS)
        self._is_stopped = False
        self._worker: BackgroundWorker[int] = BackgroundWorker(self._hash_up_to, "digest")

    def advance(self, available_bytes: int) -> None:
        """Move the frontier: all bytes before `available_bytes` are written."""
        self._worker.put(available_bytes)

    def offer(self, position: int, block: memoryview) -> bool:
        """Offer the block at the frontier, before the frontier advances, so that it need not be read from disk.

        Waits a moment if the cache is full: a writer far ahead of the digest would have to wait at the end anyway.

        Returns:
            Whether the block is cached. Its buffer must not be used again then.
        """
        is_free = self._free_slots.acquire(timeout=_OFFER_TIMEOUT_S)
        if is_free:
            self._cached_blocks[position] = block
        return is_free

    def finish(self, check_cancelled: CancelCheck) -> Digests:
        """Wait until all available bytes are hashed, and return the digests."""
        self._worker.finish(check_cancelled)
        return self._digests

    def stop(self) -> None:
        """Stop hashing and discard the digests."""
        self._is_stopped = True
        self._worker.cancel()

    def _hash_up_to(self, frontier: int) -> None:
        buffer = memoryview(b"")
        while self._position < frontier and not self._is_stopped:
            chunk = self._cached_blocks.pop(self._position, None)
            if chunk is not None:
                self._free_slots.release()
            else:
                buffer = buffer or memoryview(bytearray(_READ_BYTES))
                chunk = self._read(buffer[: self._next_cached(frontier) - self._position])
            self._digests.update(chunk)
            self._position += len(chunk)

    def _next_cached(self, frontier: int) -> int:
        """Return the end of the bytes that must be read from the file."""
        return min((position for position in list(self._cached_blocks) if position > self._position), default=frontier)

    def _read(self, buffer: memoryview) -> memoryview:
        count = self._readinto(buffer, self._position)
        if not count:
            raise OSError("the partial file was truncated while it was read")
        return buffer[:count]
