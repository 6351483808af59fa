"""The many connections of one fetch: what they share.

`Engine` holds the state (schedule, sources, counters) under one lock and never touches the network;
`worker.Worker`, one a connection, asks it for work, receives blocks, and tells what happened; `crew`
hires the workers and waits for the whole. The blocks go to a `Shelf`: a file (`disk`), or a window in
memory (`ordered`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional

from packtrain.errors import TransferError
from packtrain.plan import Item
from packtrain.transfer.api import ObjectInfo, Reveal
from packtrain.transfer.engine.block_sink import Shelf
from packtrain.transfer.engine.concurrency import FAR_S, MOST, Pace, Trickle
from packtrain.transfer.engine.resolver import Leads
from packtrain.transfer.engine.resume_log import BLOCK, Known
from packtrain.transfer.engine.scheduler import MOST_BLOCKS, Schedule, Span
from packtrain.transfer.engine.source_stats import Sources, Standing
from packtrain.transfer.http.tls_process import RELAY
from packtrain.transfer.progress import Observe
from packtrain.transfer.retry import verdict_of

if TYPE_CHECKING:
    from packtrain.transfer.block_checksums import Checksums

Stop = Callable[[], None]
Progress = Callable[[int, Optional[int]], None]

LOOK_EVERY_S = 0.05
_IDLE_LOOK_S = 0.4  # of a worker that finds nothing to do: a hundred agents have hundreds of them
_NEXT_PLACE_AFTER_S = 0.5  # of silence before the first answer
_MOST_BUFFERED = 96 << 20
_BLOCKS_A_WORKER = 2
_STRANGE_ANSWERS = 3
_ALIKE = 3  # answers that stop after the same number of bytes


@dataclass(frozen=True)
class Wish:
    """What is wanted, and by whom it may be ended."""

    item: Item
    reveal: Reveal
    patience_s: float
    stop: Stop
    progress: Progress
    checksums: Checksums | None = None
    observe: Observe | None = None

    @property
    def block(self) -> int:
        return self.checksums.block if self.checksums else BLOCK

    @property
    def proven(self) -> bool:
        """Whether wrong bytes would be noticed, wherever they come from."""
        return self.item.digest is not None or self.checksums is not None


class BeginAnewError(Exception):
    """The sources that are left have another object than the one begun."""


@dataclass
class Counts:
    retries: int = 0
    stalls: int = 0
    wasted: int = 0
    bytes: int = 0  # done, with those of earlier processes


@dataclass(eq=False)
class Attempt:
    """One answer of one place. `span` is None while it is not known how large the object is."""

    standing: Standing
    span: Span | None
    began: float
    leniency: float = 1.0  # with the place, when it began
    came: int = 0  # bytes
    paused: int = 0  # the bytes after which it fell silent last, for a moment or for good
    failed: bool = False


class Engine:
    def __init__(self, wish: Wish, shelf: Shelf, sources: Sources, counts: Counts) -> None:
        self.wish, self.shelf, self.sources, self.counts = wish, shelf, sources, counts
        self.changed = threading.Condition()
        self.known: Known | None = None
        self.schedule: Schedule | None = None
        self.last: Standing | None = None  # gave the last block
        self.draining = False  # an object without a size is read by one connection
        self.workers = 0
        self._writers: set[object] = set()  # changed without the lock: to add and to discard is one step each
        self._live: set[Attempt] = set()
        self.horizon: int | None = None  # blocks that may be under way before the first is used up
        self.most_blocks = MOST_BLOCKS  # of a span, if they have the wish's size
        self.far_block = wish.block  # their size, if the first server to answer is far away
        self.most = min(MOST, max(1, _MOST_BUFFERED // wish.block))
        self._leads = Leads(wish.item.sources, wish.reveal, self)
        self._openings: list[Attempt] = []
        self.round_trip_s = 0.0  # to the place that answered last; 0: not known
        self._began = self._since = time.monotonic()
        self._pace: Pace | None = None
        self._trickle = Trickle(self._began)
        self._ended: BaseException | None = None
        self._closed = self._complete = False

    def go_on(self, known: Known, done: Collection[int]) -> None:
        """With what an earlier process left."""
        self._schedule(known, done)

    # For the workers; each takes the lock by itself.

    def next_attempt(self) -> Attempt | None:
        """Work, waited for; None: leave."""
        pause = LOOK_EVERY_S
        with self.changed:
            while not self._superfluous():
                attempt = self._attempt(time.monotonic())
                if attempt is not None:
                    return attempt
                self.changed.wait(pause)
                pause = min(2 * pause, _IDLE_LOOK_S)
            self.workers -= 1
            self.changed.notify_all()
            return None

    def another_place(self, span: Span) -> Attempt | None:
        """For a span whose connection failed; None when nobody wants it any more."""
        with self.changed:
            while self.schedule is not None and not self._closed:
                self.schedule.skip(span)
                now = time.monotonic()
                standing = None if self.schedule.lost(span) else self.sources.choose(now)
                if self.schedule.lost(span):
                    break
                if standing is not None:
                    span.place, span.since, span.moved = standing, now, now
                    return self._started(Attempt(standing, span, now))
                self.changed.wait(LOOK_EVERY_S)
            return None

    def ended(self, attempt: Attempt) -> None:
        with self.changed:
            attempt.standing.connections -= 1
            self._live.discard(attempt)
            if attempt in self._openings:
                self._openings.remove(attempt)
            attempt.standing.gave |= attempt.came > 0
            if not attempt.failed:
                attempt.standing.reach.gave(attempt.came)
            self.changed.notify_all()

    def finished(self, span: Span) -> None:
        with self.changed:
            assert self.schedule is not None
            self.counts.wasted += span.got
            self.schedule.give_back(span)
            self.changed.notify_all()

    def failed(self, attempt: Attempt, error: TransferError) -> None:
        """Before `ended` of the same attempt."""
        with self.changed:
            now, standing, attempt.failed = time.monotonic(), attempt.standing, True
            self.counts.retries += 1
            alone = self.sources.alone(standing, now)
            standing.failed(error, attempt.began, now, alone, self._since + self.wish.patience_s)
            standing.whole = attempt.span is None and error.kind == "not_the_data"
            self._judge(now, still=1)

    def stalled(self, attempt: Attempt) -> None:
        with self.changed:
            self.counts.stalls += 1
            now, standing = time.monotonic(), attempt.standing
            standing.silent(now, self.sources.alone(standing, now), attempt.leniency, attempt.came)

    def paused(self, attempt: Attempt) -> None:
        """It is silent for a moment. Less than a block is no limit to keep to; and the first packets are alike."""
        with self.changed:
            attempt.paused = attempt.came
            stopped = [live for live in self._live if live.paused == live.came == attempt.came]
            alike = sum(live.standing is attempt.standing for live in stopped)
            if alike >= _ALIKE and attempt.came >= self.wish.block:
                attempt.standing.reach.stops(attempt.came)

    def is_slow(self, attempt: Attempt, now: float) -> bool:
        """Looked at all the time, so without the lock."""
        span, schedule = attempt.span, self.schedule
        if span is None or schedule is None:
            return False
        return schedule.slow(span, now, self.sources.alone(attempt.standing, now))

    def differs(self, attempt: Attempt) -> None:
        with self.changed:
            attempt.standing.differs = True
            self._judge(time.monotonic(), still=1)

    def has_given(self, attempt: Attempt) -> bool:
        """Whether the place has had our object not long ago: then one strange answer is an accident."""
        return attempt.standing.bytes > 0 and attempt.standing.failures < _STRANGE_ANSWERS

    def begin(self, attempt: Attempt, info: ObjectInfo, asked: int | None) -> bool:
        """With the first answer that is right, to `asked` bytes: False if another was first."""
        with self.changed:
            if self.schedule is not None or self.draining or self._closed:
                return False
            if info.size is None:
                self.shelf.begin_unsized()
                self.draining = True
                return True
            block = self.far_block if self.round_trip_s >= FAR_S else self.wish.block
            known = Known(info.size, info.etag, info.digest, block)
            self.shelf.begin(known)
            self._schedule(known, ())
            assert self.schedule is not None
            blocks = known.count if asked is None else max(1, asked // known.block)
            attempt.span = self.schedule.begin(attempt.standing, attempt.began, blocks)
            if not info.ranges:
                attempt.standing.most_connections = 1
            self.changed.notify_all()  # others may begin
            return True

    def arrived(self, attempt: Attempt, count: int) -> bool:
        """A block is here and right. True: it is to be put on the shelf, and then told as `stored`."""
        with self.changed:
            first = self._is_first(attempt, count)
            if first:
                self._writers.add(attempt)
            return first

    def stored(self, attempt: Attempt, count: int) -> None:
        with self.changed:
            self.counts.bytes += count
        self.written(attempt)

    def moved(self, attempt: Attempt, count: int) -> None:
        """A block is here, and stands in its place already."""
        with self.changed:
            if self._is_first(attempt, count):
                self.counts.bytes += count
                self._complete_if_all_here()

    def may_write(self, writer: object) -> bool:
        """Then `written` has to follow. Without the lock, since it is asked for every piece."""
        self._writers.add(writer)
        closed = self._closed
        if closed:
            self.written(writer)
        return not closed

    def written(self, writer: object) -> None:
        """Whoever writes last completes the whole, be it a part of a block that another copy brought before."""
        self._writers.discard(writer)
        if self._closed or (self.schedule is not None and not self.schedule.left):
            with self.changed:
                self._complete_if_all_here()

    def drained(self, attempt: Attempt, size: int, done: bool) -> None:
        """An object without a size: so much has come, to the end or not."""
        with self.changed:
            self._since = time.monotonic()
            self.last = attempt.standing
            self.counts.bytes = size
            attempt.standing.moved_at = self._since
            self._complete = done

    def drain_failed(self) -> None:
        with self.changed:
            self.draining = False
            self.counts.wasted += self.counts.bytes
            self.counts.bytes = 0

    def broken(self, error: BaseException) -> None:
        """Something that no other source can mend."""
        with self.changed:
            self._ended = self._ended or error
            self.changed.notify_all()

    @property
    def complete(self) -> bool:
        return self._complete

    @property
    def failure(self) -> BaseException | None:
        return self._ended

    def leave(self) -> bool:
        return self._closed or self._ended is not None

    # For `crew`, which waits for the whole.

    def look(self) -> int | None:
        """How many workers are wanted besides those at work; None: all is here."""
        self._leads.look(time.monotonic())
        with self.changed:
            if self._ended is not None:
                raise self._ended
            if self._complete:
                return None
            self._judge(time.monotonic(), still=0)
            missing = self._missing_workers(time.monotonic())
            self.workers += missing
            return missing

    def wait(self) -> None:
        with self.changed:
            if not self._complete and self._ended is None:
                self.changed.wait(LOOK_EVERY_S)

    def close(self) -> None:
        """Workers may hang in a connection for a while; what they bring is refused from now on."""
        with self.changed:
            self._closed = True
            self.changed.notify_all()
            while self._writers:
                self.changed.wait(LOOK_EVERY_S)

    # Under the lock.

    def _schedule(self, known: Known, done: Collection[int]) -> None:
        self.known, parts = known, max(1, self.wish.block // known.block)
        self.schedule = Schedule(known.count, done, self.horizon, parts * self.most_blocks, known.block, parts)
        self.counts.bytes = sum(known.length(index) for index in done)
        useful = max(1, self.schedule.left // (parts * _BLOCKS_A_WORKER))
        self._pace = Pace(min(self.most, useful), self.most, time.monotonic())
        self._complete = self._all_here()

    def _is_first(self, attempt: Attempt, count: int) -> bool:
        """A block that came: whether no copy of it did before."""
        span, schedule, now = attempt.span, self.schedule, time.monotonic()
        assert span is not None and schedule is not None
        attempt.standing.delivered(count, now - span.since, now)
        self._since, self.last = now, attempt.standing
        first = not self._closed and schedule.arrived(span, now)
        self.counts.wasted += 0 if first else count
        return first

    def _complete_if_all_here(self) -> None:
        self._complete = self._complete or self._all_here()
        if self._complete or self._closed:
            self.changed.notify_all()

    def _all_here(self) -> bool:
        return self.schedule is not None and not self.schedule.left and not self._writers

    def _superfluous(self) -> bool:
        if self.leave() or self._complete:
            return True
        return self._pace is not None and self.workers > self._pace.connections + self.sources.trickle

    def _attempt(self, now: float) -> Attempt | None:
        for standing in () if self.draining else self.sources.ranked(now):
            if self.schedule is None:
                attempt = self._opening(standing, now)
            else:
                span = self.schedule.take(standing, now, self.workers, self.sources.alone(standing, now))
                attempt = None if span is None else Attempt(standing, span, now)
            if attempt is not None:
                return self._started(attempt)
        return None

    def _opening(self, standing: Standing, now: float) -> Attempt | None:
        """One place is asked first; another one, too, while it keeps silent."""
        if any(now - opening.began < _NEXT_PLACE_AFTER_S or opening.standing is standing for opening in self._openings):
            return None
        opening = Attempt(standing, None, now)
        self._openings.append(opening)
        return opening

    def _started(self, attempt: Attempt) -> Attempt:
        attempt.leniency = attempt.standing.leniency
        attempt.standing.connections += 1
        self._live.add(attempt)
        return attempt

    def _missing_workers(self, now: float) -> int:
        if self._pace is None:
            return max(0, min(len(self.sources.standings), len(self._openings) + 1) - self.workers)
        assert self.schedule is not None
        come = self.counts.bytes + self.schedule.received()
        self.sources.trickle = self._trickle.told(come, now)
        busy_s = time.process_time() + RELAY.busy_s()
        wanted = self._pace.told(come, busy_s, now, len(self._live), self.round_trip_s) + self.sources.trickle
        return max(0, min(wanted, self.schedule.left) - self.workers)

    def _judge(self, now: float, still: int) -> None:
        """After a failure: is there hope? `still` attempts are told as failed, but not as ended."""
        if len(self._live) > still or self._closed or not self.sources.standings:
            return
        ends = self._since + self.wish.patience_s
        live = [s for s in self.sources.standings if not s.refused and not s.differs]
        exhausted = not self._leads.hopeful(ends) and all(s.failed_at >= ends for s in live)
        again = all(s.failures > 1 and s.failed_at >= self._since for s in live)
        if (exhausted or again) and any(s.differs for s in self.sources.standings):
            self._ended = BeginAnewError()
        elif exhausted:
            errors = [s.error for s in self.sources.standings if s.error is not None]
            self._ended = verdict_of([*errors, *self._leads.errors()])
        self.changed.notify_all()

    def lead_failed(self) -> None:
        with self.changed:
            self._judge(time.monotonic(), still=0)

    def patience_ends(self) -> float:
        return self._since + self.wish.patience_s
