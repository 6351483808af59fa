"""Store the block checksums of archives as columns of their index, and read them from it."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from packtrain.errors import FormatError, UsageError
from packtrain.stream.index import Index
from packtrain.transfer.integrity.block_checksums import CHECKSUMS_SUFFIX, BlockChecksums, HexDigests

_DIGEST_BYTES = 32


def pack_checksums(checksums: Sequence[BlockChecksums]) -> tuple[array[int], bytes]:
    """Convert checksums to columns of an index.

    Args:
        checksums: The checksums of each archive.

    Returns:
        The block size of each archive in bytes, and the digests of all blocks.
    """
    block_sizes = array("Q", (archive.block_bytes for archive in checksums))
    return block_sizes, b"".join(HexDigests.from_hex(archive.block_sha256).raw for archive in checksums)


def checksums_from_index(index: Index) -> tuple[BlockChecksums, ...]:
    """Return the checksums of each archive of an index.

    Args:
        index: An index that was built with checksums.

    Raises:
        UsageError: The index has no checksums.
        FormatError: The checksums do not match the archives.
    """
    block_sizes, digests = index.block_sizes, index.digests
    if not block_sizes:
        raise UsageError(
            f"the index {index.path} has no checksums: put a file NAME{CHECKSUMS_SUFFIX} next to each archive "
            "and build the index again with `packtrain index --force`"
        )
    checksums, start = [], 0
    for archive, block_bytes in zip(index.archives, block_sizes):
        stop = start + -(-archive.size // max(1, block_bytes)) * _DIGEST_BYTES
        checksums.append(BlockChecksums(block_bytes, archive.size, HexDigests(bytes(digests[start:stop]))))
        start = stop
    if start != len(digests) or not all(block_sizes):
        raise FormatError(f"the index {index.path} is damaged: its checksums do not match its archives")
    return tuple(checksums)
