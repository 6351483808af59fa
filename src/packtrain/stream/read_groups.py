"""Samples that lie side by side are read together: which ones, and from which bytes."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from packtrain.stream.index import LAYOUT_FILES, Index

DEFAULT_READ_BYTES = 1 << 20
_MAX_GAP_BYTES = 1 << 16  # bytes between two samples that are cheaper to read than to ask twice

SampleNumbers = Sequence[int]
"""Samples of one archive, in the order in which they lie there."""


class ReadGroup(NamedTuple):
    """What one request brings: samples, and the bytes that hold them."""

    samples: SampleNumbers
    archive_id: int
    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start


def make_read_group(index: Index, samples: SampleNumbers, block_bytes: int = 1) -> ReadGroup:
    """Whole blocks, where a block is more than a byte; but not beyond the archive's end."""
    first, last, archive = samples[0], samples[-1], index.archive_ids[samples[0]]
    start, stop = index.offsets[first], index.offsets[last] + index.sizes[last]
    if block_bytes > 1:
        start, stop = start - start % block_bytes, min(stop + -stop % block_bytes, index.archives[archive].size)
    return ReadGroup(samples, archive, start, stop)


class ReadGroups:
    """Neighbours, up to `span` bytes of them. `samples` are sorted numbers; run k begins at `samples[starts[k]]`."""

    def __init__(self, index: Index, samples: Sequence[int], read_bytes: int = DEFAULT_READ_BYTES) -> None:
        self.samples = samples
        alone = index.layout == LAYOUT_FILES
        self.starts = array("Q", range(len(samples))) if alone else _group_starts(index, samples, read_bytes)
        self.starts.append(len(samples))

    def __len__(self) -> int:
        return len(self.starts) - 1


def _group_starts(index: Index, samples: Sequence[int], read_bytes: int) -> array[int]:
    starts = array("Q")
    offsets, sizes, archives = index.offsets, index.sizes, index.archive_ids
    begin = end = archive = -1
    for at, number in enumerate(samples):
        offset = offsets[number]
        stop = offset + sizes[number]
        if not end <= offset <= end + _MAX_GAP_BYTES or stop - begin > read_bytes or archives[number] != archive:
            starts.append(at)
            begin, archive = offset, archives[number]
        end = stop
    return starts
