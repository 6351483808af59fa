"""Digests of a file while it arrives: a thread follows the edge up to which nothing is missing."""

from __future__ import annotations

import threading
from collections.abc import Callable

from packtrain.transfer.digests import Digests
from packtrain.transfer.engine.buffer_pool import page_aligned

_STEP = 1 << 20
_NEAR = 8  # blocks in memory
_ROOM_WITHIN_S = 1.0

ReadInto = Callable[[memoryview, int], int]


class Follower:
    """Reads behind the writers; what was written a moment ago comes from memory, not from disk."""

    def __init__(self, digests: Digests, readinto: ReadInto) -> None:
        self._digests, self._readinto = digests, readinto
        self._changed = threading.Condition()
        self._edge = 0
        self._near: dict[int, memoryview] = {}  # position → a block that need not be read
        self._ended = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="digest", daemon=True)
        self._thread.start()

    def advance(self, edge: int) -> None:
        with self._changed:
            self._edge = edge
            self._changed.notify_all()

    def offer(self, position: int, block: memoryview) -> bool:
        """The block at the edge, before it advances: whether it is kept until it is used, instead of being read.

        Waits a while for room: whoever is far ahead of the digest would have to wait for it at the end."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._near) < _NEAR or self._ended, _ROOM_WITHIN_S)
            if self._ended or len(self._near) >= _NEAR:
                return False
            self._near[position] = block
            return True

    def finish(self, stop: Callable[[], None]) -> Digests:
        """Wait for the rest."""
        self.end(drop=False)
        while self._thread.is_alive():
            stop()
            self._thread.join(0.1)
        if self._error is not None:
            raise self._error
        return self._digests

    def end(self, drop: bool = True) -> None:
        """`drop`: nobody wants the digests any more."""
        with self._changed:
            self._ended = True
            if drop:
                self._edge = 0
            self._changed.notify_all()
        if drop:
            self._thread.join()

    def _run(self) -> None:
        try:
            self._follow(page_aligned(_STEP))
        except BaseException as error:
            self._error = error

    def _follow(self, buffer: memoryview) -> None:
        at = 0
        while True:
            with self._changed:
                while self._edge <= at and not self._ended:
                    self._changed.wait()
                edge, near = self._edge, self._near.pop(at, None)
                self._changed.notify_all()
            if edge <= at:
                return
            piece = self._read(buffer[: min(_STEP, edge - at)], at) if near is None else near
            self._digests.update(piece)
            at += len(piece)

    def _read(self, room: memoryview, at: int) -> memoryview:
        count = self._readinto(room, at)
        if not count:
            raise OSError("the partial file became shorter while it was read")
        return room[:count]
