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
from packtrain.stream.read_groups import ReadGroups, SampleNumbers

DROP, PAD = "drop", "pad"
_INITIAL_WINDOW = 4  # runs that the first samples are spread over; more would delay the first batch
_WINDOW_GROWTH = 2  # with each run


@dataclass(frozen=True)
class PartitionConfig:
    """How an epoch is split over the processes of a training. All of it decides the order."""

    world_size: int = 1
    num_workers: int = 1  # of each rank
    batch_size: int = 1  # samples, of one rank
    shuffle_window: int = 256  # runs that a worker's samples are mixed from
    read_bytes: int = 1 << 20  # bytes that are read together
    shuffle: bool = True
    remainder: str = DROP  # what to do with samples that are too few for all ranks: leave them out, or give some twice

    def __post_init__(self) -> None:
        if min(self.world_size, self.num_workers, self.batch_size, self.shuffle_window, self.read_bytes) < 1:
            raise UsageError("ranks, workers, batch, pool and span are at least 1")
        if self.remainder not in (DROP, PAD):
            raise UsageError(f"uneven is {DROP!r} or {PAD!r}, not {self.remainder!r}")


class SampleOrder:
    """What one worker reads and gives: `pieces` in the order in which they are read."""

    def __init__(
        self, groups: Sequence[SampleNumbers], iter_positions: Callable[[], Iterator[tuple[int, int]]]
    ) -> None:
        self.groups, self._iter_positions = groups, iter_positions

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Each sample as (piece, place in it), in the order in which they are given."""
        return self._iter_positions()

    def sample_numbers(self) -> Iterator[int]:
        return (self.groups[piece][place] for piece, place in self)

    def skip(self, n_samples: int) -> SampleOrder:
        """What is left when so many samples were given; what was read for them alone is not read again."""
        if not n_samples:
            return self
        gone: dict[int, set[int]] = {}
        for at, place in islice(self, n_samples):
            gone.setdefault(at, set()).add(place)
        pieces: list[SampleNumbers] = []
        moved: dict[int, tuple[int, dict[int, int]]] = {}  # to which piece, and each place to which
        for at, samples in enumerate(self.groups):
            left = [place for place in range(len(samples)) if place not in gone.get(at, ())]
            if left:
                moved[at] = len(pieces), {place: new for new, place in enumerate(left)}
                pieces.append([samples[place] for place in left] if at in gone else samples)

        def remaining_positions() -> Iterator[tuple[int, int]]:
            for at, place in islice(self, n_samples, None):
                piece, places = moved[at]
                yield piece, places[place]

        return SampleOrder(pieces, remaining_positions)


class SamplePartition:
    """The samples of `runs`, dealt out. `seeds` are the numbers that decide, together with the split."""

    def __init__(self, groups: ReadGroups, config: PartitionConfig, *seeds: int) -> None:
        self._groups, self.config, self._seeds = groups, config, seeds
        total, ranks = len(groups.samples), config.world_size
        self.samples_per_rank = -(-total // ranks) if config.remainder == PAD else total // ranks  # samples of a rank
        self.n_batches = -(-self.samples_per_rank // config.batch_size)  # of a rank
        self._group_order: Sequence[int] = range(len(groups))
        if config.shuffle:
            dice = seeded_rng(*seeds).random
            keys = [dice() for _ in self._group_order]
            self._group_order = sorted(self._group_order, key=keys.__getitem__)
        lengths = (groups.starts[run + 1] - groups.starts[run] for run in self._group_order)
        self._group_ends = list(accumulate(lengths))  # in the row

    def worker_order(self, rank: int, worker: int) -> SampleOrder:
        """Of one worker."""
        if not self.config.shuffle:
            return self._sequential_order(rank, worker)
        before = sum(self._worker_samples(other) for other in range(worker))
        first = rank * self.samples_per_rank + before
        pieces = self._slice_groups(first, first + self._worker_samples(worker))
        lengths = [len(samples) for samples in pieces]
        return SampleOrder(
            pieces,
            lambda: shuffle_within_window(lengths, self.config.shuffle_window, seeded_rng(*self._seeds, rank, worker)),
        )

    def delivered_samples(self, n_batches: int) -> Iterator[int]:
        """The samples of the first so many batches of all ranks. Padding may name one twice."""
        for rank in range(self.config.world_size):
            for worker in range(self.config.num_workers):
                yield from islice(
                    self.worker_order(rank, worker).sample_numbers(), self.samples_done(worker, n_batches)
                )

    def _worker_batches(self, worker: int, n_batches: int) -> int:
        """How many of the first so many batches are this worker's."""
        return max(0, -(-(n_batches - worker) // self.config.num_workers))

    def _worker_samples(self, worker: int) -> int:
        """Samples of a worker. All batches are full but the last."""
        return self.samples_done(worker, self.n_batches)

    def samples_done(self, worker: int, n_batches: int) -> int:
        """Samples that a worker gave when so many batches of the rank were delivered."""
        full = self._worker_batches(worker, n_batches) * self.config.batch_size
        has_last = n_batches == self.n_batches > 0 and (n_batches - 1) % self.config.num_workers == worker
        return full - (self.n_batches * self.config.batch_size - self.samples_per_rank if has_last else 0)

    def _sequential_order(self, rank: int, worker: int) -> SampleOrder:
        """Batch after batch as they lie in the archive."""
        batch, pieces = self.config.batch_size, []
        for number in range(worker, self.n_batches, self.config.num_workers):
            first = rank * self.samples_per_rank + number * batch
            pieces += self._slice_groups(first, min(first + batch, (rank + 1) * self.samples_per_rank))
        counts = [len(samples) for samples in pieces]
        return SampleOrder(pieces, lambda: ((at, place) for at, count in enumerate(counts) for place in range(count)))

    def _slice_groups(self, first: int, stop: int) -> list[SampleNumbers]:
        """The row from place to place; behind its end it begins anew."""
        pieces: list[SampleNumbers] = []
        total = len(self._groups.samples)
        while first < stop:
            turn = first // total * total
            end = min(stop, turn + total)
            pieces += self._slice_one_pass(first - turn, end - turn)
            first = end
        return pieces

    def _slice_one_pass(self, first: int, stop: int) -> Iterator[SampleNumbers]:
        at = bisect_right(self._group_ends, first)
        while first < stop:
            end = self._group_ends[at]
            behind = (
                self._groups.starts[self._group_order[at] + 1] - end
            )  # from a place in the row to one among the samples
            upto = min(end, stop)
            yield self._groups.samples[first + behind : upto + behind]
            first, at = upto, at + 1


def shuffle_within_window(counts: Sequence[int], window: int, rng: random.Random) -> Iterator[tuple[int, int]]:
    """Each sample of each piece once. Those of piece k come after its reading, spread evenly over `pool` readings."""
    throw = rng.random
    waiting: defaultdict[int, list[tuple[float, int, int]]] = defaultdict(list)
    for piece, count in enumerate(counts):
        width = min(float(window), _INITIAL_WINDOW + _WINDOW_GROWTH * piece)
        _schedule_group(waiting, piece, count, width / count, throw)
        for _, chosen, place in sorted(waiting.pop(piece, ())):
            yield chosen, place
    for late in sorted(waiting):
        for _, chosen, place in sorted(waiting[late]):
            yield chosen, place


def _schedule_group(
    scheduled: defaultdict[int, list[tuple[float, int, int]]],
    group: int,
    count: int,
    step: float,
    next_random: Callable[[], float],
) -> None:
    keys = [next_random() for _ in range(count)]
    for turn, place in enumerate(sorted(range(count), key=keys.__getitem__)):
        when = group + step * (turn + next_random())
        scheduled[int(when)].append((when, group, place))


def seeded_rng(*seeds: int) -> random.Random:
    """Seeded by all the numbers. Of its methods only random() gives the same on every Python."""
    digest = hashlib.sha256(" ".join(map(str, seeds)).encode()).digest()
    return random.Random(int.from_bytes(digest[:8], "big"))  # noqa: S311 (no secret)
