"""What the parts of the engine share: the request of the caller, range requests, and counters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from packtrain.errors import TransferError
from packtrain.plan import RemoteFile
from packtrain.transfer.api import SecretResolver
from packtrain.transfer.engine.resume_log import DEFAULT_BLOCK_BYTES
from packtrain.transfer.engine.scheduler import BlockSpan
from packtrain.transfer.engine.source_stats import SourceStats
from packtrain.transfer.integrity.content_checks import detect_error_page, detect_wrong_format
from packtrain.transfer.progress import ProgressCallback, SnapshotCallback
from packtrain.transfer.tasks.cancellation import CancelCheck
from packtrain.transfer.urls import redact_url

if TYPE_CHECKING:
    from packtrain.transfer.integrity.block_checksums import BlockChecksums

_NEXT_REPLICA_AFTER_S = 0.5  # of silence before another replica gets the first request as well
_MIN_IDENTICAL_PAUSES = 3  # responses that pause after the same number of bytes


@dataclass(frozen=True)
class FetchRequest:
    """A file to download, and the callbacks of the caller; see `fetch.fetch`."""

    remote_file: RemoteFile
    resolve_secret: SecretResolver
    retry_timeout_s: float  # how long to retry without progress before a failure is final
    check_cancelled: CancelCheck
    on_progress: ProgressCallback
    checksums: BlockChecksums | None = None
    on_snapshot: SnapshotCallback | None = None
    max_unsized_bytes: int | None = None  # limit for a body without a length; None: the free disk space

    @property
    def block_bytes(self) -> int:
        """The block size of the checksums file, or the default."""
        return self.checksums.block_bytes if self.checksums else DEFAULT_BLOCK_BYTES

    @property
    def has_trusted_digest(self) -> bool:
        """Whether wrong bytes from any source would be detected."""
        return self.remote_file.digest is not None or self.checksums is not None

    def check_content(self, url: str, content_type: str | None, head: bytes) -> None:
        """Raise TransferError if the first bytes are those of an error page or of another format."""
        problem = detect_error_page(self.remote_file.name, head, content_type)
        problem = problem or detect_wrong_format(self.remote_file.name, head, self.has_trusted_digest)
        if problem:
            raise TransferError("unexpected_content", f"{url}: {problem}", url)

    def check_unsized(self, url: str, received_bytes: int) -> None:
        """Raise TransferError if a body without a length has become longer than the planned size."""
        planned_size = self.remote_file.size
        if planned_size is not None and received_bytes > planned_size:
            detail = f"{url} sent more than the {planned_size} bytes that the file had when the run was planned"
            raise TransferError("unexpected_content", detail, url)

    def check_size(self, url: str, size: int) -> None:
        """Raise TransferError if the object has another size than planned."""
        planned_size, checksums = self.remote_file.size, self.checksums
        if planned_size is not None and size != planned_size:
            kind = "truncated" if size < planned_size else "unexpected_content"
            raise TransferError(kind, f"{url} has {size} bytes, but had {planned_size} when the run was planned", url)
        if checksums is not None and size != checksums.size:
            detail = f"{url} has {size} bytes, but its checksums file describes {checksums.size}"
            raise TransferError("unexpected_content", detail, url)


class ObjectChangedError(Exception):
    """The remaining sources have a different object than the one that is being downloaded."""


@dataclass
class TransferStats:
    """Counters of a download."""

    retries: int = 0
    stalls: int = 0
    wasted_bytes: int = 0  # received more than once, or discarded
    done_bytes: int = 0  # stored, including those of earlier processes


@dataclass(eq=False)
class RangeRequest:
    """One request to one source, and its response. `span` is None while the size of the object is unknown."""

    source_stats: SourceStats
    span: BlockSpan | None
    started_at: float
    timeout_factor: float = 1.0  # `SourceStats.timeout_factor` when the request started
    received_bytes: int = 0
    paused_after_bytes: int = 0  # bytes received when the response last paused
    has_failed: bool = False
    is_initial: bool = False  # asks for the start of an object of unknown size

    @property
    def url(self) -> str:
        """The address of the source, without secrets."""
        return redact_url(self.source_stats.replica.location.url)


class ActiveRequests:
    """The requests that are being answered. The lock of the download protects them."""

    def __init__(self) -> None:
        self._requests: set[RangeRequest] = set()

    def __len__(self) -> int:
        return len(self._requests)

    @property
    def n_initial(self) -> int:
        """How many of them ask for the start of the object, whose size is unknown."""
        return sum(range_request.is_initial for range_request in self._requests)

    def may_start_initial(self, source_stats: SourceStats, now: float) -> bool:
        """Return whether to ask a source for the start of the object: the first one, and others while it is silent."""
        return not any(
            now - other.started_at < _NEXT_REPLICA_AFTER_S or other.source_stats is source_stats
            for other in self._requests
            if other.is_initial
        )

    def add(self, range_request: RangeRequest) -> RangeRequest:
        range_request.timeout_factor = range_request.source_stats.timeout_factor
        range_request.source_stats.connections += 1
        self._requests.add(range_request)
        return range_request

    def remove(self, range_request: RangeRequest) -> None:
        range_request.source_stats.connections -= 1
        self._requests.discard(range_request)

    def record_pause(self, range_request: RangeRequest, min_bytes: int) -> None:
        """Record a short pause, and set the response limit if several responses pause at the same byte.

        A limit below `min_bytes` is ignored: it would be useless, and first packets often have the same size.
        """
        source, n_bytes = range_request.source_stats, range_request.received_bytes
        range_request.paused_after_bytes = n_bytes
        n_alike = sum(
            other.source_stats is source and other.paused_after_bytes == other.received_bytes == n_bytes
            for other in self._requests
        )
        if n_alike >= _MIN_IDENTICAL_PAUSES and n_bytes >= min_bytes:
            source.response_limit.record_cutoff(n_bytes)
