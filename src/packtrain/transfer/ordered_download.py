"""Download an object in order, for a reader that consumes it once, such as the unpacker.

The engine is the same as for files, but its blocks go to a window in memory. They wait there until the reader takes
them, and only blocks that fit into the window are requested. A download cannot be resumed by another process.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from packtrain.errors import FailedError, TransferError
from packtrain.plan import Digest, RemoteFile
from packtrain.transfer.api import SecretResolver
from packtrain.transfer.engine.completion import POLL_INTERVAL_S
from packtrain.transfer.engine.coordinator import FetchCoordinator
from packtrain.transfer.engine.digest_lookup import DigestLookup
from packtrain.transfer.engine.fetch_request import FetchRequest, ObjectChangedError, TransferStats
from packtrain.transfer.engine.resume_log import ObjectIdentity
from packtrain.transfer.engine.source_stats import SourceSelector
from packtrain.transfer.engine.worker import run_workers
from packtrain.transfer.fetch import FetchResult
from packtrain.transfer.integrity.digests import Digests, check_digest_computable
from packtrain.transfer.progress import ProgressCallback
from packtrain.transfer.tasks.background import BackgroundWorker
from packtrain.transfer.tasks.cancellation import CancelCheck
from packtrain.transfer.urls import redact_url

if TYPE_CHECKING:
    from packtrain.transfer.integrity.block_checksums import BlockChecksums

_WINDOW_BYTES = 40 << 20
_MAX_OBJECT_BYTES = 10**14  # the state of each block is in memory
_MAX_CONNECTIONS = 16
_WINDOW_STEP_BLOCKS = 8  # step by which the window advances, so that a connection can request several blocks at once
_MAX_QUEUED_VIEWS = 4
_EMPTY_VIEW = memoryview(b"")
_REFETCHABLE_KINDS = frozenset({"truncated", "archive_broken"})


class StaleDownloadError(FailedError):
    """The bytes that were read so far are invalid; the reader must start over with a new download."""


def should_refetch(error: FailedError) -> bool:
    """Return whether a second download may succeed after data failed while it was consumed.

    A TransferError is final: it was raised after the whole retry timeout.
    """
    return isinstance(error, StaleDownloadError) or (
        error.kind in _REFETCHABLE_KINDS and not isinstance(error, TransferError)
    )


class OrderedDownload:
    """A readable stream of a remote file; a context manager.

    Args:
        remote_file: The file to read.
        resolve_secret: Returns the values of secrets.
        retry_timeout_s: How long to retry without progress before a failure is final.
        check_cancelled: Called several times a second by `read`; raises to cancel.
        on_progress: Receives the bytes delivered and the total.
        checksums: Verifies each block before it is delivered.

    Raises:
        FailedError: On creation, if the digest of the file cannot be computed here.
        StaleDownloadError: While reading, if the object changed; at the end, if its digest is wrong.
        TransferError: While reading, if the download failed.
    """

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
        check_digest_computable(remote_file.name, remote_file.digest)
        self._remote_file, self._check_cancelled, self._on_progress = remote_file, check_cancelled, on_progress
        self._window = _MemoryWindow()
        request = FetchRequest(
            remote_file, resolve_secret, retry_timeout_s, lambda: None, lambda done, total: None, checksums
        )
        self._coordinator = FetchCoordinator(request, self._window, SourceSelector(), TransferStats())
        self._coordinator.max_connections = min(self._coordinator.max_connections, _MAX_CONNECTIONS)
        self._window.attach(self._coordinator, max(2 * _WINDOW_STEP_BLOCKS, _WINDOW_BYTES // request.block_bytes))
        self._view, self._delivered_bytes = _EMPTY_VIEW, 0
        self._digest_check: _StreamDigest | None = None
        self._digest_lookup = DigestLookup(self._coordinator, self._set_server_digest)
        self._server_digest: Digest | None = None  # found by the lookup
        self._at_end = self._has_started_digest = False

    def __enter__(self) -> OrderedDownload:
        threading.Thread(target=self._run, name="fetch-coordinator", daemon=True).start()
        self._digest_lookup.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._digest_lookup.cancel()
        self._coordinator.completion.fail(_ReaderClosedError())
        if self._digest_check is not None:
            self._digest_check.cancel()

    @property
    def size(self) -> int | None:
        """The size in bytes; None while it is unknown, or if the server does not report it."""
        return self._coordinator.identity.size if self._coordinator.identity else None

    @property
    def source(self) -> str:
        """The address that sent the last block, without secrets."""
        last = self._coordinator.last_source
        return redact_url(last.replica.location.url if last else self._remote_file.locations[0].url)

    @property
    def retries(self) -> int:
        """The number of failed requests so far."""
        return self._coordinator.stats.retries

    def make_result(self, duration_s: float) -> FetchResult:
        """Return the statistics of the download, once everything is read."""
        stats, scheduler = self._coordinator.stats, self._coordinator.scheduler
        return FetchResult(
            bytes=self._delivered_bytes,
            source=self.source,
            duration_s=duration_s,
            retries=stats.retries,
            sha256="",
            stalls=stats.stalls,
            wasted_bytes=stats.wasted_bytes,
            hedges=scheduler.n_hedges if scheduler else 0,
            bytes_by_source=self._coordinator.sources.bytes_by_label(),
            verified_by=self._verification_method(),
        )

    def _verification_method(self) -> str:
        expected = self._expected_digest()
        return expected.algorithm if expected else "checksums" if self._coordinator.request.checksums else ""

    def read(self, size: int, /) -> bytes:
        """Return `size` bytes, fewer only at the end."""
        return b"".join(self.read_views(size))

    def read_views(self, size: int, /) -> list[memoryview]:
        """Return `size` bytes as views, fewer only at the end; they stay valid as long as the caller holds them."""
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
        if not self._has_started_digest:
            self._start_digest()
        self._at_end = not self._view
        if self._digest_check is not None and self._at_end:
            self._digest_check.check(self.source, self._check_cancelled)
        elif self._digest_check is not None:
            self._digest_check.update(self._view)
        return not self._at_end

    def _start_digest(self) -> None:
        """Wait for the digest lookup and start to hash: the first bytes are delivered only once."""
        self._digest_lookup.wait(self._check_cancelled)
        self._has_started_digest, expected = True, self._expected_digest()
        if expected is not None:
            self._digest_check = _StreamDigest(expected)

    def _set_server_digest(self, digest: Digest) -> None:
        self._server_digest = digest

    def _wait_for_block(self) -> memoryview:
        while True:
            self._check_cancelled()
            block = self._window.pop_block()
            if block is not None:
                return block

    def _expected_digest(self) -> Digest | None:
        identity = self._coordinator.identity
        return self._remote_file.digest or (identity.digest if identity else None) or self._server_digest

    def _run(self) -> None:
        try:
            run_workers(self._coordinator)
        except BaseException as error:
            self._coordinator.completion.fail(error)


class _ReaderClosedError(Exception):
    """The reader closed the download."""


class _MemoryWindow:
    """The block sink in memory. The lock of the coordinator protects its state."""

    direct_writer = None

    def __init__(self) -> None:
        self._blocks: dict[int, memoryview] = {}
        self._read_index = 0  # number of the block that is read next
        self._n_appended = 0  # blocks so far of an object of unknown size

    def attach(self, coordinator: FetchCoordinator, max_blocks: int) -> None:
        self._coordinator, self._max_blocks = coordinator, max_blocks
        coordinator.window_blocks = max_blocks
        coordinator.max_span_blocks = _WINDOW_STEP_BLOCKS // 2

    def begin(self, identity: ObjectIdentity) -> None:
        if identity.size > _MAX_OBJECT_BYTES:
            url = redact_url(self._coordinator.request.remote_file.locations[0].url)
            raise TransferError("unexpected_content", f"{url} announces {identity.size} bytes, which is too much", url)
        self.begin_unsized()

    def begin_unsized(self) -> None:
        if self._n_appended:
            raise StaleDownloadError("truncated", "a body of unknown length broke off after part of it was used")

    def write_block(self, index: int, block: memoryview) -> memoryview:
        with self._coordinator.condition:
            self._blocks[index] = block
            self._coordinator.condition.notify_all()
        return memoryview(bytearray(self._coordinator.request.block_bytes))

    def append(self, position: int, data: memoryview) -> None:
        with self._coordinator.condition:
            while len(self._blocks) >= self._max_blocks and not self._coordinator.completion.should_exit():
                self._coordinator.condition.wait(POLL_INTERVAL_S)
            self._blocks[self._n_appended] = memoryview(bytes(data))
            self._n_appended += 1
            self._coordinator.condition.notify_all()

    def pop_block(self) -> memoryview | None:
        """Return the next block, an empty view at the end, or None if it has not arrived yet."""
        coordinator = self._coordinator
        with coordinator.condition:
            if self._read_index not in self._blocks:
                if coordinator.completion.is_complete:
                    return _EMPTY_VIEW
                self._raise_failure()
                coordinator.condition.wait(POLL_INTERVAL_S)
                return None
            block = self._blocks.pop(self._read_index)
            self._read_index += 1
            if coordinator.scheduler is not None:
                coordinator.scheduler.window_end = (
                    self._max_blocks + self._read_index // _WINDOW_STEP_BLOCKS * _WINDOW_STEP_BLOCKS
                )
            coordinator.condition.notify_all()
            return block

    def _raise_failure(self) -> None:
        failure = self._coordinator.completion.failure
        if isinstance(failure, ObjectChangedError):
            raise StaleDownloadError("unexpected_content", "the object changed on its server while it was read")
        if failure is not None:
            raise failure


class _StreamDigest:
    """The digest of the delivered bytes, computed by a thread of its own and compared at the end."""

    def __init__(self, expected: Digest) -> None:
        self._expected, self._digests = expected, Digests(expected, sha256=False)
        self._worker: BackgroundWorker[memoryview] = BackgroundWorker(self._digests.update, "digest", _MAX_QUEUED_VIEWS)
        self.update, self.cancel = self._worker.put, self._worker.cancel

    def check(self, source: str, check_cancelled: CancelCheck) -> None:
        self._worker.finish(check_cancelled)
        actual = self._digests.hexdigest(self._expected.algorithm)
        if actual != self._expected.value.lower():
            raise StaleDownloadError(
                "digest_mismatch",
                f"{source} has the {self._expected.algorithm} {actual}, but should have {self._expected.value}",
            )
