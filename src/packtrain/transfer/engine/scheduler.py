"""Who brings which blocks of a file: spans, steals and hedges. Pure: no clock, no network, no threads.

A span is a run of blocks that one connection asks for at once. Spans shrink towards the end, so that all
connections finish together. Where one lags nevertheless, an idle one takes the tail half of the span
with the most left, and at last a second copy of its very block (a hedge). The first copy wins.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

MOST_BLOCKS = 64  # of a span
_STEAL_AFTER_S = 0.25  # below, the owner is done before a thief has begun
_HEDGE_AFTER_S = 0.5
_HEDGE_TIMES = 3.0  # of what a block takes
_LAG_TIMES = 1.5  # of what a block takes, for the rest of one that is on its way
_SLOW_AFTER_S = 3.0
_SLOW_TIMES = 8.0
_HEDGED_SHARE = 0.05
_REMEMBERED = 64
_KNOWN_AFTER = 3  # blocks; fewer tell nothing about what one takes


@dataclass(eq=False)
class Span:
    """Blocks `at`..`stop` (not included) on their way from `place`; `got` bytes of block `at` are here."""

    at: int
    stop: int
    place: object
    since: float  # when block `at` was begun
    moved: float  # when a byte last came
    got: int = 0
    hedge: bool = False


class Schedule:
    def __init__(
        self,
        count: int,
        done: Iterable[int] = (),
        horizon: int | None = None,
        most_blocks: int = MOST_BLOCKS,
        block: int = 1 << 20,
        least_blocks: int = 1,
    ) -> None:
        """`least_blocks` are asked for at once, unless they are all that is left, or taken from another connection."""
        self.count, self.done, self._block = count, bytearray(count), block
        self._least_blocks, self._most_blocks = least_blocks, most_blocks
        for index in done:
            self.done[index] = 1
        self.left = count - sum(self.done)
        self.frontier = 0  # all blocks before it are done
        self.horizon = count if horizon is None else horizon  # blocks from here on are not given out yet
        self.hedged = 0
        self._free = _runs(self.done)
        self._free_blocks = self.left
        self._spans: list[Span] = []
        self._times: deque[tuple[float, object]] = deque(maxlen=_REMEMBERED)  # and the places
        self._typical: float | None = None  # not known, or to be found again
        self._advance()

    def take(self, place: object, now: float, workers: int, alone: bool = False) -> Span | None:
        """Work for a connection to a place; `alone`: there is no other place to hedge with."""
        span = (
            self._carve(place, now, workers)
            or self._take_over(place, now)
            or self._steal(place, now)
            or self._hedge(place, now, alone)
        )
        if span is not None:
            self._spans.append(span)
        return span

    def begin(self, place: object, now: float, blocks: int) -> Span | None:
        """The first blocks, for the answer that told how many there are."""
        span = self._carve(place, now, 1, blocks)
        if span is not None:
            self._spans.append(span)
        return span

    def extend(self, span: Span) -> bool:
        """The next block for a connection that cannot be asked for ranges and brings it anyway."""
        for index, (first, stop) in enumerate(self._free):
            if first == span.stop and first < self.horizon:
                self._free[index : index + 1] = [(first + 1, stop)] if first + 1 < stop else []
                self._free_blocks -= 1
                span.stop += 1
                return True
        return False

    def arrived(self, span: Span, now: float) -> bool:
        """Block `at` of the span is here and right: whether this is the first copy. The span goes on."""
        index, took = span.at, now - span.since
        span.at, span.got, span.since = index + 1, 0, now
        self._times.append((took, span.place))
        self._typical = None
        if self.done[index]:
            return False
        self.done[index] = 1
        self.left -= 1
        self._advance()
        return True

    def lost(self, span: Span) -> bool:
        """Whether nobody needs the span's block any more: another copy came first, or it was stolen."""
        return span.at >= span.stop or bool(self.done[span.at])

    def skip(self, span: Span) -> None:
        """Pass over blocks that others have brought."""
        while span.at < span.stop and self.done[span.at]:
            span.at, span.got = span.at + 1, 0

    def give_back(self, span: Span) -> None:
        """What is left of the span is for others."""
        self._spans.remove(span)
        for index in range(span.at, span.stop):
            if not self.done[index] and not any(other.at <= index < other.stop for other in self._spans):
                self._free.append((index, index + 1))
                self._free_blocks += 1
        self._free = _joined(self._free)

    def undo(self, index: int) -> None:
        """A block that turned out to be wrong after all."""
        self.done[index] = 0
        self.left += 1
        self._free = _joined([*self._free, (index, index + 1)])
        self._free_blocks += 1
        self.frontier = min(self.frontier, index)

    def slow(self, span: Span, now: float, alone: bool) -> bool:
        """Far behind what blocks take: better asked for anew. `alone`: there is no other place for it."""
        age = now - span.since
        if age <= _SLOW_AFTER_S:
            return False
        typical = (None if alone else self._elsewhere_s(span, now)) or self._usual_s(span, now, span.place)
        return typical is not None and age > _SLOW_TIMES * typical

    def _elsewhere_s(self, span: Span, now: float) -> float | None:
        """What a block takes, and takes now, from other places than this one, however many connections lag here."""
        times = [took for took, place in tuple(self._times) if place is not span.place]
        ages = [now - other.since for other in self._spans if other.got and other.place is not span.place]
        return max(_median(times), _median(ages or [0.0])) if len(times) >= _KNOWN_AFTER else None

    def typical_s(self) -> float | None:
        """What a block takes; None before that can be told."""
        if self._typical is None and len(self._times) >= _KNOWN_AFTER:
            self._typical = _median(took for took, _ in tuple(self._times))
        return self._typical

    def _usual_s(self, span: Span, now: float, place: object) -> float | None:
        """What a block takes, and takes the other connections to this place now: a line that all share may slow."""
        typical = self.typical_s()
        ages = [now - other.since for other in self._spans if other is not span and other.got and other.place is place]
        return None if typical is None else max(typical, _median(ages) if ages else 0.0)

    def received(self) -> int:
        """Bytes of blocks that are not complete yet."""
        return sum(span.got for span in self._spans)

    def _advance(self) -> None:
        gap = self.done.find(0, self.frontier)
        self.frontier = self.count if gap < 0 else gap

    def _carve(self, place: object, now: float, workers: int, most: int | None = None) -> Span | None:
        if not self._free or self._free[0][0] >= self.horizon:
            return None
        first, stop = self._free[0]
        if most is None:
            most = max(self._least_blocks, min(self._most_blocks, self._free_blocks // (2 * max(1, workers))))
        end = min(first + most, stop, self.horizon)
        self._free[:1] = [(end, stop)] if end < stop else []
        self._free_blocks -= end - first
        return Span(first, end, place, now, now)

    def _take_over(self, place: object, now: float) -> Span | None:
        """All of a span of which another place has not given a byte: that costs nothing, unlike a hedge."""
        for owner in self._spans:
            if not owner.got and owner.place is not place and self._late(owner, now, place):
                taken = Span(owner.at, owner.stop, place, now, now)
                owner.stop = owner.at
                return taken
        return None

    def _steal(self, place: object, now: float) -> Span | None:
        """The tail half of the longest span; its owner keeps the block that it is receiving."""
        owner = max(self._spans, key=lambda span: span.stop - span.at, default=None)
        if owner is None or owner.stop - owner.at < 2 or not self._worth_it(owner, now):
            return None
        middle = owner.at + 1 + (owner.stop - owner.at - 1) // 2
        stolen = Span(middle, owner.stop, place, now, now)
        owner.stop = middle
        return stolen

    def _worth_it(self, owner: Span, now: float) -> bool:
        typical = self.typical_s()
        ahead = now - owner.since if typical is None else max(now - owner.since, typical * (owner.stop - owner.at))
        return ahead >= _STEAL_AFTER_S

    def _hedge(self, place: object, now: float, alone: bool) -> Span | None:
        if self.hedged + 1 > max(1, int(_HEDGED_SHARE * self.count)):
            return None
        late = [span for span in self._spans if self._late(span, now, place) and (alone or span.place is not place)]
        if not late:
            return None
        last = max(late, key=lambda span: (self._rest_s(span, now), -span.since))
        self.hedged += 1
        return Span(last.at, last.at + 1, place, now, now, hedge=True)

    def _late(self, span: Span, now: float, place: object) -> bool:
        """Would another copy from this place come sooner? One beside the first is enough."""
        age, typical = now - span.since, self.typical_s()
        if span.hedge or self.lost(span):
            return False
        if typical is None:
            late = now - span.moved > _SLOW_AFTER_S
        else:
            late = age > _HEDGE_AFTER_S and (self._lags(span, now, typical) or self._overdue(span, now, place, typical))
        return late and self._copies(span.at) == 1

    def _overdue(self, span: Span, now: float, place: object, typical: float) -> bool:
        age = now - span.since
        return age > _HEDGE_TIMES * typical and age > _HEDGE_TIMES * (self._usual_s(span, now, place) or 0.0)

    def _lags(self, span: Span, now: float, typical: float) -> bool:
        """It moves, but so slowly that another copy would be here before it."""
        return span.got > 0 and self._rest_s(span, now) > max(_HEDGE_AFTER_S, _LAG_TIMES * typical)

    def _rest_s(self, span: Span, now: float) -> float:
        """What its block will still take, if it goes on as it did."""
        return (now - span.since) * (self._block / span.got - 1) if span.got else float("inf")

    def _copies(self, index: int) -> int:
        return sum(1 for span in self._spans if span.at <= index < span.stop)


def _median(values: Iterable[float]) -> float:
    """The upper one of two middle values: near enough, and `statistics` is slow to import."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def _runs(done: bytearray) -> list[tuple[int, int]]:
    """The stretches of blocks that are not done."""
    runs: list[tuple[int, int]] = []
    at = 0
    while True:
        first = done.find(0, at)
        if first < 0:
            return runs
        stop = done.find(1, first)
        stop = len(done) if stop < 0 else stop
        runs.append((first, stop))
        at = stop


def _joined(runs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for first, stop in sorted(runs):
        if joined and joined[-1][1] >= first:
            joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
        else:
            joined.append((first, stop))
    return joined
