"""One connection's work: open, check whether it is our object, receive block after block, verify, hand over."""

from __future__ import annotations

import time

from packtrain.errors import FailedError, TransferError
from packtrain.transfer.api import WHOLE, ObjectInfo, Place, Stream
from packtrain.transfer.api import Span as Bytes
from packtrain.transfer.digests import HEAD_BYTES, why_not_of_its_form, why_not_the_data
from packtrain.transfer.engine.block_sink import Mover
from packtrain.transfer.engine.buffer_pool import page_aligned
from packtrain.transfer.engine.coordinator import Attempt, Engine
from packtrain.transfer.engine.resume_log import FAR_BLOCK
from packtrain.transfer.engine.scheduler import Span
from packtrain.transfer.http.connection import round_trip_s, watched
from packtrain.transfer.urls import shown

_FIRST_BYTES = 4 << 20  # asked for when it is not known how many there are
_SLOWER_THAN_OTHERS_S = 0.5  # without a byte, when another place brought what was asked for
_LOOK_EVERY_S = 0.02  # while bytes come
_PAUSE_S = 0.2
_PIECE = 1 << 18  # fits into the cache of a processor
SMALL = 2 << 20  # asked for whole: what is said of the whole comes with it


class _LeftError(Exception):
    """Nobody waits for these bytes any more."""


class _OtherObjectError(Exception):
    """A source whose size or ETag differs from those of the object begun."""


class _Writing:
    """Within, the file is ours; what goes wrong with it no other source can mend."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __enter__(self) -> None:
        if not self._engine.may_write(self):
            raise _LeftError

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._engine.broken(error)
        self._engine.written(self)


class Worker:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._block = engine.wish.block
        self._buffer = page_aligned(self._block)
        self._began = False  # whether the first byte of this answer is here
        self._moved = 0.0  # when the last one came
        self._looked = 0.0
        self._writing = _Writing(engine)
        self._begun: Mover | None = None  # what is here of the block stands in the file already

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
        with watched(lambda: self._look(attempt), limits=True):
            asked = self._asked(attempt)
            stream = _opened(attempt.standing.place, asked)
            self._engine.round_trip_s = round_trip_s()
            try:
                if attempt.span is None:
                    self._open(attempt, stream, asked)
                else:
                    self._go_on(attempt, stream, asked)
            finally:
                stream.close()

    def _asked(self, attempt: Attempt) -> Bytes:
        span, known, planned = attempt.span, self._engine.known, self._engine.wish.item.size
        if span is None or known is None:
            small = planned is not None and planned <= SMALL
            return WHOLE if small or attempt.standing.whole else Bytes(0, _FIRST_BYTES)
        stop = min(span.stop, span.at + self._reach(attempt))
        return Bytes(span.at * known.block + span.got, min(known.size, stop * known.block))

    def _reach(self, attempt: Attempt) -> int:
        """Blocks that may be asked for at once."""
        reach, span, known = attempt.standing.reach.bytes, attempt.span, self._engine.known
        assert span is not None and known is not None
        return span.stop - span.at if reach is None else max(1, reach // known.block)

    # The first answer

    def _open(self, attempt: Attempt, stream: Stream, asked: Bytes) -> None:
        """Nothing is begun before the first bytes look like the data."""
        head = self._read_head(attempt, stream)
        self._check_begin(attempt, stream.info, bytes(self._buffer[: min(head, HEAD_BYTES)]))
        if not self._engine.begin(attempt, stream.info, asked.stop):
            raise _LeftError
        if stream.info.size is None:
            self._drain(attempt, stream, head)
        elif attempt.span is not None:
            attempt.span.got = attempt.came = head
            self._pour(attempt, stream, attempt.span.stop if stream.info.ranges else None)

    def _read_head(self, attempt: Attempt, stream: Stream) -> int:
        count = 0
        while count < HEAD_BYTES:
            more = stream.readinto(self._buffer[count:FAR_BLOCK])  # no more than is a block in any case
            if not more:
                break
            self._moving(attempt)
            count += more
        return count

    def _check_begin(self, attempt: Attempt, info: ObjectInfo, head: bytes) -> None:
        wish = self._engine.wish
        wrong = why_not_the_data(wish.item.name, head, info.content_type)
        wrong = wrong or why_not_of_its_form(wish.item.name, head, wish.proven)
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
                count = self._checked(attempt, stream, position, count)
                with self._writing:
                    self._engine.shelf.append(position, self._buffer[:count])
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

    def _checked(self, attempt: Attempt, stream: Stream, position: int, count: int) -> int:
        """Where there are checksums, the block that begins with so many bytes: all of it, and right."""
        checksums, more = self._engine.wish.checksums, count
        if checksums is None:
            return count
        while more and count < self._block:
            more = stream.readinto(self._buffer[count:])
            count += more
            self._moving(attempt)
            self._look(attempt)
        if count < self._block or position + count > checksums.size:
            self._check_size(attempt, position + count)
        self._verify(attempt, position // self._block, self._buffer[:count])
        return count

    # Further answers

    def _go_on(self, attempt: Attempt, stream: Stream, asked: Bytes) -> None:
        engine = self._engine
        assert engine.known is not None
        if not engine.known.agrees(stream.info, engine.wish.proven):
            raise self._strange(attempt) if engine.has_given(attempt) else _OtherObjectError()
        behind = asked.start - stream.start
        self._pass_over(attempt, stream, behind)
        assert asked.stop is not None
        stop = -(-asked.stop // engine.known.block)
        self._pour(attempt, stream, stop if behind == 0 and stream.info.ranges else None)

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

    def _pour(self, attempt: Attempt, stream: Stream, stop: int | None) -> None:
        """Up to the block that the answer ends before; None: it goes on to the end of the object."""
        span, engine = attempt.span, self._engine
        assert span is not None and engine.known is not None and engine.schedule is not None
        while self._goes_on(attempt, stop):
            length = engine.known.length(span.at)
            mover = self._mover(span)
            if mover is None:
                self._collect(attempt, stream, length)
                self._verify(attempt, span.at, self._buffer[:length])
                self._store(attempt, length)
            else:
                self._move(attempt, stream, mover, length)
            if engine.leave():
                raise _LeftError

    def _goes_on(self, attempt: Attempt, stop: int | None) -> bool:
        span = attempt.span
        assert span is not None
        if stop is not None:
            return span.at < min(span.stop, stop)
        return span.at < span.stop or self._extended(attempt)

    def _collect(self, attempt: Attempt, stream: Stream, length: int) -> None:
        """What is missing of a block, into memory."""
        span = attempt.span
        assert span is not None
        while span.got < length:
            self._came(attempt, stream.readinto(self._buffer[span.got : length]), length)

    def _came(self, attempt: Attempt, more: int, length: int) -> None:
        span = attempt.span
        assert span is not None
        if not more:
            raise self._short(attempt)
        span.got += more
        attempt.came += more
        self._moving(attempt)
        if span.got < length and self._moved - self._looked > _LOOK_EVERY_S:
            self._look(attempt)

    # Straight into the file

    def _mover(self, span: Span) -> Mover | None:
        """For the block at hand, where its pieces may go straight into the file. The first one is looked at."""
        mover, begun = self._engine.shelf.mover, self._begun if span.got else None
        fit = span.at > 0 and not span.hedge
        self._begun = mover if fit and (begun or not span.got) else None
        if begun is not None and self._begun is None:
            begun.read_back(span.at, self._buffer[: span.got])
        return self._begun

    def _move(self, attempt: Attempt, stream: Stream, mover: Mover, length: int) -> None:
        """Piece by piece: what was read is still in the processor's cache when it is written."""
        span = attempt.span
        assert span is not None
        while span.got < length:
            room = min(length - span.got, _PIECE - span.got % _PIECE)
            more = stream.readinto(self._buffer[:room])
            with self._writing:
                mover.move(span.at, span.got, self._buffer[:more])
                if span.got + more == length:
                    mover.moved(span.at)
            self._came(attempt, more, length)
        self._engine.moved(attempt, length)

    def _extended(self, attempt: Attempt) -> bool:
        span, schedule = attempt.span, self._engine.schedule
        assert span is not None and schedule is not None
        with self._engine.changed:
            return schedule.extend(span)

    def _put(self, length: int, index: int) -> None:
        self._buffer = _whole(self._engine.shelf.put(index, self._buffer[:length]), self._buffer)

    def _store(self, attempt: Attempt, length: int) -> None:
        """The block at hand is here: if it is the first copy, it is to be stored."""
        assert attempt.span is not None
        engine, index = self._engine, attempt.span.at
        if engine.arrived(attempt, length):
            try:
                self._put(length, index)
            except BaseException as error:
                engine.broken(error)
                raise
            finally:
                engine.stored(attempt, length)

    def _verify(self, attempt: Attempt, index: int, block: memoryview) -> None:
        """Before it is written."""
        if index == 0:
            self._check_begin(attempt, ObjectInfo(), bytes(block[:HEAD_BYTES]))
        checksums = self._engine.wish.checksums
        if checksums is None:
            return
        from hashlib import sha256

        if sha256(block).hexdigest() != checksums.sha256[index]:
            self._engine.counts.wasted += len(block)
            if attempt.span is not None:
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
        self._looked = now
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
        if attempt.came and now - self._moved > _PAUSE_S:
            engine.paused(attempt)
        limit = (
            standing.stall_s(attempt.leniency, attempt.came) if self._began else standing.first_byte_s(attempt.leniency)
        )
        slow = engine.is_slow(attempt, now)
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


def _opened(place: Place, asked: Bytes) -> Stream:
    """What goes wrong here, a secret that cannot be read for example, concerns this place only."""
    try:
        return place.source.open(place.ref, asked)
    except TransferError:
        raise
    except FailedError as error:
        raise TransferError(error.kind, error.detail, shown(place.ref.url)) from error


def _whole(given: memoryview, own: memoryview) -> memoryview:
    """The shelf gives our own buffer back, perhaps cut to the last block's length, or another one."""
    return own if len(given) < len(own) else given
