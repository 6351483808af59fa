"""The checksums file of a data file: a sha256 for every block, and one for the whole (docs/formats/checksums.md).

With it a damaged or missing block is known by its place and fetched again alone, from any source.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import queue
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Optional, overload

from packtrain.errors import FormatError
from packtrain.plan.codec import decode, encode
from packtrain.transfer.api import ByteRange

CHECKSUMS_SUFFIX = ".checksums.json"
FORMAT_VERSION = 2
MIN_BLOCK_BYTES = 1 << 20
MAX_STREAMED_BLOCK_BYTES = 2 << 20  # the largest for what is used as it comes: some forty blocks are in memory then
MAX_BLOCK_BYTES = 4 << 20  # a download holds up to 96 MiB of blocks, and some more: within 150 MB with all else
MAX_BLOCKS = 500_000  # of which the file has 22 MB, and whoever reads it 16
_MAX_BLOCKS_OF_MIN_SIZE = 45_000  # keeps the file below 2 MB
_DIGEST_BYTES = 32
_READ_BYTES = 1 << 20
_MAX_QUEUED_READS = 8
_SHA256_PATTERN = re.compile(r"[0-9a-f]{64}", re.ASCII)

if TYPE_CHECKING:
    from hashlib import _Hash

ProgressCallback = Callable[[int, Optional[int]], None]


@dataclass(frozen=True)
class BlockChecksums:
    block_bytes: int  # bytes in a block; the last one may be shorter
    size: int  # bytes of the file
    block_sha256: Sequence[str]  # lower-case hex, one a block
    file_sha256: str | None = None  # sha256 of the file
    name: str = ""  # of the file, for people

    @property
    def can_stream(self) -> bool:
        """Whether its blocks are small enough for what is used as it comes."""
        return self.block_bytes <= MAX_STREAMED_BLOCK_BYTES

    def block_range(self, index: int) -> ByteRange:
        """Where a block lies."""
        return ByteRange(index * self.block_bytes, min((index + 1) * self.block_bytes, self.size))


class HexDigests(Sequence[str]):
    """Like a tuple of them, in a quarter of its memory."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw

    @classmethod
    def from_hex(cls, digests: Iterable[str]) -> HexDigests:
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
            return tuple(self[one] for one in range(*index.indices(len(self))))
        at = range(len(self))[index] * _DIGEST_BYTES
        return self.raw[at : at + _DIGEST_BYTES].hex()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(str.__eq__, self, other))

    def __hash__(self) -> int:
        return hash(self.raw)


@dataclass(frozen=True)
class _ChecksumsDocument:
    """The JSON of the file; keys that hold their default are left out."""

    version: int
    size: int
    block_bytes: int
    block_sha256: str  # base64 of all digests, one after the other
    sha256: str = ""
    name: str = ""


def choose_block_bytes(size: int) -> int:
    """1 MiB while the checksums file of so large a file stays small, and never more than has to be."""
    if size <= MIN_BLOCK_BYTES * _MAX_BLOCKS_OF_MIN_SIZE:
        return MIN_BLOCK_BYTES
    return MAX_STREAMED_BLOCK_BYTES if size <= MAX_STREAMED_BLOCK_BYTES * MAX_BLOCKS else MAX_BLOCK_BYTES


def find_block_problem(block_bytes: int, size: int) -> str:
    """Why a file of this size cannot have checksums of such blocks; else nothing."""
    if block_bytes > MAX_BLOCK_BYTES:
        return f"blocks of {block_bytes} bytes are too large, since a download has many in memory: {MAX_BLOCK_BYTES} at most"
    count = -(-size // block_bytes)
    if count > MAX_BLOCKS:
        return f"{size} bytes are {count} blocks of {block_bytes} bytes, and {MAX_BLOCKS} blocks are the most"
    return ""


def make_checksums(
    path: Path, block_bytes: int | None = None, on_progress: ProgressCallback = lambda done, total: None
) -> BlockChecksums:
    """Read the file once; the whole is hashed beside the blocks, in a thread of its own."""
    size = path.stat().st_size
    length = choose_block_bytes(size) if block_bytes is None else block_bytes
    with open(path, "rb") as file, _BackgroundSha256() as whole:
        blocks = HexDigests.from_hex(_hash_blocks(file, length, size, whole.update, on_progress))
        done = file.tell()
    return BlockChecksums(length, done, blocks, whole.hexdigest(), path.name)


def find_bad_blocks(
    path: Path, checksums: BlockChecksums, on_progress: ProgressCallback = lambda done, total: None
) -> list[int]:
    """The blocks that differ in the file or are missing from it. That the file is longer is not seen here."""
    with open(path, "rb") as file:
        seen = _hash_blocks(file, checksums.block_bytes, checksums.size, lambda piece: None, on_progress)
        return [index for index, digest in enumerate(checksums.block_sha256) if next(seen, None) != digest]


def _hash_blocks(
    file: BinaryIO, block_bytes: int, size: int, on_read: Callable[[bytes], None], on_progress: ProgressCallback
) -> Iterator[str]:
    """Of the file's blocks, up to `size`; a file that ends early has fewer, or a shorter last one."""
    for start in range(0, size, block_bytes):
        stop = min(start + block_bytes, size)
        digest = _new_sha256()
        for piece in _read_chunks(file, stop - start):
            on_read(piece)
            digest.update(piece)
        if file.tell() == start:
            return
        on_progress(file.tell(), size)
        yield digest.hexdigest()


def _read_chunks(file: BinaryIO, n_bytes: int) -> Iterator[bytes]:
    while n_bytes:
        piece = file.read(min(_READ_BYTES, n_bytes))
        if not piece:
            return
        n_bytes -= len(piece)
        yield piece


def _new_sha256() -> _Hash:
    import hashlib

    return hashlib.sha256(usedforsecurity=False)


class _BackgroundSha256:
    """A sha256 that is fed here and computed in another thread: hashlib lets go of the interpreter's lock."""

    def __init__(self) -> None:
        self._digest = _new_sha256()
        self._chunk_queue: queue.Queue[bytes] = queue.Queue(_MAX_QUEUED_READS)
        self._thread = threading.Thread(target=self._run, name="sha256", daemon=True)
        self.update = self._chunk_queue.put

    def __enter__(self) -> _BackgroundSha256:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._chunk_queue.put(b"")
        self._thread.join()

    def hexdigest(self) -> str:
        """After the `with`."""
        return self._digest.hexdigest()

    def _run(self) -> None:
        for piece in iter(self._chunk_queue.get, b""):
            self._digest.update(piece)


def write_checksums(checksums: BlockChecksums, path: Path) -> None:
    """Complete or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    temporary.write_text(format_checksums(checksums), encoding="utf-8")
    temporary.replace(path)


def format_checksums(checksums: BlockChecksums) -> str:
    digests = base64.b64encode(HexDigests.from_hex(checksums.block_sha256).raw).decode("ascii")
    document = _ChecksumsDocument(
        FORMAT_VERSION, checksums.size, checksums.block_bytes, digests, checksums.file_sha256 or "", checksums.name
    )
    return json.dumps(encode(document), indent=1, ensure_ascii=False) + "\n"


def read_checksums(path: Path) -> BlockChecksums:
    """Raises FormatError, and OSError if there is no such file."""
    try:
        return parse_checksums(path.read_text(encoding="utf-8"), path.name)
    except UnicodeDecodeError:
        raise FormatError(f"{path.name} is no checksums file: it is not text") from None


def parse_checksums(text: str, source_name: str) -> BlockChecksums:
    """`where` names the file in messages. Raises FormatError."""
    document = _parse_document(text, source_name)
    if document.size < 0 or document.block_bytes < 1:
        raise FormatError(f"{source_name}: the size {document.size} and the block {document.block_bytes} cannot be")
    unfit = find_block_problem(document.block_bytes, document.size)
    if unfit:
        raise FormatError(f"{source_name}: {unfit}; make it anew with `packtrain checksums`")
    digests = _decode_digests(document, source_name)
    whole = _check_sha256(document.sha256, source_name) if document.sha256 else None
    return BlockChecksums(document.block_bytes, document.size, digests, whole, document.name)


def _parse_document(text: str, source_name: str) -> _ChecksumsDocument:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{source_name} is no checksums file: {error}") from None
    version = data.get("version") if isinstance(data, dict) else None
    if version != FORMAT_VERSION:
        raise FormatError(f"{source_name} is no checksums file of version {FORMAT_VERSION} (its version: {version!r})")
    return decode(_ChecksumsDocument, data, source_name)


def _decode_digests(document: _ChecksumsDocument, source_name: str) -> HexDigests:
    try:
        raw = base64.b64decode(document.block_sha256, validate=True)
    except (binascii.Error, ValueError) as error:
        raise FormatError(f"{source_name}.blocks is no base64: {error}") from None
    count = -(-document.size // document.block_bytes)
    if len(raw) != count * _DIGEST_BYTES:
        words = f"{source_name}.blocks has {len(raw)} bytes, but {count} blocks have digests of {count * _DIGEST_BYTES}"
        raise FormatError(words)
    return HexDigests(raw)


def _check_sha256(text: str, source_name: str) -> str:
    if not _SHA256_PATTERN.fullmatch(text):
        raise FormatError(f"{source_name}.sha256 is no sha256 in lower-case hex: {text[:80]!r}")
    return text
