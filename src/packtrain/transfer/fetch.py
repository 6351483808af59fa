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
from packtrain.plan import Digest, RemoteFile
from packtrain.transfer.api import SecretResolver
from packtrain.transfer.engine import worker_pool
from packtrain.transfer.engine.coordinator import (
    CancelCheck,
    FetchCoordinator,
    FetchRequest,
    ObjectChangedError,
    ProgressCallback,
    TransferStats,
)
from packtrain.transfer.engine.digest_lookup import DigestLookup
from packtrain.transfer.engine.file_sink import FileSink
from packtrain.transfer.engine.part_file import PartFile
from packtrain.transfer.engine.resume_log import HIGH_LATENCY_BLOCK_BYTES
from packtrain.transfer.engine.source_stats import SourceSelector
from packtrain.transfer.progress import SnapshotCallback
from packtrain.transfer.urls import redact_url

if TYPE_CHECKING:
    from packtrain.transfer.block_checksums import BlockChecksums

_MAX_DIGEST_MISMATCHES = 2
_MAX_STARTS = 5


@dataclass(frozen=True)
class FetchResult:
    bytes: int
    source: str  # the address that gave the last byte, without secrets
    duration_s: float
    retries: int
    sha256: str  # "" where nobody asked for a digest and the file is large
    stalls: int = 0
    wasted_bytes: int = 0
    hedges: int = 0
    bytes_by_source: dict[str, int] = field(default_factory=dict)
    verified_by: str = ""  # the digest's algorithm, or checksums; "" where nobody stated a digest


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
) -> FetchResult:
    """The item stands at `target`, complete and verified, or FailedError says why not."""
    wish = FetchRequest(
        remote_file, resolve_secret, retry_timeout_s, check_cancelled, on_progress, checksums, on_snapshot
    )
    return _FileDownload(wish, PartFile(target)).run()


class _FileDownload:
    def __init__(self, request: FetchRequest, part_file: PartFile) -> None:
        self._request, self._part_file = request, part_file
        self._sources, self._stats = SourceSelector(), TransferStats()
        self._started_at = time.monotonic()
        self._n_hedges = self._n_mismatches = 0
        self._mismatched_digest: Digest | None = None  # what the first download should have had, and had not

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
        disk = FileSink(self._part_file, self._request)
        engine = FetchCoordinator(self._request, disk, self._sources, self._stats)
        engine.high_latency_block_bytes = (
            HIGH_LATENCY_BLOCK_BYTES if self._request.checksums is None else self._request.block_bytes
        )
        asking = DigestLookup(engine, disk.set_server_digest)
        try:
            self._resume(disk, engine)
            asking.start()
            worker_pool.run(engine)
            asking.wait(self._request.check_cancelled)
            sha256 = self._verify_digest(disk, engine)
            self._part_file.finish()
        finally:
            self._n_hedges += engine.scheduler.n_hedges if engine.scheduler else 0
            asking.cancel()
            disk.close()
        return self._make_result(engine, sha256, self._verification_method(disk))

    def _resume(self, file_sink: FileSink, coordinator: FetchCoordinator) -> None:
        """What an earlier process left is of use if it is the object that was planned."""
        done = self._part_file.resume(self._request.block_bytes, self._request.checksums)
        known, planned = self._part_file.identity, self._request.remote_file.size
        if known is not None and planned in (None, known.size):
            file_sink.resume(known, done)
            coordinator.resume(known, done)

    def _verify_digest(self, file_sink: FileSink, coordinator: FetchCoordinator) -> str:
        """The sha256, where it is known. The user's digest counts, else the one that the server stated."""
        if file_sink.server_digest is None and self._mismatched_digest is not None and coordinator.identity is not None:
            file_sink.set_server_digest(self._mismatched_digest)
        digests = file_sink.finish_digests()
        wanted = self._request.remote_file.digest or file_sink.server_digest
        if digests is None:
            return (self._request.checksums.file_sha256 or "") if self._request.checksums else ""
        if wanted is not None and digests.hexdigest(wanted.algorithm) != wanted.value.lower():
            raise _DigestMismatchError(self._last_source_url(coordinator), wanted, digests.hexdigest(wanted.algorithm))
        return digests.hexdigest("sha256") if digests.has("sha256") else ""

    def _verification_method(self, file_sink: FileSink) -> str:
        wanted = self._request.remote_file.digest or file_sink.server_digest
        return wanted.algorithm if wanted else "checksums" if self._request.checksums else ""

    def _handle_mismatch(self, mismatch: _DigestMismatchError) -> None:
        """Once more, rather from sources that had no part in it, or from the origin that caches have it from."""
        self._part_file.discard()
        self._n_mismatches += 1
        self._mismatched_digest = None if self._request.has_trusted_digest else mismatch.expected
        self._stats.retries += 1
        self._stats.wasted_bytes += self._stats.done_bytes
        if self._n_mismatches >= _MAX_DIGEST_MISMATCHES:
            raise TransferError("digest_mismatch", str(mismatch), mismatch.source)
        for standing in self._sources.source_stats:
            standing.is_suspect = standing.has_sent_bytes and not standing.replica.is_fallback

    def _last_source_url(self, coordinator: FetchCoordinator) -> str:
        ref = (
            coordinator.last_source.replica.location
            if coordinator.last_source
            else self._request.remote_file.locations[0]
        )
        return redact_url(ref.url)

    def _make_result(self, coordinator: FetchCoordinator, sha256: str, verified_by: str) -> FetchResult:
        counts, seconds = self._stats, time.monotonic() - self._started_at
        by_source: dict[str, int] = {}
        for standing in self._sources.source_stats:
            by_source[standing.replica.label] = by_source.get(standing.replica.label, 0) + standing.received_bytes
        return FetchResult(
            counts.done_bytes,
            self._last_source_url(coordinator),
            seconds,
            counts.retries,
            sha256,
            counts.stalls,
            counts.wasted_bytes,
            self._n_hedges,
            by_source,
            verified_by,
        )


class _DigestMismatchError(Exception):
    def __init__(self, source: str, expected: Digest, actual: str) -> None:
        super().__init__(f"{source} has the {expected.algorithm} {actual}, but should have {expected.value}")
        self.source, self.expected = source, expected
