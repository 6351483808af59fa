"""Digests of a file while it is downloaded.

Blocks arrive in any order. A thread hashes the file from its start up to the frontier: the first byte that is missing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from packtrain.transfer.cancellation import CancelCheck
from packtrain.transfer.integrity.digests import Digests

_READ_BYTES = 1 << 20
_MAX_CACHED_BLOCKS = 8
_OFFER_TIMEOUT_S = 1.0

ReadInto = Callable[[memoryview, int], int]
"""Reads from the file at a position into a buffer, and returns the number of bytes."""


class BackgroundDigest:
    """A thread that hashes a file behind its writers; blocks that were just written come from memory."""

    def __init__(self, digests: Digests, readinto: ReadInto) -> None:
        self._digests, self._readinto = digests, readinto
        self._condition = threading.Condition()
        self._available_bytes = 0
        self._cached_blocks: dict[int, memoryview] = {}  # by position in the file
        self._is_stopping = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="digest", daemon=True)
        self._thread.start()

    def advance(self, available_bytes: int) -> None:
        """Move the frontier: all bytes before `available_bytes` are written."""
        with self._condition:
            self._available_bytes = available_bytes
            self._condition.notify_all()

    def offer(self, position: int, block: memoryview) -> bool:
        """Offer the block at the frontier, before the frontier advances, so that it need not be read from disk.

        Waits a moment if the cache is full: a writer far ahead of the digest would have to wait at the end anyway.

        Returns:
            Whether the block is cached. Its buffer must not be used again then.
        """
        with self._condition:
            self._condition.wait_for(
                lambda: len(self._cached_blocks) < _MAX_CACHED_BLOCKS or self._is_stopping, _OFFER_TIMEOUT_S
            )
            if self._is_stopping or len(self._cached_blocks) >= _MAX_CACHED_BLOCKS:
                return False
            self._cached_blocks[position] = block
            return True

    def finish(self, check_cancelled: CancelCheck) -> Digests:
        """Wait until all available bytes are hashed, and return the digests."""
        self.stop(discard=False)
        while self._thread.is_alive():
            check_cancelled()
            self._thread.join(0.1)
        if self._error is not None:
            raise self._error
        return self._digests

    def stop(self, discard: bool = True) -> None:
        """Stop the thread after the available bytes, or at once if the digests are discarded."""
        with self._condition:
            self._is_stopping = True
            if discard:
                self._available_bytes = 0
            self._condition.notify_all()
        if discard:
            self._thread.join()

    def _run(self) -> None:
        try:
            self._hash_available(memoryview(bytearray(_READ_BYTES)))
        except BaseException as error:
            self._error = error

    def _hash_available(self, buffer: memoryview) -> None:
        position = 0
        while True:
            with self._condition:
                while self._available_bytes <= position and not self._is_stopping:
                    self._condition.wait()
                frontier, cached = self._available_bytes, self._cached_blocks.pop(position, None)
                self._condition.notify_all()
            if frontier <= position:
                return
            chunk = self._read(buffer[: min(_READ_BYTES, frontier - position)], position) if cached is None else cached
            self._digests.update(chunk)
            position += len(chunk)

    def _read(self, buffer: memoryview, position: int) -> memoryview:
        count = self._readinto(buffer, position)
        if not count:
            raise OSError("the partial file was truncated while it was read")
        return buffer[:count]
