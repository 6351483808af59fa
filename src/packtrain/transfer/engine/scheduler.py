"""Assign the blocks of a file to connections: spans, steals and hedges. Pure: no clock, no network, no threads.

A span is a run of blocks that one connection requests at once. Spans become shorter towards the end, so that all
connections finish together. If a connection lags nevertheless, an idle one steals the second half of the longest span,
and finally requests a second copy of a late block (a hedge). The first copy wins.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

MAX_SPAN_BLOCKS = 64
_STEAL_AFTER_S = 0.25  # an owner that needs less time finishes before the other connection starts
_HEDGE_AFTER_S = 0.5
_HEDGE_FACTOR = 3.0  # a block is overdue after this many typical block times
_LAG_FACTOR = 1.5  # a block lags if its remainder needs this many typical block times
_SLOW_AFTER_S = 3.0
_SLOW_FACTOR = 8.0
_MAX_HEDGED_FRACTION = 0.05
_MAX_BLOCK_TIMES = 64
_MIN_BLOCK_TIMES = 3  # fewer do not give a typical block time


@dataclass(eq=False)
class BlockSpan:
    """Blocks `next_block` to `stop_block` (exclusive) that one connection receives."""

    next_block: int
    stop_block: int
    source: object
    block_started_at: float  # when `next_block` was started
    last_byte_at: float
    received_bytes: int = 0  # of `next_block`
    is_hedge: bool = False


class BlockScheduler:
    """Tracks which blocks are done, assigned and missing.

    Args:
        n_blocks: The number of blocks.
        done: Blocks that an earlier process completed.
        window_end: The first block that may not be assigned yet; None: all may be.
        max_span_blocks: The maximum length of a span.
        block_bytes: The size of a block.
        min_span_blocks: The minimum length of a span, unless fewer are left or it is stolen.
    """

    def __init__(
        self,
        n_blocks: int,
        done: Iterable[int] = (),
        window_end: int | None = None,
        max_span_blocks: int = MAX_SPAN_BLOCKS,
        block_bytes: int = 1 << 20,
        min_span_blocks: int = 1,
    ) -> None:
        self.n_blocks, self.done, self._block_bytes = n_blocks, bytearray(n_blocks), block_bytes
        self._min_span_blocks, self._max_span_blocks = min_span_blocks, max_span_blocks
        for index in done:
            self.done[index] = 1
        self.n_missing = n_blocks - sum(self.done)
        self.frontier = 0  # all blocks before this one are done
        self.window_end = n_blocks if window_end is None else window_end  # blocks from here on are not assigned yet
        self.n_hedges = 0
        self._unassigned_runs = _missing_runs(self.done)
        self._n_unassigned = self.n_missing
        self._spans: list[BlockSpan] = []
        self._block_times: deque[tuple[float, object]] = deque(maxlen=_MAX_BLOCK_TIMES)  # (seconds, source)
        self._median_s: float | None = None  # None: must be computed again
        self._advance_frontier()

    def assign(self, source: object, now: float, n_workers: int, is_only_source: bool = False) -> BlockSpan | None:
        """Return a span for a connection, or None if there is nothing to do.

        Args:
            source: The source of the connection.
            now: The time.
            n_workers: The number of connections.
            is_only_source: No other source can hedge.
        """
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
        """Return the first blocks, for the response that reported the size of the object."""
        span = self._assign_new(source, now, 1, n_blocks)
        if span is not None:
            self._spans.append(span)
        return span

    def extend(self, span: BlockSpan) -> bool:
        """Add the next block to a span whose source ignores ranges and sends the block anyway."""
        for index, (first, stop) in enumerate(self._unassigned_runs):
            if first == span.stop_block and first < self.window_end:
                self._unassigned_runs[index : index + 1] = [(first + 1, stop)] if first + 1 < stop else []
                self._n_unassigned -= 1
                span.stop_block += 1
                return True
        return False

    def complete_block(self, span: BlockSpan, now: float) -> bool:
        """Record that the current block of a span is complete and valid; return whether it is the first copy."""
        index, duration_s = span.next_block, now - span.block_started_at
        span.next_block, span.received_bytes, span.block_started_at = index + 1, 0, now
        self._block_times.append((duration_s, span.source))
        self._median_s = None
        if self.done[index]:
            return False
        self.done[index] = 1
        self.n_missing -= 1
        self._advance_frontier()
        return True

    def is_obsolete(self, span: BlockSpan) -> bool:
        """Return whether the current block is not needed any more: another copy was faster, or it was stolen."""
        return span.next_block >= span.stop_block or bool(self.done[span.next_block])

    def skip_done(self, span: BlockSpan) -> None:
        """Skip blocks that other connections completed."""
        while span.next_block < span.stop_block and self.done[span.next_block]:
            span.next_block, span.received_bytes = span.next_block + 1, 0

    def release(self, span: BlockSpan) -> None:
        """Return the remaining blocks of a span to the unassigned ones."""
        self._spans.remove(span)
        for index in range(span.next_block, span.stop_block):
            if not self.done[index] and not any(other.next_block <= index < other.stop_block for other in self._spans):
                self._unassigned_runs.append((index, index + 1))
                self._n_unassigned += 1
        self._unassigned_runs = _merge_runs(self._unassigned_runs)

    def mark_missing(self, index: int) -> None:
        """Record that a completed block is invalid."""
        self.done[index] = 0
        self.n_missing += 1
        self._unassigned_runs = _merge_runs([*self._unassigned_runs, (index, index + 1)])
        self._n_unassigned += 1
        self.frontier = min(self.frontier, index)

    def is_slow(self, span: BlockSpan, now: float, is_only_source: bool) -> bool:
        """Return whether the current block of a span takes so long that a new request is better.

        Args:
            span: The span.
            now: The time.
            is_only_source: No other source can take over.
        """
        age_s = now - span.block_started_at
        if age_s <= _SLOW_AFTER_S:
            return False
        other_s = None if is_only_source else self._other_sources_block_s(span, now)
        typical_s = other_s or self._expected_block_s(span, now, span.source)
        return typical_s is not None and age_s > _SLOW_FACTOR * typical_s

    def _other_sources_block_s(self, span: BlockSpan, now: float) -> float | None:
        """Return the block time of all other sources, in the past and now; None if too few blocks are known."""
        durations = [duration_s for duration_s, source in tuple(self._block_times) if source is not span.source]
        ages = [
            now - other.block_started_at
            for other in self._spans
            if other.received_bytes and other.source is not span.source
        ]
        return max(_median(durations), _median(ages or [0.0])) if len(durations) >= _MIN_BLOCK_TIMES else None

    def median_block_s(self) -> float | None:
        """Return the typical time of a block; None while too few are known."""
        if self._median_s is None and len(self._block_times) >= _MIN_BLOCK_TIMES:
            self._median_s = _median(duration_s for duration_s, _ in tuple(self._block_times))
        return self._median_s

    def _expected_block_s(self, span: BlockSpan, now: float, source: object) -> float | None:
        """Return the typical block time, or the current one of other connections if their shared line slows down."""
        median_s = self.median_block_s()
        ages = [
            now - other.block_started_at
            for other in self._spans
            if other is not span and other.received_bytes and other.source is source
        ]
        return None if median_s is None else max(median_s, _median(ages) if ages else 0.0)

    def partial_bytes(self) -> int:
        """Return the received bytes of incomplete blocks."""
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
        """Take over a late span of which the other source has sent no byte; unlike a hedge this wastes nothing."""
        for owner in self._spans:
            if not owner.received_bytes and owner.source is not source and self._is_late(owner, now, source):
                span = BlockSpan(owner.next_block, owner.stop_block, source, now, now)
                owner.stop_block = owner.next_block
                return span
        return None

    def _steal(self, source: object, now: float) -> BlockSpan | None:
        """Take the second half of the longest span; its owner keeps the block that it is receiving."""
        owner = max(self._spans, key=lambda span: span.stop_block - span.next_block, default=None)
        if owner is None or owner.stop_block - owner.next_block < 2 or not self._is_worth_stealing(owner, now):
            return None
        middle = owner.next_block + 1 + (owner.stop_block - owner.next_block - 1) // 2
        stolen = BlockSpan(middle, owner.stop_block, source, now, now)
        owner.stop_block = middle
        return stolen

    def _is_worth_stealing(self, owner: BlockSpan, now: float) -> bool:
        age_s, median_s = now - owner.block_started_at, self.median_block_s()
        remaining_s = 0.0 if median_s is None else median_s * (owner.stop_block - owner.next_block)
        return max(age_s, remaining_s) >= _STEAL_AFTER_S

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
        latest = max(late, key=lambda span: (self._remaining_s(span, now), -span.block_started_at))
        self.n_hedges += 1
        return BlockSpan(latest.next_block, latest.next_block + 1, source, now, now, is_hedge=True)

    def _is_late(self, span: BlockSpan, now: float, source: object) -> bool:
        """Return whether a copy from `source` would be faster, and there is no second copy yet."""
        age_s, median_s = now - span.block_started_at, self.median_block_s()
        if span.is_hedge or self.is_obsolete(span):
            return False
        if median_s is None:
            is_late = now - span.last_byte_at > _SLOW_AFTER_S
        else:
            is_late = age_s > _HEDGE_AFTER_S and (
                self._is_lagging(span, now, median_s) or self._is_overdue(span, now, source, median_s)
            )
        return is_late and self._count_copies(span.next_block) == 1

    def _is_overdue(self, span: BlockSpan, now: float, source: object, median_s: float) -> bool:
        age_s = now - span.block_started_at
        return age_s > _HEDGE_FACTOR * max(median_s, self._expected_block_s(span, now, source) or 0.0)

    def _is_lagging(self, span: BlockSpan, now: float, median_s: float) -> bool:
        """Return whether the block arrives so slowly that another copy would be faster."""
        return span.received_bytes > 0 and self._remaining_s(span, now) > max(_HEDGE_AFTER_S, _LAG_FACTOR * median_s)

    def _remaining_s(self, span: BlockSpan, now: float) -> float:
        """Return the time that the current block still needs at its present speed."""
        return (
            (now - span.block_started_at) * (self._block_bytes / span.received_bytes - 1)
            if span.received_bytes
            else float("inf")
        )

    def _count_copies(self, index: int) -> int:
        return sum(1 for span in self._spans if span.next_block <= index < span.stop_block)


def _median(values: Iterable[float]) -> float:
    """Return the median, or the upper of two middle values; `statistics` is slow to import."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def _missing_runs(done: bytearray) -> list[tuple[int, int]]:
    """Return the runs (first, stop) of blocks that are not done."""
    runs: list[tuple[int, int]] = []
    stop = 0
    while True:
        first = done.find(0, stop)
        if first < 0:
            return runs
        stop = done.find(1, first)
        stop = len(done) if stop < 0 else stop
        runs.append((first, stop))


def _merge_runs(runs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the sorted runs, with adjacent and overlapping ones merged."""
    merged: list[tuple[int, int]] = []
    for first, stop in sorted(runs):
        if merged and merged[-1][1] >= first:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((first, stop))
    return merged
