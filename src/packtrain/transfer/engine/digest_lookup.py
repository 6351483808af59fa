"""Asks the servers of a federation, and S3, for the digest of an object that is on its way: they state it when asked.

The best server is asked, and the origin if that does not say; XRootD's caches answer 405. An origin that makes a
digest reads the whole object for it, so all this happens beside the download, and no answer is no error.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from packtrain.errors import FailedError
from packtrain.plan import Digest, Location
from packtrain.transfer.api import Replica
from packtrain.transfer.engine.coordinator import POLL_INTERVAL_S, CancelCheck, FetchCoordinator
from packtrain.transfer.engine.worker import SMALL_OBJECT_BYTES
from packtrain.transfer.http.connection import cancellation_scope
from packtrain.transfer.urls import url_scheme

MAX_DIGEST_WAIT_S = 5.0
_FEDERATION_SCHEMES = ("osdf", "pelican")


class DigestLookup:
    """From `begin` to `end`: `found` gets the digest, once at most, in another thread."""

    def __init__(self, coordinator: FetchCoordinator, on_digest: Callable[[Digest], None]) -> None:
        self._coordinator, self._on_digest = coordinator, on_digest
        self._lock = threading.Lock()
        self._is_cancelled = False
        self._thread = threading.Thread(target=self._run, name="asking", daemon=True)

    def start(self) -> None:
        wish = self._coordinator.request
        if not wish.has_trusted_digest and any(
            _may_provide_digest(ref, wish.remote_file.size) for ref in wish.remote_file.locations
        ):
            self._thread.start()

    def cancel(self) -> None:
        with self._lock:
            self._is_cancelled = True

    def wait(self, check_cancelled: CancelCheck) -> None:
        """For the answer, but not long; none is taken later."""
        until = time.monotonic() + MAX_DIGEST_WAIT_S
        while self._thread.is_alive() and time.monotonic() < until:
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
        """Nobody, if the answers have a digest already, or have no size and so no end that could be foreseen."""
        engine = self._coordinator
        with engine.condition:
            while engine.identity is None and not (
                engine.is_reading_unsized or engine.should_exit() or self._is_cancelled
            ):
                engine.condition.wait(POLL_INTERVAL_S)
            if engine.identity is None or engine.identity.digest is not None:
                return []
            places = [s.replica for s in engine.sources.source_stats if not (s.is_refused or s.has_different_object)]
        return [place for last in (False, True) for place in _first_digest_provider(places, last)]


def _may_provide_digest(location: Location, size: int | None) -> bool:
    """When asked than with the object itself. S3 keeps silent only in answers that carry a part."""
    scheme = url_scheme(location.url)
    return scheme in _FEDERATION_SCHEMES or (scheme == "s3" and (size is None or size > SMALL_OBJECT_BYTES))


class _LookupCancelledError(Exception):
    """Nobody wants to know any more."""


def _first_digest_provider(replicas: list[Replica], is_fallback: bool) -> list[Replica]:
    return [place for place in replicas if place.is_fallback is is_fallback and hasattr(place.source, "fetch_digest")][
        :1
    ]


def _query_digest(replica: Replica) -> Digest | None:
    try:
        found: Digest | None = getattr(replica.source, "fetch_digest")(replica.location)  # noqa: B009 - an ability of some sources
        return found
    except FailedError:
        return None
