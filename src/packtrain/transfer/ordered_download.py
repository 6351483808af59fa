"""An item's bytes in their order, for whoever reads them once: fetched by several connections, held in memory.

The same engine as for files, with a window in memory instead of a file: blocks wait there until they are
read, and no more are asked for than fit. Nothing is left to go on with if the process dies.
"""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING

from packtrain.errors import FailedError, TransferError
from packtrain.plan import Digest, RemoteFile
from packtrain.transfer.api import SecretResolver
from packtrain.transfer.digests import Digests, check_digest_affordable
from packtrain.transfer.engine import worker_pool
from packtrain.transfer.engine.buffer_pool import BufferPool
from packtrain.transfer.engine.coordinator import (
    POLL_INTERVAL_S,
    CancelCheck,
    FetchCoordinator,
    FetchRequest,
    ObjectChangedError,
    ProgressCallback,
    TransferStats,
)
from packtrain.transfer.engine.digest_lookup import DigestLookup
from packtrain.transfer.engine.resume_log import ObjectIdentity
from packtrain.transfer.engine.source_stats import SourceSelector
from packtrain.transfer.fetch import FetchResult
from packtrain.transfer.urls import redact_url

if TYPE_CHECKING:
    from packtrain.transfer.block_checksums import BlockChecksums

_WINDOW_BYTES = 40 << 20
_MAX_CONNECTIONS = 16
_WINDOW_STEP_BLOCKS = 8  # the window moves by so many blocks, so that connections can ask for several at once
_MAX_QUEUED_VIEWS = 4
_EMPTY_VIEW = memoryview(b"")


_REFETCHABLE_KINDS = frozenset({"truncated", "archive_broken"})


class StaleDownloadError(FailedError):
    """What was read is of no use, whatever its sources are now: it has to be read from the beginning once more."""


def should_refetch(error: FailedError) -> bool:
    """Of what was used as it came: whether a second download may mend it. A TransferError has cost the whole patience
    already."""
    return isinstance(error, StaleDownloadError) or (
        error.kind in _REFETCHABLE_KINDS and not isinstance(error, TransferError)
    )


class OrderedDownload:
    """`with Ordered(…) as bytes_of_item`. Raises SpoiledError, at the end if the digest is wrong, and TransferError."""

    def __init__(
        self,
        remote_file: RemoteFile,
        resolve_secret: SecretResolver,
        *,
        retry_timeout_s: float,
        check_cancelled: CancelCheck,
        on_progress: ProgressCallback,
        checksums: BlockChecksums | None = None,
    ) -> None:
        self._remote_file, self._check_cancelled, self._on_progress = remote_file, check_cancelled, on_progress
        self._window = _MemoryWindow()
        wish = FetchRequest(
            remote_file, resolve_secret, retry_timeout_s, lambda: None, lambda done, total: None, checksums
        )
        self._coordinator = FetchCoordinator(wish, self._window, SourceSelector(), TransferStats())
        self._coordinator.max_connections = min(self._coordinator.max_connections, _MAX_CONNECTIONS)
        self._window.attach(self._coordinator, max(2 * _WINDOW_STEP_BLOCKS, _WINDOW_BYTES // wish.block_bytes))
        self._view, self._delivered_bytes = _EMPTY_VIEW, 0
        self._digest_check: _StreamDigest | None = None
        self._digest_lookup = DigestLookup(self._coordinator, self._set_server_digest)
        self._server_digest: Digest | None = None  # by a server that was asked
        self._at_end = False

    def __enter__(self) -> OrderedDownload:
        threading.Thread(target=self._run, name="crew", daemon=True).start()
        self._digest_lookup.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._digest_lookup.cancel()
        self._coordinator.fail(_ReaderClosedError())
        if self._digest_check is not None:
            self._digest_check.cancel()

    @property
    def size(self) -> int | None:
        """None before it is known, and where the server does not say."""
        return self._coordinator.identity.size if self._coordinator.identity else None

    @property
    def source(self) -> str:
        last = self._coordinator.last_source
        return redact_url(last.replica.location.url if last else self._remote_file.locations[0].url)

    @property
    def retries(self) -> int:
        return self._coordinator.stats.retries

    def make_result(self, duration_s: float) -> FetchResult:
        """What it took, when all is read."""
        counts, schedule = self._coordinator.stats, self._coordinator.scheduler
        by_source: dict[str, int] = {}
        for standing in self._coordinator.sources.source_stats:
            by_source[standing.replica.label] = by_source.get(standing.replica.label, 0) + standing.received_bytes
        return FetchResult(
            bytes=self._delivered_bytes,
            source=self.source,
            duration_s=duration_s,
            retries=counts.retries,
            sha256="",
            stalls=counts.stalls,
            wasted_bytes=counts.wasted_bytes,
            hedges=schedule.n_hedges if schedule else 0,
            bytes_by_source=by_source,
            verified_by=self._verification_method(),
        )

    def _verification_method(self) -> str:
        wanted = self._expected_digest()
        return wanted.algorithm if wanted else "checksums" if self._coordinator.request.checksums else ""

    def read(self, size: int, /) -> bytes:
        return b"".join(self.read_views(size))

    def read_views(self, size: int, /) -> list[memoryview]:
        """So many bytes, fewer only at the end. More than a window holds would take as much memory."""
        views = []
        while size and (self._view or self._load_next_block()):
            view, self._view = self._view[:size], self._view[size:]
            size -= len(view)
            views.append(view)
        return views

    def _load_next_block(self) -> bool:
        if self._at_end:
            return False
        self._view = self._wait_for_block()
        self._delivered_bytes += len(self._view)
        self._on_progress(self._delivered_bytes, self.size)
        if self._digest_check is None:
            self._digest_check = self._start_digest()
        if self._view:
            self._digest_check.update(self._view)
            return True
        self._at_end = True
        self._digest_check.check(self.source, self._check_cancelled)
        return False

    def _start_digest(self) -> _StreamDigest:
        """With the first bytes, for none is here twice: a server that is asked for the digest has to tell by then."""
        self._digest_lookup.wait(self._check_cancelled)
        return _StreamDigest(self._expected_digest())

    def _set_server_digest(self, digest: Digest) -> None:
        self._server_digest = digest

    def _wait_for_block(self) -> memoryview:
        while True:
            self._check_cancelled()
            block = self._window.pop_block()
            if block is not None:
                return block

    def _expected_digest(self) -> Digest | None:
        known = self._coordinator.identity
        return self._remote_file.digest or (known.digest if known else None) or self._server_digest

    def _run(self) -> None:
        try:
            worker_pool.run(self._coordinator)
        except BaseException as error:
            self._coordinator.fail(error)


class _ReaderClosedError(Exception):
    """Nobody reads any more."""


class _MemoryWindow:
    """The shelf in memory. All under the engine's lock."""

    direct_writer = None

    def __init__(self) -> None:
        self._blocks: dict[int, memoryview] = {}
        self._read_index = 0  # the block that is read next
        self._n_appended = 0  # blocks of an object without a size

    def attach(self, coordinator: FetchCoordinator, max_blocks: int) -> None:
        self._coordinator, self._max_blocks = coordinator, max_blocks
        coordinator.window_blocks = max_blocks
        self._buffer_pool = BufferPool(coordinator.request.block_bytes)
        coordinator.max_span_blocks = _WINDOW_STEP_BLOCKS // 2

    def begin(self, identity: ObjectIdentity) -> None:
        self.begin_unsized()
        item = self._coordinator.request.remote_file
        check_digest_affordable(item.name, item.digest, identity.size)

    def begin_unsized(self) -> None:
        if self._n_appended:
            raise StaleDownloadError("truncated", "a body of unknown length broke off, and part of it was used already")

    def write_block(self, index: int, block: memoryview) -> memoryview:
        with self._coordinator.condition:
            self._blocks[index] = block
            self._coordinator.condition.notify_all()
        return self._buffer_pool.acquire()

    def append(self, position: int, data: memoryview) -> None:
        with self._coordinator.condition:
            while len(self._blocks) >= self._max_blocks and not self._coordinator.should_exit():
                self._coordinator.condition.wait(POLL_INTERVAL_S)
            self._blocks[self._n_appended] = memoryview(bytes(data))
            self._n_appended += 1
            self._coordinator.condition.notify_all()

    def pop_block(self) -> memoryview | None:
        """The next block, empty at the end; None: not yet."""
        engine = self._coordinator
        with engine.condition:
            if self._read_index not in self._blocks:
                if engine.is_complete:
                    return _EMPTY_VIEW
                self._raise_failure()
                engine.condition.wait(POLL_INTERVAL_S)
                return None
            block = self._blocks.pop(self._read_index)
            self._read_index += 1
            if engine.scheduler is not None:
                engine.scheduler.window_end = (
                    self._max_blocks + self._read_index // _WINDOW_STEP_BLOCKS * _WINDOW_STEP_BLOCKS
                )
            engine.condition.notify_all()
            return block

    def _raise_failure(self) -> None:
        failure = self._coordinator.failure
        if isinstance(failure, ObjectChangedError):
            raise StaleDownloadError("unexpected_content", "the object changed at its source while it was read")
        if failure is not None:
            raise failure


class _StreamDigest:
    """Computed beside the reading, in a thread of its own."""

    def __init__(self, expected: Digest | None) -> None:
        self._expected = expected
        self._view_queue: queue.Queue[memoryview | None] = queue.Queue(_MAX_QUEUED_VIEWS)
        self._digests = Digests(expected, sha256=False)
        self._is_cancelled = False
        self._thread = threading.Thread(target=self._run, name="digest", daemon=True)
        if expected is not None:
            self._thread.start()

    def update(self, view: memoryview) -> None:
        if self._expected is not None:
            self._view_queue.put(view)

    def check(self, source: str, check_cancelled: CancelCheck) -> None:
        if self._expected is None:
            return
        self._view_queue.put(None)
        while self._thread.is_alive():
            check_cancelled()
            self._thread.join(POLL_INTERVAL_S)
        seen = self._digests.hexdigest(self._expected.algorithm)
        if seen != self._expected.value.lower():
            words = f"{source} has the {self._expected.algorithm} {seen}, but should have {self._expected.value}"
            raise StaleDownloadError("digest_mismatch", words)

    def cancel(self) -> None:
        self._is_cancelled = True
        if self._thread.is_alive():
            self._view_queue.put(None)

    def _run(self) -> None:
        while True:
            view = self._view_queue.get()
            if view is None:
                return
            if not self._is_cancelled:
                self._digests.update(view)
