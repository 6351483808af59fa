"""An object read in places: each read goes to whichever of its servers does best, and to another one if that fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from packtrain.errors import TransferError
from packtrain.plan import Ref
from packtrain.transfer.api import ObjectInfo, Reveal, Span, Stream
from packtrain.transfer.engine.source_stats import Sources, Standing
from packtrain.transfer.http.connection import watched
from packtrain.transfer.registry import places_for
from packtrain.transfer.retry import pause, verdict_of
from packtrain.transfer.urls import scheme_of, shown

Stop = Callable[[], None]
_FEDERATED = ("osdf", "pelican")
_WAIT_S = 0.05
_ASK_AGAIN_S = 1.0


class Remote:
    """Of one archive. `refs` are its addresses, each as good as the other. Any number of threads may read."""

    def __init__(self, refs: Sequence[Ref], reveal: Reveal, patience_s: float, stop: Stop) -> None:
        self.refs, self._reveal, self._patience_s, self._stop = tuple(refs), reveal, patience_s, stop
        self._sources, self._lock = Sources(), threading.Lock()
        self._asked_at = float("-inf")
        self._unfound: list[TransferError] = []
        self.info: ObjectInfo | None = None  # as the first answer said
        self._told_by: Standing | None = None

    @property
    def shown(self) -> str:
        return shown(self.refs[0].url)

    @property
    def size(self) -> int:
        assert self.info is not None and self.info.size is not None
        return self.info.size

    @property
    def told_by_first(self) -> bool:
        """Whether `info` is of the first address; each server has ETags and times of its own."""
        return self._told_by is None or self._told_by.rank == 0

    def read(self, start: int, stop: int) -> bytes:
        """These bytes; fewer only where the object ends. Raises TransferError when nobody gives them."""
        if start >= stop:
            return b""
        ends = time.monotonic() + self._patience_s
        errors: dict[int, TransferError] = {}
        while True:
            self._stop()
            standing = self._chosen()
            if standing is not None:
                try:
                    return self._read(standing, Span(start, stop), ends)
                except TransferError as error:
                    errors[id(standing)] = error
            if self._is_hopeless(ends):
                raise verdict_of([*errors.values(), *self._unfound] or self._refusals())
            if standing is None:
                pause(_WAIT_S, self._stop)

    def _is_hopeless(self, ends: float) -> bool:
        refused = all(s.refused or s.differs for s in self._sources.standings)
        if self._sources.standings and refused:
            return True
        return time.monotonic() > ends and not any(s.usable(time.monotonic()) for s in self._sources.standings)

    def _refusals(self) -> list[TransferError]:
        unknown = TransferError("service_unavailable", f"nobody gives {self.shown}", self.shown)
        return [s.error for s in self._sources.standings if s.error] or [unknown]

    def _chosen(self) -> Standing | None:
        with self._lock:
            now = time.monotonic()
            if not any(s.usable(now) for s in self._sources.standings) and now > self._asked_at + _ASK_AGAIN_S:
                self._asked_at = now
                self._find()
            standing = self._sources.choose(time.monotonic())
            if standing is not None:
                standing.connections += 1
            return standing

    def _find(self) -> None:
        """Called when nobody can be asked: at first, and when all fail."""
        first, self._unfound = not self._sources.standings, []
        self._look(0, directly(self.refs), last_resort=False)
        if not first or not self._sources.standings:
            caches = [ref for ref in self.refs if scheme_of(ref.url) in _FEDERATED]
            self._look(len(self.refs), caches, last_resort=True)

    def _look(self, rank: int, refs: Sequence[Ref], last_resort: bool) -> None:
        for at, ref in enumerate(refs, rank):
            try:
                found = places_for(ref, self._reveal)
                self._sources.add(at, [replace(place, last_resort=last_resort) for place in found])
            except TransferError as error:
                self._unfound.append(error)

    def _read(self, standing: Standing, span: Span, ends: float) -> bytes:
        reading = _Reading(standing, self._stop)
        try:
            with watched(reading.look, limits=True):
                stream = standing.place.source.open(standing.place.ref, span)
                try:
                    self._check(standing, stream, span)
                    data = reading.collected(stream, span)
                finally:
                    stream.close()
        except TransferError as error:
            self._failed(reading, error, ends)
            raise
        finally:
            with self._lock:
                standing.connections -= 1
        with self._lock:
            now = time.monotonic()
            standing.delivered(len(data), now - reading.began, now)
        return data

    def _failed(self, reading: _Reading, error: TransferError, ends: float) -> None:
        with self._lock:
            now, standing = time.monotonic(), reading.standing
            alone = self._sources.alone(standing, now)
            if reading.silent:
                standing.silent(now, alone, reading.leniency, reading.came)
            standing.failed(error, reading.began, now, alone, max(ends, now + self._patience_s / 2))

    def _check(self, standing: Standing, stream: Stream, span: Span) -> None:
        """Whether this is a part of the object that the first answer was of."""
        url = shown(standing.place.ref.url)
        info = stream.info
        assert span.stop is not None
        whole = info.size is not None and span.start == 0 and info.size <= span.stop
        if info.size is None or stream.start != span.start or not (info.ranges or whole):
            raise TransferError(
                "unsupported", f"{url}: the server gives whole files only; samples cannot be read out of it", url
            )
        with self._lock:
            if self.info is None:
                self.info, self._told_by = info, standing
            same = standing is self._told_by
            if info.size != self.info.size or (same and info.etag != self.info.etag):
                standing.differs = True
                words = "changed while it was indexed" if same else f"is another file than {self.shown}"
                raise TransferError("not_the_data", f"{url} {words}", url)


def directly(refs: Sequence[Ref]) -> list[Ref]:
    """Of a federation the origin: a cache would fetch a whole block of the file for every header."""
    return [
        replace(ref, url=f"{ref.url}{'&' if '?' in ref.url else '?'}directread")
        if scheme_of(ref.url) in _FEDERATED
        else ref
        for ref in refs
    ]


class _Reading:
    """One answer on its way; a server that falls silent is left."""

    def __init__(self, standing: Standing, stop: Stop) -> None:
        self.standing, self.leniency, self._stop = standing, standing.leniency, stop
        self.began = self._moved = time.monotonic()
        self.came, self.silent = 0, False

    def collected(self, stream: Stream, span: Span) -> bytes:
        assert span.stop is not None and stream.info.size is not None
        data = bytearray(max(0, min(span.stop, stream.info.size) - span.start))
        view = memoryview(data)
        while self.came < len(data):
            count = stream.readinto(view[self.came :])
            if not count:
                url = shown(self.standing.place.ref.url)
                raise TransferError("truncated", f"{url}: the body ended before its promised end", url)
            self.came, self._moved = self.came + count, time.monotonic()
        stream.readinto(memoryview(bytearray(1)))  # a connection read to its end serves the next request
        return bytes(data)

    def look(self) -> None:
        self._stop()
        now, standing = time.monotonic(), self.standing
        limit = standing.stall_s(self.leniency, self.came) if self.came else standing.first_byte_s(self.leniency)
        if now - self._moved > limit:
            self.silent = True
            url = shown(standing.place.ref.url)
            words = f"{url}: the server sent nothing for {now - self._moved:.0f} s"
            raise TransferError("service_unavailable", words, url)
