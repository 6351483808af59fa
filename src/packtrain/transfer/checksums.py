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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Optional

from packtrain.errors import FormatError
from packtrain.plan.codec import decode, encode
from packtrain.transfer.api import Span

SUFFIX = ".checksums.json"
VERSION = 1
SMALLEST_BLOCK = 1 << 20
_MOST_BLOCKS = 45_000  # keeps the file below 2 MB
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
    sha256: tuple[str, ...]  # lower-case hex, one a block
    whole: str | None = None  # sha256 of the file
    name: str = ""  # of the file, for people

    def span(self, index: int) -> Span:
        """Where a block lies."""
        return Span(index * self.block, min((index + 1) * self.block, self.size))


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
    """1 MiB, doubled until the checksums file of so large a file stays small."""
    block = SMALLEST_BLOCK
    while block * _MOST_BLOCKS < size:
        block *= 2
    return block


def make_checksums(path: Path, block: int | None = None, progress: Progress = lambda done, total: None) -> Checksums:
    """Read the file once; the whole is hashed beside the blocks, in a thread of its own."""
    size = path.stat().st_size
    length = block_for(size) if block is None else block
    with open(path, "rb") as file, _Aside() as whole:
        blocks = tuple(_block_digests(file, length, size, whole.update, progress))
        done = file.tell()
    return Checksums(length, done, blocks, whole.hexdigest(), path.name)


def bad_blocks(path: Path, checksums: Checksums, progress: Progress = lambda done, total: None) -> list[int]:
    """The blocks that differ in the file or are missing from it. That the file is longer is not seen here."""
    with open(path, "rb") as file:
        seen = list(_block_digests(file, checksums.block, checksums.size, lambda piece: None, progress))
    return [index for index, digest in enumerate(checksums.sha256) if seen[index : index + 1] != [digest]]


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
    digests = base64.b64encode(bytes.fromhex("".join(checksums.sha256))).decode("ascii")
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


def _digests(document: _Document, where: str) -> tuple[str, ...]:
    try:
        raw = base64.b64decode(document.blocks, validate=True)
    except (binascii.Error, ValueError) as error:
        raise FormatError(f"{where}.blocks is no base64: {error}") from None
    count = -(-document.size // document.block)
    if len(raw) != count * _DIGEST_BYTES:
        words = f"{where}.blocks has {len(raw)} bytes, but {count} blocks have digests of {count * _DIGEST_BYTES}"
        raise FormatError(words)
    return tuple(raw[at : at + _DIGEST_BYTES].hex() for at in range(0, len(raw), _DIGEST_BYTES))


def _hex(text: str, where: str) -> str:
    if not _SHA256.fullmatch(text):
        raise FormatError(f"{where}.sha256 is no sha256 in lower-case hex: {text[:80]!r}")
    return text
