"""Which samples come when, and to whom: a pure function of the seed, the epoch and how it is split.

Runs of neighbours (see `runs`) are shuffled and laid out in a row, which is cut: a part for each worker of each rank. A
worker reads its runs in that order, and gives the samples of each not at once but spread over the next `pool` runs.
So what it holds stays small, and a batch has samples of as many runs as it has places.

Batch k of a rank is made by its worker k mod `workers`. So a number of batches says which samples were delivered.
"""

from __future__ import annotations

import hashlib
import random
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice

from packtrain.errors import UsageError
from packtrain.stream.read_groups import Numbers, Runs

DROP, PAD = "drop", "pad"
_FIRST_POOL = 4  # runs that the first samples are spread over; more would delay the first batch
_POOL_GROWS = 2  # with each run


@dataclass(frozen=True)
class Split:
    """How an epoch is split over the processes of a training. All of it decides the order."""

    ranks: int = 1
    workers: int = 1  # of each rank
    batch: int = 1  # samples, of one rank
    pool: int = 256  # runs that a worker's samples are mixed from
    span: int = 1 << 20  # bytes that are read together
    shuffle: bool = True
    uneven: str = DROP  # what to do with samples that are too few for all ranks: leave them out, or give some twice

    def __post_init__(self) -> None:
        if min(self.ranks, self.workers, self.batch, self.pool, self.span) < 1:
            raise UsageError("ranks, workers, batch, pool and span are at least 1")
        if self.uneven not in (DROP, PAD):
            raise UsageError(f"uneven is {DROP!r} or {PAD!r}, not {self.uneven!r}")


class Stream:
    """What one worker reads and gives: `pieces` in the order in which they are read."""

    def __init__(self, pieces: Sequence[Numbers], given: Callable[[], Iterator[tuple[int, int]]]) -> None:
        self.pieces, self._given = pieces, given

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Each sample as (piece, place in it), in the order in which they are given."""
        return self._given()

    def numbers(self) -> Iterator[int]:
        return (self.pieces[piece][place] for piece, place in self)

    def after(self, given: int) -> Stream:
        """What is left when so many samples were given; what was read for them alone is not read again."""
        if not given:
            return self
        gone: dict[int, set[int]] = {}
        for at, place in islice(self, given):
            gone.setdefault(at, set()).add(place)
        pieces: list[Numbers] = []
        moved: dict[int, tuple[int, dict[int, int]]] = {}  # to which piece, and each place to which
        for at, samples in enumerate(self.pieces):
            left = [place for place in range(len(samples)) if place not in gone.get(at, ())]
            if left:
                moved[at] = len(pieces), {place: new for new, place in enumerate(left)}
                pieces.append([samples[place] for place in left] if at in gone else samples)

        def rest() -> Iterator[tuple[int, int]]:
            for at, place in islice(self, given, None):
                piece, places = moved[at]
                yield piece, places[place]

        return Stream(pieces, rest)


class Dealt:
    """The samples of `runs`, dealt out. `seeds` are the numbers that decide, together with the split."""

    def __init__(self, runs: Runs, split: Split, *seeds: int) -> None:
        self._runs, self.split, self._seeds = runs, split, seeds
        total, ranks = len(runs.samples), split.ranks
        self.each = -(-total // ranks) if split.uneven == PAD else total // ranks  # samples of a rank
        self.batches = -(-self.each // split.batch)  # of a rank
        self._order: Sequence[int] = range(len(runs))
        if split.shuffle:
            dice = dice_of(*seeds).random
            keys = [dice() for _ in self._order]
            self._order = sorted(self._order, key=keys.__getitem__)
        lengths = (runs.starts[run + 1] - runs.starts[run] for run in self._order)
        self._ends = list(accumulate(lengths))  # in the row

    def stream(self, rank: int, worker: int) -> Stream:
        """Of one worker."""
        if not self.split.shuffle:
            return self._in_order(rank, worker)
        before = sum(self._count(other) for other in range(worker))
        first = rank * self.each + before
        pieces = self._pieces(first, first + self._count(worker))
        lengths = [len(samples) for samples in pieces]
        return Stream(pieces, lambda: mixed(lengths, self.split.pool, dice_of(*self._seeds, rank, worker)))

    def delivered(self, batches: int) -> Iterator[int]:
        """The samples of the first so many batches of all ranks. Padding may name one twice."""
        for rank in range(self.split.ranks):
            for worker in range(self.split.workers):
                yield from islice(self.stream(rank, worker).numbers(), self.done(worker, batches))

    def _turns(self, worker: int, batches: int) -> int:
        """How many of the first so many batches are this worker's."""
        return max(0, -(-(batches - worker) // self.split.workers))

    def _count(self, worker: int) -> int:
        """Samples of a worker. All batches are full but the last."""
        return self.done(worker, self.batches)

    def done(self, worker: int, batches: int) -> int:
        """Samples that a worker gave when so many batches of the rank were delivered."""
        full = self._turns(worker, batches) * self.split.batch
        has_last = batches == self.batches > 0 and (batches - 1) % self.split.workers == worker
        return full - (self.batches * self.split.batch - self.each if has_last else 0)

    def _in_order(self, rank: int, worker: int) -> Stream:
        """Batch after batch as they lie in the archive."""
        batch, pieces = self.split.batch, []
        for number in range(worker, self.batches, self.split.workers):
            first = rank * self.each + number * batch
            pieces += self._pieces(first, min(first + batch, (rank + 1) * self.each))
        counts = [len(samples) for samples in pieces]
        return Stream(pieces, lambda: ((at, place) for at, count in enumerate(counts) for place in range(count)))

    def _pieces(self, first: int, stop: int) -> list[Numbers]:
        """The row from place to place; behind its end it begins anew."""
        pieces: list[Numbers] = []
        total = len(self._runs.samples)
        while first < stop:
            turn = first // total * total
            end = min(stop, turn + total)
            pieces += self._stretch(first - turn, end - turn)
            first = end
        return pieces

    def _stretch(self, first: int, stop: int) -> Iterator[Numbers]:
        at = bisect_right(self._ends, first)
        while first < stop:
            end = self._ends[at]
            behind = self._runs.starts[self._order[at] + 1] - end  # from a place in the row to one among the samples
            upto = min(end, stop)
            yield self._runs.samples[first + behind : upto + behind]
            first, at = upto, at + 1


def mixed(counts: Sequence[int], pool: int, dice: random.Random) -> Iterator[tuple[int, int]]:
    """Each sample of each piece once. Those of piece k come after its reading, spread evenly over `pool` readings."""
    throw = dice.random
    waiting: defaultdict[int, list[tuple[float, int, int]]] = defaultdict(list)
    for piece, count in enumerate(counts):
        width = min(float(pool), _FIRST_POOL + _POOL_GROWS * piece)
        _spread(waiting, piece, count, width / count, throw)
        for _, chosen, place in sorted(waiting.pop(piece, ())):
            yield chosen, place
    for late in sorted(waiting):
        for _, chosen, place in sorted(waiting[late]):
            yield chosen, place


def _spread(
    waiting: defaultdict[int, list[tuple[float, int, int]]],
    piece: int,
    count: int,
    step: float,
    throw: Callable[[], float],
) -> None:
    keys = [throw() for _ in range(count)]
    for turn, place in enumerate(sorted(range(count), key=keys.__getitem__)):
        when = piece + step * (turn + throw())
        waiting[int(when)].append((when, piece, place))


def dice_of(*numbers: int) -> random.Random:
    """Seeded by all the numbers. Of its methods only random() gives the same on every Python."""
    digest = hashlib.sha256(" ".join(map(str, numbers)).encode()).digest()
    return random.Random(int.from_bytes(digest[:8], "big"))  # noqa: S311 (no secret)
