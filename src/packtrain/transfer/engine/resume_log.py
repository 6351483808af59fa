"""The resume log of a partial download: `NAME.part.resume` next to `NAME.part`.

The first line identifies the object: size, ETag and digest as the first source reported them (but not which source that
was), and the boot id of the machine. Each block that was written adds a line: its number and a checksum of samples (0:
not checked), both in hexadecimal. Lines are appended after the block is written. An incomplete last line is ignored.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from packtrain.fileutil import boot_id
from packtrain.plan import Digest
from packtrain.transfer.api import ObjectInfo

DEFAULT_BLOCK_BYTES = 1 << 20
NO_CHECKSUM = 0  # for a block that was written in pieces
HIGH_LATENCY_BLOCK_BYTES = DEFAULT_BLOCK_BYTES // 4  # for distant servers: shortens the wait for the last block
_FORMAT_VERSION = 3
_RECORD_PATTERN = re.compile(rb"([0-9a-f]{8}) ([0-9a-f]{8})\n")
_SAMPLE_BYTES, _SAMPLE_INTERVAL_BYTES = 64, 1 << 18
_PAGE_BYTES, _ZERO_RUN = 4096, bytes(16)


@dataclass(frozen=True)
class ObjectIdentity:
    """The object that is being downloaded."""

    size: int
    etag: str | None
    digest: Digest | None
    block_bytes: int = DEFAULT_BLOCK_BYTES

    @property
    def n_blocks(self) -> int:
        """The number of blocks."""
        return -(-self.size // self.block_bytes)

    def block_length(self, index: int) -> int:
        """Return the bytes in a block; the last one may be shorter."""
        return min(self.block_bytes, self.size - index * self.block_bytes)

    def matches(self, info: ObjectInfo, has_trusted_digest: bool) -> bool:
        """Return whether a source with this metadata has the same object.

        Args:
            info: Metadata from the source.
            has_trusted_digest: A digest verifies the file in the end, so the ETag may differ.
        """
        return self.size == info.size and (has_trusted_digest or self.etag == info.etag)

    def to_line(self) -> bytes:
        """Return the first line of the resume log."""
        digest = [self.digest.algorithm, self.digest.value] if self.digest else None
        data = {
            "version": _FORMAT_VERSION,
            "size": self.size,
            "etag": self.etag,
            "digest": digest,
            "block_bytes": self.block_bytes,
        }
        return json.dumps({**data, "boot_id": boot_id()}).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> ObjectIdentity:
        """Parse the first line of a resume log; raises ValueError, KeyError or TypeError."""
        data = json.loads(line)
        if data["version"] != _FORMAT_VERSION or not line.endswith(b"\n"):
            raise ValueError("a different version, or an incomplete line")
        digest = Digest(*data["digest"]) if data["digest"] else None
        return cls(int(data["size"]), data["etag"], digest, data["block_bytes"])


def is_from_this_boot(line: bytes) -> bool:
    """Return whether a resume log with this first line was certainly written since the machine booted."""
    return bool(boot_id()) and bool(json.loads(line).get("boot_id") == boot_id())


def format_record(index: int, checksum: int) -> bytes:
    """Return the line of a block."""
    return b"%08x %08x\n" % (index, checksum)


def parse_records(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield number and checksum of each block, up to the first incomplete line."""
    position = 0
    while True:
        match = _RECORD_PATTERN.match(data, position)
        if match is None:
            return
        yield int(match.group(1), 16), int(match.group(2), 16)
        position = match.end()


def sample_checksum(block: memoryview) -> int:
    """Return a checksum of samples of a block.

    It detects a block that was lost when the machine crashed. A checksum of all bytes would cost too much.
    """
    checksum = zlib.crc32(block[max(0, len(block) - _SAMPLE_BYTES) :])
    for start in range(0, len(block), _SAMPLE_INTERVAL_BYTES):
        checksum = zlib.crc32(block[start : start + _SAMPLE_BYTES], checksum)
    return checksum


def may_have_gap(block: memoryview) -> bool:
    """Return whether a page of a block may be missing.

    After a crash of the machine, pages that were not on disk yet read as zeros up to their end. The checksum samples
    too few pages to detect that. Data that really has such pages is downloaded again needlessly.
    """
    ends = (*range(_PAGE_BYTES, len(block), _PAGE_BYTES), len(block))
    return any(block[max(0, end - len(_ZERO_RUN)) : end] == _ZERO_RUN for end in ends)
