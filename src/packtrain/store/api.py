"""What is kept, and the rows that come back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from packtrain.events import Event
from packtrain.state.site_history import SiteObservation

JournalCursor = tuple[str, str]  # a run, and the path of a journal: how far it was read


@dataclass(frozen=True)
class RunInfo:
    run: str
    name: str
    engine: str
    folder: Path
    created_at: float


class StoredEvent(NamedTuple):
    """An event with its place in the store: `id` grows, so a feed goes on where it stopped."""

    id: int
    received_at: float  # the store's clock
    event: Event


@dataclass(frozen=True)
class Lease:
    """The right to act for a run. `epoch` grows by one with every holder; older ones are refused."""

    run: str
    epoch: int
    holder: str
    host: str
    pid: int
    expires_at: float
    is_released: bool = False


class Store(Protocol):
    """What a supervisor needs of a store; `SqliteStore` and `MemoryStore` have it."""

    def append(
        self,
        events: Iterable[Event],
        lease: Lease | None = None,
        cursors: Mapping[JournalCursor, int] | None = None,
        progress: Mapping[tuple[str, str], Mapping[str, Any]] | None = None,
    ) -> None:
        """Add what is new, all or nothing. With a lease: only while it is the newest of its run, else LeaseLostError.
        `cursors` are moved with it, and never back; `glimpses`, by run and decision, replace older ones."""
        ...

    def events(self, run: str, after_id: int = 0, kind: str | None = None) -> Sequence[StoredEvent]:
        """The run's events that came after the row `after`, all or of one kind."""
        ...

    def progress(self, run: str) -> Mapping[str, Mapping[str, Any]]:
        """How far the running attempts are, by decision."""
        ...

    def add_observations(self, observations: Iterable[SiteObservation]) -> None:
        """Keep how attempts fared at places, for the runs that follow; the same one again replaces it."""
        ...

    def cursors(self, run: str) -> dict[str, int]: ...

    def acquire_lease(
        self, run: str, holder: str, host: str, pid: int, ttl_s: float, is_alive: Callable[[Lease], bool]
    ) -> Lease:
        """Take the lease with a new epoch; RefusedError while another holder lives and its lease has not run out."""
        ...

    def renew_lease(self, lease: Lease, ttl_s: float) -> None: ...

    def release_lease(self, lease: Lease) -> None: ...
