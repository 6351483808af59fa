"""One connection's work: open, check whether it is our object, receive block after block, verify, hand over."""

from __future__ import annotations

import time

from packtrain.errors import TransferError
from packtrain.transfer.address import shown
from packtrain.transfer.api import WHOLE, ObjectInfo, Stream
from packtrain.transfer.api import Span as Bytes
from packtrain.transfer.buffers import page_aligned
from packtrain.transfer.engine import Attempt, Engine
from packtrain.transfer.verify import HEAD_BYTES, why_not_the_data
from packtrain.transfer.wire import watched

_FIRST_BYTES = 4 << 20  # asked for when it is not known how many there are
_SLOWER_THAN_OTHERS_S = 0.5  # without a byte, when another place brought what was asked for
_SMALL = 2 << 20  # asked for whole: what is said of the whole comes with it


class _LeftError(Exception):
    """Nobody waits for these bytes any more."""


class _OtherObjectError(Exception):
    """A source whose size or ETag differs from those of the object begun."""


class Worker:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._block = engine.wish.block
        self._buffer = page_aligned(self._block)
        self._began = False  # whether the first byte of this answer is here
        self._moved = 0.0  # when the last one came

    def run(self) -> None:
        try:
            while True:
                attempt = self._engine.next_attempt()
                if attempt is None:
                    return
                self._serve(attempt)
        except BaseException as error:
            self._engine.broken(error)

    def _serve(self, attempt: Attempt | None) -> None:
        """A span to its end, from one place after the other."""
        span = None
        while attempt is not None:
            self._try(attempt)
            span = attempt.span
            attempt = None if span is None else self._engine.another_place(span)
        if span is not None:
            self._engine.finished(span)

    def _try(self, attempt: Attempt) -> None:
        try:
            self._receive(attempt)
        except _LeftError:
            pass
        except _OtherObjectError:
            self._engine.differs(attempt)
        except TransferError as error:
            self._engine.failed(attempt, error)
        finally:
            self._engine.ended(attempt)

    def _receive(self, attempt: Attempt) -> None:
        self._began, self._moved = False, time.monotonic()
        with watched(lambda: self._look(attempt)):
            place = attempt.standing.place
            stream = place.source.open(place.ref, self._asked(attempt))
            try:
                if attempt.span is None:
                    self._open(attempt, stream)
                else:
                    self._go_on(attempt, stream)
            finally:
                stream.close()

    def _asked(self, attempt: Attempt) -> Bytes:
        span, known, planned = attempt.span, self._engine.known, self._engine.wish.item.size
        if span is None or known is None:
            small = planned is not None and planned <= _SMALL
            return WHOLE if small or attempt.standing.whole else Bytes(0, _FIRST_BYTES)
        return Bytes(span.at * known.block + span.got, min(known.size, span.stop * known.block))

    # The first answer

    def _open(self, attempt: Attempt, stream: Stream) -> None:
        """Nothing is begun before the first bytes look like the data."""
        asked, head = self._asked(attempt), self._read_head(attempt, stream)
        self._check_begin(attempt, stream.info, bytes(self._buffer[: min(head, HEAD_BYTES)]))
        if not self._engine.begin(attempt, stream.info, asked.stop):
            raise _LeftError
        if stream.info.size is None:
            self._drain(attempt, stream, head)
        elif attempt.span is not None:
            attempt.span.got = head
            self._pour(attempt, stream, ranged=stream.info.ranges)

    def _read_head(self, attempt: Attempt, stream: Stream) -> int:
        count = 0
        while count < HEAD_BYTES:
            more = stream.readinto(self._buffer[count:])
            if not more:
                break
            self._moving(attempt)
            count += more
        return count

    def _check_begin(self, attempt: Attempt, info: ObjectInfo, head: bytes) -> None:
        wrong = why_not_the_data(self._engine.wish.item.name, head, info.content_type)
        if wrong:
            url = shown(attempt.standing.place.ref.url)
            raise TransferError("not_the_data", f"{url}: {wrong}", url)
        if info.size is not None:
            self._check_size(attempt, info.size)

    def _check_size(self, attempt: Attempt, size: int) -> None:
        wish, url = self._engine.wish, shown(attempt.standing.place.ref.url)
        if wish.item.size is not None and size != wish.item.size:
            kind = "truncated" if size < wish.item.size else "not_the_data"
            words = f"{url} has {size} bytes, but had {wish.item.size} when the run was planned"
            raise TransferError(kind, words, url)
        if wish.checksums is not None and size != wish.checksums.size:
            words = f"{url} has {size} bytes, but its checksums are of {wish.checksums.size}"
            raise TransferError("not_the_data", words, url)

    def _drain(self, attempt: Attempt, stream: Stream, count: int) -> None:
        """A body whose length nobody says: from its first byte to its last, or not at all."""
        position = 0
        try:
            while count:
                if not self._engine.may_write():
                    raise _LeftError
                try:
                    self._engine.shelf.append(position, self._buffer[:count])
                finally:
                    self._engine.written()
                position += count
                self._engine.drained(attempt, position, done=False)
                self._moving(attempt)
                count = stream.readinto(self._buffer)
                self._look(attempt)
            self._check_size(attempt, position)
            self._engine.drained(attempt, position, done=True)
        except (TransferError, _LeftError):
            self._engine.drain_failed()
            raise

    # Further answers

    def _go_on(self, attempt: Attempt, stream: Stream) -> None:
        engine = self._engine
        assert engine.known is not None
        if not engine.known.agrees(stream.info, engine.wish.proven):
            raise self._strange(attempt) if engine.has_given(attempt) else _OtherObjectError()
        behind = self._asked(attempt).start - stream.start
        self._pass_over(attempt, stream, behind)
        self._pour(attempt, stream, ranged=behind == 0 and stream.info.ranges)

    def _pass_over(self, attempt: Attempt, stream: Stream, count: int) -> None:
        """A server without ranges sends what we have; it goes where what comes next will overwrite it."""
        span = attempt.span
        assert span is not None
        room = self._buffer[span.got :]
        while count:
            attempt.standing.most_connections = 1
            more = stream.readinto(room[:count])
            if not more:
                raise self._short(attempt)
            self._moving(attempt)
            count -= more
            self._look(attempt)

    def _pour(self, attempt: Attempt, stream: Stream, ranged: bool) -> None:
        span, engine = attempt.span, self._engine
        assert span is not None and engine.known is not None and engine.schedule is not None
        while span.at < span.stop or (not ranged and self._extended(attempt)):
            length = engine.known.length(span.at)
            while span.got < length:
                more = stream.readinto(self._buffer[span.got : length])
                if not more:
                    raise self._short(attempt)
                span.got += more
                self._moving(attempt)
                if span.got < length:
                    self._look(attempt)
            self._deliver(attempt, length)
            if engine.leave():
                raise _LeftError

    def _extended(self, attempt: Attempt) -> bool:
        span, schedule = attempt.span, self._engine.schedule
        assert span is not None and schedule is not None
        with self._engine.changed:
            return schedule.extend(span)

    def _deliver(self, attempt: Attempt, length: int) -> None:
        span, engine, block = attempt.span, self._engine, self._buffer[:length]
        assert span is not None
        index = span.at
        self._verify(attempt, index, block)
        if engine.arrived(attempt, length):
            try:
                self._buffer = _whole(engine.shelf.put(index, block), self._buffer)
            except BaseException as error:
                engine.broken(error)
                raise
            finally:
                engine.stored(length)

    def _verify(self, attempt: Attempt, index: int, block: memoryview) -> None:
        """Before it is written."""
        if index == 0:
            self._check_begin(attempt, ObjectInfo(), bytes(block[:HEAD_BYTES]))
        checksums = self._engine.wish.checksums
        if checksums is None:
            return
        from hashlib import sha256

        if sha256(block).hexdigest() != checksums.sha256[index]:
            assert attempt.span is not None
            self._engine.counts.wasted += len(block)
            attempt.span.got = 0
            url = shown(attempt.standing.place.ref.url)
            raise TransferError("digest_mismatch", f"{url}: block {index} is not the one of the checksums", url)

    def _moving(self, attempt: Attempt) -> None:
        now, standing = time.monotonic(), attempt.standing
        if self._began and now - self._moved > standing.longest_gap_s:
            standing.longest_gap_s = now - self._moved
        self._began, self._moved = True, now

    def _look(self, attempt: Attempt) -> None:
        """Asked while we wait: is it worth it?"""
        engine, span, standing, now = self._engine, attempt.span, attempt.standing, time.monotonic()
        if engine.leave():
            raise _LeftError
        if span is not None:
            span.moved = self._moved
            assert engine.schedule is not None
            if engine.schedule.lost(span) and not self._began and now - self._moved > _SLOWER_THAN_OTHERS_S:
                engine.stalled(attempt)
                raise self._too_slow(attempt, now - self._moved, slow=True)
            if engine.schedule.lost(span):
                raise _LeftError
        elif engine.schedule is not None:
            raise _LeftError  # another place answered before this one
        limit = standing.stall_s if self._began else standing.first_byte_s
        slow = span is not None and engine.schedule is not None and engine.schedule.slow(span, now)
        if now - self._moved > limit or slow:
            engine.stalled(attempt)
            raise self._too_slow(attempt, now - self._moved, slow)

    def _too_slow(self, attempt: Attempt, silent_s: float, slow: bool) -> TransferError:
        url = shown(attempt.standing.place.ref.url)
        words = "is far slower than the other connections" if slow else f"sent nothing for {silent_s:.0f} s"
        return TransferError("service_unavailable", f"{url}: the server {words}", url)

    def _strange(self, attempt: Attempt) -> TransferError:
        url = shown(attempt.standing.place.ref.url)
        return TransferError("not_the_data", f"{url}: the answer is of another object than those before", url)

    def _short(self, attempt: Attempt) -> TransferError:
        url = shown(attempt.standing.place.ref.url)
        return TransferError("truncated", f"{url}: the body ended before its promised end", url)


def _whole(given: memoryview, own: memoryview) -> memoryview:
    """The shelf gives our own buffer back, perhaps cut to the last block's length, or another one."""
    return own if len(given) < len(own) else given
