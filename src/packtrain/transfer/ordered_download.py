"""An item's bytes in their order, for whoever reads them once: fetched by several connections, held in memory.

The same engine as for files, with a window in memory instead of a file: blocks wait there until they are
read, and no more are asked for than fit. Nothing is left to go on with if the process dies.
"""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING

from packtrain.errors import FailedError, TransferError
from packtrain.plan import Digest, Item
from packtrain.transfer.api import Reveal
from packtrain.transfer.digests import Digests, refuse_unaffordable
from packtrain.transfer.engine import worker_pool
from packtrain.transfer.engine.buffer_pool import Buffers
from packtrain.transfer.engine.coordinator import LOOK_EVERY_S, BeginAnewError, Counts, Engine, Progress, Stop, Wish
from packtrain.transfer.engine.digest_lookup import Asking
from packtrain.transfer.engine.resume_log import Known
from packtrain.transfer.engine.source_stats import Sources
from packtrain.transfer.fetch import Fetched
from packtrain.transfer.urls import shown

if TYPE_CHECKING:
    from packtrain.transfer.block_checksums import Checksums

_WINDOW_BYTES = 40 << 20
_MOST_CONNECTIONS = 16
_STEP = 8  # the window moves by so many blocks, so that connections can ask for several at once
_HASHED_AHEAD = 4
_EMPTY = memoryview(b"")


_DOUBTFUL = frozenset({"truncated", "archive_broken"})


class SpoiledError(FailedError):
    """What was read is of no use, whatever its sources are now: it has to be read from the beginning once more."""


def is_doubtful(error: FailedError) -> bool:
    """Of what was used as it came: whether a second download may mend it. A TransferError has cost the whole patience
    already."""
    return isinstance(error, SpoiledError) or (error.kind in _DOUBTFUL and not isinstance(error, TransferError))


class Ordered:
    """`with Ordered(…) as bytes_of_item`. Raises SpoiledError, at the end if the digest is wrong, and TransferError."""

    def __init__(
        self,
        item: Item,
        reveal: Reveal,
        *,
        patience_s: float,
        stop: Stop,
        progress: Progress,
        checksums: Checksums | None = None,
    ) -> None:
        self._item, self._stop, self._progress = item, stop, progress
        self._window = _Window()
        wish = Wish(item, reveal, patience_s, lambda: None, lambda done, total: None, checksums)
        self._engine = Engine(wish, self._window, Sources(), Counts())
        self._engine.most = min(self._engine.most, _MOST_CONNECTIONS)
        self._window.attend(self._engine, max(2 * _STEP, _WINDOW_BYTES // wish.block))
        self._view, self._given = _EMPTY, 0
        self._digest: _Digest | None = None
        self._asking = Asking(self._engine, self._told)
        self._stated: Digest | None = None  # by a server that was asked
        self._ended = False

    def __enter__(self) -> Ordered:
        threading.Thread(target=self._run, name="crew", daemon=True).start()
        self._asking.begin()
        return self

    def __exit__(self, *exc: object) -> None:
        self._asking.end()
        self._engine.broken(_AbandonedError())
        if self._digest is not None:
            self._digest.abandon()

    @property
    def size(self) -> int | None:
        """None before it is known, and where the server does not say."""
        return self._engine.known.size if self._engine.known else None

    @property
    def source(self) -> str:
        last = self._engine.last
        return shown(last.place.ref.url if last else self._item.sources[0].url)

    @property
    def retries(self) -> int:
        return self._engine.counts.retries

    def figures(self, seconds: float) -> Fetched:
        """What it took, when all is read."""
        counts, schedule = self._engine.counts, self._engine.schedule
        by_source: dict[str, int] = {}
        for standing in self._engine.sources.standings:
            by_source[standing.place.label] = by_source.get(standing.place.label, 0) + standing.bytes
        return Fetched(
            bytes=self._given,
            source=self.source,
            seconds=seconds,
            retries=counts.retries,
            sha256="",
            stalls=counts.stalls,
            wasted_bytes=counts.wasted,
            hedges=schedule.hedged if schedule else 0,
            by_source=by_source,
            verified_by=self._verified_by(),
        )

    def _verified_by(self) -> str:
        wanted = self._wanted()
        return wanted.algorithm if wanted else "checksums" if self._engine.wish.checksums else ""

    def read(self, size: int, /) -> bytes:
        return b"".join(self.take(size))

    def take(self, size: int, /) -> list[memoryview]:
        """So many bytes, fewer only at the end. More than a window holds would take as much memory."""
        views = []
        while size and (self._view or self._next()):
            view, self._view = self._view[:size], self._view[size:]
            size -= len(view)
            views.append(view)
        return views

    def _next(self) -> bool:
        if self._ended:
            return False
        self._view = self._waited_for()
        self._given += len(self._view)
        self._progress(self._given, self.size)
        if self._digest is None:
            self._digest = self._begun()
        if self._view:
            self._digest.update(self._view)
            return True
        self._ended = True
        self._digest.check(self.source, self._stop)
        return False

    def _begun(self) -> _Digest:
        """With the first bytes, for none is here twice: a server that is asked for the digest has to tell by then."""
        self._asking.wait(self._stop)
        return _Digest(self._wanted())

    def _told(self, digest: Digest) -> None:
        self._stated = digest

    def _waited_for(self) -> memoryview:
        while True:
            self._stop()
            block = self._window.next()
            if block is not None:
                return block

    def _wanted(self) -> Digest | None:
        known = self._engine.known
        return self._item.digest or (known.digest if known else None) or self._stated

    def _run(self) -> None:
        try:
            worker_pool.run(self._engine)
        except BaseException as error:
            self._engine.broken(error)


class _AbandonedError(Exception):
    """Nobody reads any more."""


class _Window:
    """The shelf in memory. All under the engine's lock."""

    mover = None

    def __init__(self) -> None:
        self._blocks: dict[int, memoryview] = {}
        self._reading = 0  # the block that is read next
        self._appended = 0  # blocks of an object without a size

    def attend(self, engine: Engine, blocks: int) -> None:
        self._engine, self._most = engine, blocks
        engine.horizon = blocks
        self._buffers = Buffers(engine.wish.block)
        engine.most_blocks = _STEP // 2

    def begin(self, known: Known) -> None:
        self.begin_unsized()
        item = self._engine.wish.item
        refuse_unaffordable(item.name, item.digest, known.size)

    def begin_unsized(self) -> None:
        if self._appended:
            raise SpoiledError("truncated", "a body of unknown length broke off, and part of it was used already")

    def put(self, index: int, block: memoryview) -> memoryview:
        with self._engine.changed:
            self._blocks[index] = block
            self._engine.changed.notify_all()
        return self._buffers.take()

    def append(self, position: int, data: memoryview) -> None:
        with self._engine.changed:
            while len(self._blocks) >= self._most and not self._engine.leave():
                self._engine.changed.wait(LOOK_EVERY_S)
            self._blocks[self._appended] = memoryview(bytes(data))
            self._appended += 1
            self._engine.changed.notify_all()

    def next(self) -> memoryview | None:
        """The next block, empty at the end; None: not yet."""
        engine = self._engine
        with engine.changed:
            if self._reading not in self._blocks:
                if engine.complete:
                    return _EMPTY
                self._raise_failure()
                engine.changed.wait(LOOK_EVERY_S)
                return None
            block = self._blocks.pop(self._reading)
            self._reading += 1
            if engine.schedule is not None:
                engine.schedule.horizon = self._most + self._reading // _STEP * _STEP
            engine.changed.notify_all()
            return block

    def _raise_failure(self) -> None:
        failure = self._engine.failure
        if isinstance(failure, BeginAnewError):
            raise SpoiledError("not_the_data", "the object changed at its source while it was read")
        if failure is not None:
            raise failure


class _Digest:
    """Computed beside the reading, in a thread of its own."""

    def __init__(self, wanted: Digest | None) -> None:
        self._wanted = wanted
        self._views: queue.Queue[memoryview | None] = queue.Queue(_HASHED_AHEAD)
        self._digests = Digests(wanted, sha256=False)
        self._abandoned = False
        self._thread = threading.Thread(target=self._run, name="digest", daemon=True)
        if wanted is not None:
            self._thread.start()

    def update(self, view: memoryview) -> None:
        if self._wanted is not None:
            self._views.put(view)

    def check(self, source: str, stop: Stop) -> None:
        if self._wanted is None:
            return
        self._views.put(None)
        while self._thread.is_alive():
            stop()
            self._thread.join(LOOK_EVERY_S)
        seen = self._digests.value(self._wanted.algorithm)
        if seen != self._wanted.value.lower():
            words = f"{source} has the {self._wanted.algorithm} {seen}, but should have {self._wanted.value}"
            raise SpoiledError("digest_mismatch", words)

    def abandon(self) -> None:
        self._abandoned = True
        if self._thread.is_alive():
            self._views.put(None)

    def _run(self) -> None:
        while True:
            view = self._views.get()
            if view is None:
                return
            if not self._abandoned:
                self._digests.update(view)
