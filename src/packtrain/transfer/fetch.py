"""Download an object to a file: over many connections, from all its sources at once, resumed and verified.

The package `engine` moves the bytes. This module resumes the download of an earlier process, verifies the digest of the
complete file, and starts over when the object changed or the digest is wrong.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from packtrain.errors import TransferError
from packtrain.plan import Digest, RemoteFile
from packtrain.transfer.api import SecretResolver
from packtrain.transfer.engine.coordinator import FetchCoordinator
from packtrain.transfer.engine.digest_lookup import DigestLookup
from packtrain.transfer.engine.fetch_request import FetchRequest, ObjectChangedError, TransferStats
from packtrain.transfer.engine.file_sink import FileSink
from packtrain.transfer.engine.part_file import PartFile
from packtrain.transfer.engine.resume_log import HIGH_LATENCY_BLOCK_BYTES
from packtrain.transfer.engine.source_stats import SourceSelector
from packtrain.transfer.engine.worker import run_workers
from packtrain.transfer.integrity.digests import check_digest_computable
from packtrain.transfer.progress import ProgressCallback, SnapshotCallback
from packtrain.transfer.tasks.cancellation import CancelCheck
from packtrain.transfer.urls import redact_url

if TYPE_CHECKING:
    from packtrain.transfer.integrity.block_checksums import BlockChecksums

_MAX_DIGEST_MISMATCHES = 2
_MAX_STARTS = 5


@dataclass(frozen=True)
class FetchResult:
    """Statistics of a completed download."""

    bytes: int
    source: str  # address that sent the last byte, without secrets
    duration_s: float
    retries: int
    sha256: str  # "" for a large file whose digest no one requested
    stalls: int = 0
    wasted_bytes: int = 0
    hedges: int = 0
    bytes_by_source: dict[str, int] = field(default_factory=dict)  # by host label
    verified_by: str = ""  # digest algorithm, or "checksums"; "" if no digest was known


def fetch(
    remote_file: RemoteFile,
    target: Path,
    resolve_secret: SecretResolver,
    *,
    retry_timeout_s: float,
    check_cancelled: CancelCheck,
    on_progress: ProgressCallback,
    checksums: BlockChecksums | None = None,
    on_snapshot: SnapshotCallback | None = None,
    max_unsized_bytes: int | None = None,
) -> FetchResult:
    """Download a file to `target`, which appears only when it is complete and verified.

    Args:
        remote_file: The file: its name, its locations and, if known, its size and digest.
        target: The path to create. Next to it, `.part` and `.part.resume` hold an unfinished download.
        resolve_secret: Returns the values of secrets.
        retry_timeout_s: How long to retry without progress before a failure is final.
        check_cancelled: Called several times a second; raises to cancel.
        on_progress: Receives the bytes done and the total.
        checksums: Verifies each block as it arrives.
        on_snapshot: Receives the speed of each source twice a second.
        max_unsized_bytes: Limit for a file whose size no server announces; None: the free disk space.

    Raises:
        FailedError: The file could not be downloaded or verified.
    """
    check_digest_computable(remote_file.name, remote_file.digest)
    request = FetchRequest(
        remote_file,
        resolve_secret,
        retry_timeout_s,
        check_cancelled,
        on_progress,
        checksums,
        on_snapshot,
        max_unsized_bytes,
    )
    return _FileDownload(request, PartFile(target)).run()


class _FileDownload:
    def __init__(self, request: FetchRequest, part_file: PartFile) -> None:
        self._request, self._part_file = request, part_file
        self._sources, self._stats = SourceSelector(), TransferStats()
        self._started_at = time.monotonic()
        self._n_hedges = self._n_mismatches = 0
        self._mismatched_digest: Digest | None = None  # server digest that the first download did not match

    def run(self) -> FetchResult:
        try:
            return self._run_with_restarts()
        finally:
            self._part_file.close()

    def _run_with_restarts(self) -> FetchResult:
        for _ in range(_MAX_STARTS):
            try:
                return self._download_once()
            except ObjectChangedError:
                self._part_file.discard()
                self._sources.reset_different_objects()
            except _DigestMismatchError as error:
                self._handle_mismatch(error)
        raise TransferError(
            "unexpected_content", f"the sources of {self._request.remote_file.name} have different objects"
        )

    def _download_once(self) -> FetchResult:
        file_sink = FileSink(self._part_file, self._request)
        coordinator = FetchCoordinator(self._request, file_sink, self._sources, self._stats)
        coordinator.high_latency_block_bytes = (
            HIGH_LATENCY_BLOCK_BYTES if self._request.checksums is None else self._request.block_bytes
        )
        digest_lookup = DigestLookup(coordinator, file_sink.set_server_digest)
        try:
            self._resume(file_sink, coordinator)
            digest_lookup.start()
            run_workers(coordinator)
            digest_lookup.wait(self._request.check_cancelled)
            sha256 = self._verify_digest(file_sink, coordinator)
            self._part_file.finish()
        finally:
            self._n_hedges += coordinator.scheduler.n_hedges if coordinator.scheduler else 0
            digest_lookup.cancel()
            file_sink.close()
        return self._make_result(coordinator, sha256, self._verification_method(file_sink))

    def _resume(self, file_sink: FileSink, coordinator: FetchCoordinator) -> None:
        """Continue an earlier download of the same size, if there is one."""
        done = self._part_file.resume(self._request.block_bytes, self._request.checksums)
        identity, planned_size = self._part_file.identity, self._request.remote_file.size
        if identity is not None and planned_size in (None, identity.size):
            file_sink.resume(identity, done)
            coordinator.resume(identity, done)

    def _verify_digest(self, file_sink: FileSink, coordinator: FetchCoordinator) -> str:
        """Verify the file with the digest of the user or, without one, of the server.

        Returns:
            The sha256 of the file, or "" if it is not known.
        """
        if file_sink.server_digest is None and self._mismatched_digest is not None and coordinator.identity is not None:
            file_sink.set_server_digest(self._mismatched_digest)
        digests = file_sink.finish_digests()
        expected = self._request.remote_file.digest or file_sink.server_digest
        if digests is None:
            return (self._request.checksums.file_sha256 or "") if self._request.checksums else ""
        if expected is not None and digests.hexdigest(expected.algorithm) != expected.value.lower():
            actual = digests.hexdigest(expected.algorithm)
            raise _DigestMismatchError(self._last_source_url(coordinator), expected, actual)
        return digests.hexdigest("sha256") if digests.has("sha256") else ""

    def _verification_method(self, file_sink: FileSink) -> str:
        expected = self._request.remote_file.digest or file_sink.server_digest
        return expected.algorithm if expected else "checksums" if self._request.checksums else ""

    def _handle_mismatch(self, mismatch: _DigestMismatchError) -> None:
        """Prepare a second download, which prefers sources that sent no byte of the first, and fallback sources."""
        self._part_file.discard()
        self._n_mismatches += 1
        self._mismatched_digest = None if self._request.has_trusted_digest else mismatch.expected
        self._stats.retries += 1
        self._stats.wasted_bytes += self._stats.done_bytes
        if self._n_mismatches >= _MAX_DIGEST_MISMATCHES:
            raise TransferError("digest_mismatch", str(mismatch), mismatch.source)
        for source in self._sources.source_stats:
            source.is_suspect = source.has_sent_bytes and not source.replica.is_fallback

    def _last_source_url(self, coordinator: FetchCoordinator) -> str:
        last = coordinator.last_source
        location = last.replica.location if last else self._request.remote_file.locations[0]
        return redact_url(location.url)

    def _make_result(self, coordinator: FetchCoordinator, sha256: str, verified_by: str) -> FetchResult:
        return FetchResult(
            bytes=self._stats.done_bytes,
            source=self._last_source_url(coordinator),
            duration_s=time.monotonic() - self._started_at,
            retries=self._stats.retries,
            sha256=sha256,
            stalls=self._stats.stalls,
            wasted_bytes=self._stats.wasted_bytes,
            hedges=self._n_hedges,
            bytes_by_source=self._sources.bytes_by_label(),
            verified_by=verified_by,
        )


class _DigestMismatchError(Exception):
    def __init__(self, source: str, expected: Digest, actual: str) -> None:
        super().__init__(f"{source} has the {expected.algorithm} {actual}, but should have {expected.value}")
        self.source, self.expected = source, expected
