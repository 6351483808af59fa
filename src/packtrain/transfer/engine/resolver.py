"""The addresses of an item, and the places that they stand for: asked of the registry, and again when those fail.

For most addresses there is one place, known at once. A federation's director has to be asked over the
network, which happens in a thread of its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Protocol

from packtrain.errors import FailedError, TransferError
from packtrain.plan import Location
from packtrain.transfer import registry
from packtrain.transfer.api import Replica, SecretResolver
from packtrain.transfer.engine.source_stats import SourceSelector
from packtrain.transfer.retry import PERMANENT_KINDS, combine_errors
from packtrain.transfer.urls import redact_url, url_scheme

_FEDERATION_SCHEMES = frozenset({"osdf", "pelican"})
_RESOLVE_INTERVAL_S = 1.0
_MAX_BACKOFF_S = 15.0


class ResolverHost(Protocol):
    condition: threading.Condition
    sources: SourceSelector

    def record_resolve_failure(self) -> None: ...

    def fail(self, error: BaseException) -> None: ...

    def retry_ends_at(self) -> float: ...


class _Address:
    def __init__(self, location: Location, rank: int) -> None:
        self.location, self.rank = location, rank
        self.is_resolving = self.is_resolved = self.is_refused = False
        self.next_resolve_at, self.failed_at, self.backoff_s = float("-inf"), float("-inf"), _RESOLVE_INTERVAL_S / 4
        self.last_error: TransferError | None = None


class SourceResolver:
    def __init__(self, locations: Sequence[Location], resolve_secret: SecretResolver, host: ResolverHost) -> None:
        self._addresses = [_Address(ref, rank) for rank, ref in enumerate(locations)]
        self._resolve_secret, self._host = resolve_secret, host

    def poll(self, now: float) -> None:
        """Ask for what is not known yet, and anew for what no longer works."""
        for lead in self._addresses:
            if (
                lead.is_resolving
                or lead.is_refused
                or now < lead.next_resolve_at
                or not self._needs_resolving(lead, now)
            ):
                continue
            lead.is_resolving = True
            if url_scheme(lead.location.url) in _FEDERATION_SCHEMES:
                threading.Thread(target=self._resolve, args=(lead,), name="locate", daemon=True).start()
            else:
                self._resolve(lead)

    def _needs_resolving(self, address: _Address, now: float) -> bool:
        if not address.is_resolved:
            return True
        if url_scheme(address.location.url) not in _FEDERATION_SCHEMES:
            return False
        return not any(s.is_usable(now) for s in self._host.sources.source_stats if s.rank == address.rank)

    def can_still_resolve(self, retry_ends_at: float) -> bool:
        """Whether some address may still turn out to stand for a place."""
        waiting = [lead for lead in self._addresses if not lead.is_resolved and not lead.is_refused]
        return any(lead.is_resolving or lead.failed_at < retry_ends_at for lead in waiting)

    def errors(self) -> list[TransferError]:
        return [lead.last_error for lead in self._addresses if lead.last_error is not None and not lead.is_resolved]

    def _resolve(self, address: _Address) -> None:
        try:
            places = registry.find_replicas(address.location, self._resolve_secret)
            if not places:
                raise TransferError(
                    "object_missing",
                    f"no server has {redact_url(address.location.url)}",
                    redact_url(address.location.url),
                )
            self._record_replicas(address, places)
        except TransferError as error:
            self._record_failure(address, error)
        except FailedError as error:  # of this address, not of the others
            self._record_failure(address, TransferError(error.kind, error.detail, redact_url(address.location.url)))
        except BaseException as error:
            self._host.fail(error)

    def _record_replicas(self, address: _Address, replicas: list[Replica]) -> None:
        with self._host.condition:
            address.is_resolved, address.is_resolving = True, False
            address.next_resolve_at = time.monotonic() + _RESOLVE_INTERVAL_S
            self._host.sources.add(address.rank, replicas)
            self._host.condition.notify_all()

    def _record_failure(self, address: _Address, error: TransferError) -> None:
        with self._host.condition:
            now = time.monotonic()
            address.is_resolving, address.last_error, address.failed_at = False, error, now
            # Who has let us in before does so again once the token is renewed.
            address.is_refused = error.kind in PERMANENT_KINDS and not address.is_resolved
            wait = max(address.backoff_s, error.retry_after_s or 0.0)
            address.next_resolve_at = now + max(0.0, min(wait, self._host.retry_ends_at() - now))
            address.backoff_s = min(2 * address.backoff_s, _MAX_BACKOFF_S)
            hopeless = not self._host.sources.source_stats and not self.can_still_resolve(self._host.retry_ends_at())
        if hopeless:
            self._host.fail(combine_errors(self.errors()))
        else:
            self._host.record_resolve_failure()
