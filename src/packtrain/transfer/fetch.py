"""Brings an item to a file: sources in turn, resumed, verified.

One stream at a time. What has arrived stays in a partial file (see `partial`) that this or a later
process goes on with; how long failures are borne is decided in `patience`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from packtrain.errors import TransferError
from packtrain.plan import Digest, Item, Ref
from packtrain.transfer.address import shown
from packtrain.transfer.api import WHOLE, ObjectInfo, Reveal, Span, Stream
from packtrain.transfer.partial import Partial
from packtrain.transfer.patience import Patience, pause
from packtrain.transfer.pump import BLOCK, Pump
from packtrain.transfer.registry import source_for
from packtrain.transfer.verify import HEAD_BYTES, Digests, why_not_the_data

Stop = Callable[[], None]
Progress = Callable[[int, Optional[int]], None]

_DOWNLOADS_THAT_MAY_MISMATCH = 2


@dataclass(frozen=True)
class Fetched:
    bytes: int
    source: str  # the address that gave the last byte, without secrets
    seconds: float
    retries: int
    sha256: str


def fetch(item: Item, target: Path, reveal: Reveal, *, patience_s: float, stop: Stop, progress: Progress) -> Fetched:
    """The item stands at `target`, complete and verified, or FailedError says why not."""
    return _Fetch(item, Partial(target), reveal, patience_s, stop, progress).run()


class _OtherObjectError(Exception):
    """A source whose size or ETag differs from those of the bytes that we have."""


class _Fetch:
    def __init__(
        self, item: Item, part: Partial, reveal: Reveal, patience_s: float, stop: Stop, progress: Progress
    ) -> None:
        self._item, self._part, self._reveal = item, part, reveal
        self._stop, self._progress = stop, progress
        self._began = time.monotonic()
        self._patience = Patience(patience_s, len(item.sources), self._began)
        self._furthest = part.done
        self._attempts = self._mismatches = 0
        self._digests = Digests(item.digest, self._stated())
        self._digested = 0

    def run(self) -> Fetched:
        while True:
            fetched = self._round()
            if fetched is not None:
                return fetched
            wait = self._patience.wait_s(time.monotonic())
            if wait is None:
                raise self._patience.verdict()
            pause(wait, self._stop)

    def _round(self) -> Fetched | None:
        """Ask each source once; None if none could finish."""
        before = self._furthest
        fetched, differing = self._ask(self._patience.asked())
        if fetched is None and differing and self._furthest == before:
            # The sources that had our object do not go on: begin anew with what the others have.
            self._part.discard()
            fetched, _ = self._ask(differing)
        return fetched

    def _ask(self, sources: Sequence[int]) -> tuple[Fetched | None, Sequence[int]]:
        """The first success, or the sources that have another object than the one begun."""
        differing = []
        for index in sources:
            try:
                return self._attempt(self._item.sources[index]), ()
            except _OtherObjectError:
                differing.append(index)
            except TransferError as error:
                if self._mismatches >= _DOWNLOADS_THAT_MAY_MISMATCH:
                    raise
                self._patience.failed(index, error)
        return None, differing

    def _attempt(self, ref: Ref) -> Fetched:
        self._attempts += 1
        if not self._part.complete():
            self._receive(ref)
        self._verify(ref)
        self._part.finish()
        seconds = time.monotonic() - self._began
        return Fetched(self._part.done, shown(ref.url), seconds, self._attempts - 1, self._digests.value("sha256"))

    def _receive(self, ref: Ref) -> None:
        span = Span(self._part.done) if self._part.done else WHOLE
        with Pump(lambda: source_for(ref, self._reveal).open(ref, span), self._stop) as pump:
            stream = pump.stream()
            for block in self._fresh(ref, stream, pump.blocks()):
                self._take(block)
        self._check_end(ref, stream.info)

    def _fresh(self, ref: Ref, stream: Stream, blocks: Iterator[bytes]) -> Iterable[bytes]:
        """Those of the blocks that the partial file lacks."""
        part = self._part
        if not part.done:
            return self._from_zero(ref, stream.info, blocks)
        if not part.agrees(stream.info, proven=self._item.digest is not None):
            raise _OtherObjectError
        self._catch_up()
        return _without_first(part.done - stream.start, blocks)

    def _from_zero(self, ref: Ref, info: ObjectInfo, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """Nothing is written before the first bytes look like the data."""
        head = b""
        for block in blocks:
            head += block
            if len(head) >= HEAD_BYTES:
                break
        self._check_begin(ref, info, head)
        self._part.begin(info)
        self._digests, self._digested = Digests(self._item.digest, info.digest), 0
        yield head
        yield from blocks

    def _check_begin(self, ref: Ref, info: ObjectInfo, head: bytes) -> None:
        wrong = why_not_the_data(self._item.name, head, info.content_type)
        if wrong:
            raise TransferError("not_the_data", f"{shown(ref.url)}: {wrong}", shown(ref.url))
        if info.size is not None:
            self._check_size(ref, info.size)

    def _check_size(self, ref: Ref, size: int) -> None:
        planned = self._item.size
        if planned is None or size == planned:
            return
        kind = "truncated" if size < planned else "not_the_data"
        words = f"{shown(ref.url)} has {size} bytes, but had {planned} when the run was planned"
        raise TransferError(kind, words, shown(ref.url))

    def _check_end(self, ref: Ref, info: ObjectInfo) -> None:
        if info.size is None:
            try:
                self._check_size(ref, self._part.done)
            except TransferError:
                self._part.discard()
                raise
        elif self._part.done != info.size:
            words = f"{shown(ref.url)} gave {self._part.done} of {info.size} bytes"
            raise TransferError("truncated", words, shown(ref.url))

    def _catch_up(self) -> None:
        """Digest what an earlier process left."""
        if self._digested == self._part.done:
            return
        self._digests, self._digested = Digests(self._item.digest, self._stated()), 0
        for block in self._part.blocks(BLOCK):
            self._stop()
            self._digests.update(block)
            self._digested += len(block)

    def _stated(self) -> Digest | None:
        return self._part.ledger.digest if self._part.ledger else None

    def _take(self, block: bytes) -> None:
        self._stop()
        self._part.append(block)
        self._digests.update(block)
        self._digested += len(block)
        if self._part.done > self._furthest:
            self._furthest = self._part.done
            self._patience.progressed(time.monotonic())
        self._progress(self._part.done, self._part.ledger.size if self._part.ledger else None)

    def _verify(self, ref: Ref) -> None:
        """The user's digest, else the one that the server stated."""
        self._catch_up()
        wanted = self._item.digest or self._stated()
        if wanted is None or self._digests.value(wanted.algorithm) == wanted.value.lower():
            return
        seen = self._digests.value(wanted.algorithm)
        self._part.discard()
        self._mismatches += 1
        self._furthest = 0
        words = f"{shown(ref.url)} has the {wanted.algorithm} {seen}, but should have {wanted.value}"
        raise TransferError("digest_mismatch", words, shown(ref.url))


def _without_first(count: int, blocks: Iterator[bytes]) -> Iterator[bytes]:
    """A server without ranges sends again what we have; it is passed over, not written anew."""
    for block in blocks:
        if count < len(block):
            yield block[count:]
        count = max(0, count - len(block))
