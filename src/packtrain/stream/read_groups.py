"""Group neighbouring samples of an archive, so that one request reads several of them."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from packtrain.stream.index import LAYOUT_FILES, Index

DEFAULT_READ_BYTES = 1 << 20
_MAX_GAP_BYTES = 1 << 16  # reading a gap of this size between two samples costs less than a second request

SampleNumbers = Sequence[int]
"""Numbers of samples of one archive, in the order of their offsets."""


class ReadGroup(NamedTuple):
    """The samples that one request reads, and its byte range.

    Attributes:
        samples: The numbers of the samples.
        archive_id: Their archive, as a position in `Index.archives`.
        start: The first byte to read.
        stop: The end of the range.
    """

    samples: SampleNumbers
    archive_id: int
    start: int
    stop: int

    @property
    def size(self) -> int:
        """The length of the range, in bytes."""
        return self.stop - self.start


def make_read_group(index: Index, samples: SampleNumbers, block_bytes: int = 1) -> ReadGroup:
    """Return the byte range of a group, extended to whole blocks but not beyond the end of the archive.

    Args:
        index: The index.
        samples: The samples of the group.
        block_bytes: The block size of the archive's checksums, in bytes; 1 without checksums.
    """
    first, last, archive_id = samples[0], samples[-1], index.archive_ids[samples[0]]
    start, stop = index.offsets[first], index.offsets[last] + index.sizes[last]
    if block_bytes > 1:
        start, stop = start - start % block_bytes, min(stop + -stop % block_bytes, index.archives[archive_id].size)
    return ReadGroup(samples, archive_id, start, stop)


class ReadGroups:
    """Samples, divided into groups of neighbours. Files of a folder are groups of their own.

    Args:
        index: The index.
        samples: Sorted numbers of samples.
        read_bytes: Maximum length of a group's byte range; a larger sample is a group of its own.

    Attributes:
        samples: The samples.
        starts: Group k consists of `samples[starts[k]:starts[k + 1]]`.
    """

    def __init__(self, index: Index, samples: Sequence[int], read_bytes: int = DEFAULT_READ_BYTES) -> None:
        self.samples = samples
        if index.layout == LAYOUT_FILES:
            self.starts = array("Q", range(len(samples)))
        else:
            self.starts = _group_starts(index, samples, read_bytes)
        self.starts.append(len(samples))

    def __len__(self) -> int:
        return len(self.starts) - 1


def _group_starts(index: Index, samples: Sequence[int], read_bytes: int) -> array[int]:
    starts = array("Q")
    offsets, sizes, archive_ids = index.offsets, index.sizes, index.archive_ids
    group_start = group_end = archive_id = -1
    for position, number in enumerate(samples):
        offset = offsets[number]
        end = offset + sizes[number]
        is_neighbour = group_end <= offset <= group_end + _MAX_GAP_BYTES and archive_ids[number] == archive_id
        if not is_neighbour or end - group_start > read_bytes:
            starts.append(position)
            group_start, archive_id = offset, archive_ids[number]
        group_end = end
    return starts
