"""What has arrived of a file that has not fully arrived: `NAME.part` and beside it `NAME.part.resume`.

The ledger's first line says which object this is (size, ETag and digest as the first source stated
them, and not which source that was), and which boot of the machine wrote it. A line follows for each
block that was written: its number and a seal (0: nobody looked at it), in hexadecimal. Lines are only
appended, after the block itself; a last line that was torn is no line.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packtrain.plan import Digest
from packtrain.transfer.api import ObjectInfo

DEFAULT_BLOCK_BYTES = 1 << 20
NO_CHECKSUM = 0  # of a block that was written in pieces, and not looked at as a whole
HIGH_LATENCY_BLOCK_BYTES = (
    DEFAULT_BLOCK_BYTES // 4
)  # from a server that is far away: there the last block of a slow connection is waited for
_FORMAT_VERSION = 3
_RECORD_PATTERN = re.compile(rb"([0-9a-f]{8}) ([0-9a-f]{8})\n")
_SAMPLE_BYTES, _SAMPLE_INTERVAL_BYTES = 64, 1 << 18
_PAGE_BYTES, _ZERO_RUN = 4096, bytes(16)


@dataclass(frozen=True)
class ObjectIdentity:
    """The object that is being fetched."""

    size: int
    etag: str | None
    digest: Digest | None
    block_bytes: int = DEFAULT_BLOCK_BYTES

    @property
    def n_blocks(self) -> int:
        return -(-self.size // self.block_bytes)

    def block_length(self, index: int) -> int:
        """Bytes in a block; the last one may be short."""
        return min(self.block_bytes, self.size - index * self.block_bytes)

    def matches(self, info: ObjectInfo, has_trusted_digest: bool) -> bool:
        """Whether a source with this info may go on. `proven`: digests will tell in the end anyway."""
        return self.size == info.size and (has_trusted_digest or self.etag == info.etag)

    def to_line(self) -> bytes:
        digest = [self.digest.algorithm, self.digest.value] if self.digest else None
        data = {
            "version": _FORMAT_VERSION,
            "size": self.size,
            "etag": self.etag,
            "digest": digest,
            "block_bytes": self.block_bytes,
        }
        return json.dumps({**data, "boot_id": _boot_id()}).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> ObjectIdentity:
        data = json.loads(line)
        if data["version"] != _FORMAT_VERSION or not line.endswith(b"\n"):
            raise ValueError("another version, or torn")
        return cls(int(data["size"]), data["etag"], Digest(*data["digest"]) if data["digest"] else None, data["block_bytes"])


def is_from_this_boot(line: bytes) -> bool:
    """Whether the ledger with this first line is, for certain, of a process since the machine was started."""
    return bool(_boot_id()) and bool(json.loads(line).get("boot_id") == _boot_id())


@functools.lru_cache(maxsize=1)
def _boot_id() -> str:
    """The same for as long as the machine runs; "" where it does not say."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def format_record(index: int, checksum: int) -> bytes:
    return b"%08x %08x\n" % (index, checksum)


def parse_records(data: bytes) -> Iterator[tuple[int, int]]:
    """Those that are whole, up to the first that is not."""
    at = 0
    while True:
        found = _RECORD_PATTERN.match(data, at)
        if found is None:
            return
        yield int(found.group(1), 16), int(found.group(2), 16)
        at = found.end()


def sample_checksum(block: memoryview) -> int:
    """A checksum of samples. It tells a block that a crash of the machine lost; all of it would cost too much."""
    seal = zlib.crc32(block[max(0, len(block) - _SAMPLE_BYTES) :])
    for at in range(0, len(block), _SAMPLE_INTERVAL_BYTES):
        seal = zlib.crc32(block[at : at + _SAMPLE_BYTES], seal)
    return seal


def may_have_gap(block: memoryview) -> bool:
    """Whether a page of it may be missing: after a crash of the machine, what was not yet on the disk reads as zeros,
    to the page's end. The seal looks at few of them; data that has such pages by itself is only fetched again."""
    ends = (*range(_PAGE_BYTES, len(block), _PAGE_BYTES), len(block))
    return any(block[max(0, end - len(_ZERO_RUN)) : end] == _ZERO_RUN for end in ends)
