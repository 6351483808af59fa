"""The choice of the source for the next request. Pure: the caller passes the time."""

from __future__ import annotations

from collections.abc import Sequence

from packtrain.transfer.api import Replica
from packtrain.transfer.engine.source_stats import SourceStats, expected_speed

_MAX_UNTRIED_CONNECTIONS = 2  # to a source that has sent nothing yet, while others send


class SourceSelector:
    """All sources of one file.

    A source that fails backs off, longer each time. One that refused permanently or has a different object is not used
    again. Fallback sources are used only while all others fail, back off or starve.
    """

    def __init__(self) -> None:
        self.source_stats: list[SourceStats] = []
        self.is_starved = False  # all sources together are almost silent

    def add(self, rank: int, replicas: Sequence[Replica]) -> None:
        """Add the replicas of one address; replicas that are known already keep their statistics.

        Args:
            rank: The position of the address in the workflow.
            replicas: The servers that have the object, the best first.
        """
        known = {(source.rank, source.replica.label, source.replica.location.url) for source in self.source_stats}
        for replica in replicas:
            if (rank, replica.label, replica.location.url) not in known:
                self.source_stats.append(SourceStats(replica, rank, expected_bytes_per_s=expected_speed(replica)))
        self.source_stats.sort(key=lambda source: source.rank)

    def choose(self, now: float) -> SourceStats | None:
        """Return the best usable source, or None."""
        return next(iter(self.rank_usable(now)), None)

    def rank_usable(self, now: float) -> list[SourceStats]:
        """Return the sources that may receive a request now, the best first."""
        usable = [source for source in self.source_stats if source.is_usable(now)]
        usable = [s for s in usable if not s.is_suspect] or usable
        free = [s for s in usable if s.connections < s.allowed_connections]
        free = [s for s in free if self.is_starved or not s.replica.is_fallback] or free
        best = max((s.bytes_per_s for s in free), default=0.0)
        if best:
            free = [s for s in free if s.bytes_per_s or s.connections < _MAX_UNTRIED_CONNECTIONS]
        # Connections are distributed by speed. An untried source counts as the best one, scaled by its expected speed.
        best_expected = max((s.expected_bytes_per_s for s in free), default=0.0)
        assumed = {
            id(s): (best or 1.0) * (s.expected_bytes_per_s / best_expected if s.expected_bytes_per_s else 1.0)
            for s in free
        }
        scores = {id(s): (s.bytes_per_s or assumed[id(s)]) * 0.5**s.n_failures / (s.connections + 1) for s in free}
        return sorted(free, key=lambda s: scores[id(s)], reverse=True)

    def is_only_usable(self, source_stats: SourceStats, now: float) -> bool:
        """Return whether no other source is usable."""
        return not any(other.is_usable(now) for other in self.source_stats if other is not source_stats)

    def reset_different_objects(self) -> None:
        """Allow the sources that had a different object, because the download starts over."""
        for source in self.source_stats:
            source.has_different_object = False

    def bytes_by_label(self) -> dict[str, int]:
        """Return the bytes of blocks received from each server."""
        totals: dict[str, int] = {}
        for source in self.source_stats:
            totals[source.replica.label] = totals.get(source.replica.label, 0) + source.received_bytes
        return totals
