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
from packtrain.transfer.api import Span

SUFFIX = ".checksums.json"
VERSION = 1
SMALLEST_BLOCK = 1 << 20
STREAMED_BLOCK = 2 << 20  # the largest for what is used as it comes: some forty blocks are in memory then
LARGEST_BLOCK = 4 << 20  # a download holds up to 96 MiB of blocks, and some more: within 150 MB with all else
MOST_BLOCKS = 500_000  # of which the file has 22 MB, and whoever reads it 16
_FEW_BLOCKS = 45_000  # keeps the file below 2 MB
_DIGEST_BYTES = 32
_PIECE = 1 << 20
_PIECES_AHEAD = 8
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)

if TYPE_CHECKING:
    from hashlib import _Hash

Progress = Callable[[int, Optional[int]], None]


@dataclass(frozen=True)
class Checksums:
    block: int  # bytes in a block; the last one may be shorter
    size: int  # bytes of the file
    sha256: Sequence[str]  # lower-case hex, one a block
    whole: str | None = None  # sha256 of the file
    name: str = ""  # of the file, for people

    @property
    def streams(self) -> bool:
        """Whether its blocks are small enough for what is used as it comes."""
        return self.block <= STREAMED_BLOCK

    def span(self, index: int) -> Span:
        """Where a block lies."""
        return Span(index * self.block, min((index + 1) * self.block, self.size))


class HexDigests(Sequence[str]):
    """Like a tuple of them, in a quarter of its memory."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw

    @classmethod
    def of(cls, digests: Iterable[str]) -> HexDigests:
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
class _Document:
    """The JSON of the file; keys that hold their default are left out."""

    version: int
    size: int
    block: int
    blocks: str  # base64 of all digests, one after the other
    sha256: str = ""
    name: str = ""


def block_for(size: int) -> int:
    """1 MiB while the checksums file of so large a file stays small, and never more than has to be."""
    if size <= SMALLEST_BLOCK * _FEW_BLOCKS:
        return SMALLEST_BLOCK
    return STREAMED_BLOCK if size <= STREAMED_BLOCK * MOST_BLOCKS else LARGEST_BLOCK


def misfit(block: int, size: int) -> str:
    """Why a file of this size cannot have checksums of such blocks; else nothing."""
    if block > LARGEST_BLOCK:
        return f"blocks of {block} bytes are too large, since a download has many in memory: {LARGEST_BLOCK} at most"
    count = -(-size // block)
    if count > MOST_BLOCKS:
        return f"{size} bytes are {count} blocks of {block} bytes, and {MOST_BLOCKS} blocks are the most"
    return ""


def make_checksums(path: Path, block: int | None = None, progress: Progress = lambda done, total: None) -> Checksums:
    """Read the file once; the whole is hashed beside the blocks, in a thread of its own."""
    size = path.stat().st_size
    length = block_for(size) if block is None else block
    with open(path, "rb") as file, _Aside() as whole:
        blocks = HexDigests.of(_block_digests(file, length, size, whole.update, progress))
        done = file.tell()
    return Checksums(length, done, blocks, whole.hexdigest(), path.name)


def bad_blocks(path: Path, checksums: Checksums, progress: Progress = lambda done, total: None) -> list[int]:
    """The blocks that differ in the file or are missing from it. That the file is longer is not seen here."""
    with open(path, "rb") as file:
        seen = _block_digests(file, checksums.block, checksums.size, lambda piece: None, progress)
        return [index for index, digest in enumerate(checksums.sha256) if next(seen, None) != digest]


def _block_digests(
    file: BinaryIO, block: int, size: int, also: Callable[[bytes], None], progress: Progress
) -> Iterator[str]:
    """Of the file's blocks, up to `size`; a file that ends early has fewer, or a shorter last one."""
    for start in range(0, size, block):
        stop = min(start + block, size)
        digest = _sha256()
        for piece in _pieces(file, stop - start):
            also(piece)
            digest.update(piece)
        if file.tell() == start:
            return
        progress(file.tell(), size)
        yield digest.hexdigest()


def _pieces(file: BinaryIO, left: int) -> Iterator[bytes]:
    while left:
        piece = file.read(min(_PIECE, left))
        if not piece:
            return
        left -= len(piece)
        yield piece


def _sha256() -> _Hash:
    import hashlib

    return hashlib.sha256(usedforsecurity=False)


class _Aside:
    """A sha256 that is fed here and computed in another thread: hashlib lets go of the interpreter's lock."""

    def __init__(self) -> None:
        self._digest = _sha256()
        self._waiting: queue.Queue[bytes] = queue.Queue(_PIECES_AHEAD)
        self._thread = threading.Thread(target=self._run, name="sha256", daemon=True)
        self.update = self._waiting.put

    def __enter__(self) -> _Aside:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._waiting.put(b"")
        self._thread.join()

    def hexdigest(self) -> str:
        """After the `with`."""
        return self._digest.hexdigest()

    def _run(self) -> None:
        for piece in iter(self._waiting.get, b""):
            self._digest.update(piece)


def write_checksums(checksums: Checksums, path: Path) -> None:
    """Complete or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    temporary.write_text(format_checksums(checksums), encoding="utf-8")
    temporary.replace(path)


def format_checksums(checksums: Checksums) -> str:
    digests = base64.b64encode(HexDigests.of(checksums.sha256).raw).decode("ascii")
    document = _Document(VERSION, checksums.size, checksums.block, digests, checksums.whole or "", checksums.name)
    return json.dumps(encode(document), indent=1, ensure_ascii=False) + "\n"


def read_checksums(path: Path) -> Checksums:
    """Raises FormatError, and OSError if there is no such file."""
    try:
        return parse_checksums(path.read_text(encoding="utf-8"), path.name)
    except UnicodeDecodeError:
        raise FormatError(f"{path.name} is no checksums file: it is not text") from None


def parse_checksums(text: str, where: str) -> Checksums:
    """`where` names the file in messages. Raises FormatError."""
    document = _document(text, where)
    if document.size < 0 or document.block < 1:
        raise FormatError(f"{where}: the size {document.size} and the block {document.block} cannot be")
    unfit = misfit(document.block, document.size)
    if unfit:
        raise FormatError(f"{where}: {unfit}; make it anew with `packtrain checksums`")
    digests = _digests(document, where)
    whole = _hex(document.sha256, where) if document.sha256 else None
    return Checksums(document.block, document.size, digests, whole, document.name)


def _document(text: str, where: str) -> _Document:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{where} is no checksums file: {error}") from None
    version = data.get("version") if isinstance(data, dict) else None
    if version != VERSION:
        raise FormatError(f"{where} is no checksums file of version {VERSION} (its version: {version!r})")
    return decode(_Document, data, where)


def _digests(document: _Document, where: str) -> HexDigests:
    try:
        raw = base64.b64decode(document.blocks, validate=True)
    except (binascii.Error, ValueError) as error:
        raise FormatError(f"{where}.blocks is no base64: {error}") from None
    count = -(-document.size // document.block)
    if len(raw) != count * _DIGEST_BYTES:
        words = f"{where}.blocks has {len(raw)} bytes, but {count} blocks have digests of {count * _DIGEST_BYTES}"
        raise FormatError(words)
    return HexDigests(raw)


def _hex(text: str, where: str) -> str:
    if not _SHA256.fullmatch(text):
        raise FormatError(f"{where}.sha256 is no sha256 in lower-case hex: {text[:80]!r}")
    return text
