"""Who brings which blocks of a file: spans, steals and hedges. Pure: no clock, no network, no threads.

A span is a run of blocks that one connection asks for at once. Spans shrink towards the end, so that all
connections finish together. Where one lags nevertheless, an idle one takes the tail half of the span
with the most left, and at last a second copy of its very block (a hedge). The first copy wins.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

MAX_SPAN_BLOCKS = 64  # of a span
_STEAL_AFTER_S = 0.25  # below, the owner is done before a thief has begun
_HEDGE_AFTER_S = 0.5
_HEDGE_FACTOR = 3.0  # of what a block takes
_LAG_FACTOR = 1.5  # of what a block takes, for the rest of one that is on its way
_SLOW_AFTER_S = 3.0
_SLOW_FACTOR = 8.0
_MAX_HEDGED_FRACTION = 0.05
_MAX_BLOCK_TIMES = 64
_MIN_BLOCK_TIMES = 3  # blocks; fewer tell nothing about what one takes


@dataclass(eq=False)
class BlockSpan:
    """Blocks `at`..`stop` (not included) on their way from `place`; `got` bytes of block `at` are here."""

    next_block: int
    stop_block: int
    source: object
    block_started_at: float  # when block `at` was begun
    last_byte_at: float  # when a byte last came
    received_bytes: int = 0
    is_hedge: bool = False


class BlockScheduler:
    def __init__(
        self,
        n_blocks: int,
        done: Iterable[int] = (),
        window_end: int | None = None,
        max_span_blocks: int = MAX_SPAN_BLOCKS,
        block_bytes: int = 1 << 20,
        min_span_blocks: int = 1,
    ) -> None:
        """`least_blocks` are asked for at once, unless they are all that is left, or taken from another connection."""
        self.n_blocks, self.done, self._block_bytes = n_blocks, bytearray(n_blocks), block_bytes
        self._min_span_blocks, self._max_span_blocks = min_span_blocks, max_span_blocks
        for index in done:
            self.done[index] = 1
        self.n_missing = n_blocks - sum(self.done)
        self.frontier = 0  # all blocks before it are done
        self.window_end = n_blocks if window_end is None else window_end  # blocks from here on are not given out yet
        self.n_hedges = 0
        self._unassigned_runs = _missing_runs(self.done)
        self._n_unassigned = self.n_missing
        self._spans: list[BlockSpan] = []
        self._block_times: deque[tuple[float, object]] = deque(maxlen=_MAX_BLOCK_TIMES)  # and the places
        self._median_s: float | None = None  # not known, or to be found again
        self._advance_frontier()

    def assign(self, source: object, now: float, n_workers: int, is_only_source: bool = False) -> BlockSpan | None:
        """Work for a connection to a place; `alone`: there is no other place to hedge with."""
        span = (
            self._assign_new(source, now, n_workers)
            or self._reassign(source, now)
            or self._steal(source, now)
            or self._hedge(source, now, is_only_source)
        )
        if span is not None:
            self._spans.append(span)
        return span

    def assign_first(self, source: object, now: float, n_blocks: int) -> BlockSpan | None:
        """The first blocks, for the answer that told how many there are."""
        span = self._assign_new(source, now, 1, n_blocks)
        if span is not None:
            self._spans.append(span)
        return span

    def extend(self, span: BlockSpan) -> bool:
        """The next block for a connection that cannot be asked for ranges and brings it anyway."""
        for index, (first, stop) in enumerate(self._unassigned_runs):
            if first == span.stop_block and first < self.window_end:
                self._unassigned_runs[index : index + 1] = [(first + 1, stop)] if first + 1 < stop else []
                self._n_unassigned -= 1
                span.stop_block += 1
                return True
        return False

    def complete_block(self, span: BlockSpan, now: float) -> bool:
        """Block `at` of the span is here and right: whether this is the first copy. The span goes on."""
        index, took = span.next_block, now - span.block_started_at
        span.next_block, span.received_bytes, span.block_started_at = index + 1, 0, now
        self._block_times.append((took, span.source))
        self._median_s = None
        if self.done[index]:
            return False
        self.done[index] = 1
        self.n_missing -= 1
        self._advance_frontier()
        return True

    def is_obsolete(self, span: BlockSpan) -> bool:
        """Whether nobody needs the span's block any more: another copy came first, or it was stolen."""
        return span.next_block >= span.stop_block or bool(self.done[span.next_block])

    def skip_done(self, span: BlockSpan) -> None:
        """Pass over blocks that others have brought."""
        while span.next_block < span.stop_block and self.done[span.next_block]:
            span.next_block, span.received_bytes = span.next_block + 1, 0

    def release(self, span: BlockSpan) -> None:
        """What is left of the span is for others."""
        self._spans.remove(span)
        for index in range(span.next_block, span.stop_block):
            if not self.done[index] and not any(other.next_block <= index < other.stop_block for other in self._spans):
                self._unassigned_runs.append((index, index + 1))
                self._n_unassigned += 1
        self._unassigned_runs = _merge_runs(self._unassigned_runs)

    def mark_missing(self, index: int) -> None:
        """A block that turned out to be wrong after all."""
        self.done[index] = 0
        self.n_missing += 1
        self._unassigned_runs = _merge_runs([*self._unassigned_runs, (index, index + 1)])
        self._n_unassigned += 1
        self.frontier = min(self.frontier, index)

    def is_slow(self, span: BlockSpan, now: float, is_only_source: bool) -> bool:
        """Far behind what blocks take: better asked for anew. `alone`: there is no other place for it."""
        age = now - span.block_started_at
        if age <= _SLOW_AFTER_S:
            return False
        typical = (None if is_only_source else self._other_sources_block_s(span, now)) or self._expected_block_s(
            span, now, span.source
        )
        return typical is not None and age > _SLOW_FACTOR * typical

    def _other_sources_block_s(self, span: BlockSpan, now: float) -> float | None:
        """What a block takes, and takes now, from other places than this one, however many connections lag here."""
        times = [took for took, place in tuple(self._block_times) if place is not span.source]
        ages = [
            now - other.block_started_at
            for other in self._spans
            if other.received_bytes and other.source is not span.source
        ]
        return max(_median(times), _median(ages or [0.0])) if len(times) >= _MIN_BLOCK_TIMES else None

    def median_block_s(self) -> float | None:
        """What a block takes; None before that can be told."""
        if self._median_s is None and len(self._block_times) >= _MIN_BLOCK_TIMES:
            self._median_s = _median(took for took, _ in tuple(self._block_times))
        return self._median_s

    def _expected_block_s(self, span: BlockSpan, now: float, source: object) -> float | None:
        """What a block takes, and takes the other connections to this place now: a line that all share may slow."""
        typical = self.median_block_s()
        ages = [
            now - other.block_started_at
            for other in self._spans
            if other is not span and other.received_bytes and other.source is source
        ]
        return None if typical is None else max(typical, _median(ages) if ages else 0.0)

    def partial_bytes(self) -> int:
        """Bytes of blocks that are not complete yet."""
        return sum(span.received_bytes for span in self._spans)

    def _advance_frontier(self) -> None:
        gap = self.done.find(0, self.frontier)
        self.frontier = self.n_blocks if gap < 0 else gap

    def _assign_new(
        self, source: object, now: float, n_workers: int, max_blocks: int | None = None
    ) -> BlockSpan | None:
        if not self._unassigned_runs or self._unassigned_runs[0][0] >= self.window_end:
            return None
        first, stop = self._unassigned_runs[0]
        if max_blocks is None:
            max_blocks = max(
                self._min_span_blocks, min(self._max_span_blocks, self._n_unassigned // (2 * max(1, n_workers)))
            )
        end = min(first + max_blocks, stop, self.window_end)
        self._unassigned_runs[:1] = [(end, stop)] if end < stop else []
        self._n_unassigned -= end - first
        return BlockSpan(first, end, source, now, now)

    def _reassign(self, source: object, now: float) -> BlockSpan | None:
        """All of a span of which another place has not given a byte: that costs nothing, unlike a hedge."""
        for owner in self._spans:
            if not owner.received_bytes and owner.source is not source and self._is_late(owner, now, source):
                taken = BlockSpan(owner.next_block, owner.stop_block, source, now, now)
                owner.stop_block = owner.next_block
                return taken
        return None

    def _steal(self, source: object, now: float) -> BlockSpan | None:
        """The tail half of the longest span; its owner keeps the block that it is receiving."""
        owner = max(self._spans, key=lambda span: span.stop_block - span.next_block, default=None)
        if owner is None or owner.stop_block - owner.next_block < 2 or not self._is_worth_stealing(owner, now):
            return None
        middle = owner.next_block + 1 + (owner.stop_block - owner.next_block - 1) // 2
        stolen = BlockSpan(middle, owner.stop_block, source, now, now)
        owner.stop_block = middle
        return stolen

    def _is_worth_stealing(self, owner: BlockSpan, now: float) -> bool:
        typical = self.median_block_s()
        ahead = (
            now - owner.block_started_at
            if typical is None
            else max(now - owner.block_started_at, typical * (owner.stop_block - owner.next_block))
        )
        return ahead >= _STEAL_AFTER_S

    def _hedge(self, source: object, now: float, is_only_source: bool) -> BlockSpan | None:
        if self.n_hedges + 1 > max(1, int(_MAX_HEDGED_FRACTION * self.n_blocks)):
            return None
        late = [
            span
            for span in self._spans
            if self._is_late(span, now, source) and (is_only_source or span.source is not source)
        ]
        if not late:
            return None
        last = max(late, key=lambda span: (self._remaining_s(span, now), -span.block_started_at))
        self.n_hedges += 1
        return BlockSpan(last.next_block, last.next_block + 1, source, now, now, is_hedge=True)

    def _is_late(self, span: BlockSpan, now: float, source: object) -> bool:
        """Would another copy from this place come sooner? One beside the first is enough."""
        age, typical = now - span.block_started_at, self.median_block_s()
        if span.is_hedge or self.is_obsolete(span):
            return False
        if typical is None:
            late = now - span.last_byte_at > _SLOW_AFTER_S
        else:
            late = age > _HEDGE_AFTER_S and (
                self._is_lagging(span, now, typical) or self._is_overdue(span, now, source, typical)
            )
        return late and self._count_copies(span.next_block) == 1

    def _is_overdue(self, span: BlockSpan, now: float, source: object, median_s: float) -> bool:
        age = now - span.block_started_at
        return age > _HEDGE_FACTOR * median_s and age > _HEDGE_FACTOR * (
            self._expected_block_s(span, now, source) or 0.0
        )

    def _is_lagging(self, span: BlockSpan, now: float, median_s: float) -> bool:
        """It moves, but so slowly that another copy would be here before it."""
        return span.received_bytes > 0 and self._remaining_s(span, now) > max(_HEDGE_AFTER_S, _LAG_FACTOR * median_s)

    def _remaining_s(self, span: BlockSpan, now: float) -> float:
        """What its block will still take, if it goes on as it did."""
        return (
            (now - span.block_started_at) * (self._block_bytes / span.received_bytes - 1)
            if span.received_bytes
            else float("inf")
        )

    def _count_copies(self, index: int) -> int:
        return sum(1 for span in self._spans if span.next_block <= index < span.stop_block)


def _median(values: Iterable[float]) -> float:
    """The upper one of two middle values: near enough, and `statistics` is slow to import."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def _missing_runs(done: bytearray) -> list[tuple[int, int]]:
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


def _merge_runs(runs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for first, stop in sorted(runs):
        if joined and joined[-1][1] >= first:
            joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
        else:
            joined.append((first, stop))
    return joined
