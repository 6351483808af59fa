"""Reads one piece: from the disk if it was kept, else by one request, watched all the while."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from packtrain.errors import TransferError
from packtrain.plan import Ref
from packtrain.stream.index import Archive, Index
from packtrain.stream.read_groups import Piece
from packtrain.transfer.api import Place, Span, Stream
from packtrain.transfer.block_checksums import Checksums
from packtrain.transfer.engine.buffer_pool import page_aligned
from packtrain.transfer.engine.source_stats import Standing
from packtrain.transfer.http.connection import watched
from packtrain.transfer.urls import shown

_LOOK_EVERY_S = 0.05  # while bytes come


class LeftError(Exception):
    """Nobody waits for these bytes any more."""


@dataclass(eq=False)
class Attempt:
    """To read a piece at a place."""

    number: int  # of the piece
    piece: Piece
    standing: Standing
    place: Place
    began: float
    leniency: float
    hedge: bool = False
    own: bool = False  # by the one who takes
    came: int = 0
    moved: float = field(default=0.0)  # when the last bytes came

    def __post_init__(self) -> None:
        self.moved = self.began

    def silent_too_long(self, now: float) -> bool:
        standing = self.standing
        limit = standing.stall_s(self.leniency, self.came) if self.came else standing.first_byte_s(self.leniency)
        return now - self.moved > limit

    def too_slow(self, now: float) -> TransferError:
        url = shown(self.place.ref.url)
        return TransferError("service_unavailable", f"{url}: the server sent nothing for {now - self.moved:.0f} s", url)


class Reader:
    """One connection's memory, used again and again. `look` is asked all the while, and may raise."""

    def __init__(self, look: Callable[[Attempt], None]) -> None:
        self._look = look
        self._buffer = page_aligned(1)

    def read(self, attempt: Attempt, ref: Ref, expected: Archive, tagged: bool) -> memoryview:
        """The piece's bytes, in memory that the next call overwrites. `expected`: what the object should be."""
        piece = attempt.piece
        if len(self._buffer) < piece.size:
            self._buffer = page_aligned(piece.size)
        with watched(lambda: self._look(attempt), limits=True):
            stream = attempt.place.source.open(ref, Span(piece.start, piece.stop))
            try:
                _check(stream, ref, piece.start, expected, tagged)
                self._collect(attempt, stream, ref)
            finally:
                stream.close()
        return self._buffer[: piece.size]

    def _collect(self, attempt: Attempt, stream: Stream, ref: Ref) -> None:
        size, buffer, looked = attempt.piece.size, self._buffer, attempt.moved
        while attempt.came < size:
            count = stream.readinto(buffer[attempt.came : size])
            if not count:
                raise TransferError("truncated", f"{shown(ref.url)}: the body ended before its promised end", ref.url)
            now = time.monotonic()
            if attempt.came:
                attempt.standing.longest_gap_s = max(attempt.standing.longest_gap_s, now - attempt.moved)
            attempt.came, attempt.moved = attempt.came + count, now
            if attempt.came < size and now - looked > _LOOK_EVERY_S:
                looked = now
                self._look(attempt)


def _check(stream: Stream, ref: Ref, start: int, expected: Archive, tagged: bool) -> None:
    """Whether this is the object that was indexed, and the bytes that were asked for."""
    url = shown(ref.url)
    changed = expected.changed(stream.info) if tagged else _other_size(expected, stream.info.size)
    if changed:
        what = "archive" if expected.url else "file"
        words = f"{url} is not the {what} that was indexed: {changed}; make the index anew with `packtrain index`"
        raise TransferError("not_the_data", words, url)
    if stream.start != start:
        words = f"{url}: the server gives whole files only, and streaming needs parts of them: stage the data instead"
        raise TransferError("unsupported", words, url)


def _other_size(expected: Archive, size: int | None) -> str | None:
    return f"it had {expected.size} bytes and now has {size}" if size not in (None, expected.size) else None


def samples_of(index: Index, piece: Piece, data: memoryview) -> list[bytes]:
    """Each on its own, so that memory is freed sample by sample."""
    offsets, sizes, start = index.offsets, index.sizes, piece.start
    found: list[bytes] = []
    for number in piece.samples:
        at = offsets[number] - start
        found.append(bytes(data[at : at + sizes[number]]))
    return found


def verify(piece: Piece, data: memoryview, checksums: Checksums, url: str) -> None:
    """Raises TransferError if a block is not the one of the checksums. The piece has whole blocks."""
    from hashlib import sha256

    for start in range(piece.start, piece.stop, checksums.block):
        at = start - piece.start
        block = start // checksums.block
        if sha256(data[at : at + checksums.block]).hexdigest() != checksums.sha256[block]:
            raise TransferError("digest_mismatch", f"{url}: block {block} is not the one of the checksums", url)
