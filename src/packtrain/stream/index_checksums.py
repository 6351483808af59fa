"""Checksums of the archives' blocks, as columns of an index: so they ride along wherever it goes."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from packtrain.errors import FormatError, UsageError
from packtrain.stream.index import Index
from packtrain.transfer.block_checksums import CHECKSUMS_SUFFIX, BlockChecksums, HexDigests

_DIGEST_BYTES = 32


def pack_checksums(checksums: Sequence[BlockChecksums]) -> tuple[array[int], bytes]:
    """The blocks' length in each archive, and all their digests."""
    return array("Q", (one.block_bytes for one in checksums)), b"".join(
        HexDigests.from_hex(one.block_sha256).raw for one in checksums
    )


def checksums_from_index(index: Index) -> tuple[BlockChecksums, ...]:
    """Of each archive. Raises UsageError where the index has none, and FormatError."""
    lengths, digests = index.block_sizes, index.digests
    if not lengths:
        words = f"the index {index.path} has no checksums: put those of each archive beside it (NAME{CHECKSUMS_SUFFIX})"
        raise UsageError(f"{words} and make the index anew with `packtrain index --force`")
    found, at = [], 0
    for archive, block in zip(index.archives, lengths):
        stop = at + -(-archive.size // max(1, block)) * _DIGEST_BYTES
        found.append(BlockChecksums(block, archive.size, HexDigests(bytes(digests[at:stop]))))
        at = stop
    if at != len(digests) or not all(lengths):
        raise FormatError(f"the index {index.path} is damaged: its checksums are not those of its archives")
    return tuple(found)
