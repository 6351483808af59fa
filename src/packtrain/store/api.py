"""The protocol of a run store and its row types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from packtrain.events import Event
from packtrain.state.site_history import SiteObservation

JournalCursor = tuple[str, str]  # (run id, path of a journal)


@dataclass(frozen=True)
class RunInfo:
    """One run in the store."""

    run: str
    name: str
    engine: str
    folder: Path
    created_at: float


class StoredEvent(NamedTuple):
    """An event with its row id. Ids increase, so a reader can continue after the last one it has seen."""

    id: int
    received_at: float  # Unix time by the store's clock
    event: Event


@dataclass(frozen=True)
class Lease:
    """The right to supervise a run. `epoch` increases by one with every holder; writes of older ones are rejected."""

    run: str
    epoch: int
    holder: str
    host: str
    pid: int
    expires_at: float
    is_released: bool = False


class Store(Protocol):
    """The operations that a supervisor needs; `SqliteStore` and `MemoryEventStore` implement them."""

    def append(
        self,
        events: Iterable[Event],
        lease: Lease | None = None,
        cursors: Mapping[JournalCursor, int] | None = None,
        progress: Mapping[tuple[str, str], Mapping[str, Any]] | None = None,
    ) -> None:
        """Add new events in one transaction; events that are already stored are ignored.

        Args:
            events: The events to add.
            lease: Raise LeaseLostError unless this is the newest lease of its run.
            cursors: Journal offsets to store in the same transaction; a cursor never moves back.
            progress: Progress snapshots by (run, attempt id); each replaces the previous one.
        """
        ...

    def events(self, run: str, after_id: int = 0, kind: str | None = None) -> Sequence[StoredEvent]:
        """Return the run's events with a row id above `after_id`, optionally of one kind only."""
        ...

    def progress(self, run: str) -> Mapping[str, Mapping[str, Any]]:
        """Return the newest progress snapshots of a run by attempt id."""
        ...

    def add_observations(self, observations: Iterable[SiteObservation]) -> None:
        """Store observations of sites for later runs; an observation with the same key is replaced."""
        ...

    def cursors(self, run: str) -> dict[str, int]: ...

    def acquire_lease(
        self, run: str, holder: str, host: str, pid: int, ttl_s: float, is_alive: Callable[[Lease], bool]
    ) -> Lease:
        """Acquire the lease with a new epoch. Raises UnavailableError while another live holder's lease is valid."""
        ...

    def renew_lease(self, lease: Lease, ttl_s: float) -> None: ...

    def release_lease(self, lease: Lease) -> None: ...
