"""Brings an item to a file: by many connections, from all its sources at once, resumed, verified.

The work is done by `engine`; here is what goes around it: what an earlier process left, the digest of
the whole, and what happens when that is wrong.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from packtrain.errors import TransferError
from packtrain.plan import Digest, Item
from packtrain.transfer.api import Reveal
from packtrain.transfer.engine import worker_pool
from packtrain.transfer.engine.coordinator import BeginAnewError, Counts, Engine, Progress, Stop, Wish
from packtrain.transfer.engine.digest_lookup import Asking
from packtrain.transfer.engine.file_sink import Disk
from packtrain.transfer.engine.part_file import Partial
from packtrain.transfer.engine.resume_log import FAR_BLOCK
from packtrain.transfer.engine.source_stats import Sources
from packtrain.transfer.progress import Observe
from packtrain.transfer.urls import shown

if TYPE_CHECKING:
    from packtrain.transfer.block_checksums import Checksums

_DOWNLOADS_THAT_MAY_MISMATCH = 2
_BEGINNINGS = 5


@dataclass(frozen=True)
class Fetched:
    bytes: int
    source: str  # the address that gave the last byte, without secrets
    seconds: float
    retries: int
    sha256: str  # "" where nobody asked for a digest and the file is large
    stalls: int = 0
    wasted_bytes: int = 0
    hedges: int = 0
    by_source: dict[str, int] = field(default_factory=dict)
    verified_by: str = ""  # the digest's algorithm, or checksums; "" where nobody stated a digest


def fetch(
    item: Item,
    target: Path,
    reveal: Reveal,
    *,
    patience_s: float,
    stop: Stop,
    progress: Progress,
    checksums: Checksums | None = None,
    observe: Observe | None = None,
) -> Fetched:
    """The item stands at `target`, complete and verified, or FailedError says why not."""
    wish = Wish(item, reveal, patience_s, stop, progress, checksums, observe)
    return _Fetch(wish, Partial(target)).run()


class _Fetch:
    def __init__(self, wish: Wish, part: Partial) -> None:
        self._wish, self._part = wish, part
        self._sources, self._counts = Sources(), Counts()
        self._began = time.monotonic()
        self._hedges = self._mismatches = 0
        self._doubted: Digest | None = None  # what the first download should have had, and had not

    def run(self) -> Fetched:
        try:
            return self._by_and_by()
        finally:
            self._part.close()

    def _by_and_by(self) -> Fetched:
        for _ in range(_BEGINNINGS):
            try:
                return self._once()
            except BeginAnewError:
                self._part.discard()
                self._sources.beginning_anew()
            except _MismatchError as error:
                self._reject(error)
        raise TransferError("not_the_data", f"the sources of {self._wish.item.name} have different objects")

    def _once(self) -> Fetched:
        disk = Disk(self._part, self._wish)
        engine = Engine(self._wish, disk, self._sources, self._counts)
        engine.far_block = FAR_BLOCK if self._wish.checksums is None else self._wish.block
        asking = Asking(engine, disk.state)
        try:
            self._go_on(disk, engine)
            asking.begin()
            worker_pool.run(engine)
            asking.wait(self._wish.stop)
            sha256 = self._verified(disk, engine)
            self._part.finish()
        finally:
            self._hedges += engine.schedule.hedged if engine.schedule else 0
            asking.end()
            disk.close()
        return self._figures(engine, sha256, self._verified_by(disk))

    def _go_on(self, disk: Disk, engine: Engine) -> None:
        """What an earlier process left is of use if it is the object that was planned."""
        done = self._part.resume(self._wish.block, self._wish.checksums)
        known, planned = self._part.known, self._wish.item.size
        if known is not None and planned in (None, known.size):
            disk.go_on(known, done)
            engine.go_on(known, done)

    def _verified(self, disk: Disk, engine: Engine) -> str:
        """The sha256, where it is known. The user's digest counts, else the one that the server stated."""
        if disk.stated is None and self._doubted is not None and engine.known is not None:
            disk.state(self._doubted)
        digests = disk.digests()
        wanted = self._wish.item.digest or disk.stated
        if digests is None:
            return (self._wish.checksums.whole or "") if self._wish.checksums else ""
        if wanted is not None and digests.value(wanted.algorithm) != wanted.value.lower():
            raise _MismatchError(self._source(engine), wanted, digests.value(wanted.algorithm))
        return digests.value("sha256") if digests.has("sha256") else ""

    def _verified_by(self, disk: Disk) -> str:
        wanted = self._wish.item.digest or disk.stated
        return wanted.algorithm if wanted else "checksums" if self._wish.checksums else ""

    def _reject(self, mismatch: _MismatchError) -> None:
        """Once more, rather from sources that had no part in it, or from the origin that caches have it from."""
        self._part.discard()
        self._mismatches += 1
        self._doubted = None if self._wish.proven else mismatch.wanted
        self._counts.retries += 1
        self._counts.wasted += self._counts.bytes
        if self._mismatches >= _DOWNLOADS_THAT_MAY_MISMATCH:
            raise TransferError("digest_mismatch", str(mismatch), mismatch.source)
        for standing in self._sources.standings:
            standing.suspect = standing.gave and not standing.place.last_resort

    def _source(self, engine: Engine) -> str:
        ref = engine.last.place.ref if engine.last else self._wish.item.sources[0]
        return shown(ref.url)

    def _figures(self, engine: Engine, sha256: str, verified_by: str) -> Fetched:
        counts, seconds = self._counts, time.monotonic() - self._began
        by_source: dict[str, int] = {}
        for standing in self._sources.standings:
            by_source[standing.place.label] = by_source.get(standing.place.label, 0) + standing.bytes
        return Fetched(
            counts.bytes,
            self._source(engine),
            seconds,
            counts.retries,
            sha256,
            counts.stalls,
            counts.wasted,
            self._hedges,
            by_source,
            verified_by,
        )


class _MismatchError(Exception):
    def __init__(self, source: str, wanted: Digest, seen: str) -> None:
        super().__init__(f"{source} has the {wanted.algorithm} {seen}, but should have {wanted.value}")
        self.source, self.wanted = source, wanted
