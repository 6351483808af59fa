"""Decide which rank and worker gets which sample, and in which order: a function of the seed, the epoch and the split.

The read groups of an epoch are shuffled and placed in a row, which is cut into one section per worker of each rank. A
worker reads the groups of its section in that order, and returns the samples of each group spread over the next
`shuffle_window` groups. It therefore holds few samples, and a batch has samples of many groups.

Worker k mod `num_workers` makes batch k of a rank. The number of received batches therefore determines the received
samples.
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

_INITIAL_WINDOW = 4  # groups that the first samples are spread over; more would delay the first batch
_WINDOW_GROWTH = 2  # by how many groups the window grows with each group


@dataclass(frozen=True)
class PartitionConfig:
    """How an epoch is split over the processes of a training. Every field affects the order.

    Attributes:
        world_size: Number of ranks.
        num_workers: Number of workers of each rank.
        batch_size: Samples per batch of one rank.
        shuffle_window: Number of groups over which the samples of a group are spread.
        read_bytes: Maximum length of a group's byte range.
        shuffle: Whether to shuffle; otherwise samples come in the order of the archive.
        drop_last: Whether to drop the samples that fill no batch of all ranks. Otherwise the last batch is smaller,
            and up to `world_size` - 1 samples come twice, so that all ranks get the same number.
    """

    world_size: int = 1
    num_workers: int = 1
    batch_size: int = 1
    shuffle_window: int = 256
    read_bytes: int = 1 << 20
    shuffle: bool = True
    drop_last: bool = False

    def __post_init__(self) -> None:
        if min(self.world_size, self.num_workers, self.batch_size, self.shuffle_window, self.read_bytes) < 1:
            raise UsageError("world_size, num_workers, batch_size, shuffle_window and read_bytes must be at least 1")


class SampleOrder:
    """The samples of one worker, in order.

    Args:
        groups: The read groups, in the order in which they are read.
        iter_positions: Yields each sample as (position of its group, position in the group).
    """

    def __init__(
        self, groups: Sequence[SampleNumbers], iter_positions: Callable[[], Iterator[tuple[int, int]]]
    ) -> None:
        self.groups, self._iter_positions = groups, iter_positions

    @classmethod
    def sequential(cls, groups: Sequence[SampleNumbers]) -> SampleOrder:
        """Return the order of the samples in their groups."""
        return cls(groups, lambda: ((g, position) for g, group in enumerate(groups) for position in range(len(group))))

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Yield each sample as (position of its group, position in the group)."""
        return self._iter_positions()

    def sample_numbers(self) -> Iterator[int]:
        """Yield the numbers of the samples."""
        return (self.groups[group][position] for group, position in self)

    def skip(self, n_samples: int) -> SampleOrder:
        """Return the order without its first samples. Groups that only hold skipped samples are not read."""
        if not n_samples:
            return self
        skipped: dict[int, set[int]] = {}
        for group, position in islice(self, n_samples):
            skipped.setdefault(group, set()).add(position)
        new_groups: list[SampleNumbers] = []
        new_positions: dict[int, tuple[int, dict[int, int]]] = {}  # old group: the new group, and old: new positions
        for group, samples in enumerate(self.groups):
            left = [position for position in range(len(samples)) if position not in skipped.get(group, ())]
            if left:
                new_positions[group] = len(new_groups), {position: new for new, position in enumerate(left)}
                new_groups.append([samples[position] for position in left] if group in skipped else samples)

        def remaining_positions() -> Iterator[tuple[int, int]]:
            for group, position in islice(self, n_samples, None):
                new_group, positions = new_positions[group]
                yield new_group, positions[position]

        return SampleOrder(new_groups, remaining_positions)


class SamplePartition:
    """The samples of an epoch, assigned to ranks and workers.

    Args:
        groups: The read groups.
        config: How to split them.
        *seeds: Numbers that decide the order, together with the config.

    Attributes:
        samples_per_rank: Number of samples of each rank.
        n_batches: Number of batches of each rank.
    """

    def __init__(self, groups: ReadGroups, config: PartitionConfig, *seeds: int) -> None:
        self._groups, self.config, self._seeds = groups, config, seeds
        self.samples_per_rank = -(-len(groups.samples) // config.world_size)
        self.n_batches = -(-self.samples_per_rank // config.batch_size)
        if config.drop_last:
            self.n_batches = len(groups.samples) // (config.world_size * config.batch_size)
            self.samples_per_rank = self.n_batches * config.batch_size
        self._group_order: Sequence[int] = range(len(groups))
        if config.shuffle:
            next_random = seeded_rng(*seeds).random
            keys = [next_random() for _ in self._group_order]
            self._group_order = sorted(self._group_order, key=keys.__getitem__)
        lengths = (groups.starts[group + 1] - groups.starts[group] for group in self._group_order)
        self._group_ends = list(accumulate(lengths))  # where each group ends in the row of samples

    def worker_order(self, rank: int, worker: int) -> SampleOrder:
        """Return the samples of one worker, in order."""
        if not self.config.shuffle:
            return self._sequential_order(rank, worker)
        first = rank * self.samples_per_rank + sum(self._worker_samples(other) for other in range(worker))
        groups = self._slice_groups(first, first + self._worker_samples(worker))
        lengths = [len(samples) for samples in groups]
        return SampleOrder(
            groups,
            lambda: shuffle_within_window(lengths, self.config.shuffle_window, seeded_rng(*self._seeds, rank, worker)),
        )

    def delivered_samples(self, n_batches: int) -> Iterator[int]:
        """Yield the samples of the first batches of all ranks. With padding, a sample may come twice."""
        for rank in range(self.config.world_size):
            for worker in range(self.config.num_workers):
                yield from islice(
                    self.worker_order(rank, worker).sample_numbers(), self.samples_done(worker, n_batches)
                )

    def _worker_batches(self, worker: int, n_batches: int) -> int:
        """Return how many of the first `n_batches` batches of a rank this worker makes."""
        return max(0, -(-(n_batches - worker) // self.config.num_workers))

    def _worker_samples(self, worker: int) -> int:
        return self.samples_done(worker, self.n_batches)

    def samples_done(self, worker: int, n_batches: int) -> int:
        """Return how many samples a worker has returned when its rank has received `n_batches`.

        All batches are full except the last one.
        """
        n_samples = self._worker_batches(worker, n_batches) * self.config.batch_size
        has_last = n_batches == self.n_batches > 0 and (n_batches - 1) % self.config.num_workers == worker
        return n_samples - (self.n_batches * self.config.batch_size - self.samples_per_rank if has_last else 0)

    def _sequential_order(self, rank: int, worker: int) -> SampleOrder:
        """Return the samples of one worker in the order of the archive."""
        batch_size, groups = self.config.batch_size, []
        for batch in range(worker, self.n_batches, self.config.num_workers):
            first = rank * self.samples_per_rank + batch * batch_size
            groups += self._slice_groups(first, min(first + batch_size, (rank + 1) * self.samples_per_rank))
        return SampleOrder.sequential(groups)

    def _slice_groups(self, first: int, stop: int) -> list[SampleNumbers]:
        """Return a section of the row of samples. Beyond its end the row starts again, for padding."""
        groups: list[SampleNumbers] = []
        total = len(self._groups.samples)
        while first < stop:
            base = first // total * total
            end = min(stop, base + total)
            groups += self._slice_one_pass(first - base, end - base)
            first = end
        return groups

    def _slice_one_pass(self, first: int, stop: int) -> Iterator[SampleNumbers]:
        position = bisect_right(self._group_ends, first)
        while first < stop:
            group_end = self._group_ends[position]
            shift = self._groups.starts[self._group_order[position] + 1] - group_end  # from the row to the samples
            end = min(group_end, stop)
            yield self._groups.samples[first + shift : end + shift]
            first, position = end, position + 1


def shuffle_within_window(counts: Sequence[int], window: int, rng: random.Random) -> Iterator[tuple[int, int]]:
    """Yield each sample of each group once, as (group, position). No sample comes before its group.

    Args:
        counts: The number of samples of each group.
        window: The samples of a group are spread evenly over this number of groups.
        rng: The random number generator.
    """
    next_random = rng.random
    scheduled: defaultdict[int, list[tuple[float, int, int]]] = defaultdict(list)
    for group, count in enumerate(counts):
        width = min(float(window), _INITIAL_WINDOW + _WINDOW_GROWTH * group)
        _schedule_group(scheduled, group, count, width / count, next_random)
        for _, due_group, position in sorted(scheduled.pop(group, ())):
            yield due_group, position
    for turn in sorted(scheduled):
        for _, due_group, position in sorted(scheduled[turn]):
            yield due_group, position


def _schedule_group(
    scheduled: defaultdict[int, list[tuple[float, int, int]]],
    group: int,
    count: int,
    step: float,
    next_random: Callable[[], float],
) -> None:
    keys = [next_random() for _ in range(count)]
    for turn, position in enumerate(sorted(range(count), key=keys.__getitem__)):
        due = group + step * (turn + next_random())
        scheduled[int(due)].append((due, group, position))


def seeded_rng(*seeds: int) -> random.Random:
    """Return a generator seeded by all numbers. Only its method `random` is the same in every Python version."""
    return random.Random(derive_seed(*seeds))  # noqa: S311 (not a secret)


def derive_seed(*numbers: int) -> int:
    """Return a seed of 64 bits. Neighbouring numbers give unrelated seeds.

    Args:
        *numbers: A seed, and what it is for: an epoch, a rank, …
    """
    return int.from_bytes(hashlib.sha256(" ".join(map(str, numbers)).encode()).digest()[:8], "big")
