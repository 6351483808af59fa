"""Pieces are read before they are needed, by threads: as many as pay, within a limit of memory.

One thread gives samples to the training and asks for pieces in their order (`take`); `Reader` threads bring them. A
piece that is late when it is needed is asked for a second time, elsewhere if there is another place. While nobody
delivers, what is here is used up; then `take` waits, says why, and fails after the patience.

Where reading costs processor time rather than waiting (a server on this machine, the disk), nothing is read ahead: the
one who takes reads by himself, which spares the processor the changes between threads.
"""

from __future__ import annotations

import contextlib
import heapq
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from packtrain.errors import FailedError, TransferError
from packtrain.stream.cpu_bound import Effort
from packtrain.stream.disk_cache import Kept
from packtrain.stream.index import FILES, Archive, Index
from packtrain.stream.read_groups import Numbers, Piece, piece_of
from packtrain.stream.reader import Attempt, LeftError, Reader, samples_of, verify
from packtrain.stream.replicas import Hosts
from packtrain.transfer.block_checksums import Checksums
from packtrain.transfer.engine.concurrency import Pace
from packtrain.transfer.engine.source_stats import Standing
from packtrain.transfer.http.pool import keeping
from packtrain.transfer.retry import verdict_of
from packtrain.transfer.urls import shown

Tell = Callable[[str], None]

FIRST_THREADS, MOST_THREADS = 16, 32  # where one is not enough
_STEP_S = 0.1
_HEDGE_AFTER_S, _HEDGE_TIMES = 0.5, 3.0
_OVERTAKEN = 8  # pieces that were asked for later and are here: then it is late sooner
_OVERTAKEN_AFTER_S, _OVERTAKEN_TIMES = 0.2, 1.5
_HEDGED_SHARE, _MOST_COPIES = 0.1, 3
_KNOWN_AFTER = 4  # pieces, until it is known how long one takes
_TELL_AFTER_S, _TELL_EVERY_S = 5.0, 30.0
_STORED_WITHIN_S = 10.0  # what came last; a disk that hangs is not waited for


class Counts:
    """Of one prefetch, or added up."""

    def __init__(self) -> None:
        self.bytes = self.requests = self.failures = self.hedges = self.kept = 0
        self.waited_s = 0.0


class Prefetch:
    def __init__(
        self,
        index: Index,
        pieces: Sequence[Numbers],
        hosts: Hosts,
        *,
        memory: int,
        patience_s: float,
        tell: Tell,
        kept: Kept | None = None,
        checksums: Sequence[Checksums] = (),
    ) -> None:
        self._index, self._pieces, self._hosts, self._kept = index, pieces, hosts, kept
        self._checksums = checksums
        self._memory, self._patience_s, self._tell = memory, patience_s, tell
        self.counts = Counts()
        self._changed = threading.Condition(hosts.lock)
        self._ready: dict[int, list[bytes]] = {}
        self._from: dict[int, Standing] = {}  # who gave a piece
        self._flying: dict[int, list[Attempt]] = {}
        self._again: list[int] = []  # a heap of pieces to ask for once more
        self._next = self._wanted = 0
        self._held = self.freed = 0  # bytes read or being read; of them given away, counted by the one who takes
        self._full = self._closed = False
        self._threads = self._idle = self._storing = 0
        self._pace = Pace(FIRST_THREADS, MOST_THREADS, time.monotonic())
        self._effort, self._own = Effort(hosts.are_here), Reader(self._look)
        self._times: deque[float] = deque(maxlen=32)
        self._trouble: float | None = None  # since when nothing comes
        self._error: FailedError | None = None
        self._errors: dict[str, TransferError] = {}
        self._connections = contextlib.ExitStack()
        self._connections.enter_context(keeping())

    def take(self, number: int) -> list[bytes]:
        """The samples of a piece. Whoever takes adds what he lets go to `freed`."""
        found = self._ready.pop(number, None)
        if found is None or self._full:
            found = self._waited_for(number, found)
        return found

    def given_by(self, number: int) -> Standing | None:
        return self._from.get(number)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._ready.clear()
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._storing, _STORED_WITHIN_S)
        self._connections.close()

    # The one who takes

    def _waited_for(self, number: int, found: list[bytes] | None) -> list[bytes]:
        began = time.monotonic()
        tell_at = began + _TELL_AFTER_S
        with self._changed:
            self._wanted, self._full = max(self._wanted, number), False
            self._changed.notify_all()
        while found is None:
            if self._effort.busy and not self._threads:
                self._step(self._own)
            else:
                self._wait(number)
            found = self._ready.pop(number, None)
            now = time.monotonic()
            if found is None and self._error is not None:
                raise self._error
            if found is None and now > tell_at:
                self._tell(self._why_waiting(now - began))
                tell_at = now + _TELL_EVERY_S
        waited = time.monotonic() - began
        self.counts.waited_s += waited
        if waited > _TELL_AFTER_S:
            self._tell(f"the data comes again after {waited:.0f} s")
        return found

    def _wait(self, number: int) -> None:
        """For the threads: until something changes, or a moment."""
        with self._changed:
            if number not in self._ready and self._error is None:
                self._staff(number)
                self._changed.wait(_STEP_S)

    def _why_waiting(self, seconds: float) -> str:
        reasons = "; ".join(dict.fromkeys(error.detail for error in self._errors.values()))
        left = f", for {self._patience_s:.0f} s at most" if self._errors else ""
        return f"waiting for data for {seconds:.0f} s{left}: {reasons or 'no answer yet'}"

    def _staff(self, number: int) -> None:
        """While the training waits: more threads if they pay, and a second copy of what is late."""
        now = time.monotonic()
        attempts = sum(map(len, self._flying.values()))
        wanted = self._pace.told(self.counts.bytes, time.process_time(), now, attempts)
        if self._is_late(number, now):
            self.counts.hedges += 1
            heapq.heappush(self._again, number)
            wanted = max(wanted, self._threads + (not self._idle))
        for _ in range(self._threads, 0 if self._effort.busy else min(wanted, MOST_THREADS + 1)):
            self._threads += 1
            threading.Thread(target=self._run, name="stream", daemon=True).start()
        self._changed.notify_all()

    def _is_late(self, number: int, now: float) -> bool:
        flying = self._flying.get(number, ())
        if not 0 < len(flying) < _MOST_COPIES or number in self._again:
            return False
        if self.counts.hedges >= 2 + _HEDGED_SHARE * self.counts.requests:
            return False
        usual = sorted(self._times)[len(self._times) // 2] if len(self._times) >= _KNOWN_AFTER else 0.0
        age = now - flying[-1].began
        overtaken = len(self._ready) >= _OVERTAKEN and age > max(_OVERTAKEN_AFTER_S, _OVERTAKEN_TIMES * usual)
        return overtaken or age > max(_HEDGE_AFTER_S, _HEDGE_TIMES * usual)

    # The threads that read

    def _run(self) -> None:
        reader = Reader(self._look)
        try:
            while self._step(reader):
                pass
        except FailedError as error:
            self._fatal(error)
        except BaseException as error:
            self._fatal(FailedError("internal", f"reading failed: {error!r}"))
            raise
        finally:
            with self._changed:
                self._threads -= 1
                self._changed.notify_all()

    def _fatal(self, error: FailedError) -> None:
        with self._changed:
            self._error = self._error or error

    def _step(self, reader: Reader) -> bool:
        """One piece, or one moment of waiting; False: this thread may go."""
        with self._changed:
            number = self._next_number() if reader is self._own or not self._effort.busy else None
            if number is None:
                return not self._over() and self._rested(_STEP_S)
        if self._kept is not None and self._kept.has(self._pieces[number]) and self._from_disk(number, self._kept):
            return True
        attempt = self._attempt(number)
        if attempt is not None:
            self._serve(attempt, reader)
        return True

    def _from_disk(self, number: int, kept: Kept) -> bool:
        began, cpu_s = time.monotonic(), time.thread_time()
        try:
            found = kept.read(self._pieces[number])
        except OSError:
            return False  # then by the network
        self._effort.told(time.thread_time() - cpu_s, time.monotonic() - began)
        self._arrived(number, found, None)
        return True

    def _over(self) -> bool:
        done = self._next >= len(self._pieces) and not self._flying
        many = 0 if self._effort.busy else self._pace.connections + 1
        return self._closed or self._error is not None or done or self._threads > many

    def _rested(self, seconds: float) -> bool:
        self._idle += 1
        self._changed.wait(seconds)
        self._idle -= 1
        return True

    def _next_number(self) -> int | None:
        """What to read next; its bytes count as held from now on."""
        if self._closed or self._error is not None:
            return None
        if self._again:
            return heapq.heappop(self._again)
        if self._next >= len(self._pieces):
            return None
        size = self._sized(self._next)
        if self._held - self.freed + size > self._memory and self._next > self._wanted:
            self._full = True
            return None
        self._held += size
        self._flying[self._next] = []
        self._next += 1
        return self._next - 1

    def _piece(self, number: int) -> Piece:
        samples = self._pieces[number]
        block = self._checksums[self._index.archive[samples[0]]].block if self._checksums else 1
        return piece_of(self._index, samples, block)

    def _sized(self, number: int) -> int:
        """Bytes that the samples of a piece take."""
        sizes = self._index.sizes
        return sum(sizes[sample] for sample in self._pieces[number])

    def _attempt(self, number: int) -> Attempt | None:
        """Who is asked for it. None: nobody can be now; the piece waits."""
        piece = self._piece(number)
        archive = piece.archive
        if not piece.size:  # there is no range of no bytes that one could ask for
            self._arrived(number, [b""] * len(piece.samples), None)
            return None
        try:
            self._hosts.find(archive)
        except TransferError as error:
            self._put_off(number, "finding", error)
            return None
        with self._changed:
            now, flying = time.monotonic(), self._flying.get(number)
            if flying is None:
                return None  # it has come meanwhile
            chosen = self._hosts.choose(archive, now, [other.standing for other in flying])
            if chosen is None:
                self._nobody(number, archive, now)
                return None
            standing, place = chosen
            standing.connections += 1
            attempt = Attempt(number, piece, standing, place, now, standing.leniency, hedge=bool(flying))
            flying.append(attempt)
            self.counts.requests += 1
            return attempt

    def _serve(self, attempt: Attempt, reader: Reader) -> None:
        piece, hosts = attempt.piece, self._hosts
        archive = piece.archive
        attempt.own, cpu_s = reader is self._own, time.thread_time()
        try:
            ref = hosts.at(attempt.place, piece.samples[0])
            data = reader.read(attempt, ref, self._expected(piece), hosts.is_first(archive, attempt.standing))
            if self._checksums:
                verify(piece, data, self._checksums[archive], shown(ref.url))
            found = samples_of(self._index, piece, data)
        except LeftError:
            self._left(attempt)
        except TransferError as error:
            self._failed(attempt, archive, error)
        else:
            self._effort.told(time.thread_time() - cpu_s, time.monotonic() - attempt.began)
            if self._arrived(attempt.number, found, attempt) and self._kept is not None:
                self._store(self._kept, piece, data)

    def _expected(self, piece: Piece) -> Archive:
        """What the object should be; of files in a folder only the size is known."""
        if self._index.layout == FILES:
            return Archive("", self._index.sizes[piece.samples[0]])
        return self._index.archives[piece.archive]

    def _store(self, kept: Kept, piece: Piece, data: memoryview) -> None:
        try:
            kept.store(piece, data)
        finally:
            with self._changed:
                self._storing -= 1
                if self._closed:
                    self._changed.notify_all()

    def _look(self, attempt: Attempt) -> None:
        """Asked while bytes are waited for: is it worth it?"""
        if self._closed or attempt.number not in self._flying:
            raise LeftError
        now = time.monotonic()
        if attempt.own and now - attempt.began > _HEDGE_AFTER_S:
            self._effort = Effort(here=False)  # no longer quick
            with self._changed:
                self._staff(attempt.number)
        if attempt.silent_too_long(now):
            with self._changed:
                alone = self._hosts.records.alone(attempt.standing, now)
                attempt.standing.silent(now, alone, attempt.leniency, attempt.came)
            raise attempt.too_slow(now)

    def _arrived(self, number: int, found: list[bytes], attempt: Attempt | None) -> bool:
        """Whether it is the first to bring it."""
        with self._changed:
            now = time.monotonic()
            if attempt is None:
                self.counts.kept += 1
            else:
                took = now - attempt.began
                attempt.standing.connections -= 1
                attempt.standing.delivered(attempt.piece.size, took, now)
                self.counts.bytes += attempt.piece.size
                self._times.append(took)
                self._trouble, self._errors = None, {}
            if self._flying.pop(number, None) is None or self._closed:
                return False
            self._ready[number] = found
            if attempt is not None:
                self._from[number] = attempt.standing
                self._storing += self._kept is not None
            if number == self._wanted:
                self._changed.notify_all()
            return True

    def _left(self, attempt: Attempt) -> None:
        with self._changed:
            attempt.standing.connections -= 1

    def _failed(self, attempt: Attempt, archive: int, error: TransferError) -> None:
        with self._changed:
            now, standing = time.monotonic(), attempt.standing
            standing.connections -= 1
            ends = (self._trouble or now) + self._patience_s
            standing.failed(error, attempt.began, now, self._hosts.records.alone(standing, now), ends)
            if standing.refused or error.kind == "not_the_data":
                self._hosts.bar(archive, standing, error)
            self.counts.failures += 1
            flying = self._flying.get(attempt.number)
            if flying is not None:
                flying.remove(attempt)
                if not flying:
                    heapq.heappush(self._again, attempt.number)
            self._note(standing.place.label, error, now)
            self._judge(archive, now)

    def _put_off(self, number: int, who: str, error: TransferError) -> None:
        with self._changed:
            now = time.monotonic()
            heapq.heappush(self._again, number)
            self._note(who, error, now)
            if now - (self._trouble or now) > self._patience_s or error.kind == "unsupported":
                self._give_up()
            self._rested(10 * _STEP_S)

    def _nobody(self, number: int, archive: int, now: float) -> None:
        """All rest, or are refused: the piece waits until one may be asked."""
        heapq.heappush(self._again, number)
        self._judge(archive, now)
        self._rested(_STEP_S)

    def _note(self, who: str, error: TransferError, now: float) -> None:
        self._trouble = now if self._trouble is None else self._trouble
        self._errors[who] = error

    def _judge(self, archive: int, now: float) -> None:
        """Give up when nobody may be asked ever again, or nothing came for the whole patience."""
        known, hopeless = self._hosts.of(archive), self._hosts.why_hopeless(archive)
        if hopeless or (self._trouble is not None and now - self._trouble > self._patience_s):
            self._give_up(hopeless)
        elif known and all(standing.failures for standing in known) and not self._flying_any():
            self._hosts.forget(archive)

    def _flying_any(self) -> bool:
        return any(self._flying.values())

    def _give_up(self, hopeless: Sequence[TransferError] = ()) -> None:
        """The reason may be older than this stream."""
        self._error = self._error or verdict_of([*self._errors.values()] or hopeless)
        self._changed.notify_all()
