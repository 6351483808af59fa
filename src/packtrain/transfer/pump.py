"""Reads a stream in a thread of its own, so that whoever waits for it can still be stopped.

A connection may hang for seconds in a name lookup, a handshake or a silent server. The waiting side
asks `stop` all the while and may leave at any moment; the thread ends by itself soon after.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Union, cast

from packtrain.transfer.api import Stream

BLOCK = 1 << 18
_BLOCKS_AHEAD = 16
_LOOK_EVERY_S = 0.1

Parcel = Union[Stream, bytes, BaseException]


class Pump:
    """`with Pump(opening, stop) as pump`: first `stream()`, then `blocks()` to the end."""

    def __init__(self, opening: Callable[[], Stream], stop: Callable[[], None]) -> None:
        self._opening, self._stop = opening, stop
        self._parcels: queue.Queue[Parcel] = queue.Queue(_BLOCKS_AHEAD)
        self._abandoned = threading.Event()

    def __enter__(self) -> Pump:
        threading.Thread(target=self._run, name="pump", daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._abandoned.set()

    def stream(self) -> Stream:
        return cast(Stream, self._next())

    def blocks(self) -> Iterator[bytes]:
        while True:
            block = cast(bytes, self._next())
            if not block:
                return
            yield block

    def _next(self) -> Parcel:
        while True:
            self._stop()
            try:
                parcel = self._parcels.get(timeout=_LOOK_EVERY_S)
            except queue.Empty:
                continue
            if isinstance(parcel, BaseException):
                raise parcel
            return parcel

    def _run(self) -> None:
        try:
            stream = self._opening()
            try:
                self._pour(stream)
            finally:
                stream.close()
        except BaseException as error:
            self._hand_over(error)

    def _pour(self, stream: Stream) -> None:
        self._hand_over(stream)
        while not self._abandoned.is_set():
            block = stream.read(BLOCK)
            self._hand_over(block)
            if not block:
                return

    def _hand_over(self, parcel: Parcel) -> None:
        while not self._abandoned.is_set():
            try:
                self._parcels.put(parcel, timeout=_LOOK_EVERY_S)
                return
            except queue.Full:
                continue
