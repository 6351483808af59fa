"""Digests of a file while it arrives: a thread follows the edge up to which nothing is missing."""

from __future__ import annotations

import threading
from collections.abc import Callable

from packtrain.transfer.digests import Digests
from packtrain.transfer.engine.buffer_pool import allocate_page_aligned

_READ_BYTES = 1 << 20
_MAX_CACHED_BLOCKS = 8  # blocks in memory
_OFFER_TIMEOUT_S = 1.0

ReadInto = Callable[[memoryview, int], int]


class BackgroundDigest:
    """Reads behind the writers; what was written a moment ago comes from memory, not from disk."""

    def __init__(self, digests: Digests, readinto: ReadInto) -> None:
        self._digests, self._readinto = digests, readinto
        self._condition = threading.Condition()
        self._available_bytes = 0
        self._cached_blocks: dict[int, memoryview] = {}  # position → a block that need not be read
        self._is_stopping = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="digest", daemon=True)
        self._thread.start()

    def advance(self, available_bytes: int) -> None:
        with self._condition:
            self._available_bytes = available_bytes
            self._condition.notify_all()

    def offer(self, position: int, block: memoryview) -> bool:
        """The block at the edge, before it advances: whether it is kept until it is used, instead of being read.

        Waits a while for room: whoever is far ahead of the digest would have to wait for it at the end."""
        with self._condition:
            self._condition.wait_for(
                lambda: len(self._cached_blocks) < _MAX_CACHED_BLOCKS or self._is_stopping, _OFFER_TIMEOUT_S
            )
            if self._is_stopping or len(self._cached_blocks) >= _MAX_CACHED_BLOCKS:
                return False
            self._cached_blocks[position] = block
            return True

    def finish(self, check_cancelled: Callable[[], None]) -> Digests:
        """Wait for the rest."""
        self.stop(discard=False)
        while self._thread.is_alive():
            check_cancelled()
            self._thread.join(0.1)
        if self._error is not None:
            raise self._error
        return self._digests

    def stop(self, discard: bool = True) -> None:
        """`drop`: nobody wants the digests any more."""
        with self._condition:
            self._is_stopping = True
            if discard:
                self._available_bytes = 0
            self._condition.notify_all()
        if discard:
            self._thread.join()

    def _run(self) -> None:
        try:
            self._hash_available(allocate_page_aligned(_READ_BYTES))
        except BaseException as error:
            self._error = error

    def _hash_available(self, buffer: memoryview) -> None:
        at = 0
        while True:
            with self._condition:
                while self._available_bytes <= at and not self._is_stopping:
                    self._condition.wait()
                edge, near = self._available_bytes, self._cached_blocks.pop(at, None)
                self._condition.notify_all()
            if edge <= at:
                return
            piece = self._read(buffer[: min(_READ_BYTES, edge - at)], at) if near is None else near
            self._digests.update(piece)
            at += len(piece)

    def _read(self, buffer: memoryview, position: int) -> memoryview:
        count = self._readinto(buffer, position)
        if not count:
            raise OSError("the partial file became shorter while it was read")
        return buffer[:count]
