"""The checksums file of a data file: the sha256 of every block and of the complete file.

With it, a download locates a damaged or missing block and fetches only that block again, from any source. The format
is described in docs/formats/checksums.md.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, overload

from packtrain.errors import FormatError
from packtrain.fileutil import atomic_write
from packtrain.plan.codec import decode, encode
from packtrain.transfer.api import ByteRange
from packtrain.transfer.progress import ProgressCallback
from packtrain.transfer.tasks.background import BackgroundWorker

CHECKSUMS_SUFFIX = ".checksums.json"
FORMAT_VERSION = 2
MIN_BLOCK_BYTES = 1 << 20
MAX_STREAMED_BLOCK_BYTES = 2 << 20  # limit for data that is unpacked while it downloads: about 40 blocks are in memory
MAX_BLOCK_BYTES = 4 << 20  # keeps a download, which holds up to 96 MiB of blocks, below 150 MB
MAX_BLOCKS = 500_000  # then the file has 22 MB and takes 16 MB in memory
_MAX_BLOCKS_OF_MIN_SIZE = 45_000  # keeps the file below 2 MB
_DIGEST_BYTES = 32
_READ_BYTES = 1 << 20
_MAX_QUEUED_READS = 8
_SHA256_PATTERN = re.compile(r"[0-9a-f]{64}", re.ASCII)

if TYPE_CHECKING:
    from hashlib import _Hash


@dataclass(frozen=True)
class BlockChecksums:
    """The contents of a checksums file."""

    block_bytes: int  # size of a block; the last one may be shorter
    size: int  # size of the file in bytes
    block_sha256: Sequence[str]  # lower-case hex, one per block
    file_sha256: str | None = None  # lower-case hex
    name: str = ""  # name of the file, for display

    @property
    def can_stream(self) -> bool:
        """Whether the blocks are small enough to verify data that is unpacked while it downloads."""
        return self.block_bytes <= MAX_STREAMED_BLOCK_BYTES

    def block_range(self, index: int) -> ByteRange:
        """Return the bytes of a block."""
        return ByteRange(index * self.block_bytes, min((index + 1) * self.block_bytes, self.size))


class HexDigests(Sequence[str]):
    """A sequence of sha256 digests in hex that takes a quarter of the memory of a tuple."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw

    @classmethod
    def from_hex(cls, digests: Iterable[str]) -> HexDigests:
        """Return the sequence of some digests in hex."""
        raw = bytearray()
        for digest in digests:
            raw += bytes.fromhex(digest)
        return cls(bytes(raw))

    def __len__(self) -> int:
        return len(self.raw) // _DIGEST_BYTES

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...

    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        start = range(len(self))[index] * _DIGEST_BYTES
        return self.raw[start : start + _DIGEST_BYTES].hex()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(str.__eq__, self, other))

    def __hash__(self) -> int:
        return hash(self.raw)


@dataclass(frozen=True)
class _ChecksumsDocument:
    """The JSON document of the file; keys with their default value are omitted."""

    version: int
    size: int
    block_bytes: int
    block_sha256: str  # base64 of all digests, concatenated
    sha256: str = ""
    name: str = ""


def choose_block_bytes(size: int) -> int:
    """Return the smallest block size that keeps the checksums file of a file of `size` bytes small."""
    if size <= MIN_BLOCK_BYTES * _MAX_BLOCKS_OF_MIN_SIZE:
        return MIN_BLOCK_BYTES
    return MAX_STREAMED_BLOCK_BYTES if size <= MAX_STREAMED_BLOCK_BYTES * MAX_BLOCKS else MAX_BLOCK_BYTES


def find_block_problem(block_bytes: int, size: int) -> str:
    """Return why a file of `size` bytes cannot have blocks of `block_bytes`, or ""."""
    if block_bytes > MAX_BLOCK_BYTES:
        return (
            f"blocks of {block_bytes} bytes are too large, since a download holds many in memory; "
            f"the maximum is {MAX_BLOCK_BYTES}"
        )
    n_blocks = -(-size // block_bytes)
    if n_blocks > MAX_BLOCKS:
        return f"{size} bytes are {n_blocks} blocks of {block_bytes} bytes; the maximum is {MAX_BLOCKS} blocks"
    return ""


def make_checksums(
    path: Path, block_bytes: int | None = None, on_progress: ProgressCallback = lambda done, total: None
) -> BlockChecksums:
    """Compute the checksums of a file, which is read once.

    Args:
        path: The file.
        block_bytes: The block size; by default it is chosen from the size of the file.
        on_progress: Receives the bytes done and the total after each block.
    """
    size = path.stat().st_size
    length = choose_block_bytes(size) if block_bytes is None else block_bytes
    file_sha256 = _new_sha256()
    # hashlib releases the interpreter lock, so both digests are computed at the same time.
    worker: BackgroundWorker[bytes] = BackgroundWorker(file_sha256.update, "sha256", _MAX_QUEUED_READS)
    try:
        with open(path, "rb") as file:
            blocks = HexDigests.from_hex(_hash_blocks(file, length, size, worker.put, on_progress))
            read_bytes = file.tell()
        worker.finish()
    finally:
        worker.cancel()
    return BlockChecksums(length, read_bytes, blocks, file_sha256.hexdigest(), path.name)


def find_bad_blocks(
    path: Path, checksums: BlockChecksums, on_progress: ProgressCallback = lambda done, total: None
) -> list[int]:
    """Return the blocks that differ in a file or are missing from it.

    Bytes after the last block are not detected; compare the sizes for that.
    """
    with open(path, "rb") as file:
        digests = _hash_blocks(file, checksums.block_bytes, checksums.size, lambda chunk: None, on_progress)
        return [index for index, expected in enumerate(checksums.block_sha256) if next(digests, None) != expected]


def _hash_blocks(
    file: BinaryIO, block_bytes: int, size: int, on_read: Callable[[bytes], None], on_progress: ProgressCallback
) -> Iterator[str]:
    """Yield the digests of the blocks up to `size`; a file that ends early has fewer or a shorter last one."""
    for start in range(0, size, block_bytes):
        stop = min(start + block_bytes, size)
        digest = _new_sha256()
        for chunk in _read_chunks(file, stop - start):
            on_read(chunk)
            digest.update(chunk)
        if file.tell() == start:
            return
        on_progress(file.tell(), size)
        yield digest.hexdigest()


def _read_chunks(file: BinaryIO, n_bytes: int) -> Iterator[bytes]:
    while n_bytes:
        chunk = file.read(min(_READ_BYTES, n_bytes))
        if not chunk:
            return
        n_bytes -= len(chunk)
        yield chunk


def _new_sha256() -> _Hash:
    import hashlib

    return hashlib.sha256(usedforsecurity=False)


def write_checksums(checksums: BlockChecksums, path: Path) -> None:
    """Write a checksums file atomically."""
    atomic_write(path, format_checksums(checksums), durable=True)


def format_checksums(checksums: BlockChecksums) -> str:
    """Return the text of a checksums file."""
    digests = base64.b64encode(HexDigests.from_hex(checksums.block_sha256).raw).decode("ascii")
    document = _ChecksumsDocument(
        FORMAT_VERSION, checksums.size, checksums.block_bytes, digests, checksums.file_sha256 or "", checksums.name
    )
    return json.dumps(encode(document), indent=1, ensure_ascii=False) + "\n"


def read_checksums(path: Path) -> BlockChecksums:
    """Read a checksums file.

    Raises:
        FormatError: The file is not a checksums file.
        OSError: The file cannot be read.
    """
    try:
        return parse_checksums(path.read_text(encoding="utf-8"), path.name)
    except UnicodeDecodeError:
        raise FormatError(f"{path.name} is not a checksums file: it is not UTF-8 text") from None


def parse_checksums(text: str, source_name: str) -> BlockChecksums:
    """Parse the text of a checksums file.

    Args:
        text: The text.
        source_name: The name of the file, for messages.

    Raises:
        FormatError: The text is not a valid checksums file.
    """
    document = _parse_document(text, source_name)
    if document.size < 0 or document.block_bytes < 1:
        raise FormatError(f"{source_name}: size {document.size} or block_bytes {document.block_bytes} is out of range")
    problem = find_block_problem(document.block_bytes, document.size)
    if problem:
        raise FormatError(f"{source_name}: {problem}; recreate the file with `packtrain checksums`")
    digests = _decode_digests(document, source_name)
    file_sha256 = _check_sha256(document.sha256, source_name) if document.sha256 else None
    return BlockChecksums(document.block_bytes, document.size, digests, file_sha256, document.name)


def _parse_document(text: str, source_name: str) -> _ChecksumsDocument:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{source_name} is not a checksums file: {error}") from None
    version = data.get("version") if isinstance(data, dict) else None
    if version != FORMAT_VERSION:
        raise FormatError(
            f"{source_name} is not a checksums file of version {FORMAT_VERSION} (its version: {version!r}); "
            "recreate it with `packtrain checksums`"
        )
    return decode(_ChecksumsDocument, data, source_name)


def _decode_digests(document: _ChecksumsDocument, source_name: str) -> HexDigests:
    try:
        raw = base64.b64decode(document.block_sha256, validate=True)
    except (binascii.Error, ValueError) as error:
        raise FormatError(f"{source_name}.block_sha256 is not base64: {error}") from None
    n_blocks = -(-document.size // document.block_bytes)
    if len(raw) != n_blocks * _DIGEST_BYTES:
        raise FormatError(
            f"{source_name}.block_sha256 has {len(raw)} bytes, but the digests of {n_blocks} blocks have "
            f"{n_blocks * _DIGEST_BYTES}"
        )
    return HexDigests(raw)


def _check_sha256(text: str, source_name: str) -> str:
    if not _SHA256_PATTERN.fullmatch(text):
        raise FormatError(f"{source_name}.sha256 is not a sha256 in lower-case hex: {text[:80]!r}")
    return text
