"""Look up the digest of an object while it is downloaded.

The servers of a federation, and S3, report a digest only on request. The best server is queried, and then the origin,
because XRootD caches answer 405. An origin may have to read the whole object to compute a digest, so the lookup runs in
parallel to the download, and a missing digest is not an error.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from packtrain.errors import FailedError
from packtrain.plan import Digest, Location
from packtrain.transfer.api import Replica
from packtrain.transfer.engine.completion import POLL_INTERVAL_S
from packtrain.transfer.engine.coordinator import FetchCoordinator
from packtrain.transfer.engine.worker import SMALL_OBJECT_BYTES
from packtrain.transfer.tasks.cancellation import CancelCheck, cancellation_scope
from packtrain.transfer.urls import is_federated, url_scheme

MAX_DIGEST_WAIT_S = 5.0


class DigestLookup:
    """Looks up a digest in a thread between `start` and `cancel`, and passes it to `on_digest` at most once."""

    def __init__(self, coordinator: FetchCoordinator, on_digest: Callable[[Digest], None]) -> None:
        self._coordinator, self._on_digest = coordinator, on_digest
        self._lock = threading.Lock()
        self._is_cancelled = False
        self._thread = threading.Thread(target=self._run, name="digest-lookup", daemon=True)

    def start(self) -> None:
        """Start the lookup, unless wrong bytes would be detected anyway or no source may provide a digest."""
        request = self._coordinator.request
        if not request.has_trusted_digest and any(
            _may_provide_digest(location, request.remote_file.size) for location in request.remote_file.locations
        ):
            self._thread.start()

    def cancel(self) -> None:
        """End the lookup; `on_digest` is not called any more."""
        with self._lock:
            self._is_cancelled = True

    def wait(self, check_cancelled: CancelCheck) -> None:
        """Wait for the result up to MAX_DIGEST_WAIT_S, then cancel the lookup."""
        ends_at = time.monotonic() + MAX_DIGEST_WAIT_S
        while self._thread.is_alive() and time.monotonic() < ends_at:
            check_cancelled()
            self._thread.join(POLL_INTERVAL_S)
        self.cancel()

    def _run(self) -> None:
        try:
            with cancellation_scope(self._raise_if_cancelled):
                digest = next(filter(None, map(_query_digest, self._candidate_replicas())), None)
        except _LookupCancelledError:
            return
        with self._lock:
            if digest is not None and not self._is_cancelled:
                self._on_digest(digest)

    def _raise_if_cancelled(self) -> None:
        if self._is_cancelled:
            raise _LookupCancelledError

    def _candidate_replicas(self) -> list[Replica]:
        """Return the servers to query: none if the responses include a digest already, or report no size."""
        coordinator = self._coordinator
        with coordinator.condition:
            while coordinator.identity is None and not (
                coordinator.is_reading_unsized or coordinator.completion.should_exit() or self._is_cancelled
            ):
                coordinator.condition.wait(POLL_INTERVAL_S)
            if coordinator.identity is None or coordinator.identity.digest is not None:
                return []
            sources = coordinator.sources.source_stats
            replicas = [s.replica for s in sources if not (s.is_refused or s.has_different_object)]
        return [replica for is_fallback in (False, True) for replica in _first_provider(replicas, is_fallback)]


def _may_provide_digest(location: Location, size: int | None) -> bool:
    """Return whether a lookup may find a digest that responses lack; S3 omits it only in partial responses."""
    is_s3 = url_scheme(location.url) == "s3"
    return is_federated(location.url) or (is_s3 and (size is None or size > SMALL_OBJECT_BYTES))


class _LookupCancelledError(Exception):
    """The lookup was cancelled."""


def _first_provider(replicas: list[Replica], is_fallback: bool) -> list[Replica]:
    """Return the first replica whose backend can look up digests, in a list, or an empty list."""
    providers = [r for r in replicas if r.is_fallback is is_fallback and hasattr(r.source, "fetch_digest")]
    return providers[:1]


def _query_digest(replica: Replica) -> Digest | None:
    try:
        digest: Digest | None = getattr(replica.source, "fetch_digest")(replica.location)  # noqa: B009 - optional method
        return digest
    except FailedError:
        return None
