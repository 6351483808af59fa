"""Resolve the addresses of a file to replicas, and resolve them again when all replicas fail.

Most addresses have one replica, which is known at once. For a federation the director is queried over the network, by a
thread of its own.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Protocol

from packtrain.backoff import Backoff
from packtrain.errors import FailedError, TransferError
from packtrain.plan import Location
from packtrain.transfer import registry
from packtrain.transfer.api import Replica, SecretResolver
from packtrain.transfer.engine.completion import Completion
from packtrain.transfer.engine.source_stats import SourceSelector
from packtrain.transfer.retry import PERMANENT_KINDS, combine_errors
from packtrain.transfer.tasks.cancellation import time_limit
from packtrain.transfer.urls import is_federated, redact_url

_logger = logging.getLogger("packtrain.transfer.engine")
_RESOLVE_INTERVAL_S = 1.0
_BACKOFF = Backoff(0.25, 15.0)


class ResolverHost(Protocol):
    """The part of the coordinator that the resolver uses."""

    condition: threading.Condition
    sources: SourceSelector
    completion: Completion

    def record_resolve_failure(self) -> None:
        """Check whether the download has failed, because an address could not be resolved."""
        ...

    def retry_ends_at(self) -> float:
        """Return when the retry timeout expires."""
        ...

    def try_ends_at(self, started_at: float) -> float:
        """Return when to abort a request that started at a time."""
        ...


class _Address:
    """One address of the file and the state of its resolution."""

    def __init__(self, location: Location, rank: int) -> None:
        self.location, self.rank = location, rank
        self.is_resolving = self.is_resolved = self.is_refused = False
        self.next_resolve_at, self.failed_at, self.n_failures = float("-inf"), float("-inf"), 0
        self.last_error: TransferError | None = None


class SourceResolver:
    """Adds the replicas of all addresses to the sources of a download."""

    def __init__(self, locations: Sequence[Location], resolve_secret: SecretResolver, host: ResolverHost) -> None:
        self._addresses = [_Address(location, rank) for rank, location in enumerate(locations)]
        self._resolve_secret, self._host = resolve_secret, host

    def poll(self, now: float) -> None:
        """Resolve addresses that are not resolved yet, or none of whose replicas is usable any more."""
        for address in self._addresses:
            if (
                address.is_resolving
                or address.is_refused
                or now < address.next_resolve_at
                or not self._needs_resolving(address, now)
            ):
                continue
            address.is_resolving = True
            if is_federated(address.location.url):
                threading.Thread(target=self._resolve, args=(address,), name="resolve-replicas", daemon=True).start()
            else:
                self._resolve(address)

    def _needs_resolving(self, address: _Address, now: float) -> bool:
        if not address.is_resolved:
            return True
        if not is_federated(address.location.url):
            return False
        return not any(s.is_usable(now) for s in self._host.sources.source_stats if s.rank == address.rank)

    def can_still_resolve(self, retry_ends_at: float) -> bool:
        """Return whether an unresolved address may still be resolved before the retry timeout expires."""
        unresolved = [address for address in self._addresses if not address.is_resolved and not address.is_refused]
        return any(address.is_resolving or address.failed_at < retry_ends_at for address in unresolved)

    def errors(self) -> list[TransferError]:
        """Return the last error of each unresolved address."""
        return [a.last_error for a in self._addresses if a.last_error is not None and not a.is_resolved]

    def _resolve(self, address: _Address) -> None:
        try:
            with time_limit(partial(self._host.try_ends_at, time.monotonic())):
                replicas = registry.find_replicas(address.location, self._resolve_secret)
            if not replicas:
                url = redact_url(address.location.url)
                raise TransferError("object_missing", f"no server has {url}", url)
            self._record_replicas(address, replicas)
        except TransferError as error:
            self._record_failure(address, error)
        except FailedError as error:  # concerns this address only
            self._record_failure(address, TransferError(error.kind, error.detail, redact_url(address.location.url)))
        except BaseException as error:
            self._host.completion.fail(error)

    def _record_replicas(self, address: _Address, replicas: list[Replica]) -> None:
        with self._host.condition:
            address.is_resolved, address.is_resolving = True, False
            address.next_resolve_at = time.monotonic() + _RESOLVE_INTERVAL_S
            self._host.sources.add(address.rank, replicas)
            labels = ", ".join(replica.label for replica in replicas)
            _logger.debug("sources of %s: %s", redact_url(address.location.url), labels)
            self._host.condition.notify_all()

    def _record_failure(self, address: _Address, error: TransferError) -> None:
        with self._host.condition:
            now = time.monotonic()
            address.is_resolving, address.last_error, address.failed_at = False, error, now
            # A director that accepted our token before will accept the renewed one.
            address.is_refused = error.kind in PERMANENT_KINDS and not address.is_resolved
            address.n_failures += 1
            wait_s = max(_BACKOFF.delay_s(address.n_failures), error.retry_after_s or 0.0)
            address.next_resolve_at = now + max(0.0, min(wait_s, self._host.retry_ends_at() - now))
            has_failed = not self._host.sources.source_stats and not self.can_still_resolve(self._host.retry_ends_at())
        if has_failed:
            self._host.completion.fail(combine_errors(self.errors()))
        else:
            self._host.record_resolve_failure()
