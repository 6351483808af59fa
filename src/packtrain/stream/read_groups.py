"""Samples that lie side by side are read together: which ones, and from which bytes."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from packtrain.stream.index import FILES, Index

SPAN = 1 << 20
_MOST_IN_VAIN = 1 << 16  # bytes between two samples that are cheaper to read than to ask twice

Numbers = Sequence[int]
"""Samples of one archive, in the order in which they lie there."""


class Piece(NamedTuple):
    """What one request brings: samples, and the bytes that hold them."""

    samples: Numbers
    archive: int
    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start


def piece_of(index: Index, samples: Numbers, block: int = 1) -> Piece:
    """Whole blocks, where a block is more than a byte; but not beyond the archive's end."""
    first, last, archive = samples[0], samples[-1], index.archive[samples[0]]
    start, stop = index.offsets[first], index.offsets[last] + index.sizes[last]
    if block > 1:
        start, stop = start - start % block, min(stop + -stop % block, index.archives[archive].size)
    return Piece(samples, archive, start, stop)


class Runs:
    """Neighbours, up to `span` bytes of them. `samples` are sorted numbers; run k begins at `samples[starts[k]]`."""

    def __init__(self, index: Index, samples: Sequence[int], span: int = SPAN) -> None:
        self.samples = samples
        alone = index.layout == FILES
        self.starts = array("Q", range(len(samples))) if alone else _starts(index, samples, span)
        self.starts.append(len(samples))

    def __len__(self) -> int:
        return len(self.starts) - 1


def _starts(index: Index, samples: Sequence[int], span: int) -> array[int]:
    starts = array("Q")
    offsets, sizes, archives = index.offsets, index.sizes, index.archive
    begin = end = archive = -1
    for at, number in enumerate(samples):
        offset = offsets[number]
        stop = offset + sizes[number]
        if not end <= offset <= end + _MOST_IN_VAIN or stop - begin > span or archives[number] != archive:
            starts.append(at)
            begin, archive = offset, archives[number]
        end = stop
    return starts
